"""What estimators require of their parameters."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

__all__ = ["check_count", "check_number"]


def check_count(value: Any, name: str) -> int:
    """Return a value that is an integer >= 1, or raise.

    Examples
    --------
    >>> check_count(0, "n_init")
    Traceback (most recent call last):
    ValueError: n_init=0 must be >= 1
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}={value!r} must be an integer >= 1")
    if value < 1:
        raise ValueError(f"{name}={value} must be >= 1")
    return int(value)


def check_number(value: Any, name: str) -> None:
    """Raise unless a value is a finite number >= 0.

    Examples
    --------
    >>> check_number(-1.0, "mu")
    Traceback (most recent call last):
    ValueError: mu=-1.0 must be a finite number >= 0
    """
    number = isinstance(value, float | int | np.floating | np.integer)
    if isinstance(value, bool) or not number or not 0 <= value < np.inf:
        raise ValueError(f"{name}={value!r} must be a finite number >= 0")
