"""IDDL: atoms, a divergence for each, and a head on the divergences, learned together."""

from divlearn.iddl.classifier import IDDLClassifier
from divlearn.iddl.regressor import IDDLRegressor
from divlearn.iddl.transformer import IDDLTransformer

__all__ = ["IDDLClassifier", "IDDLRegressor", "IDDLTransformer"]
