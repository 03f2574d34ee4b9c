"""Whether values from a file are of the types that classes announce for their attributes."""

import types
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from numbers import Integral, Real
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np


@cache
def announced_types(kind: type[Any]) -> dict[str, Any]:
    """Types of the attributes of a class by name, as its annotations say."""
    try:
        return get_type_hints(kind)
    except NameError:  # names that are imported for type checkers alone
        return {}


def conforms(value: Any, hint: Any) -> bool:
    """Whether a value is of a type; hints that say nothing of plain values are met by all."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(conforms(value, one) for one in arguments)
    if origin is Literal:
        return value in arguments
    if origin is np.ndarray:
        return isinstance(value, np.ndarray | np.generic)
    if origin is tuple:
        return isinstance(value, tuple) and _parts_conform(value, arguments)
    if origin in (list, Sequence, Iterable):
        return isinstance(value, list | tuple) and all(conforms(v, arguments[0]) for v in value)
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(
            conforms(one, wanted)
            for item in value.items()
            for one, wanted in zip(item, arguments, strict=True)
        )
    return origin is not None or _is_instance(value, hint)


def _parts_conform(values: tuple[Any, ...], hints: tuple[Any, ...]) -> bool:
    if len(hints) == 2 and hints[1] is Ellipsis:
        return all(conforms(value, hints[0]) for value in values)
    return len(values) == len(hints) and all(map(conforms, values, hints))


def _is_instance(value: Any, hint: Any) -> bool:
    if hint is Any:
        return True
    if hint is type(None):
        return value is None
    if hint is float:
        return isinstance(value, Real)
    if hint is int:
        return isinstance(value, Integral)
    if hint is bool:
        return isinstance(value, bool | np.bool_)
    checkable = isinstance(hint, type) and not getattr(hint, "_is_protocol", False)
    return not checkable or isinstance(value, hint)
