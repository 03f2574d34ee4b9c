"""Weights of matrices: one check and one unit, wherever the matrices are."""

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import RealArray, as_real

_LEAST = np.finfo(np.float64).tiny


def check_weights(sample_weight: ArrayLike | None, n_matrices: int) -> RealArray:
    """Return the weights of all matrices: finite and >= 0, those > 0 with a mean of one."""
    return normalize_weights(as_weights(sample_weight, n_matrices))


def normalize_weights(weights: RealArray) -> RealArray:
    """Divide weights by their mean, so that only their ratios matter."""
    with np.errstate(over="ignore"):
        total = float(weights.sum())
    return divide_weights(weights, mean_weight(total, int(np.count_nonzero(weights))))


def mean_weight(total: float, n_seen: int) -> float:
    """Return the mean of weights > 0 from their sum and number."""
    check_total_weight(total)
    return total / n_seen


def divide_weights(weights: RealArray, unit: float) -> RealArray:
    # What has a weight keeps one, however small it is beside the others.
    return np.where(weights > 0, np.maximum(weights / unit, _LEAST), 0.0)


def as_weights(sample_weight: ArrayLike | None, n_matrices: int) -> RealArray:
    """Return the weights of a block of matrices, all of which may be zero."""
    name = "sample_weight"
    weights = as_real(1 if sample_weight is None else sample_weight, name)
    if weights.ndim == 0:
        weights = np.full(n_matrices, weights)
    if weights.shape != (n_matrices,):
        raise ValueError(
            f"{name} has shape {weights.shape}, but must have ({n_matrices},): one weight per "
            "matrix"
        )
    negative = np.flatnonzero(weights < 0)
    if len(negative):
        raise ValueError(f"{name}[{negative[0]}] = {weights[negative[0]]} must be >= 0")
    return weights


def check_total_weight(weights: ArrayLike) -> None:
    with np.errstate(over="ignore"):
        total = np.sum(weights)
    if total == 0:
        raise ValueError("sample_weight is zero everywhere, must hold at least one non-zero number")
    if not np.isfinite(total):
        raise ValueError(
            f"weights have the sum {total}, which must be finite; divide sample_weight and "
            "class_weight by their largest"
        )
