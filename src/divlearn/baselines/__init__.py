"""Methods the paper compares with: LEML, RSPDL, coding with kernels, log-Euclidean SVM."""

from typing import NoReturn

from divlearn.baselines.kernel_coding import KernelLLC, KernelSparseCoding
from divlearn.baselines.leml import LEML
from divlearn.baselines.log_svm import LogEuclideanSVM
from divlearn.baselines.rspdl import RSPDL

__all__ = ["LEML", "RSPDL", "KernelLLC", "KernelSparseCoding", "LogEuclideanSVM"]

_MOVED = ("DivergenceKNN", "DivergenceMDM")


def __getattr__(name: str) -> NoReturn:
    if name in _MOVED:  # until 0.2
        raise ImportError(f"{name} is now in divlearn.nearest; write from divlearn import {name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
