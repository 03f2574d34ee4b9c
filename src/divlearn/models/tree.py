"""Conversion of objects to trees of JSON values and arrays, and back.

`TreeReader` makes numbers, text, arrays, and objects and functions whose names are trusted. It sets
the attributes of objects, and calls no constructor and no hook. Only objects of a few compiled
classes, whose attributes cannot be set, are made by the call that their ``__reduce__`` returns.
"""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from types import MethodType
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.format import descr_to_dtype, dtype_to_descr
from sklearn.utils import Bunch
from sklearn.utils.metadata_routing import MetadataRequest

from divlearn.divergence import DIVERGENCES, Divergence
from divlearn.divergence.named import is_mean
from divlearn.divergence.pairs import PairByPair
from divlearn.engines import Engine, get_engine
from divlearn.files.variables import Damage, Refusal
from divlearn.models.trust import (
    add_defaults,
    check_attributes,
    check_svc,
    find_nan,
    get_name,
    import_trusted,
    is_inside,
)

Node = Any  # of a tree: a JSON value
_MAX_DEPTH = 60  # far more than models have
_PLAIN_KINDS = "biufcSU"  # of dtypes
# Modules of compiled classes that may be called.
_COMPILED = ("sklearn._loss._loss", "sklearn.linear_model._sgd_fast", "sklearn.tree._tree")


class Unknown(Exception):
    """A value that cannot be stored in a file."""


class TreeWriter:
    """Converts objects to trees and arrays; ``strict`` refuses names that are not trusted."""

    def __init__(self, *, strict: bool = False) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._strict = strict
        self._names: dict[int, str] = {}  # by id, so that shared arrays are stored once

    def write(self, value: object, path: str = "model", depth: int = 0) -> Node:
        if depth > _MAX_DEPTH:
            raise Unknown(f"{path[:200]}... contains itself")
        if value is None or isinstance(value, bool | str) or type(value) in (int, float):
            return value
        if encoded := _encode(value):
            codec, parts = encoded
            nodes = [self.write(part, f"{path}[{i}]", depth + 1) for i, part in enumerate(parts)]
            return nodes if codec == "list" else {codec: nodes}
        if isinstance(value, np.ndarray):
            if value.dtype.kind not in _PLAIN_KINDS:
                raise Unknown(f"{path} is an array of {value.dtype}, must be of numbers or text")
            name = self._names.setdefault(id(value), str(len(self.arrays)))
            self.arrays[name] = value
            return {"array": name}
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if isinstance(value, type | np.ufunc) or hasattr(value, "__qualname__"):
            return {"name": self._write_name(value, path)}
        return self._write_object(value, path, depth)

    def _write_object(self, value: object, path: str, depth: int) -> Node:
        cls = type(value)
        try:
            state = vars(value)
            object.__new__(cls)
        except TypeError:  # compiled, or derived from a type that is
            raise Unknown(
                f"{path} is {cls.__module__}.{cls.__name__}, which cannot be stored in a file; "
                "replace it"
            ) from None
        if is_dataclass(cls):  # without cached properties
            state = {field.name: state[field.name] for field in fields(cls)}
        name = self._write_name(cls, path)
        if not self._strict and (wrong := find_nan(cls, state)):
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
        if self._strict and import_trusted(name) is None:
            raise Unknown(f"{path} needs {name}, must be of divlearn, scikit-learn or pyRiemann")
        return name


@dataclass(frozen=True)
class TreeReader:
    """Converts trees and arrays to objects; ``finished`` refuses learned attributes with NaN."""

    arrays: Mapping[str, np.ndarray]
    trusted: Collection[str]
    finished: bool
    # Classes whose objects in the file lack attributes, unless they have this one.
    changed: Mapping[str, str | None] = field(default_factory=dict)

    def read(self, node: Node, depth: int = 0) -> Any:
        if depth > _MAX_DEPTH:
            raise Damage(f"its tree is deeper than {_MAX_DEPTH} levels")
        match node:
            case None | bool() | str() | int() | float():
                return node
            case list():
                return self._read_list(node, depth)
            case {"object": str(name), "state": dict(state)} if len(node) == 2:
                return self._read_object(name, state, depth)
            case {"array": str(name)} if len(node) == 1 and name in self.arrays:
                return self.arrays[name]
            case {"name": str(name)} if len(node) == 1:
                return self._import(name)
            case dict() if len(node) == 1:
                [(codec, parts)] = node.items()
                if codec in _CODECS and isinstance(parts, list):
                    return _CODECS[codec].join(*self._read_list(parts, depth))
        raise Damage(f"its tree holds {node!r:.80}, which means nothing")

    def _read_list(self, nodes: list[Node], depth: int) -> list[object]:
        return [self.read(node, depth + 1) for node in nodes]

    def _import(self, name: str) -> Any:
        try:
            value = import_trusted(name, self.trusted)
        except (ImportError, AttributeError) as error:
            raise Refusal(
                f"it needs {name!r:.80}, which cannot be imported ({error!s:.200}); install the "
                "package and version that the model was saved with"
            ) from error
        if value is None:
            raise Refusal(
                f"it needs {name!r:.80}, which is not trusted; if you trust whoever wrote "
                f"the file, pass trusted=[{name!r:.80}]"
            )
        return value

    def _read_object(self, name: str, state: dict[str, Node], depth: int) -> object:
        if name in self.changed and self.changed[name] not in state:
            raise Damage(f"its {name.rpartition('.')[2]} lacks what the class has now")
        cls = self._import(name)
        values = {key: self.read(node, depth + 1) for key, node in state.items()}
        check_attributes(cls, values)
        if self.finished and (wrong := find_nan(cls, values)):
            raise Damage(f"its {cls.__name__} has NaN in {wrong}, must have numbers")
        instance = object.__new__(cls)
        vars(instance).update(add_defaults(cls, values))
        check_svc(instance)
        return instance


# --- values that consist of parts

Requests = dict[str, bool | str | None]  # of a method, by names of parameters


class _Codec(NamedTuple):
    """Conversion of instances of a type into parts, or None if that is impossible, and back."""

    cls: type
    split: Callable[[Any], Any]
    join: Callable[..., Any]


def _set_state(instance: Any, *states: object) -> object:
    for state in states:
        instance.__setstate__(state)
    return instance


def _join_generator(state: Mapping[str, object]) -> np.random.Generator:
    generator = np.random.default_rng()
    generator.bit_generator.state = state
    return generator


def _split_requests(value: MetadataRequest) -> tuple[str, dict[str, Requests]]:
    # The owner is the model itself; its name is for display only.
    methods = {key: m.requests for key, m in vars(value).items() if hasattr(m, "requests")}
    return type(value.owner).__name__, methods


def _join_requests(owner: str, requests: dict[str, Requests]) -> MetadataRequest:
    request = MetadataRequest(owner)
    for method, aliases in requests.items():
        for name, alias in aliases.items():
            getattr(request, method).add_request(param=name, alias=alias)
    return request


def _split_compiled(value: Any) -> Any:
    cls = type(value)
    if not is_inside(cls.__module__, _COMPILED):
        return None
    _, args, *state = value.__reduce__()
    return cls, () if args[:1] == (cls,) else args, *state  # Cython passes the class itself


def _join_compiled(cls: object, args: Sequence[object], *state: object) -> object:
    if not (isinstance(cls, type) and is_inside(cls.__module__, _COMPILED)):
        raise Damage(f"it calls {cls!r:.80}, which is no compiled class of scikit-learn")
    return _set_state(cls(*args), *state)


def _join_times(kind: str, numbers: np.ndarray) -> np.ndarray:
    times = np.dtype(kind)
    if times.kind not in "mM":
        raise Damage(f"its tree has times of type {kind!r:.80}")
    return _expect(numbers, np.ndarray).view(times)


def _expect(value: Any, cls: type) -> Any:
    if not isinstance(value, cls):
        raise Damage(f"its tree has {type(value).__name__} in place of {cls.__name__}")
    return value


_CODECS: Mapping[str, _Codec] = {
    "list": _Codec(list, lambda v: v, lambda *parts: list(parts)),
    "tuple": _Codec(tuple, lambda v: v, lambda *parts: parts),
    "set": _Codec(set, lambda v: sorted(v, key=repr), lambda *parts: set(parts)),
    "slice": _Codec(slice, lambda v: (v.start, v.stop, v.step), slice),
    "bunch": _Codec(Bunch, lambda v: v.items(), lambda *parts: Bunch(**dict(parts))),
    "dict": _Codec(dict, lambda v: v.items(), lambda *parts: dict(parts)),
    "partial": _Codec(
        partial,
        lambda v: (v.func, v.args, v.keywords),
        lambda f, v, k: partial(f, *v, **k),
    ),
    "divergence": _Codec(  # one with a name
        Divergence,
        lambda v: (v.name,) if DIVERGENCES.get(v.name) == v else None,
        DIVERGENCES.__getitem__,
    ),
    # Both are parts of what `for_pyriemann` returns.
    "pair by pair": _Codec(PairByPair, lambda v: (v.divergence,), PairByPair),
    "mean": _Codec(
        MethodType,
        lambda v: (v.__self__,) if is_mean(v) else None,
        lambda divergence: _expect(divergence, Divergence).mean,
    ),
    "engine": _Codec(Engine, lambda v: (v.name, v.given_threads, v.accuracy), get_engine),
    "dtype": _Codec(np.dtype, lambda v: (v.str,) if v.kind in _PLAIN_KINDS else None, np.dtype),
    "scalar": _Codec(np.generic, lambda v: (np.asarray(v),), lambda array: array[()]),
    "masked": _Codec(
        np.ma.MaskedArray, lambda v: (v.data, np.ma.getmaskarray(v)), np.ma.MaskedArray
    ),
    "objects": _Codec(
        np.ndarray,
        lambda v: (v.shape, *v.flat) if v.dtype == object else None,
        lambda shape, *parts: np.fromiter(parts, object, len(parts)).reshape(shape),
    ),
    "times": _Codec(
        np.ndarray,
        lambda v: (v.dtype.str, v.view(np.int64)) if v.dtype.kind in "mM" else None,
        _join_times,
    ),
    "records": _Codec(  # the bytes of each record, as text of the same size
        np.ndarray,
        lambda v: (dtype_to_descr(v.dtype), v.view(f"S{v.itemsize}")) if v.dtype.names else None,
        lambda fields, text: text.view(descr_to_dtype(fields)),
    ),
    "requests": _Codec(MetadataRequest, _split_requests, _join_requests),
    "random state": _Codec(
        np.random.RandomState,
        lambda v: v.get_state() if v.get_state(False)["bit_generator"] == "MT19937" else None,
        lambda *state: _set_state(np.random.RandomState(), state),
    ),
    "generator": _Codec(
        np.random.Generator,
        lambda v: (v.bit_generator.state,) if type(v.bit_generator) is np.random.PCG64 else None,
        _join_generator,
    ),
    "compiled": _Codec(object, _split_compiled, _join_compiled),
}
_EXACT = (list, tuple, set, dict)  # instances of derived types are refused


def _encode(value: object) -> tuple[str, Iterable[object]] | None:
    """Return the name of the codec of a value and its parts, None if there is no codec."""
    for name, (cls, split, _) in _CODECS.items():
        matches = type(value) is cls if cls in _EXACT else isinstance(value, cls)
        if matches and (parts := split(value)) is not None:
            return name, parts
    return None
