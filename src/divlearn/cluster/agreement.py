"""Whether clusters are more than chance: beside classes, and beside those of other matrices."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score

from divlearn.arrays import Indices, Labels, RealArray
from divlearn.fitting.interrupts import is_interrupted

_PERMUTATIONS = 999
_ROUNDING = 1e-12  # of indices that tie
_HALVINGS = 3
_MOST_REFITTED = 2000  # matrices that are clustered again


def p_agreement(classes: ArrayLike, clusters: Indices, groups: Labels | None = None) -> float:
    """P-value of an adjusted Rand index no higher than with classes dealt out at random."""
    # Matrices of a group are alike: its class moves as a whole or, if it has several, they change
    # places within it.
    codes = np.unique(classes, return_inverse=True)[1]
    deal, random = _dealer(codes, groups), np.random.RandomState(0)
    found = _adjusted_rand(codes, clusters)
    dealt = [_adjusted_rand(deal(random), clusters) for _ in range(_PERMUTATIONS)]
    return (1 + sum(index >= found - _ROUNDING for index in dealt)) / (1 + _PERMUTATIONS)


def _adjusted_rand(codes: Indices, clusters: Indices) -> float:
    """Compute what scikit-learn does, without its checks: it is needed a thousand times."""
    n_clusters = int(clusters.max()) + 1
    table = np.bincount(codes * n_clusters + clusters, minlength=(codes.max() + 1) * n_clusters)
    table = table.reshape(-1, n_clusters)
    both, rows, columns = (
        float((counts * (counts - 1)).sum())
        for counts in (table, table.sum(axis=1), table.sum(axis=0))
    )
    expected = rows * columns / (len(codes) * (len(codes) - 1))
    most = (rows + columns) / 2
    return 1.0 if most == expected else (both - expected) / (most - expected)


def _dealer(codes: Indices, groups: Labels | None) -> Callable[[np.random.RandomState], Indices]:
    """Return a function that deals out the classes anew."""
    if groups is None:
        return lambda random: random.permutation(codes)
    first, units = np.unique(groups, return_index=True, return_inverse=True)[1:]
    if (codes[first][units] == codes).all():
        return lambda random: random.permutation(codes[first])[units]
    places = np.argsort(units, kind="stable")

    def within(random: np.random.RandomState) -> Indices:
        dealt = np.empty_like(codes)
        dealt[places] = codes[np.lexsort((random.uniform(size=len(codes)), units))]
        return dealt

    return within


def measure_stability(model: Any, matrices: RealArray, groups: Labels | None = None) -> float:
    """Cluster random halves of matrices: the mean adjusted Rand index of either applied to all.

    It is 1 if both halves lead to the same clusters, and about 0 if these have nothing in common.
    NaN if the halves are too small. Matrices of a group are in the same half.
    """
    random = np.random.RandomState(0)
    rows = np.sort(random.permutation(len(matrices))[:_MOST_REFITTED])
    units = rows if groups is None else np.unique(groups[rows], return_inverse=True)[1]
    matrices, scores = matrices[rows], []
    for _ in range(_HALVINGS):
        first = np.isin(units, random.permutation(np.unique(units))[::2])
        if is_interrupted() or min(first.sum(), (~first).sum()) < 2 * _n_clusters(model):
            return math.nan
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            both = [clone(model).fit(matrices[half]).predict(matrices) for half in (first, ~first)]
        scores.append(adjusted_rand_score(*both))
    return float(np.mean(scores))


def _n_clusters(model: Any) -> int:
    centers = model.means_ if hasattr(model, "means_") else model.cluster_centers_
    return len(centers)
