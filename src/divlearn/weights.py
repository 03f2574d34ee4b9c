"""Weights of matrices: checks, normalization, and weighted moments, also block by block."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import RealArray, as_real

Sum = tuple[float, float]  # the largest weight, and the sum of all in units of it
Unit = tuple[float, float]  # the largest weight, and the mean of all > 0 in units of it

_LEAST = np.finfo(np.float64).tiny


class Moments(NamedTuple):
    """Sum of weights, weighted means of columns, and weighted sums of squares around these."""

    weight: float
    mean: RealArray
    squares: RealArray


def check_weights(sample_weight: ArrayLike | None, n_matrices: int) -> RealArray:
    """Return the weights of all matrices: finite and >= 0, those > 0 with a mean of one."""
    if sample_weight is None:
        return np.ones(n_matrices)
    return normalize_weights(as_weights(sample_weight, n_matrices))


def normalize_weights(weights: RealArray) -> RealArray:
    """Divide weights by their mean, so that only their ratios matter."""
    return divide_weights(
        weights, mean_weight([add_weights(weights)], int(np.count_nonzero(weights)))
    )


def add_weights(weights: RealArray) -> Sum:
    """Sum weights in units of the largest: no overflow, and no rounding if they are equal."""
    largest = float(weights.max(initial=0.0))
    return largest, float((weights / largest).sum()) if 0 < largest < np.inf else 1.0


def mean_weight(sums: Sequence[Sum], n_positive: int) -> Unit:
    """Return the mean of weights > 0 from the sums of blocks and their number."""
    check_total_weight([largest * total for largest, total in sums])
    largest = max(unit for unit, _ in sums)
    return largest, sum(unit / largest * total for unit, total in sums) / n_positive


def divide_weights(weights: RealArray, unit: Unit) -> RealArray:
    """Divide weights by a unit; weights > 0 do not underflow to zero."""
    scaled = weights / unit[0] / unit[1]
    return np.where(weights > 0, np.maximum(scaled, _LEAST), 0.0)


def as_weights(sample_weight: ArrayLike | None, n_matrices: int) -> RealArray:
    """Check the weights of a block of matrices, which may all be zero."""
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


def column_moments(values: RealArray, weights: RealArray) -> Moments:
    """Weight, means, and weighted sums of squares around these, of the columns of values."""
    weight = float(weights.sum())
    if weight == 0:
        return Moments(0.0, np.zeros(values.shape[1]), np.zeros(values.shape[1]))
    mean = weights @ values / weight
    return Moments(weight, mean, weights @ (values - mean) ** 2)


def merge_moments(first: Moments, second: Moments) -> Moments:
    """Moments of the union, without the cancellation of sums of squares."""
    weight = first.weight + second.weight
    if weight == 0:
        return first
    difference, share = second.mean - first.mean, second.weight / weight
    squares = first.squares + second.squares + first.weight * share * difference**2
    return Moments(weight, first.mean + share * difference, squares)
