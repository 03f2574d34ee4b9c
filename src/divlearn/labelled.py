"""What estimators of SPD matrices share: labelled input, checked once, and their tags."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import assert_all_finite, compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, column_or_1d

from divlearn.arrays import RealArray
from divlearn.checks import check_sortable
from divlearn.spd import check_spd

__all__ = [
    "Labelled", "MatricesMixin", "all_or_nothing", "check_groups", "check_labelled", "count_groups",
    "limit_folds",
]  # fmt: skip

_Fit = TypeVar("_Fit", bound=Callable[..., Any])


def all_or_nothing(fit: _Fit) -> _Fit:
    """Make a method that fits leave the estimator as it was where it fails.

    What was learned before goes on to answer as before, in whole: never with the new names of old
    classes, for example.

    Examples
    --------
    >>> class Model:
    ...     @all_or_nothing
    ...     def fit(self, X):
    ...         self.n_features_in_ = len(X)
    ...         raise ValueError("it does not converge")
    >>> model = Model()
    >>> model.fit([1, 2])
    Traceback (most recent call last):
    ValueError: it does not converge
    >>> vars(model)
    {}
    """

    @wraps(fit)
    def whole(self: Any, *given: Any, **named: Any) -> Any:
        before = dict(vars(self))
        try:
            return fit(self, *given, **named)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return cast(_Fit, whole)


class MatricesMixin:
    """Tags of estimators whose input are matrices, shape (n_matrices, d, d)."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags


@dataclass(frozen=True, eq=False)
class Labelled:
    """Matrices of two classes at least; those of weight zero, which are no samples, left out.

    Attributes
    ----------
    matrices : ndarray, shape (n_matrices, d, d)
    codes : ndarray of int, shape (n_matrices,), indices of classes.
    classes : ndarray
    weights : ndarray, shape (n_matrices,)
    kept : ndarray of int, which of the given matrices these are.
    n_given : int
    """

    matrices: RealArray
    codes: NDArray[np.intp]
    classes: NDArray[Any]
    weights: RealArray
    kept: NDArray[np.intp]
    n_given: int

    def choose(self, values: ArrayLike | None) -> NDArray[Any] | None:
        """Choose the groups of the kept matrices from those of all given ones."""
        known = check_groups(values, self.n_given)
        return None if known is None else known[self.kept]

    def spread(self, rows: NDArray[np.intp], values: RealArray) -> RealArray:
        """Values of some matrices among those given; NaN for the others."""
        result = np.full((self.n_given, *values.shape[1:]), np.nan)
        result[self.kept[rows]] = values
        return result


def check_groups(groups: ArrayLike | None, n_matrices: int) -> NDArray[Any] | None:
    """Check groups, if there are any.

    Examples
    --------
    >>> check_groups(["a", "a", "b"], 2)
    Traceback (most recent call last):
    ValueError: groups has 3 entries, must have one for each of the 2 matrices
    """
    if groups is None:
        return None
    known: NDArray[Any] = column_or_1d(groups)
    check_sortable(known, "groups")
    if len(known) != n_matrices:
        raise ValueError(
            f"groups has {len(known)} entries, must have one for each of the {n_matrices} matrices"
        )
    return known


def count_groups(codes: NDArray[np.intp], groups: NDArray[Any] | None) -> NDArray[np.intp]:
    """Count the groups of every class, or its matrices where there are none.

    Examples
    --------
    >>> count_groups(np.array([0, 0, 0, 1, 1]), np.array(["p", "p", "q", "q", "q"]))
    array([2, 1])
    """
    if groups is None:
        return np.bincount(codes)
    numbers = np.unique(groups, return_inverse=True)[1]
    return np.bincount(np.unique(np.column_stack([codes, numbers]), axis=0)[:, 0])


def limit_folds(n_splits: int, groups: NDArray[Any]) -> int:
    """Return how many folds groups can make: no more than there are of them.

    Examples
    --------
    >>> limit_folds(5, np.array(["p", "p", "q", "r"]))
    3
    """
    n_groups = len(np.unique(groups))
    if n_groups < 2:
        raise ValueError("groups has 1 group, must have >= 2 to make folds of them")
    return min(n_splits, n_groups)


def check_labelled(
    X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, class_weight: Any
) -> Labelled:
    """Check matrices, labels and weights.

    Parameters
    ----------
    X : array-like, shape (n_matrices, d, d)
    y : array-like, shape (n_matrices,)
    sample_weight : array-like, shape (n_matrices,), or None
    class_weight : dict, "balanced" or None
        Multiplies the weights.

    Examples
    --------
    >>> check_labelled(np.stack([np.eye(2)] * 3), ["a", "b", "a"], [1, 1, 0], None).codes
    array([0, 1])
    """
    matrices = check_spd(X, ndim=3, dtype=np.float64)
    labels: NDArray[Any] = column_or_1d(y, warn=True)
    assert_all_finite(labels, input_name="y")
    check_sortable(labels, "y")
    check_consistent_length(matrices, labels)
    check_classification_targets(labels)
    weights = _check_sample_weight(sample_weight, matrices, ensure_non_negative=True)
    if not weights.any():
        raise ValueError("sample_weight is zero everywhere, must be > 0 for some matrices")
    seen = np.flatnonzero(weights)  # "balanced" is about these
    weights = weights[seen] * compute_sample_weight(class_weight, labels[seen])
    if (weights < 0).any():
        raise ValueError(f"class_weight={class_weight!r} must be >= 0 for every class")
    kept = seen[weights > 0]
    classes, codes = np.unique(labels[kept], return_inverse=True)
    if len(classes) < 2:
        held = f"the one class {classes[0]!s}" if len(classes) else "no class"
        raise ValueError(f"y holds {held}, must hold >= 2; pass data of more")
    return Labelled(matrices[kept], codes, classes, weights[weights > 0], kept, len(matrices))
