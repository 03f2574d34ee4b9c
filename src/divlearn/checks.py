"""Checks of parameters, labels and results of estimators, and of optional packages."""

import math
from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from numbers import Integral
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import column_or_1d

from divlearn.arrays import Indices, Labels

RandomState = int | np.random.RandomState | None
ClassWeight = Mapping[Any, float] | str | None
_MISSING = "None", "nan", "NaT", "<NA>"  # the last is that of pandas


def check_count(
    value: object, name: str, *, least: int = 1, most: int | None = None, fix: str = ""
) -> int:
    """Return an integer in a range, or raise with a message that ends with ``fix``."""
    relation = f">= {least}" + (f" and <= {most}" if most is not None else "") + fix
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}={value!r} must be an integer {relation}")
    count = int(value)
    if count < least or (most is not None and count > most):
        raise ValueError(f"{name}={value} must be {relation}")
    return count


def as_column(values: ArrayLike, *, warn: bool = False) -> Labels:
    """Return labels as an array; a column of a table is accepted."""
    # scikit-learn would make floats of the nullable integers and booleans of pandas.
    array = np.asarray(values)
    labels: Labels = column_or_1d(values if array.dtype == object else array, warn=warn)
    return labels


def check_sortable(labels: Labels, name: str) -> None:
    """Raise if labels cannot be sorted: one is missing, or only some are text."""
    missing = _find_missing(labels)
    if len(missing):
        index = int(missing[0])
        raise ValueError(
            f"{name}[{index}] is {labels.flat[index]!s}, must be a number or text; drop the "
            "samples where it is not known"
        )
    if labels.dtype != object:
        return
    if len(set(map(_is_text, labels.flat))) > 1:
        raise ValueError(f"{name} is text for some samples only; convert all entries to str")


def check_same_kind(labels: Labels, known: Iterable[object], name: str) -> None:
    """Raise if labels are text and those of `fit` are not, or conversely: none would be equal."""
    earlier = [label for label in known if label is not None]
    if not len(labels) or not earlier or _is_text(labels[0]) == _is_text(earlier[0]):
        return
    first, second = (("text" if _is_text(v) else "not text") for v in (labels[0], earlier[0]))
    raise ValueError(
        f"{name} hold {labels.tolist()[0]!r}, which is {first}, but those in fit hold "
        f"{earlier[0]!r}, which is {second}; pass {name} of the same type"
    )


def _find_missing(labels: Labels) -> Indices:
    if labels.dtype != object:
        return np.flatnonzero(labels != labels)  # true for NaN and NaT
    known = (isinstance(label, str) or str(label) not in _MISSING for label in labels.flat)
    return np.flatnonzero(~np.fromiter(known, bool, labels.size))


def _is_text(label: object) -> bool:
    return isinstance(label, str)


def check_number(value: object, name: str, *, positive: bool = False, word: str = "") -> None:
    """Raise unless a value is a finite number >= 0, or > 0; `word` is allowed as well."""
    if not is_number(value) or not 0 <= value < np.inf or (positive and value == 0):
        allowed = f'"{word}" or ' if word else ""
        relation = ">" if positive else ">="
        raise ValueError(f"{name}={value!r} must be {allowed}a finite number {relation} 0")


def check_flag(value: object, name: str) -> None:
    """Raise unless a value is True or False: text such as "no" would count as true."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name}={value!r} must be True or False")


def check_name(value: object, name: str, choices: Collection[str]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name}={value!r} must be one of {', '.join(choices)}")


def check_finite(value: float, name: str, where: str, *, or_infinite: bool = False) -> None:
    """Raise unless an objective or gradient of a search is finite, or infinite if allowed."""
    if math.isnan(value) or (math.isinf(value) and not or_infinite):
        raise FloatingPointError(
            f"{name} is {value} {where}, must be finite; divide matrices that differ much in scale "
            'by their traces, or try engine="reference", which shows whether another engine fails'
        )


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a real number and not a boolean."""
    return isinstance(value, float | int | np.floating | np.integer) and not isinstance(value, bool)


def import_extra(module: str, need: str, extra: str) -> Any:
    """Import an optional module; the error says why it is needed and how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f'{need}: pip install "divlearn[{extra}]"') from error
