"""Which pairs of matrices a log-Euclidean metric is learned from, and where it starts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics.pairwise import euclidean_distances

from divlearn.arrays import RealArray
from divlearn.geometry import invsqrtm

__all__ = [
    "Codes", "Pairs", "distance_percentiles", "find_prior", "label_nearest", "move", "near_pairs",
]  # fmt: skip

Codes = NDArray[np.intp]
Pairs = tuple[NDArray[np.intp], NDArray[np.bool_]]  # indices (n_pairs, 2); of one class or not

_NEIGHBORS = 5  # of each matrix in its class, by which the metric starts
_SHRINKAGE = 1e-3  # of their scatter, towards a multiple of the identity
_SAMPLE = 20_000  # pairs, for percentiles
_ROWS = 1024  # whose distances are held at a time


def move(logarithms: RealArray, root: RealArray) -> RealArray:
    """Vectors whose squared distances are tr(Q (S - T)^2), Q = root root^T."""
    return (logarithms @ root).reshape(len(logarithms), -1)


def find_prior(logarithms: RealArray, codes: Codes) -> RealArray:
    """Root of Q_0, the inverse scatter of neighbours of one class."""
    pairs, similar = near_pairs(
        logarithms.reshape(len(logarithms), -1), codes, 2 * _NEIGHBORS * len(codes), None
    )
    some = pairs[similar]
    gaps = logarithms[some[:, 0]] - logarithms[some[:, 1]]
    scatter = np.tensordot(gaps, gaps, axes=([0, 1], [0, 1]))
    size = np.trace(scatter) / len(scatter)
    if size == 0:
        return np.eye(len(scatter))
    return invsqrtm(scatter / size + _SHRINKAGE * np.eye(len(scatter)))


def distance_percentiles(
    vectors: RealArray, ends: tuple[float, float], rng: np.random.Generator
) -> tuple[float, float]:
    """Percentiles of squared distances between vectors that differ."""
    first, second = rng.integers(len(vectors), size=(2, min(_SAMPLE, len(vectors) ** 2)))
    gaps = vectors[first] - vectors[second]
    squares = np.einsum("ij,ij->i", gaps, gaps)
    squares = squares[squares > 0]
    low, high = np.percentile(squares, ends) if len(squares) else (1.0, 1.0)
    return float(low), float(high)


def label_nearest(vectors: RealArray, codes: Codes, queries: RealArray) -> Codes:
    """Labels of the vectors that are nearest to queries."""
    nearest = [
        euclidean_distances(queries[start : start + _ROWS], vectors, squared=True).argmin(axis=1)
        for start in range(0, len(queries), _ROWS)
    ]
    labels: Codes = codes[np.concatenate(nearest)]
    return labels


def near_pairs(
    vectors: RealArray, codes: Codes, count: int, rng: np.random.Generator | None
) -> Pairs:
    """Pairs of vectors with near ones, of their class and of others in turn.

    Parameters
    ----------
    vectors : ndarray, shape (n, n_features)
    codes : ndarray of int, shape (n,)
    count : int
        How many pairs, if there are as many: all nearest ones, in an order the generator draws,
        then all second nearest ones. Copies of a vector are left out.
    rng : Generator or None
        None keeps the order of the vectors.

    Returns
    -------
    pairs : ndarray of int, shape (n_pairs, 2)
    similar : ndarray of bool, shape (n_pairs,)
    """
    n = len(vectors)
    ranks = -(-count // (2 * n))
    order = np.arange(n) if rng is None else rng.permutation(n)
    found = np.full((2, n, ranks), -1, dtype=np.intp)  # of the own class, of others
    for code in np.unique(codes):
        own, others = np.flatnonzero(codes == code), np.flatnonzero(codes != code)
        for kind, candidates in ((0, own), (1, others)):
            k = min(ranks, len(candidates) - (kind == 0))
            if k > 0:
                found[kind, own, :k] = _nearest(vectors, own, candidates, k)
    second = found[:, order].transpose(2, 1, 0).ravel()  # by rank, then vector, then kind
    first = np.tile(np.repeat(order, 2), ranks)
    similar = np.tile([True, False], n * ranks)
    kept = np.flatnonzero(second >= 0)
    kept = kept[(vectors[first[kept]] != vectors[second[kept]]).any(axis=1)][:count]
    return np.column_stack([first[kept], second[kept]]), similar[kept]


def _nearest(vectors: RealArray, rows: Codes, candidates: Codes, k: int) -> NDArray[np.intp]:
    """Find the k candidates nearest to each row, ascending, but for the row itself."""
    found = np.empty((len(rows), k), dtype=np.intp)
    for start in range(0, len(rows), _ROWS):
        block = rows[start : start + _ROWS]
        table = euclidean_distances(vectors[block], vectors[candidates], squared=True)
        table[block[:, None] == candidates] = np.inf
        some = np.argpartition(table, k - 1, axis=1)[:, :k]
        order = np.take_along_axis(table, some, axis=1).argsort(axis=1)
        found[start : start + _ROWS] = candidates[np.take_along_axis(some, order, axis=1)]
    return found
