"""How sure accuracies are: of one classifier, and of two on the same matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from divlearn.arrays import RealArray

__all__ = ["PairedComparison", "compare_paired", "share_error", "share_error_of"]

_Groups = NDArray[np.intp] | None


def share_error(share: Any, count: int) -> Any:
    """Binomial standard error of a share, or of an array of them, of so many matrices.

    Examples
    --------
    >>> float(share_error(0.5, 100))
    0.05
    """
    return np.sqrt(share * (1 - share) / count)


def share_error_of(flags: NDArray[np.bool_], groups: _Groups = None) -> float:
    """Compute the standard error of the share that is true: binomial, unless there are groups.

    Parameters
    ----------
    flags : ndarray of bool, shape (n_matrices,)
    groups : ndarray of int, shape (n_matrices,), optional
        Numbers from 0. Only groups are independent, and count as a whole.

    Examples
    --------
    >>> flags = np.arange(100) % 2 == 0
    >>> share_error_of(flags), share_error_of(flags, np.argsort(np.argsort(~flags)) // 10)
    (0.05, 0.158...)
    """
    return _error(flags.astype(float), groups)


def _error(values: RealArray, groups: _Groups) -> float:
    """Compute the standard error of a mean, of groups that are independent."""
    sums = _sum(values - values.mean(), groups)
    return float(np.sqrt(sums @ sums)) / len(values)


def _sum(values: RealArray, groups: _Groups) -> RealArray:
    return values if groups is None else np.bincount(groups, values).astype(float)


@dataclass(frozen=True)
class PairedComparison:
    r"""How the answers of two classifiers to the same matrices compare.

    Attributes
    ----------
    first_only, second_only : int, matrices that only the first (the second) one gets right.
    difference : float, accuracy of the first minus accuracy of the second.
    standard_error : float, of the difference; it knows that the matrices are the same.
    p_value : float, exact two-sided McNemar test: of the matrices on which the two disagree, half
        would go to either side by chance; of groups likewise, each for the one that gets more of it
        right.
    """

    first_only: int
    second_only: int
    difference: float
    standard_error: float
    p_value: float


def compare_paired(
    first: NDArray[np.bool_], second: NDArray[np.bool_], groups: _Groups = None
) -> PairedComparison:
    """Compare two classifiers.

    Parameters
    ----------
    first, second : ndarray of bool, shape (n_matrices,), whether each is right.
    groups : as in `share_error_of`

    Returns
    -------
    PairedComparison

    Examples
    --------
    >>> first, second = np.ones(20, dtype=bool), np.arange(20) >= 6
    >>> paired = compare_paired(first, second)
    >>> paired.first_only, paired.difference, paired.p_value
    (6, 0.3, 0.03125)
    """
    gains = first.astype(float) - second
    ahead = _sum(gains, groups)
    for_first, for_second = int((ahead > 0).sum()), int((ahead < 0).sum())
    return PairedComparison(
        first_only=int((first & ~second).sum()),
        second_only=int((second & ~first).sum()),
        difference=float(gains.mean()),
        standard_error=_error(gains, groups),
        p_value=min(1.0, 2 * float(bdtr(min(for_first, for_second), for_first + for_second, 0.5))),
    )
