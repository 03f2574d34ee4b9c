"""Densities exp(-kappa D) / Z: learning (alpha, beta) without labels."""

from divlearn.likelihood.fit import LikelihoodFit, fit_likelihood, fit_member, log_density
from divlearn.likelihood.normalizer import log_normalizer
from divlearn.likelihood.sampling import sample_family

__all__ = [
    "LikelihoodFit",
    "fit_likelihood",
    "fit_member",
    "log_density",
    "log_normalizer",
    "sample_family",
]
