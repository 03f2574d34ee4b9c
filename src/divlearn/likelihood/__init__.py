"""Densities exp(-kappa D) / Z: learning (alpha, beta) without labels."""

from divlearn.likelihood.fit import (
    LikelihoodFit,
    fit_likelihood,
    fit_member,
    log_density,
    sample_family,
)
from divlearn.likelihood.normalizer import log_normalizer

__all__ = [
    "LikelihoodFit",
    "fit_likelihood",
    "fit_member",
    "log_density",
    "log_normalizer",
    "sample_family",
]
