"""What the kernel estimators require of their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, column_or_1d

from divlearn.arrays import RealArray, as_real
from divlearn.checks import check_sortable
from divlearn.kernels.tables import Point, symmetric_point

__all__ = [
    "check_alike", "check_axis", "check_classes", "check_labels", "check_memory", "check_points",
    "check_scale", "check_size",
]  # fmt: skip

_LARGEST_TABLE = 2**31  # bytes


def check_scale(scale: Any) -> None:
    """Raise unless a scale is "median" or a finite number > 0.

    Examples
    --------
    >>> check_scale(0)
    Traceback (most recent call last):
    ValueError: scale=0 must be "median" or a finite number > 0
    """
    if isinstance(scale, str) and scale == "median":
        return
    number = isinstance(scale, float | int | np.number) and not isinstance(scale, bool)
    if not number or not 0 < float(scale) < np.inf:
        raise ValueError(f'scale={scale!r} must be "median" or a finite number > 0')


def check_axis(values: ArrayLike, name: str, *, positive: bool = False) -> list[float]:
    """Return the values of one parameter of a grid.

    Examples
    --------
    >>> check_axis([1, 10], "Cs", positive=True)
    [1.0, 10.0]
    >>> check_axis([0, 1], "Cs", positive=True)
    Traceback (most recent call last):
    ValueError: Cs=[0.0, 1.0] must be > 0
    """
    axis = as_real(values, name)
    if axis.ndim != 1 or axis.size == 0:
        raise ValueError(f"{name} has shape {axis.shape}, but must have shape (n,) with n >= 1")
    if positive and axis.min() <= 0:
        raise ValueError(f"{name}={axis.tolist()} must be > 0")
    return [float(value) for value in axis]


def check_points(
    alphas: ArrayLike | None, betas: ArrayLike | None, default: Sequence[Point]
) -> list[Point]:
    """Return the points of a grid, each once: after symmetrising (alpha, beta) is (beta, alpha).

    Examples
    --------
    >>> check_points([0, 1], [0, 1], [])
    [(0.0, 0.0), (0.0, 1.0), (1.0, 1.0)]
    """
    if alphas is None and betas is None:
        return list(default)
    if alphas is None or betas is None:
        given, missing = ("alphas", "betas") if betas is None else ("betas", "alphas")
        raise ValueError(f"{given} is given, but {missing} is not; pass both, or neither")
    pairs = product(check_axis(alphas, "alphas"), check_axis(betas, "betas"))
    return list(dict.fromkeys(symmetric_point(*pair) for pair in pairs))


def check_labels(y: ArrayLike, n_matrices: int) -> NDArray[Any]:
    """Return labels, one for every matrix.

    Examples
    --------
    >>> check_labels(["a", "b"], 3)
    Traceback (most recent call last):
    ValueError: y has 2 labels, but X has 3 matrices; pass one label per matrix
    """
    if y is None:
        raise ValueError(
            "a classifier requires y to be passed, but the target y is None; pass one label per "
            "matrix"
        )
    labels: NDArray[Any] = column_or_1d(y, warn=True)
    assert_all_finite(labels, input_name="y")
    check_sortable(labels, "y")
    check_classification_targets(labels)
    if len(labels) != n_matrices:
        raise ValueError(
            f"y has {len(labels)} labels, but X has {n_matrices} matrices; pass one label per "
            "matrix"
        )
    return labels


def check_classes(labels: NDArray[Any]) -> NDArray[Any]:
    """Return the classes; at least two, of two matrices each.

    Examples
    --------
    >>> check_classes(np.array(["a", "a", "b"]))
    Traceback (most recent call last):
    ValueError: class b has 1 matrix, but every class must have >= 2: left out of a fold, it would
    be unknown to the others; drop it or pass more matrices of it
    """
    classes, counts = np.unique(labels, return_counts=True)
    if len(classes) < 2:
        named = f" ({classes[0]!s})" if len(classes) else ""
        raise ValueError(
            f"y has {len(classes)} class{named} with a weight > 0, but n_classes must be >= 2; "
            "pass matrices of more classes"
        )
    if counts.min() < 2:
        raise ValueError(
            f"class {classes[counts.argmin()]!s} has 1 matrix, but every class must have >= 2: "
            "left out of a fold, it would be unknown to the others; drop it or pass more matrices "
            "of it"
        )
    return classes


def check_memory(n_matrices: int, n_points: int) -> None:
    """Raise where the divergences of all pairs at all points would take more than 2 GiB.

    Examples
    --------
    >>> check_memory(20_000, 6)
    Traceback (most recent call last):
    ValueError: n_matrices=20000 with 6 divergences (alpha, beta) need 17.9 GiB for a table of all
    pairs, but must need <= 2 GiB; fit on a random subset, or pass fewer alphas and betas
    """
    needed = 8 * n_matrices**2 * n_points
    if needed > _LARGEST_TABLE:
        raise ValueError(
            f"n_matrices={n_matrices} with {n_points} divergences (alpha, beta) need "
            f"{needed / 2**30:.1f} GiB for a table of all pairs, but must need <= "
            f"{_LARGEST_TABLE / 2**30:g} GiB; fit on a random subset, or pass fewer alphas and "
            "betas"
        )


def check_alike(X: RealArray, Y: RealArray) -> None:
    """Raise unless two sets hold matrices of one size."""
    d, other = X.shape[-1], Y.shape[-1]
    if d != other:
        raise ValueError(
            f"X is {d} by {d}, but Y is {other} by {other}; both must have the same dimension"
        )


def check_size(estimator: Any, matrices: RealArray) -> None:
    """Raise unless matrices are of the size an estimator was fitted on."""
    d, expected = matrices.shape[-1], estimator.n_features_in_
    if d != expected:
        raise ValueError(
            f"X is {d} by {d}, but {type(estimator).__name__} was fitted on matrices {expected} by "
            f"{expected}; both must have the same dimension"
        )
