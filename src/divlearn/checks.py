"""What estimators require of their parameters."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["check_count", "check_number", "check_sortable"]


def check_count(
    value: Any, name: str, *, least: int = 1, most: int | None = None, fix: str = ""
) -> int:
    """Return an integer of a range, or raise; messages end with ``fix``."""
    relation = f">= {least}" + (f" and <= {most}" if most is not None else "") + fix
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}={value!r} must be an integer {relation}")
    count = int(value)
    if count < least or (most is not None and count > most):
        raise ValueError(f"{name}={value} must be {relation}")
    return count


def check_sortable(labels: NDArray[Any], name: str) -> None:
    """Raise where labels cannot be sorted: some are None, or some are text and others are not."""
    if labels.dtype != object:
        return
    for index, label in enumerate(labels.flat):
        if label is None:
            raise ValueError(
                f"{name}[{index}] is None, must be a number or text; drop the samples where it is "
                "not known"
            )
    is_text = [isinstance(label, str) for label in labels.flat]
    if any(is_text) and not all(is_text):
        raise ValueError(f"{name} is text for some samples only; convert all entries to str")


def check_number(value: Any, name: str) -> None:
    """Raise unless a value is a finite number >= 0."""
    number = isinstance(value, float | int | np.floating | np.integer)
    if isinstance(value, bool) or not number or not 0 <= value < np.inf:
        raise ValueError(f"{name}={value!r} must be a finite number >= 0")
