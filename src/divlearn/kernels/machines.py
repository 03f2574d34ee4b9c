"""Support vector machines on tables of kernels, which decide between pairs of classes."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import numpy as np
from sklearn import config_context
from sklearn.svm import SVC

from divlearn.arrays import Indices, RealArray
from divlearn.engines.compiled import is_compiled, solve_pairs
from divlearn.kernels.tables import cut

_TOLERANCE = 1e-3  # that of SVC


@dataclass(frozen=True, eq=False)
class PairMachine:
    """What decisions of `sklearn.svm.SVC` need, by its names."""

    support_: Annotated[Indices, "n_support"]
    n_support_: Annotated[Indices, "n_classes"]
    dual_coef_: Annotated[RealArray, "n_others n_support"]
    intercept_: Annotated[RealArray, "n_pairs"]


def fit_svc(kernel: RealArray, C: float, codes: Indices, weights: RealArray) -> SVC:
    """Fit a machine to a table of kernels."""
    machine = SVC(C=C, kernel="precomputed", decision_function_shape="ovo", tol=_TOLERANCE)
    with config_context(assume_finite=True, skip_parameter_validation=True):
        return machine.fit(kernel, codes, sample_weight=weights)


def fit_pairs(
    kernel: RealArray, C: float, codes: Indices, weights: RealArray, rows: Indices | None = None
) -> SVC | PairMachine:
    """Fit the same machine to samples that come class by class, in a third of the time.

    They are rows of the kernel, all by default.
    """
    if rows is None:
        rows = np.arange(len(kernel))
    if not is_compiled():
        return fit_svc(cut(kernel, rows, rows), C, codes, weights)
    starts = np.flatnonzero(np.diff(codes, prepend=-1, append=codes[-1] + 1))
    coefficients, offsets = solve_pairs(kernel, rows, C * weights, starts, _TOLERANCE)
    if len(offsets) == 1:  # positive for the second class, as in SVC
        coefficients, offsets = -coefficients, -offsets
    supports = coefficients.any(axis=0)
    counts = np.add.reduceat(supports, starts[:-1], dtype=np.intp)
    return PairMachine(np.flatnonzero(supports), counts, coefficients[:, supports], offsets)


def decide_pairs(machine: SVC | PairMachine, kernel: RealArray) -> RealArray:
    """Decide by the kernels with the support vectors, as `SVC.decision_function` does by all.

    A matrix product for each class takes a small part of the time of libsvm's loops.
    """
    n_classes, ends = len(machine.n_support_), np.cumsum(machine.n_support_)[:-1]
    if n_classes == 2:
        return np.asarray(kernel @ machine.dual_coef_[0] + machine.intercept_)
    decisions = np.repeat(machine.intercept_[:, None], len(kernel), axis=1)
    blocks = zip(np.split(kernel, ends, 1), np.split(machine.dual_coef_, ends, 1), strict=True)
    for against, (some, coefficients) in zip(_places(n_classes), blocks, strict=True):
        decisions[against] += coefficients @ some.T
    return decisions.T


@lru_cache(maxsize=1)
def _places(n_classes: int) -> Indices:
    """Places of every class against the others, among pairs as `numpy.triu_indices` has them."""
    first, second = np.triu_indices(n_classes, 1)
    places = np.empty((n_classes, n_classes - 1), dtype=np.intp)
    places[first, second - 1] = places[second, first] = np.arange(len(first))
    return places
