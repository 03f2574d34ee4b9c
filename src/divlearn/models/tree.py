"""Objects as trees of plain values and arrays, and back.

What comes back is made of numbers, text, arrays, and objects and functions whose names are trusted.
Objects are filled: no constructor and no hook of theirs runs. Only objects of a few compiled
classes, which cannot be filled, are made as their ``__reduce__`` tells.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.lib.format import descr_to_dtype, dtype_to_descr
from numpy.typing import NDArray
from sklearn.utils import Bunch
from sklearn.utils.metadata_routing import MetadataRequest

from divlearn.divergence import DIVERGENCES, Divergence
from divlearn.engines import Engine, get_engine
from divlearn.files.variables import Damage, Refusal
from divlearn.models.trust import (
    check_attributes,
    check_machine,
    complete,
    find,
    find_nan,
    get_name,
    lies_in,
)

Node = Any  # of a tree: what JSON has
_DEEPEST = 60  # levels, far more than models have
_PLAIN_KINDS = "biufcSU"
# Modules of compiled classes that may be called.
_COMPILED = ("sklearn._loss._loss", "sklearn.linear_model._sgd_fast", "sklearn.tree._tree")


class Unknown(Exception):
    """A value that cannot be stored in a file."""


class TreeWriter:
    """Turns objects into trees of JSON values, if strict only of what is trusted, and arrays."""

    def __init__(self, *, strict: bool = False) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        self._strict = strict
        self._known: dict[int, str] = {}  # arrays that several objects share are kept once

    def write(self, value: object, path: str = "model", depth: int = 0) -> Node:
        if depth > _DEEPEST:
            raise Unknown(f"{path[:200]}... contains itself")
        if value is None or isinstance(value, bool | str) or type(value) in (int, float):
            return value
        if apart := _take_apart(value):
            kind, parts = apart
            nodes = [self.write(part, f"{path}[{i}]", depth + 1) for i, part in enumerate(parts)]
            return nodes if kind == "list" else {kind: nodes}
        if isinstance(value, np.ndarray):
            if value.dtype.kind not in _PLAIN_KINDS:
                raise Unknown(f"{path} is an array of {value.dtype}, must be of numbers or text")
            name = self._known.setdefault(id(value), str(len(self.arrays)))
            self.arrays[name] = value
            return {"array": name}
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if isinstance(value, type | np.ufunc) or hasattr(value, "__qualname__"):
            return {"name": self._write_name(value, path)}
        return self._write_object(value, path, depth)

    def _write_object(self, value: object, path: str, depth: int) -> Node:
        kind = type(value)
        try:
            state = vars(value)
            object.__new__(kind)
        except TypeError:  # compiled, or derived from a type that is
            raise Unknown(
                f"{path} is {kind.__module__}.{kind.__name__}, which cannot be stored in a file; "
                "replace it"
            ) from None
        if is_dataclass(kind):  # without what it computes by itself
            state = {field.name: state[field.name] for field in fields(kind)}
        name = self._write_name(kind, path)
        if not self._strict and (wrong := find_nan(kind, state)):
            raise ValueError(f"{path}.{wrong} has NaN, must have numbers; fit the model again")
        nodes = {key: self.write(item, f"{path}.{key}", depth + 1) for key, item in state.items()}
        return {"object": name, "state": nodes}

    def _write_name(self, value: Any, path: str) -> str:
        name = get_name(value)
        if name is None:
            raise Unknown(
                f"{path} needs {value.__module__}.{value.__qualname__}, which cannot be imported; "
                "define it at the top level of a module"
            )
        if self._strict and find(name) is None:
            raise Unknown(f"{path} needs {name}, must be of divlearn, scikit-learn or pyRiemann")
        return name


@dataclass(frozen=True)
class TreeReader:
    """Makes objects of trees and arrays; what is finished has learned no NaN."""

    arrays: Mapping[str, NDArray[Any]]
    trusted: Collection[str]
    finished: bool
    changed: Collection[str] = ()  # classes whose objects in the file lack attributes

    def read(self, node: Node, depth: int = 0) -> Any:
        if depth > _DEEPEST:
            raise Damage(f"its tree is deeper than {_DEEPEST} levels")
        match node:
            case None | bool() | str() | int() | float():
                return node
            case list():
                return self._list(node, depth)
            case {"object": str(name), "state": dict(state)} if len(node) == 2:
                return self._object(name, state, depth)
            case {"array": str(name)} if len(node) == 1 and name in self.arrays:
                return self.arrays[name]
            case {"name": str(name)} if len(node) == 1:
                return self._named(name)
            case dict() if len(node) == 1:
                [(kind, parts)] = node.items()
                if kind in _KINDS and isinstance(parts, list):
                    _, _, join = _KINDS[kind]
                    return join(*self._list(parts, depth))
        raise Damage(f"its tree holds {node!r:.80}, which means nothing")

    def _list(self, nodes: list[Node], depth: int) -> list[object]:
        return [self.read(node, depth + 1) for node in nodes]

    def _named(self, name: str) -> Any:
        try:
            found = find(name, self.trusted)
        except (ImportError, AttributeError) as error:
            raise Refusal(
                f"it needs {name!r:.80}, which cannot be imported ({error!s:.200}); install the "
                "package and version that the model was saved with"
            ) from error
        if found is None:
            raise Refusal(
                f"it needs {name!r:.80}, which is not trusted; if you trust whoever wrote "
                f"the file, pass trusted=[{name!r:.80}]"
            )
        return found

    def _object(self, name: str, state: dict[str, Node], depth: int) -> object:
        if name in self.changed:
            raise Damage(f"its {name.rpartition('.')[2]} lacks what the class has now")
        kind = self._named(name)
        values = {key: self.read(node, depth + 1) for key, node in state.items()}
        check_attributes(kind, values)
        if self.finished and (wrong := find_nan(kind, values)):
            raise Damage(f"its {kind.__name__} has NaN in {wrong}, must have numbers")
        instance = object.__new__(kind)
        vars(instance).update(complete(kind, values))
        check_machine(instance)
        return instance


# --- values that are made of others

Requests = dict[str, bool | str | None]  # of a method, by names of parameters


def _with_state(made: Any, *states: object) -> object:
    for state in states:
        made.__setstate__(state)
    return made


def _join_generator(state: Mapping[str, object]) -> np.random.Generator:
    generator = np.random.default_rng()
    generator.bit_generator.state = state
    return generator


def _split_requests(value: MetadataRequest) -> tuple[str, dict[str, Requests]]:
    # Their owner, for display only, is the model itself.
    methods = {key: one.requests for key, one in vars(value).items() if hasattr(one, "requests")}
    return type(value.owner).__name__, methods


def _join_requests(owner: str, requests: dict[str, Requests]) -> MetadataRequest:
    joined = MetadataRequest(owner)
    for method, aliases in requests.items():
        for name, alias in aliases.items():
            getattr(joined, method).add_request(param=name, alias=alias)
    return joined


def _split_compiled(value: Any) -> Any:
    kind = type(value)
    if not lies_in(kind.__module__, _COMPILED):
        return None
    _, args, *state = value.__reduce__()
    given = () if args[:1] == (kind,) else args  # Cython passes the class, no arguments
    return kind, given, *state


def _join_compiled(kind: object, args: Sequence[object], *state: object) -> object:
    if not (isinstance(kind, type) and lies_in(kind.__module__, _COMPILED)):
        raise Damage(f"it calls {kind!r:.80}, which is no compiled class of scikit-learn")
    return _with_state(kind(*args), *state)


# Types; how values are split into parts, None for those of another kind; how parts are joined.
_KINDS: Mapping[str, tuple[type, Callable[[Any], Any], Callable[..., Any]]] = {
    "list": (list, lambda v: v, lambda *parts: list(parts)),
    "tuple": (tuple, lambda v: v, lambda *parts: parts),
    "set": (set, lambda v: sorted(v, key=repr), lambda *parts: set(parts)),
    "slice": (slice, lambda v: (v.start, v.stop, v.step), slice),
    "bunch": (Bunch, lambda v: v.items(), lambda *parts: Bunch(**dict(parts))),
    "dict": (dict, lambda v: v.items(), lambda *parts: dict(parts)),
    "partial": (
        partial,
        lambda v: (v.func, v.args, v.keywords),
        lambda f, v, k: partial(f, *v, **k),
    ),
    "divergence": (  # one with a name
        Divergence,
        lambda v: (v.name,) if DIVERGENCES.get(v.name) == v else None,
        DIVERGENCES.__getitem__,
    ),
    "engine": (Engine, lambda v: (v.name, v.given_threads, v.accuracy), get_engine),
    "dtype": (np.dtype, lambda v: (v.str,) if v.kind in _PLAIN_KINDS else None, np.dtype),
    "scalar": (np.generic, lambda v: (np.asarray(v),), lambda array: array[()]),
    "masked": (np.ma.MaskedArray, lambda v: (v.data, np.ma.getmaskarray(v)), np.ma.MaskedArray),
    "objects": (
        np.ndarray,
        lambda v: (v.shape, *v.flat) if v.dtype == object else None,
        lambda shape, *parts: np.fromiter(parts, object, len(parts)).reshape(shape),
    ),
    "records": (  # their bytes, as text of the same size
        np.ndarray,
        lambda v: (dtype_to_descr(v.dtype), v.view(f"S{v.itemsize}")) if v.dtype.names else None,
        lambda fields, text: text.view(descr_to_dtype(fields)),
    ),
    "requests": (MetadataRequest, _split_requests, _join_requests),
    "random state": (
        np.random.RandomState,
        lambda v: v.get_state() if v.get_state(False)["bit_generator"] == "MT19937" else None,
        lambda *state: _with_state(np.random.RandomState(), state),
    ),
    "generator": (
        np.random.Generator,
        lambda v: (v.bit_generator.state,) if type(v.bit_generator) is np.random.PCG64 else None,
        _join_generator,
    ),
    "compiled": (object, _split_compiled, _join_compiled),
}
_EXACT = (list, tuple, set, dict)  # instances of other types that derive from these are refused


def _take_apart(value: object) -> tuple[str, Iterable[object]] | None:
    """Return the name of the kind of a value and its parts, None if it has none."""
    for name, (kind, split, _) in _KINDS.items():
        exact = type(value) is kind or kind not in _EXACT
        if isinstance(value, kind) and exact and (parts := split(value)) is not None:
            return name, parts
    return None
