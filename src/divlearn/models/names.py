"""Names of classes and functions in files, and which of them are trusted.

A name is the shortest path to import from, such as ``sklearn.svm.SVC``: private modules may move.
"""

import sys
from collections.abc import Callable, Collection
from importlib import import_module
from types import FunctionType
from typing import Any

import numpy as np

_PACKAGES = ("divlearn", "pyriemann", "sklearn")  # of trusted estimators and splitters
_NUMERIC = ("numpy", "scipy.special")  # of trusted ufuncs and types of numbers
_PURE = ("pyriemann.geometry", "pyriemann.utils", "sklearn.feature_selection", "sklearn.metrics")
_FURTHER = frozenset({
    "divlearn.Divergence", "divlearn.cluster.parameters.FamilyParameters",
    "divlearn.descriptors.GaborBank", "divlearn.descriptors.Preset", "divlearn.iddl.HingeLoss",
    "divlearn.iddl.Model", "divlearn.iddl.RidgeLoss", "divlearn.iddl.SoftmaxLoss",
    "divlearn.iddl.objective.Dictionary", "divlearn.iddl.objective.Memo",
    "divlearn.iddl.stochastic.Learner", "divlearn.iddl.stochastic.Moments",
    "divlearn.optim.problem.Trial", "pyriemann.clustering.Gaussian",
    "sklearn.calibration._CalibratedClassifier", "sklearn.metrics._scorer._PassthroughScorer",
    "sklearn.metrics._scorer._Scorer",
})  # fmt: skip


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
    if not (chosen or module in _NUMERIC or (package in _PACKAGES and public)):
        return None
    found = getattr(import_module(module), last)
    return found if chosen or _is_harmless(found) else None


def _is_harmless(found: Any) -> bool:
    home = getattr(found, "__module__", None) or ""  # modules also hold what they import
    if isinstance(found, type):
        ours = home.partition(".")[0] in _PACKAGES
        learns = hasattr(found, "get_params") or hasattr(found, "get_n_splits")
        return issubclass(found, np.generic) or (ours and learns)
    pure = isinstance(found, FunctionType) and home.startswith(_PURE)
    return pure or isinstance(found, np.ufunc)
