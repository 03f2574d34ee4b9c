"""Densities exp(-kappa D) / Z: learning (alpha, beta) without labels."""

from divlearn.likelihood.fit import LikelihoodFit, fit_likelihood, fit_member, log_density
from divlearn.likelihood.members import NAMED_MEMBERS, Members, get_members
from divlearn.likelihood.normalizer import Normalizer, differentiate_normalizer, log_normalizer
from divlearn.likelihood.parameters import FamilyParameters, Spectra, fit_parameters
from divlearn.likelihood.sampling import sample_family

__all__ = [
    "NAMED_MEMBERS", "FamilyParameters", "LikelihoodFit", "Members", "Normalizer", "Spectra",
    "differentiate_normalizer", "fit_likelihood", "fit_member", "fit_parameters", "get_members",
    "log_density", "log_normalizer", "sample_family",
]  # fmt: skip
