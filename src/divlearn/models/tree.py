"""Objects as trees of plain values and arrays, and back.

What comes back is made of numbers, text, arrays, and objects and functions that are trusted by
their names. Objects are filled: no constructor and no hook of theirs runs.
"""

import dataclasses
import os
import sys
import types
from collections.abc import Callable, Collection, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Bunch
from sklearn.utils.metadata_routing import MetadataRequest

from divlearn.divergence import DIVERGENCES, Divergence, get_divergence
from divlearn.engines import Engine, get_engine
from divlearn.files.variables import Damage, Refusal
from divlearn.models.attributes import PACKAGES, check_attributes, complete, find_nan

_DEEPEST = 60  # levels, far more than models have
_PLAIN_KINDS = "biufcSU"
_NUMERIC = ("numpy", "scipy.special")  # of trusted ufuncs and types of numbers
_PURE = ("pyriemann.geometry", "pyriemann.utils", "sklearn.feature_selection", "sklearn.metrics")
_FURTHER = frozenset(
    {
        "divlearn.ABDivergence",
        "divlearn.cluster.parameters.FamilyParameters",
        "divlearn.descriptors.GaborBank",
        "divlearn.descriptors.Preset",
        "divlearn.iddl.HingeLoss",
        "divlearn.iddl.Model",
        "divlearn.iddl.RidgeLoss",
        "divlearn.iddl.SoftmaxLoss",
        "divlearn.iddl.objective.Dictionary",
        "divlearn.iddl.objective.Memo",
        "divlearn.iddl.stochastic.Learner",
        "divlearn.iddl.stochastic.Moments",
        "divlearn.nearest.filtering.Filter",
        "divlearn.optim.problem.Trial",
        "pyriemann.clustering.Gaussian",
        "sklearn.calibration._CalibratedClassifier",
        "sklearn.metrics._scorer._PassthroughScorer",
        "sklearn.metrics._scorer._Scorer",
    }
)


class Unknown(Exception):
    """What a file has no place for."""


def flatten(model: Any, *, strict: bool = False) -> tuple[Any, dict[str, NDArray[Any]]]:
    """Turn an object into a tree of JSON values, if strict of what is trusted, and its arrays."""
    writer = _Writer(strict)
    return writer.write(model, "model", 0), writer.arrays


def restore(
    tree: Any,
    arrays: Mapping[str, NDArray[Any]],
    trusted: Collection[str],
    *,
    finished: bool,
) -> Any:
    """Make an object of a tree and arrays, the inverse of `flatten`.

    What is `finished` has learned numbers; what is still being fitted may have NaN.
    """
    return _Reader(arrays, trusted, finished).read(tree, 0)


class _Writer:
    def __init__(self, strict: bool) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        self._strict = strict
        self._known: dict[int, str] = {}  # arrays that several objects share are kept once

    def write(self, value: Any, path: str, depth: int) -> Any:
        if depth > _DEEPEST:
            raise Unknown(f"{path[:200]}... contains itself")
        if value is None or isinstance(value, bool | str) or type(value) in (int, float):
            return value
        if apart := _take_apart(value):
            kind, items = apart
            nodes = [self.write(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(items)]
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

    def _write_object(self, value: Any, path: str, depth: int) -> dict[str, Any]:
        kind = type(value)
        try:
            state = vars(value)
            object.__new__(kind)
        except TypeError:  # compiled, or derived from a type that is
            raise Unknown(
                f"{path} is {kind.__module__}.{kind.__name__}, which cannot be stored in a file; "
                "replace it"
            ) from None
        if dataclasses.is_dataclass(kind):  # without what it computes by itself
            state = {field.name: state[field.name] for field in dataclasses.fields(kind)}
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


class _Reader:
    def __init__(
        self, arrays: Mapping[str, NDArray[Any]], trusted: Collection[str], finished: bool
    ) -> None:
        self._arrays, self._trusted, self._finished = arrays, trusted, finished

    def read(self, node: Any, depth: int) -> Any:
        if depth > _DEEPEST:
            raise Damage(f"its tree is deeper than {_DEEPEST} levels")
        if node is None or isinstance(node, bool | str | int | float):
            return node
        if isinstance(node, list):
            return self._list(node, depth)
        if isinstance(node, dict) and node.keys() == {"object", "state"}:
            return self._object(node["object"], node["state"], depth)
        if isinstance(node, dict) and len(node) == 1:
            [(kind, value)] = node.items()
            if kind == "array" and value in self._arrays:
                return self._arrays[value]
            if kind == "name":
                return self._named(value)
            if kind in _KINDS:
                return _KINDS[kind][2](*self._list(value, depth))
        raise Damage(f"its tree holds {node!r:.80}, which means nothing")

    def _list(self, value: Any, depth: int) -> list[Any]:
        return [self.read(item, depth + 1) for item in _expect(value, list)]

    def _named(self, name: Any) -> Any:
        try:
            found = find(_expect(name, str), self._trusted)
        except (ImportError, AttributeError) as error:
            raise Refusal(
                f"it needs {name!r:.80}, which cannot be imported ({error!s:.200}); install the "
                "package and version that the model was saved with"
            ) from error
        if found is None:
            raise Refusal(
                f"it needs {name!r:.80}, which is not trusted; if you trust it, pass "
                f"trusted=[{name!r:.80}]"
            )
        return found

    def _object(self, name: Any, state: Any, depth: int) -> Any:
        kind = self._named(name)
        values = {key: self.read(node, depth + 1) for key, node in _expect(state, dict).items()}
        whole = complete(kind, values)
        check_attributes(kind, values)
        if self._finished and (wrong := find_nan(kind, values)):
            raise Damage(f"its {kind.__name__} has NaN in {wrong}, must have numbers")
        instance = object.__new__(kind)
        vars(instance).update(whole)
        return instance


# --- values that are made of others


def _join_random(*state: Any) -> np.random.RandomState:
    random = np.random.RandomState()
    random.set_state(state)
    return random


def _join_requests(owner: str, requests: dict[str, dict[str, Any]]) -> MetadataRequest:
    joined = MetadataRequest(owner)
    for method, aliases in requests.items():
        for name, alias in aliases.items():
            getattr(joined, method).add_request(param=name, alias=alias)
    return joined


# By name: the type, the parts of a value, None if it has none, and how parts make a value.
_KINDS: Mapping[str, tuple[type[Any], Callable[[Any], Any], Callable[..., Any]]] = {
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
        get_divergence,
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
    "requests": (  # of metadata; their owner, for display only, is the model itself
        MetadataRequest,
        lambda v: (type(v.owner).__name__, v._serialize()),
        _join_requests,
    ),
    "random state": (
        np.random.RandomState,
        lambda v: v.get_state() if "MT19937" in v.get_state(legacy=False).values() else None,
        _join_random,
    ),
}
_EXACT = (list, tuple, set, dict)  # instances of other types that derive from these are refused


def _take_apart(value: Any) -> tuple[str, Any] | None:
    """Return the name of the kind of a value and its parts, None if it has none."""
    for name, (kind, split, _) in _KINDS.items():
        if isinstance(value, kind) and (type(value) is kind or kind not in _EXACT):
            parts = split(value)
            return None if parts is None else (name, parts)
    return None


def _expect(value: Any, kind: type[Any]) -> Any:
    if type(value) is not kind:
        raise Damage(f"its tree holds {value!r:.80} in place of a {kind.__name__}")
    return value


# --- names, the shortest paths to import from, such as sklearn.svm.SVC: private modules may move


def get_name(value: Callable[..., Any]) -> str | None:
    """Return the name of a class or function; None for lambdas and what is local to a function."""
    # The ufuncs of SciPy do not know their module.
    parts = (getattr(value, "__module__", None) or "scipy.special").split(".")
    for count in range(1, len(parts) + 1):
        module = ".".join(parts[:count])
        if getattr(sys.modules.get(module), value.__name__, None) is value:
            return f"{module}.{value.__name__}"
    return None


def find(name: Any, trusted: Collection[str] = ()) -> Any:
    """Return what a name stands for, or None for what is not trusted, which is not imported."""
    module, _, last = str(name).rpartition(".")
    package, *inner = module.split(".")
    public = not any(part.startswith("_") or part in ("conftest", "tests") for part in inner)
    chosen = name in trusted or name in _FURTHER
    if not (chosen or module in _NUMERIC or (package in PACKAGES and public)):
        return None
    found = getattr(import_module(module), last)
    return found if chosen or _is_harmless(found) else None


def _is_harmless(found: Any) -> bool:
    home = getattr(found, "__module__", None) or ""  # modules also hold what they import
    if isinstance(found, type):
        ours = home.partition(".")[0] in PACKAGES
        learns = hasattr(found, "get_params") or hasattr(found, "get_n_splits")
        return issubclass(found, np.generic) or (ours and learns)
    pure = isinstance(found, types.FunctionType) and home.startswith(_PURE)
    return pure or isinstance(found, np.ufunc)
