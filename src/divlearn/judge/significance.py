"""Significance of accuracies: of one classifier against chance, and of two on the same matrices."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.signal import convolve
from scipy.special import bdtrc, stdtr
from scipy.stats import binom

from divlearn.arrays import Indices, RealArray

SIGNIFICANT = 0.05  # p-values below it count as significant in summaries

_Groups = Indices | None


def p_above(flags: NDArray[np.bool_], level: float, groups: _Groups = None) -> float:
    """One-sided p-value of a share of true flags above a level: binomial, or t over groups."""
    if groups is None:
        return float(bdtrc(int(flags.sum()) - 1, len(flags), level))
    n_groups = len(np.unique(groups))
    excess, error = float(flags.mean()) - level, standard_error(flags, groups)
    p = float(excess <= 0) if error == 0 else float(stdtr(n_groups - 1, -excess / error))
    # All groups are right with this probability when each is right or wrong as a whole: with few
    # groups a t-test would claim more.
    return p if excess <= 0 else max(p, level**n_groups)


def standard_error(values: NDArray[Any], groups: _Groups = None) -> float:
    """Of a mean over matrices, of which only those of different groups are independent."""
    sums = _sum(values - values.mean(), groups)
    error = float(np.sqrt(sums @ sums)) / len(values)
    if groups is None:
        return error
    n_groups = len(np.unique(groups))
    return error * float(np.sqrt(n_groups / max(n_groups - 1, 1)))


def _sum(values: RealArray, groups: _Groups) -> RealArray:
    return values if groups is None else np.bincount(groups, values).astype(float)


@dataclass(frozen=True)
class PairedComparison:
    """Paired comparison of two classifiers on the same matrices.

    Attributes
    ----------
    first_only, second_only : int, matrices that only the first (the second) one gets right.
    difference : float, accuracy of the first minus accuracy of the second.
    standard_error : float, of the paired difference.
    p_value : float, of the exact two-sided sign-flip test over matrices (McNemar's test), or over
        groups.
    """

    first_only: int
    second_only: int
    difference: float
    standard_error: float
    p_value: float


def compare_paired(
    first: NDArray[np.bool_], second: NDArray[np.bool_], groups: _Groups = None
) -> PairedComparison:
    """Compare two classifiers by whether each is right, shape (n_matrices,)."""
    gains = first.astype(float) - second
    return PairedComparison(
        int((first & ~second).sum()), int((second & ~first).sum()), float(gains.mean()),
        standard_error(gains, groups), _flip_signs(_sum(gains, groups).astype(int)),
    )  # fmt: skip


def _flip_signs(gains: NDArray[Any]) -> float:
    """Probability of a sum at least as far from zero as that of the gains, under random signs."""
    # The sum is the difference between the positive and the negative part; either part is a sum of
    # binomial variables, one for each size of a gain.
    sizes, counts = np.unique(np.abs(gains[gains != 0]), return_counts=True)
    total = int(sizes @ counts)
    chances = np.ones(1)
    for size, count in zip(sizes, counts, strict=True):
        steps = np.zeros(size * count + 1)
        steps[::size] = binom.pmf(np.arange(count + 1), count, 0.5)
        chances = convolve(chances, steps)
    one_side = np.arange(total + 1)
    far = np.abs(2 * one_side - total) >= abs(int(gains.sum()))
    return min(1.0, float(chances[far].sum()))
