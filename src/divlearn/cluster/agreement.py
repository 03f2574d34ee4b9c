"""Agreement of clusters with classes, and stability of clusters."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linear_sum_assignment
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.cluster import contingency_matrix, pair_confusion_matrix
from sklearn.utils.validation import check_consistent_length, column_or_1d

from divlearn.arrays import Indices, Labels, RealArray
from divlearn.checks import check_sortable
from divlearn.fitting.progress import is_interrupted

_PERMUTATIONS = 999
_ROUNDING = 1e-12  # indices that differ by less tie
_HALVINGS = 3
_MAX_REFITTED = 2000  # matrices, for which stability is measured


def pairwise_f1_score(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    r"""F1 score over pairs of samples, which should be in one cluster or not.

    With the precision P, the share of pairs in one cluster that are of one class, and the recall R,
    the share of pairs of one class that are in one cluster,

    .. math:: F_1 = \frac{2 P R}{P + R}
              = \frac{2 \sum_{ij} \binom{n_{ij}}{2}}
                     {\sum_i \binom{n_{i\cdot}}{2} + \sum_j \binom{n_{\cdot j}}{2}} ,

    where :math:`n_{ij}` is the number of samples of class i in cluster j. It does not depend on how
    clusters are numbered, and is 1 for the same partition, and where there is no pair to put
    together. Unlike the adjusted Rand index it is not zero for a random clustering.

    Parameters
    ----------
    labels_true, labels_pred : array-like, shape (n_samples,)
        Classes and clusters, numbers or strings.

    Examples
    --------
    >>> pairwise_f1_score([0, 0, 1, 1], ["b", "b", "a", "a"])
    1.0
    >>> pairwise_f1_score([0, 0, 0, 1], [0, 0, 1, 1])
    0.4
    """
    pairs = pair_confusion_matrix(*_codes(labels_true, labels_pred)).tolist()
    (_, cluster_only), (class_only, both) = pairs
    total = 2 * both + cluster_only + class_only
    return 2 * both / total if total else 1.0  # no pair is in one class or cluster


def matched_f1_score(
    labels_true: ArrayLike, labels_pred: ArrayLike, *, average: str = "macro"
) -> float:
    r"""F1 score of classification, with each class matched to one cluster in the best way.

    With :math:`F_{ij} = 2 n_{ij} / (n_{i\cdot} + n_{\cdot j})` the F1 score of cluster j taken for
    class i, the Hungarian method finds the one-to-one matching :math:`\sigma` that maximises

    .. math:: \sum_i \omega_i F_{i \sigma(i)} , \qquad
              \omega_i = 1 / n_{classes} \text{ or } n_{i\cdot} / n .

    Classes that get no cluster count as zero. It is 1 for the same partition only.

    Parameters
    ----------
    labels_true, labels_pred : as in `pairwise_f1_score`
    average : {"macro", "weighted"}, default="macro"
        Whether classes count alike or by their size.

    Examples
    --------
    >>> matched_f1_score([0, 0, 1, 1], [5, 5, 3, 3])
    1.0
    >>> round(matched_f1_score([0, 0, 0, 1], [0, 0, 1, 1]), 4)  # F1 of 0.8 and 0.6667
    0.7333
    """
    if average not in ("macro", "weighted"):
        raise ValueError(f'average={average!r} must be "macro" or "weighted"')
    table = contingency_matrix(*_codes(labels_true, labels_pred))
    sizes = table.sum(axis=1, keepdims=True)
    scores = 2 * table / (sizes + table.sum(axis=0))
    weights = 1 / len(sizes) if average == "macro" else sizes / sizes.sum()
    gains = weights * scores
    return float(gains[linear_sum_assignment(gains, maximize=True)].sum())


def _codes(labels_true: ArrayLike, labels_pred: ArrayLike) -> tuple[Indices, Indices]:
    classes, clusters = column_or_1d(labels_true), column_or_1d(labels_pred)
    check_consistent_length(classes, clusters)
    check_sortable(classes, "labels_true")
    check_sortable(clusters, "labels_pred")
    if not len(classes):
        raise ValueError("labels_true is empty, must hold >= 1 label; pass one label per sample")
    return np.unique(classes, return_inverse=True)[1], np.unique(clusters, return_inverse=True)[1]


def p_agreement(classes: ArrayLike, clusters: Indices, groups: Labels | None = None) -> float:
    """P-value of the adjusted Rand index in a permutation test."""
    # Matrices of a group are alike: each group gets the classes of another one, in random order,
    # and again from the start or not all of them if it is larger or smaller.
    codes = np.unique(classes, return_inverse=True)[1]
    permute, random = _permuter(codes, groups), np.random.RandomState(0)
    observed = _adjusted_rand(codes, clusters)
    permuted = [_adjusted_rand(permute(random), clusters) for _ in range(_PERMUTATIONS)]
    return (1 + sum(index >= observed - _ROUNDING for index in permuted)) / (1 + _PERMUTATIONS)


def _adjusted_rand(codes: Indices, clusters: Indices) -> float:
    """Compute the adjusted Rand index as scikit-learn does, but without its slow checks."""
    n_clusters = int(clusters.max()) + 1
    table = np.bincount(codes * n_clusters + clusters, minlength=(codes.max() + 1) * n_clusters)
    table = table.reshape(-1, n_clusters)
    together, rows, columns = (
        float((counts * (counts - 1)).sum())
        for counts in (table, table.sum(axis=1), table.sum(axis=0))
    )
    expected = rows * columns / (len(codes) * (len(codes) - 1))
    largest = (rows + columns) / 2
    return 1.0 if largest == expected else (together - expected) / (largest - expected)


def _permuter(codes: Indices, groups: Labels | None) -> Callable[[np.random.RandomState], Indices]:
    """Return a function that permutes the classes."""
    if groups is None:
        return lambda random: random.permutation(codes)
    units, sizes = np.unique(groups, return_inverse=True, return_counts=True)[1:]
    starts, places = np.cumsum(sizes) - sizes, np.empty_like(codes)
    places[np.argsort(units, kind="stable")] = np.arange(len(codes))
    places -= starts[units]  # within the group

    def permute(random: np.random.RandomState) -> Indices:
        shuffled = codes[np.lexsort((random.uniform(size=len(codes)), units))]
        donors = random.permutation(len(sizes))[units]
        return shuffled[starts[donors] + places % sizes[donors]]

    return permute


def centers_of(model: BaseEstimator) -> RealArray:
    """Return the centres of clusters or of components, shape (n_clusters, d, d)."""
    centers: RealArray = model.means_ if hasattr(model, "means_") else model.cluster_centers_
    return centers


def measure_stability(
    model: BaseEstimator, matrices: RealArray, groups: Labels | None = None
) -> float:
    """Cluster random halves of matrices: the mean adjusted Rand index of either applied to all.

    It is 1 if both halves lead to the same clusters, and about 0 if these have nothing in common.
    NaN if the halves are too small. Matrices of a group are in the same half.
    """
    random = np.random.RandomState(0)
    rows = np.sort(random.permutation(len(matrices))[:_MAX_REFITTED])
    units = rows if groups is None else np.unique(groups[rows], return_inverse=True)[1]
    matrices, scores = matrices[rows], []
    n_clusters = len(centers_of(model))
    for _ in range(_HALVINGS):
        first = np.isin(units, random.permutation(np.unique(units))[::2])
        if is_interrupted() or min(first.sum(), (~first).sum()) < 2 * n_clusters:
            return math.nan
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            pair = [clone(model).fit(matrices[half]).predict(matrices) for half in (first, ~first)]
        scores.append(adjusted_rand_score(*pair))
    return float(np.mean(scores))
