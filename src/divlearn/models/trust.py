"""Trust in files: names that they may hold, and attributes that classes declare.

Names are the shortest paths to import from, such as sklearn.svm.SVC: private modules may move.

Annotations of classes declare types of attributes. ``Annotated[RealArray, "n_atoms d d"]`` declares
a shape as well: a name stands for the same size in all attributes of an object, "..." for any axes
in front, and an integer that is annotated with a name is that size itself.
"""

import dataclasses
import inspect
import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache, cached_property
from importlib import import_module
from itertools import repeat
from numbers import Integral, Real
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from divlearn.files.variables import Damage

PACKAGES = ("divlearn", "pyriemann", "sklearn")  # whose estimators and splitters are trusted
_NUMERIC = ("numpy", "scipy.special")  # whose ufuncs and types of numbers are
# Modules whose functions and classes compute, and do nothing else.
_PURE = (
    "divlearn.fitting.rows",
    "divlearn.heads.losses",
    "pyriemann.clustering",
    "pyriemann.geometry",
    "pyriemann.utils",
    "sklearn._loss",
    "sklearn.calibration",
    "sklearn.feature_selection",
    "sklearn.linear_model._sgd_fast",
    "sklearn.metrics",
)
_MOVED = {  # since version 0.2
    "divlearn.Divergence": "divlearn.ABDivergence",
    "divlearn.baselines.DivergenceKNN": "divlearn.DivergenceKNN",
    "divlearn.baselines.DivergenceMDM": "divlearn.DivergenceMDM",
    "divlearn.models.samples.Recordings": "divlearn.models.storage.Recordings",
}
# Since version 0.2 these have other attributes.
CHANGED = (
    "divlearn.DivergenceKernelClassifier",
    "divlearn.SPDClassifier",
    "divlearn.baselines.DivergenceKNN",
    "divlearn.baselines.KernelLLC",
    "divlearn.baselines.KernelSparseCoding",
    "divlearn.baselines.LogEuclideanSVM",
    "divlearn.baselines.RSPDL",
)
_PROGRAMS = {"__main__", "conftest", "tests"}  # modules that do more
# What was measured during a fit, of which some may be missing, and what stands for missing values.
_MAY_BE_NAN = re.compile(
    "categories_|cv_results_|held_out_|history_|oob_|oof_|optimistic|pvalue|ratio|score"
)
_FILLS_IN = "sklearn.impute"
_KERNELS = ("linear", "poly", "rbf", "sigmoid")  # of the support vectors themselves


def get_name(value: Callable[..., object]) -> str | None:
    """Return the name of a class or function; None for lambdas and what is local to a function."""
    # The ufuncs of SciPy do not know their module.
    parts = (getattr(value, "__module__", None) or "scipy.special").split(".")
    for count in range(1, len(parts) + 1):
        module = ".".join(parts[:count])
        if getattr(sys.modules.get(module), value.__name__, None) is value:
            return f"{module}.{value.__name__}"
    return None


def find(name: str, trusted: Collection[str] = ()) -> Any:
    """Return what a name stands for, or None for what is not trusted, which is not imported."""
    module, _, last = _MOVED.get(name, name).rpartition(".")
    known = lies_in(module, PACKAGES) and _PROGRAMS.isdisjoint(module.split("."))
    if not (name in trusted or known or module in _NUMERIC):
        return None
    found = getattr(import_module(module), last)
    return found if name in trusted or _is_harmless(found) else None


def lies_in(name: str, places: Collection[str]) -> bool:
    """Whether a module is one of these places, or inside one."""
    return any(f"{name}.".startswith(f"{place}.") for place in places)


def _is_harmless(found: object) -> bool:
    home = getattr(found, "__module__", None) or ""  # modules also hold what they import
    if not isinstance(found, type):
        return isinstance(found, np.ufunc) or (callable(found) and lies_in(home, _PURE))
    learns = hasattr(found, "get_params") or hasattr(found, "get_n_splits")
    # libsvm does not look at sizes, and those of regressors are not public.
    checked = issubclass(found, ClassifierMixin) or not hasattr(found, "n_support_")
    record = dataclasses.is_dataclass(found) and lies_in(home, ["divlearn"])
    compiled = lies_in(home, ["divlearn.engines"])  # whose records go to compiled code
    known = (learns and checked and lies_in(home, PACKAGES)) or lies_in(home, _PURE)
    return issubclass(found, np.generic) or known or (record and not compiled)


def complete(kind: type, values: dict[str, object]) -> dict[str, object]:
    """Add the defaults of parameters that older versions did not have; records must be whole."""
    record = dataclasses.is_dataclass(kind)
    if not (record or issubclass(kind, BaseEstimator)):
        return values
    given = inspect.signature(kind).parameters
    missing = {name: one.default for name, one in given.items() if name not in values}
    whole = values | {
        name: one for name, one in missing.items() if one is not inspect.Parameter.empty
    }
    if record and (wrong := whole.keys() ^ given.keys()):
        raise Damage(f"its {kind.__name__} differs from its class in {', '.join(sorted(wrong))}")
    return whole


def check_attributes(kind: type, values: dict[str, object]) -> None:
    """Refuse what takes the place of a method, and values that a class does not expect."""
    for name in values:
        hidden = inspect.getattr_static(kind, name, None)
        code = name.startswith("_") or callable(hidden) or hasattr(hidden, "__get__")
        taken = hidden is not None and code and not isinstance(hidden, cached_property)
        if taken or name.startswith("__"):
            raise Damage(f"its {kind.__name__} has a value for {name}, which is not an attribute")
    sizes: dict[str, int] = {}
    learned = values.keys() - _parameters(kind)
    for name, hint in _announced_types(kind).items():
        if name in learned and not _conforms(value := values[name], hint, sizes):
            shown = f"of shape {value.shape}" if hasattr(value, "shape") else ascii(value)[:60]
            shapes = " and ".join(re.findall("'(.+?)'", str(hint)))
            must = f"of shape {shapes}" if shapes else "of another type"
            known = "".join(f", {size}={n}" for size, n in sizes.items() if size in shapes)
            raise Damage(f"its {kind.__name__} has {name} {shown}, must be {must}{known}")


def check_machine(model: Any) -> None:
    """Refuse a support vector classifier whose sizes differ: libsvm would not look at them."""
    fitted = hasattr(type(model), "n_support_") and hasattr(model, "support_vectors_")
    if not (fitted and isinstance(model, ClassifierMixin)):
        return
    counts, support = model.n_support_, model.support_
    pairs = (len(counts) * (len(counts) - 1) // 2,)

    def agrees(name: str, value: Any) -> bool:
        """Whether what it computes with, in private, is of the size of the public attribute."""
        shown = getattr(model, name[1:], None)
        if shown is None and isinstance(value, np.ndarray) and value.dtype.kind == "f":
            return value.shape in ((0,), pairs)  # parameters of probabilities
        return value is not None and (shown is None or np.shape(value) == np.shape(shown))

    private = [item for item in vars(model).items() if item[0][0] == "_" and "__" not in item[0]]
    if not (
        all(agrees(*item) for item in private)
        and model.dual_coef_.shape == (len(counts) - 1, len(support))
        and model.intercept_.shape == pairs
        and counts.sum() == len(support)
        and (len(model.support_vectors_) == len(support) or model.kernel not in _KERNELS)
        and min(counts.min(), support.min(initial=0)) >= 0
        and support.max(initial=0) < model.shape_fit_[0]
    ):
        raise Damage(f"its {type(model).__name__} has arrays of sizes that differ")


def find_nan(kind: type, values: dict[str, object]) -> str | None:
    """Name what a model has learned and is not a number, if anything; predictions would be wild."""
    home = kind.__module__
    if home.partition(".")[0] not in PACKAGES or home.startswith(_FILLS_IN):
        return None
    learned = values.keys() - _parameters(kind)
    wrong = (name for name in values if name in learned and not _MAY_BE_NAN.search(name))
    return next((name for name in wrong if _has_nan(values[name])), None)


def _parameters(kind: type) -> Iterable[str]:
    """Names of parameters, which `fit` checks."""
    return inspect.signature(kind).parameters if issubclass(kind, BaseEstimator) else ()


def _has_nan(value: object) -> bool:
    if isinstance(value, dict | list | tuple):
        return any(map(_has_nan, value.values() if isinstance(value, dict) else value))
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in "fc" and bool(np.isnan(value).any())
    return isinstance(value, float) and math.isnan(value)


@cache
def _announced_types(kind: type) -> dict[str, object]:
    """Types of the attributes of a class by name, as its annotations say."""
    try:
        return get_type_hints(kind, include_extras=True)
    except NameError:  # names that are imported for type checkers alone
        return {}


def _conforms(value: Any, hint: object, sizes: dict[str, int]) -> bool:
    """Whether a value is of a type and shape; hints that say nothing of values are met by all."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _conforms(value, arguments[0], sizes) and _fits(value, arguments[1].split(), sizes)
    if origin in (Union, UnionType):
        return any(_conforms(value, one, sizes) for one in arguments)
    if origin in (dict, list, tuple):
        if type(value) is not origin:
            return False
        parts = value.values() if origin is dict else value
        fixed = origin is tuple and ... not in arguments
        kinds = arguments if fixed else len(value) * [arguments[origin is dict]]
        return len(value) == len(kinds) and all(map(_conforms, parts, kinds, repeat(sizes)))
    if origin is np.ndarray:
        return isinstance(value, np.ndarray | np.generic)
    if isinstance(origin, type):
        return isinstance(value, origin)
    if not isinstance(hint, type) or hint is Any or getattr(hint, "_is_protocol", False):
        return True
    wider: dict[type, type | UnionType] = {float: Real, int: Integral, bool: bool | np.bool_}
    return isinstance(value, wider.get(hint, hint))


def _fits(value: Any, names: Sequence[str], sizes: dict[str, int]) -> bool:
    """Whether an array has the sizes of these names, of which those not known yet are noted."""
    if value is None:
        return True
    shape = (value,) if isinstance(value, Integral) else np.shape(value)
    if np.iscomplexobj(value):  # Hermitian matrices of size d stand for real ones of size 2 d
        shape = (*shape[:-2], *(2 * size for size in shape[-2:]))
    if names[0] == "...":
        names = names[1:]
        shape = shape[max(len(shape) - len(names), 0) :]
    same = (sizes.setdefault(*pair) == pair[1] for pair in zip(names, shape, strict=False))
    return len(shape) == len(names) and all(same)
