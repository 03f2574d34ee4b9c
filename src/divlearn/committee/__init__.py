"""Committees of classifiers and regressors of SPD matrices, weighted by held-out likelihood."""

from divlearn.committee.classifier import MEMBERS, SPDClassifier
from divlearn.committee.regressor import REGRESSORS, SPDRegressor
from divlearn.committee.wrapped import CalibratedClassifier, CrossValidatedRegressor

__all__ = [
    "MEMBERS",
    "REGRESSORS",
    "CalibratedClassifier",
    "CrossValidatedRegressor",
    "SPDClassifier",
    "SPDRegressor",
]
