"""Plain values that JSON and HTML can hold."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["plain", "to_json"]

_DIGITS = 6  # significant ones; nobody reads more off a figure
# Inside <script> the parser looks for these, whatever JSON thinks of them.
_UNSAFE = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&"}


def plain(value: Any, digits: int | None = _DIGITS) -> Any:
    """Turn arrays, numbers and containers into what JSON knows; NaN and infinity into None.

    Parameters
    ----------
    value : mapping, sequence, array, number, str, bool or None
    digits : int or None, default=6
        Significant digits of numbers; None keeps all.

    Returns
    -------
    dict, list, str, int, float, bool or None

    Examples
    --------
    >>> plain({"score": np.array([0.12345678, np.nan]), "n": np.int64(3)})
    {'score': [0.123457, None], 'n': 3}
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, digits) for item in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return value if digits is None else float(f"{value:.{digits}g}")
    if value is None or isinstance(value, str | int):
        return value
    raise TypeError(f"{value!r} of type {type(value).__name__} has no place in a report")


def to_json(value: Any) -> str:
    r"""JSON that no text in it can end or break out of, wherever in a page it stands.

    Parameters
    ----------
    value : as in `plain`

    Examples
    --------
    >>> print(to_json({"class": "</script>"}))
    {"class":"\u003c/script\u003e"}
    """
    return json.dumps(plain(value), allow_nan=False, separators=(",", ":")).translate(_UNSAFE)
