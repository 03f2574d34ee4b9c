"""IDDL: atoms, a divergence for each, and a head on the divergences, learned together."""

from divlearn.iddl.classifier import IDDLClassifier

__all__ = ["IDDLClassifier"]
