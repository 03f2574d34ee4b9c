"""Classifiers and regressors of tangent vectors of SPD matrices."""

from divlearn.tangent.classifier import TangentClassifier
from divlearn.tangent.regressor import TangentRegressor

__all__ = ["TangentClassifier", "TangentRegressor"]
