"""Classifiers of tangent vectors of SPD matrices."""

from divlearn.tangent.classifier import TangentClassifier

__all__ = ["TangentClassifier"]
