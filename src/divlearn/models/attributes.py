"""Attributes of objects in files: what their classes declare of them.

Annotations declare types. ``Annotated[RealArray, "n_atoms d d"]`` declares a shape as well: a name
stands for the same size in all attributes of an object, "..." for any axes in front, and an integer
that is annotated with a name is that size itself.
"""

import dataclasses
import inspect
import math
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from numbers import Integral, Real
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from sklearn.base import BaseEstimator

from divlearn.files.variables import Damage

PACKAGES = ("divlearn", "pyriemann", "sklearn")  # whose attributes are known
# What was measured during a fit, of which some may be missing, and what stands for missing values.
_MAY_BE_NAN = re.compile("categories_|cv_results_|history_|oob_|oof_|pvalue|ratio|score")
_FILLS_IN = "sklearn.impute"


def complete(kind: type[Any], values: dict[str, Any]) -> dict[str, Any]:
    """Add the defaults of parameters that older versions did not have; records must be whole."""
    record = dataclasses.is_dataclass(kind)
    if not (record or issubclass(kind, BaseEstimator)):
        return values
    given = inspect.signature(kind).parameters
    missing = {name: one.default for name, one in given.items() if name not in values}
    known = {
        name: default for name, default in missing.items() if default is not inspect.Parameter.empty
    }
    if record and (wrong := (values | known).keys() ^ given.keys()):
        raise Damage(f"its {kind.__name__} differs from its class in {', '.join(sorted(wrong))}")
    return values | known


def check_attributes(kind: type[Any], values: dict[str, Any]) -> None:
    """Refuse what takes the place of a method, and values that a class does not expect."""
    hints = _announced_types(kind)  # type: ignore[arg-type]  # mypy: classes are not hashable
    for name in values:
        hidden = inspect.getattr_static(kind, name, None)
        code = callable(hidden) or hasattr(hidden, "__get__")
        if name.startswith("__") or (code and not isinstance(hidden, cached_property)):
            raise Damage(f"its {kind.__name__} has a value for {name}, which is not an attribute")
    sizes: dict[str, int] = {}
    learned = values.keys() - _parameters(kind)
    for name, hint in hints.items():
        if name not in learned:
            continue
        value = values[name]
        if not _conforms(value, hint):
            raise Damage(
                f"its {kind.__name__} has {name}={value!r:.80}, and {type(value).__name__} is not "
                f"the type of {name}"
            )
        for part, declared in _declared_shapes(value, hint):
            if not _fits(part, declared.split(), sizes):
                known = ", ".join(f"{size}={n}" for size, n in sizes.items() if size in declared)
                raise Damage(
                    f"its {kind.__name__} has {name} of shape {np.shape(part)}, must have the "
                    f"shape ({', '.join(declared.split())})" + f" with {known}" * bool(known)
                )
    if "_dual_coef_" in values and hasattr(kind, "_impl"):
        _check_support(kind, values)


def find_nan(kind: type[Any], values: dict[str, Any]) -> str | None:
    """Name what a model has learned and is not a number, if anything; predictions would be wild."""
    home = kind.__module__
    if home.partition(".")[0] not in PACKAGES or home.startswith(_FILLS_IN):
        return None
    learned = values.keys() - _parameters(kind)
    wrong = (name for name in values if name in learned and not _MAY_BE_NAN.search(name))
    return next((name for name in wrong if _has_nan(values[name])), None)


def _parameters(kind: type[Any]) -> Iterable[str]:
    """Names of what users give: whoever fits checks it."""
    return inspect.signature(kind).parameters if issubclass(kind, BaseEstimator) else ()


def _has_nan(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_nan, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_nan, value))
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.kind in "fc" and bool(np.isnan(value).any())
    return isinstance(value, float) and math.isnan(value)


def _check_support(kind: Any, values: dict[str, Any]) -> None:
    """Refuse a support vector machine whose sizes differ: libsvm would not look at them."""
    coef, counts, support = (values[name] for name in ("_dual_coef_", "_n_support", "support_"))
    pairs = len(counts) * (len(counts) - 1) // 2
    used = counts if kind._impl in ("c_svc", "nu_svc") else counts[:1]
    if "_impl" in values or not (
        coef.shape == (len(counts) - 1, len(support))
        and len(values["_intercept_"]) == pairs
        and (used >= 0).all()
        and used.sum() == len(support)
        and {len(values["_probA"]), len(values["_probB"])} <= {0, pairs}
        and ((support >= 0) & (support < values["shape_fit_"][0])).all()
    ):
        raise Damage(f"its {kind.__name__} has arrays of sizes that differ")


@cache
def _announced_types(kind: type[Any]) -> dict[str, Any]:
    """Types of the attributes of a class by name, as its annotations say."""
    try:
        return get_type_hints(kind, include_extras=True)
    except NameError:  # names that are imported for type checkers alone
        return {}


def _conforms(value: Any, hint: Any) -> bool:
    """Whether a value is of a type; hints that say nothing of plain values are met by all."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _conforms(value, arguments[0])
    if origin in (Union, types.UnionType):
        return any(_conforms(value, one) for one in arguments)
    if origin is np.ndarray:
        return isinstance(value, np.ndarray | np.generic)
    if origin is tuple and arguments[1:] != (...,):
        matches = isinstance(value, tuple) and len(value) == len(arguments)
        return matches and all(map(_conforms, value, arguments))
    if origin in (tuple, list, Sequence, Iterable):
        return isinstance(value, list | tuple) and all(_conforms(v, arguments[0]) for v in value)
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(
            all(map(_conforms, item, arguments)) for item in value.items()
        )
    if origin is not None or hint is Any or getattr(hint, "_is_protocol", False):
        return True
    wider: dict[Any, Any] = {float: Real, int: Integral, bool: bool | np.bool_}
    return not isinstance(hint, type) or isinstance(value, wider.get(hint, hint))


def _declared_shapes(value: Any, hint: Any) -> Iterator[tuple[Any, str]]:
    """List the arrays and sizes in a value that have a shape to be of, and these shapes."""
    origin, arguments = get_origin(hint), get_args(hint)
    if value is None:
        return
    if origin is Annotated:
        yield value, arguments[1]
    elif origin in (Union, types.UnionType):
        for one in arguments:
            yield from _declared_shapes(value, one)
    elif origin is tuple and isinstance(value, tuple):
        for part, one in zip(value, arguments, strict=False):
            yield from _declared_shapes(part, one)


def _fits(value: Any, names: Sequence[str], sizes: dict[str, int]) -> bool:
    """Whether an array has the sizes of these names, of which those not known yet are noted."""
    shape = (value,) if isinstance(value, Integral) else np.shape(value)
    if names[0] == "...":
        names = names[1:]
        shape = shape[max(len(shape) - len(names), 0) :]
    same = (sizes.setdefault(*pair) == pair[1] for pair in zip(names, shape, strict=False))
    return len(shape) == len(names) and all(same)
