"""IDDL: atoms, a divergence for each, and a head on the divergences, learned together."""

from divlearn.heads.losses import Expansion, HingeLoss, Loss, RidgeLoss, SoftmaxLoss
from divlearn.iddl.base import Recipe
from divlearn.iddl.estimators import IDDLClassifier, IDDLRegressor
from divlearn.iddl.training import Model
from divlearn.iddl.transformer import IDDLTransformer

__all__ = [
    "Expansion",
    "HingeLoss",
    "IDDLClassifier",
    "IDDLRegressor",
    "IDDLTransformer",
    "Loss",
    "Model",
    "Recipe",
    "RidgeLoss",
    "SoftmaxLoss",
]
