"""A committee of classifiers for SPD matrices, weighted by the likelihood of held-out labels."""

from divlearn.committee.calibrated import CalibratedClassifier
from divlearn.committee.classifier import MEMBERS, SPDClassifier

__all__ = ["MEMBERS", "CalibratedClassifier", "SPDClassifier"]
