"""IDDL: atoms, a divergence for each, and a head on the divergences, learned together."""

from divlearn.heads.losses import Expansion, HingeLoss, Loss, RidgeLoss, SoftmaxLoss
from divlearn.iddl.classifier import IDDLClassifier
from divlearn.iddl.recipe import Recipe
from divlearn.iddl.regressor import IDDLRegressor
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
