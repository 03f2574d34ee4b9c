"""Densities exp(-kappa D) / Z: learning (alpha, beta) without labels."""

from divlearn.likelihood.fit import LikelihoodFit, fit_likelihood, fit_member, log_density
from divlearn.likelihood.normalizer import Normalizer, differentiate_normalizer, log_normalizer
from divlearn.likelihood.sampling import sample_family

__all__ = [
    "LikelihoodFit", "Normalizer", "differentiate_normalizer", "fit_likelihood", "fit_member",
    "log_density", "log_normalizer", "sample_family",
]  # fmt: skip
