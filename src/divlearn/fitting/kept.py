"""What predictions prepare once of a fitted estimator.

It is kept beside the estimator, and goes with it: pickles, files and clones are without it.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast
from weakref import WeakKeyDictionary

_Part = TypeVar("_Part")
_F = TypeVar("_F")

# By estimator, a learned attribute and what was prepared of it.
_kept: WeakKeyDictionary[Any, tuple[object, object]] = WeakKeyDictionary()


def prepare_once(estimator: object, part: _Part, prepare: Callable[[_Part], _F]) -> _F:
    """Return what `prepare` makes of a learned attribute; make it anew if a fit has replaced it."""
    known = _kept.get(estimator)
    if known is None or known[0] is not part:
        known = _kept[estimator] = part, prepare(part)
    return cast(_F, known[1])
