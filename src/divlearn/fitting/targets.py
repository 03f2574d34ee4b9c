"""Checks of the targets of matrices: labels of classes and numbers.

The same functions check data in memory as a whole, and data in shards block by block.
"""

import warnings
from collections.abc import Iterator, Sized
from contextlib import contextmanager

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import assert_all_finite, check_array, compute_class_weight
from sklearn.utils.multiclass import type_of_target

from divlearn.arrays import Indices, Labels, RealArray
from divlearn.checks import ClassWeight, as_column, check_sortable
from divlearn.text import counted

_FEW = 20  # matrices, for which any number of classes is plausible


def check_labels(y: ArrayLike | None, n_matrices: int, *, warn: bool = True) -> Labels:
    """Return labels, one for every matrix; a column is accepted, with a warning."""
    labels = as_column(require_targets(y), warn=warn)
    check_sortable(labels, "y")
    assert_all_finite(labels, input_name="y")
    check_rows(labels, n_matrices, "y")
    # Every class twice avoids a warning of too many: `keep_classes` warns, for all blocks at once.
    classes = np.repeat(find_classes(labels), 2)
    if labels.dtype.kind != "f" and type_of_target(classes) == "unknown":  # an array of objects
        raise ValueError(
            f"Unknown label type: y has dtype {labels.dtype} and holds {classes[0]!r}, must hold "
            "numbers or text; pass y.astype(int) or y.astype(str)"
        )
    if len(rows := find_fractions(labels)):
        number = labels[rows[0]]
        raise ValueError(
            f"Unknown label type: continuous. y holds {number:g}, must hold classes; use a "
            "regressor for numbers, such as SPDRegressor, or pass y.astype(str)"
        )
    return labels


def find_fractions(targets: Labels) -> Indices:
    """Return the positions of finite numbers that are not whole: these are no classes."""
    if targets.dtype.kind != "f":
        return np.arange(0)
    return np.flatnonzero(np.isfinite(targets) & (targets != np.round(targets)))


def check_numbers(y: ArrayLike | None, n_matrices: int) -> RealArray:
    """Return numbers to predict, shape (n_matrices,) or (n_matrices, n_outputs)."""
    y = require_targets(y)
    try:
        numbers: RealArray = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
    except ValueError as error:
        if (text := _find_text(y)) is None:
            raise
        raise ValueError(
            f"y holds {text!r}, must hold numbers for a regressor; pass these or use a classifier"
        ) from error
    check_rows(numbers, n_matrices, "y")
    return numbers


def _find_text(y: ArrayLike) -> str | None:
    """Return the first text that is no number."""
    for value in np.asarray(y, dtype=object).flat:
        try:
            float(value)
        except (TypeError, ValueError):
            if isinstance(value, str):
                return str(value)
    return None


def check_rows(values: Sized, n_matrices: int, name: str) -> None:
    if len(values) != n_matrices:
        raise ValueError(
            f"{name} has {counted(len(values), 'rows')}, but X has "
            f"{counted(n_matrices, 'matrices')} (inconsistent numbers of samples); pass one row "
            "per matrix"
        )


def require_targets(y: ArrayLike | None) -> ArrayLike:
    if y is None:
        raise ValueError(
            "the estimator requires y to be passed, but the target y is None; pass one row per "
            "matrix"
        )
    return y


def find_classes(labels: Labels) -> Labels:
    try:
        return np.unique(labels)
    except TypeError as error:
        types = " and ".join(sorted({type(label).__name__ for label in labels}))
        raise ValueError(
            f"y mixes labels of types {types}, which have no order; pass labels of one type"
        ) from error


def join_classes(first: Labels, second: Labels) -> Labels:
    if (first.dtype.kind == "U") != (second.dtype.kind == "U"):
        # NumPy would make strings of numbers.
        first, second = first.astype(object), second.astype(object)
    return find_classes(np.concatenate([first, second]))


def class_factors(class_weight: ClassWeight, classes: Labels, counts: Indices) -> RealArray:
    """Return the factor of every class, which multiplies the weights of its matrices."""
    if isinstance(class_weight, str) and class_weight == "balanced":
        return counts.sum() / (len(classes) * counts)
    factors: RealArray = compute_class_weight(class_weight, classes=classes, y=classes)
    if not (np.isfinite(factors) & (factors >= 0)).all():
        raise ValueError(f"class_weight={class_weight!r} must be finite and >= 0 for every class")
    return factors


def keep_classes(
    classes: Labels, counts: Indices, totals: RealArray | Indices
) -> NDArray[np.bool_]:
    """Return a mask of the classes of positive weight; raise unless there are two."""
    kept = totals > 0
    if kept.sum() < 2:
        held = f"the one class {classes[kept][0]!s}" if kept.any() else "no class"
        raise ValueError(f"y holds {held}, must hold >= 2 classes of weight > 0; pass more data")
    n_matrices = int(counts[kept].sum())
    if n_matrices > _FEW and 2 * kept.sum() > n_matrices:
        message = f"y holds {kept.sum()} classes in {n_matrices} matrices"
        message += "; if y is continuous, use a regressor"
        warnings.warn(message, UserWarning, stacklevel=3)
    return kept


@contextmanager
def locate_errors(where: str) -> Iterator[None]:
    """Add the name of a shard or image to the message of an error."""
    try:
        yield
    except (TypeError, ValueError) as error:
        error_type = TypeError if isinstance(error, TypeError) else ValueError
        raise error_type(f"{where}: {error}") from error
