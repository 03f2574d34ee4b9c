"""Methods to compare with, those of the paper's tables among them."""

from divlearn.baselines.kernel_coding import KernelLLC, KernelSparseCoding
from divlearn.baselines.leml import LEML
from divlearn.baselines.log_svm import LogEuclideanSVM
from divlearn.baselines.mean_distance import DivergenceMDM
from divlearn.baselines.neighbors import DivergenceKNN
from divlearn.baselines.rspdl import RSPDL

__all__ = [
    "LEML",
    "RSPDL",
    "DivergenceKNN",
    "DivergenceMDM",
    "KernelLLC",
    "KernelSparseCoding",
    "LogEuclideanSVM",
]
