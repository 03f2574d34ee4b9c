"""Checks of model files: trusted names, and the types and shapes of attributes.

A name is the shortest import path, such as sklearn.svm.SVC, because private modules may move.

Annotations of classes declare types of attributes. ``Annotated[RealArray, "n_atoms d d"]`` declares
a shape as well: a name stands for the same size in all attributes of an object, "..." for any
leading axes, and an integer that is annotated with a name is that size.
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

PACKAGES = ("divlearn", "pyriemann", "sklearn")  # estimators and splitters of these are trusted
_NUMERIC = ("numpy", "scipy.special")  # ufuncs and types of numbers of these are trusted
# Modules whose functions and classes have no side effects.
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
# Classes whose attributes have changed since version 0.2, and an attribute by which those files are
# known that have them all. The last class got it during 0.2.
CHANGED = dict.fromkeys(
    (
        "divlearn.DivergenceKernelClassifier",
        "divlearn.SPDClassifier",
        "divlearn.baselines.DivergenceKNN",
        "divlearn.baselines.KernelLLC",
        "divlearn.baselines.KernelSparseCoding",
        "divlearn.baselines.LogEuclideanSVM",
        "divlearn.baselines.RSPDL",
    )
) | {"divlearn.baselines.DivergenceMDM": "_field"}
_PROGRAMS = {"__main__", "conftest", "tests"}  # modules that run code when they are imported
# Attributes with measurements of a fit, where NaN is a missing value.
_MAY_BE_NAN = re.compile(
    "categories_|cv_results_|held_out_|history_|oob_|oof_|optimistic|pvalue|ratio|score"
)
_IMPUTERS = "sklearn.impute"
_KERNELS = ("linear", "poly", "rbf", "sigmoid")  # for which the support vectors are stored


def get_name(value: Callable[..., object]) -> str | None:
    """Return the name of a class or function, None for lambdas and local definitions."""
    # The ufuncs of SciPy have no ``__module__``.
    parts = (getattr(value, "__module__", None) or "scipy.special").split(".")
    for count in range(1, len(parts) + 1):
        module = ".".join(parts[:count])
        if getattr(sys.modules.get(module), value.__name__, None) is value:
            return f"{module}.{value.__name__}"
    return None


def import_trusted(name: str, trusted: Collection[str] = ()) -> Any:
    """Import a class or function by its name; None if it is not trusted."""
    module, _, last = _MOVED.get(name, name).rpartition(".")
    may_import = is_inside(module, PACKAGES) and _PROGRAMS.isdisjoint(module.split("."))
    if not (name in trusted or may_import or module in _NUMERIC):
        return None
    value = getattr(import_module(module), last)
    return value if name in trusted or _is_harmless(value) else None


def is_inside(module: str, packages: Collection[str]) -> bool:
    """Whether a module is one of these packages, or inside one."""
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def _is_harmless(value: object) -> bool:
    module = getattr(value, "__module__", None) or ""  # where it is defined
    if not isinstance(value, type):
        return isinstance(value, np.ufunc) or (callable(value) and is_inside(module, _PURE))
    is_estimator = hasattr(value, "get_params") or hasattr(value, "get_n_splits")
    # libsvm does not check sizes, and `check_svc` cannot check those of regressors.
    is_checked = issubclass(value, ClassifierMixin) or not hasattr(value, "n_support_")
    if (is_estimator and is_checked and is_inside(module, PACKAGES)) or is_inside(module, _PURE):
        return True
    # Dataclasses of engines are passed to compiled code.
    in_python = is_inside(module, ["divlearn"]) and not is_inside(module, ["divlearn.engines"])
    return issubclass(value, np.generic) or (in_python and dataclasses.is_dataclass(value))


def add_defaults(cls: type, values: dict[str, object]) -> dict[str, object]:
    """Add defaults of parameters that older versions lacked; dataclasses must be complete."""
    is_dataclass = dataclasses.is_dataclass(cls)
    if not (is_dataclass or issubclass(cls, BaseEstimator)):
        return values
    parameters = inspect.signature(cls).parameters
    defaults = {name: p.default for name, p in parameters.items() if p.default is not p.empty}
    values = values | {name: defaults[name] for name in defaults if name not in values}
    if is_dataclass and (wrong := values.keys() ^ parameters.keys()):
        raise Damage(f"its {cls.__name__} differs from its class in {', '.join(sorted(wrong))}")
    return values


def check_attributes(cls: type, values: dict[str, object]) -> None:
    """Refuse values in place of methods, and values of other types than a class declares."""
    for name in values:
        member = inspect.getattr_static(cls, name, None)
        is_code = name.startswith("_") or callable(member) or hasattr(member, "__get__")
        is_taken = member is not None and is_code and not isinstance(member, cached_property)
        if is_taken or name.startswith("__"):
            raise Damage(f"its {cls.__name__} has a value for {name}, which is not an attribute")
    sizes: dict[str, int] = {}
    learned = values.keys() - _parameters(cls)
    for name, hint in _declared_types(cls).items():
        if name in learned and not _conforms(value := values[name], hint, sizes):
            actual = f"of shape {value.shape}" if hasattr(value, "shape") else ascii(value)[:60]
            shapes = " and ".join(re.findall("'(.+?)'", str(hint)))
            expected = f"of shape {shapes}" if shapes else "of another type"
            expected += "".join(f", {size}={n}" for size, n in sizes.items() if size in shapes)
            raise Damage(f"its {cls.__name__} has {name} {actual}, must be {expected}")


def check_svc(model: Any) -> None:
    """Refuse a support vector classifier with arrays of different sizes, unchecked by libsvm."""
    fitted = hasattr(type(model), "n_support_") and hasattr(model, "support_vectors_")
    if not (fitted and isinstance(model, ClassifierMixin)):
        return
    counts, support = model.n_support_, model.support_
    n_pairs = (len(counts) * (len(counts) - 1) // 2,)

    def agrees(name: str, value: Any) -> bool:
        """Whether a private attribute, used by libsvm, has the shape of the public one."""
        public = getattr(model, name[1:], None)
        if public is None and isinstance(value, np.ndarray) and value.dtype.kind == "f":
            return value.shape in ((0,), n_pairs)  # parameters of probabilities
        return value is not None and (public is None or np.shape(value) == np.shape(public))

    private = [item for item in vars(model).items() if item[0][0] == "_" and "__" not in item[0]]
    if not (
        all(agrees(*item) for item in private)
        and model.dual_coef_.shape == (len(counts) - 1, len(support))
        and model.intercept_.shape == n_pairs
        and counts.sum() == len(support)
        and (len(model.support_vectors_) == len(support) or model.kernel not in _KERNELS)
        and min(counts.min(), support.min(initial=0)) >= 0
        and support.max(initial=0) < model.shape_fit_[0]
    ):
        raise Damage(f"its {type(model).__name__} has arrays of sizes that differ")


def find_nan(cls: type, values: dict[str, object]) -> str | None:
    """Return the name of a learned attribute that contains NaN, or None."""
    module = cls.__module__
    if module.partition(".")[0] not in PACKAGES or module.startswith(_IMPUTERS):
        return None
    learned = values.keys() - _parameters(cls)
    checked = (name for name in values if name in learned and not _MAY_BE_NAN.search(name))
    return next((name for name in checked if _has_nan(values[name])), None)


def _parameters(cls: type) -> Iterable[str]:
    """Names of the parameters of an estimator, which `fit` checks."""
    return inspect.signature(cls).parameters if issubclass(cls, BaseEstimator) else ()


def _has_nan(value: object) -> bool:
    if isinstance(value, dict | list | tuple):
        return any(map(_has_nan, value.values() if isinstance(value, dict) else value))
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in "fc" and bool(np.isnan(value).any())
    return isinstance(value, float) and math.isnan(value)


@cache
def _declared_types(cls: type) -> dict[str, object]:
    """Annotations of the attributes of a class, by name."""
    try:
        return get_type_hints(cls, include_extras=True)
    except NameError:  # names that are imported only for type checkers
        return {}


def _conforms(value: Any, hint: object, sizes: dict[str, int]) -> bool:
    """Whether a value is of a type and shape; True for annotations that cannot be checked."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _conforms(value, arguments[0], sizes) and _fits(value, arguments[1].split(), sizes)
    if origin in (Union, UnionType):
        return any(_conforms(value, argument, sizes) for argument in arguments)
    if origin in (dict, list, tuple):
        if type(value) is not origin:
            return False
        parts = value.values() if origin is dict else value
        fixed = origin is tuple and ... not in arguments
        hints = arguments if fixed else len(value) * [arguments[origin is dict]]
        return len(value) == len(hints) and all(map(_conforms, parts, hints, repeat(sizes)))
    if origin is np.ndarray:
        return isinstance(value, np.ndarray | np.generic)
    if isinstance(origin, type):
        return isinstance(value, origin)
    if not isinstance(hint, type) or hint is Any or getattr(hint, "_is_protocol", False):
        return True
    wider: dict[type, type | UnionType] = {float: Real, int: Integral, bool: bool | np.bool_}
    return isinstance(value, wider.get(hint, hint))


def _fits(value: Any, names: Sequence[str], sizes: dict[str, int]) -> bool:
    """Whether an array has the sizes of these names; new names are added to ``sizes``."""
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
