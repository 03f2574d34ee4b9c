"""Kernels exp(-s D) of divergences: for support vector machines, Gaussian processes, clustering."""

from divlearn.kernels.classifier import POINTS, DivergenceKernelClassifier
from divlearn.kernels.definiteness import Definiteness
from divlearn.kernels.kernel import DivergenceKernel, DivergenceProcessKernel
from divlearn.kernels.regressor import DivergenceKernelRegressor

__all__ = [
    "POINTS",
    "Definiteness",
    "DivergenceKernel",
    "DivergenceKernelClassifier",
    "DivergenceKernelRegressor",
    "DivergenceProcessKernel",
]
