"""Names in files: what they stand for, and which of them are trusted.

Names are the shortest paths to import from, such as sklearn.svm.SVC: private modules may move.
"""

import dataclasses
import sys
from collections.abc import Callable, Collection
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin

PACKAGES = ("divlearn", "pyriemann", "sklearn")  # whose estimators and splitters are trusted
_NUMERIC = ("numpy", "scipy.special")  # whose ufuncs and types of numbers are
# Modules whose functions and classes compute, and do nothing else.
_PURE = (
    "divlearn.iddl.losses",
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
}
_PROGRAMS = {"__main__", "conftest", "tests"}  # modules that do more


def get_name(value: Callable[..., Any]) -> str | None:
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


def _is_harmless(found: Any) -> bool:
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
