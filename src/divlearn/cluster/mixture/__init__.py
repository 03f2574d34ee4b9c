"""Mixtures of the densities exp(-kappa D) / Z."""

from divlearn.cluster.mixture.estimator import ABMixture

__all__ = ["ABMixture"]
