"""Kernels of divergences: exp(-s D) for support vector machines, Gaussian processes and clustering.

What is known about which of them are positive definite is in `divlearn.kernels.definiteness`.
"""

from divlearn.kernels.classifier import POINTS, DivergenceKernelClassifier
from divlearn.kernels.definiteness import Definiteness
from divlearn.kernels.kernel import DivergenceKernel, DivergenceProcessKernel

__all__ = [
    "POINTS", "Definiteness", "DivergenceKernel", "DivergenceKernelClassifier",
    "DivergenceProcessKernel",
]  # fmt: skip
