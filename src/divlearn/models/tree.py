"""Objects as trees of plain values and arrays, and back.

What comes back is made of numbers, text, arrays and objects of the classes known to
`divlearn.models.classes`. These are filled, not called: no constructor and no hook of theirs runs.
"""

import dataclasses
import inspect
import math
import os
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from numbers import Integral, Real
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from divlearn.engines import Engine, get_engine
from divlearn.models.classes import get_class, get_name

_DEEPEST = 60  # levels, far more than models have
_PLAIN_KINDS = "biufcSU"
_GENERATOR = "MT19937"
_ENGINE = ("name", "n_threads", "accuracy")


class Unknown(Exception):
    """What a file has no place for, or a tree that says nothing."""


def flatten(model: Any) -> tuple[Any, list[NDArray[Any]]]:
    """Turn an object into a tree of JSON values, and the arrays it refers to."""
    writer = _Writer()
    return writer.write(model, "model", 0), writer.arrays


def restore(tree: Any, arrays: Sequence[NDArray[Any]]) -> Any:
    """Make an object of a tree and arrays, the inverse of `flatten`."""
    return _Reader(arrays).read(tree, 0)


class _Writer:
    def __init__(self) -> None:
        self.arrays: list[NDArray[Any]] = []
        self._known: dict[int, int] = {}  # arrays that several objects share are kept once

    def write(self, value: Any, path: str, depth: int) -> Any:
        if depth > _DEEPEST:
            raise Unknown(f"{path[:200]}... goes round in a circle")
        if value is None or isinstance(value, bool | str) or type(value) is int:
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, np.ndarray | np.generic):
            return self._write_array(value, path)
        if isinstance(value, np.random.RandomState):
            return {"random state": self.write(_get_state(value, path), path, depth + 1)}
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if isinstance(value, Engine):
            given = (value.name, value.given_threads, value.accuracy)
            return {"engine": dict(zip(_ENGINE, given, strict=True))}
        if type(value) in (list, tuple):
            items = [self.write(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
            return items if isinstance(value, list) else {"tuple": items}
        if type(value) is dict:
            return {"dict": [self._write_pair(pair, path, depth + 1) for pair in value.items()]}
        return self._write_object(value, path, depth)

    def _write_pair(self, pair: tuple[Any, Any], path: str, depth: int) -> list[Any]:
        key, value = pair
        return [self.write(key, f"{path} key", depth), self.write(value, f"{path}[{key!r}]", depth)]

    def _write_array(self, value: NDArray[Any] | np.generic, path: str) -> dict[str, int]:
        if value.dtype.kind == "O":
            value = _as_text(np.asarray(value), path)
        if value.dtype.kind not in _PLAIN_KINDS:
            raise Unknown(f"{path} is an array of {value.dtype}, must be one of numbers or text")
        if isinstance(value, np.generic):
            self.arrays.append(np.asarray(value))
            return {"scalar": len(self.arrays) - 1}
        if id(value) not in self._known:
            self._known[id(value)] = len(self.arrays)
            self.arrays.append(value)
        return {"array": self._known[id(value)]}

    def _write_object(self, value: Any, path: str, depth: int) -> dict[str, Any]:
        name = get_name(type(value))
        if name is None:
            raise Unknown(
                f"{path} is {type(value).__module__}.{type(value).__qualname__}, must be a number, "
                "text, an array or an estimator of divlearn; replace it"
            )
        state = {
            key: self.write(item, f"{path}.{key}", depth + 1) for key, item in _state(value).items()
        }
        return {"object": name, "state": state}


class _Reader:
    def __init__(self, arrays: Sequence[NDArray[Any]]) -> None:
        self._arrays = arrays
        self._kinds: Mapping[str, Callable[[Any, int], Any]] = {
            "array": lambda value, depth: self._array(value),
            "dict": self._dict,
            "engine": lambda value, depth: _make_engine(value),
            "float": lambda value, depth: _number(value),
            "random state": lambda value, depth: _set_state(self.read(value, depth + 1)),
            "scalar": lambda value, depth: self._array(value)[()],
            "tuple": lambda value, depth: tuple(self._list(value, depth)),
        }

    def read(self, node: Any, depth: int) -> Any:
        if depth > _DEEPEST:
            raise Unknown(f"its tree is deeper than {_DEEPEST} levels")
        if node is None or isinstance(node, bool | str | int | float):
            return node
        if isinstance(node, list):
            return self._list(node, depth)
        if isinstance(node, dict) and node.keys() == {"object", "state"}:
            return self._object(node["object"], node["state"], depth)
        if isinstance(node, dict) and len(node) == 1:
            [(kind, value)] = node.items()
            if kind in self._kinds:
                return self._kinds[kind](value, depth)
        raise Unknown(f"its tree holds {node!r:.80}, which means nothing")

    def _list(self, value: Any, depth: int) -> list[Any]:
        return [self.read(item, depth + 1) for item in _expect(value, list)]

    def _dict(self, value: Any, depth: int) -> dict[Any, Any]:
        pairs = [self._list(pair, depth + 1) for pair in _expect(value, list)]
        return dict(pairs)

    def _array(self, value: Any) -> NDArray[Any]:
        if type(value) is not int or not 0 <= value < len(self._arrays):
            raise Unknown(f"its tree asks for the array {value!r:.40} of {len(self._arrays)}")
        return self._arrays[value]

    def _object(self, name: Any, state: Any, depth: int) -> Any:
        kind = get_class(name) if isinstance(name, str) else None
        if kind is None:
            raise Unknown(f"it names the class {name!r:.80}, which this version does not know")
        values = {key: self.read(node, depth + 1) for key, node in _expect(state, dict).items()}
        whole = _complete(kind, values)
        _check_state(kind, values)
        instance = object.__new__(kind)
        vars(instance).update(whole)
        return instance


def _state(value: Any) -> dict[str, Any]:
    """Attributes of an object; of records without what they compute by themselves."""
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return vars(value)


def _check_state(kind: type[Any], values: dict[str, Any]) -> None:
    """Refuse what takes the place of a method, and values of types that a class does not expect."""
    hints = _announced_types(kind)  # type: ignore[arg-type]  # mypy: classes are not hashable
    # Parameters are as users give them: whoever fits checks them.
    given = inspect.signature(kind).parameters if issubclass(kind, BaseEstimator) else {}
    for name, value in values.items():
        if name.startswith("__") or _is_code(inspect.getattr_static(kind, name, None)):
            raise Unknown(f"its {kind.__name__} has a value for {name}, which is none of its data")
        if name in hints and name not in given and not _conforms(value, hints[name]):
            raise Unknown(
                f"its {kind.__name__} has {name}={value!r:.80}, and {type(value).__name__} is not "
                f"the type of {name}"
            )


def _is_code(attribute: Any) -> bool:
    """Whether an attribute of a class is a method or a property, which values must not hide."""
    return callable(attribute) or isinstance(attribute, property | classmethod | staticmethod)


def _complete(kind: type[Any], values: dict[str, Any]) -> dict[str, Any]:
    """Add the defaults of what older versions did not have; refuse what records lack."""
    if dataclasses.is_dataclass(kind):
        fields = {field.name: field for field in dataclasses.fields(kind)}
        if unknown := values.keys() - fields.keys():
            raise Unknown(f"its {kind.__name__} has {', '.join(sorted(unknown))}, which none has")
        for name, field in fields.items():
            if name not in values and field.default is dataclasses.MISSING:
                raise Unknown(f"its {kind.__name__} lacks {name}")
        defaults = {name: field.default for name, field in fields.items() if name not in values}
        return values | defaults
    if issubclass(kind, BaseEstimator):
        defaults = {
            name: parameter.default
            for name, parameter in inspect.signature(kind).parameters.items()
            if name not in values and parameter.default is not parameter.empty
        }
        return values | defaults
    return values


def _expect(value: Any, kind: type[Any]) -> Any:
    if type(value) is not kind:
        raise Unknown(f"its tree holds {value!r:.80} in place of a {kind.__name__}")
    return value


def _number(value: Any) -> float:
    if value not in ("nan", "inf", "-inf"):
        raise Unknown(f"its tree holds the number {value!r:.80}")
    return float(value)


def _as_text(value: NDArray[Any], path: str) -> NDArray[Any]:
    """Classes that pandas or lists of words made objects of."""
    if not all(isinstance(item, str) for item in value.flat):
        raise Unknown(f"{path} is an array of objects, must be one of numbers or text")
    return value.astype(str)


def _get_state(random: np.random.RandomState, path: str) -> tuple[Any, ...]:
    state: Any = random.get_state(legacy=True)
    if state[0] != _GENERATOR:
        raise Unknown(f"{path} is a generator of the kind {state[0]}, must be {_GENERATOR}")
    return tuple(state[1:])


def _set_state(state: Any) -> np.random.RandomState:
    random = np.random.RandomState()
    random.set_state((_GENERATOR, *_expect(state, tuple)))
    return random


def _make_engine(state: Any) -> Engine:
    known = _expect(state, dict)
    return get_engine(*(known[name] for name in _ENGINE))


# --- types that classes announce for their attributes


@cache
def _announced_types(kind: type[Any]) -> dict[str, Any]:
    """Types of the attributes of a class by name, as its annotations say."""
    try:
        return get_type_hints(kind)
    except NameError:  # names that are imported for type checkers alone
        return {}


def _conforms(value: Any, hint: Any) -> bool:
    """Whether a value is of a type; hints that say nothing of plain values are met by all."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_conforms(value, one) for one in arguments)
    if origin is np.ndarray:
        return isinstance(value, np.ndarray | np.generic)
    if origin is tuple:
        return isinstance(value, tuple) and _parts_conform(value, arguments)
    if origin in (list, Sequence, Iterable):
        return isinstance(value, list | tuple) and all(_conforms(v, arguments[0]) for v in value)
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(
            _conforms(one, wanted)
            for item in value.items()
            for one, wanted in zip(item, arguments, strict=True)
        )
    return origin is not None or _is_instance(value, hint)


def _parts_conform(values: tuple[Any, ...], hints: tuple[Any, ...]) -> bool:
    if len(hints) == 2 and hints[1] is Ellipsis:
        return all(_conforms(value, hints[0]) for value in values)
    return len(values) == len(hints) and all(map(_conforms, values, hints))


def _is_instance(value: Any, hint: Any) -> bool:
    if hint is Any or not isinstance(hint, type) or getattr(hint, "_is_protocol", False):
        return True
    wider: dict[Any, Any] = {float: Real, int: Integral, bool: bool | np.bool_}
    return isinstance(value, wider.get(hint, hint))
