"""Densities exp(-kappa D) / Z: learning (alpha, beta) without labels."""

from divlearn.likelihood.fit import LikelihoodFit, fit_likelihood, fit_member, log_density
from divlearn.likelihood.normalizer import Normalizer, differentiate_normalizer, log_normalizer

__all__ = [
    "LikelihoodFit", "Normalizer", "differentiate_normalizer", "fit_likelihood", "fit_member",
    "log_density", "log_normalizer",
]  # fmt: skip
