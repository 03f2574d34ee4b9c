"""Methods to compare with: every one of the paper's tables."""

from divlearn.baselines.leml import LEML
from divlearn.baselines.locality import KernelLLC
from divlearn.baselines.log_svm import LogEuclideanSVM
from divlearn.baselines.mean_distance import DivergenceMDM
from divlearn.baselines.neighbors import DivergenceKNN
from divlearn.baselines.rspdl import RSPDL
from divlearn.baselines.sparse_coding import KernelSparseCoding

__all__ = [
    "LEML", "RSPDL", "DivergenceKNN", "DivergenceMDM", "KernelLLC", "KernelSparseCoding",
    "LogEuclideanSVM",
]  # fmt: skip
