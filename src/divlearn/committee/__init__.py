"""A committee of classifiers for SPD matrices, weighed by data held out."""

from divlearn.committee.classifier import MEMBERS, SPDClassifier

__all__ = ["MEMBERS", "SPDClassifier"]
