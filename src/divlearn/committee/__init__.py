"""Committees of classifiers and regressors of SPD matrices, weighted by held-out likelihood."""

from divlearn.committee.calibrated import CalibratedClassifier
from divlearn.committee.classifier import MEMBERS, SPDClassifier
from divlearn.committee.cross_validated import CrossValidatedRegressor
from divlearn.committee.regressor import REGRESSORS, SPDRegressor

__all__ = [
    "MEMBERS",
    "REGRESSORS",
    "CalibratedClassifier",
    "CrossValidatedRegressor",
    "SPDClassifier",
    "SPDRegressor",
]
