"""Cache of learned arrays in the form that predictions need.

It is no attribute of the estimators: pickles, files and clones are without it.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

_Array = TypeVar("_Array")
_F = TypeVar("_F")

# A learned attribute of each estimator, and its prepared form.
_cache: WeakKeyDictionary[Any, tuple[object, object]] = WeakKeyDictionary()


def prepare_once(estimator: object, array: _Array, prepare: Callable[[_Array], _F]) -> _F:
    """Return the prepared form of a learned attribute, computed again after another fit."""
    cached = _cache.get(estimator)
    if cached is None or cached[0] is not array:
        cached = _cache[estimator] = array, prepare(array)
    return cast(_F, cached[1])
