"""How sure accuracies are: of one classifier, and of two on the same matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

__all__ = ["PairedComparison", "compare_paired", "share_error"]


def share_error(share: Any, count: int) -> Any:
    """Binomial standard error of a share, or of an array of them, of so many matrices.

    Examples
    --------
    >>> float(share_error(0.5, 100))
    0.05
    """
    return np.sqrt(share * (1 - share) / count)


@dataclass(frozen=True)
class PairedComparison:
    r"""How the answers of two classifiers to the same matrices compare.

    Attributes
    ----------
    first_only, second_only : int, matrices that only the first (the second) one gets right.
    difference : float, accuracy of the first minus accuracy of the second.
    standard_error : float, of the difference; it knows that the matrices are the same.
    p_value : float, exact two-sided McNemar test: of the matrices on which the two disagree, half
        would go to either side by chance.
    """

    first_only: int
    second_only: int
    difference: float
    standard_error: float
    p_value: float


def compare_paired(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> PairedComparison:
    """Compare two classifiers.

    Parameters
    ----------
    first, second : ndarray of bool, shape (n_matrices,), whether each is right.

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
    only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
    disagree, n = only_first + only_second, len(first)
    difference = (only_first - only_second) / n
    return PairedComparison(
        first_only=only_first,
        second_only=only_second,
        difference=difference,
        standard_error=float(np.sqrt((disagree / n - difference**2) / n)),
        p_value=min(1.0, 2 * float(bdtr(min(only_first, only_second), disagree, 0.5))),
    )
