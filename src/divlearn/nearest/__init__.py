"""Prediction from SPD matrices by the nearest class mean and the nearest neighbours."""

from divlearn.nearest.mean_distance import DivergenceMDM
from divlearn.nearest.neighbors import DivergenceKNN, NearestClassifier
from divlearn.nearest.regressor import NearestRegressor

__all__ = ["DivergenceKNN", "DivergenceMDM", "NearestClassifier", "NearestRegressor"]
