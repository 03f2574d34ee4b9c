"""Classification of SPD matrices by the nearest class mean and the nearest neighbours."""

from divlearn.nearest.mean_distance import DivergenceMDM
from divlearn.nearest.neighbors import DivergenceKNN, NearestClassifier

__all__ = ["DivergenceKNN", "DivergenceMDM", "NearestClassifier"]
