"""Nearest neighbours of vectors, exact up to the rounding of their differences."""

from __future__ import annotations

import numpy as np
from sklearn.neighbors import NearestNeighbors

from divlearn.arrays import Indices, RealArray
from divlearn.log_vectors import sum_squares

_ROUNDINGS = 8  # in a squared distance by products, of the size of its terms


class VectorNeighbors:
    """Vectors among which nearest ones are searched, in the Euclidean distance.

    scikit-learn computes squared distances by products, which lose the digits of small ones. Where
    that leaves open which vectors are nearest, they are found by differences.
    """

    def __init__(self, vectors: RealArray) -> None:
        # Around their mean, and in units of a power of two in which no square overflows.
        self._middle = vectors.mean(axis=0)
        centred = vectors - self._middle
        self._exponent = int(np.frexp(np.abs(centred).max())[1])
        self._vectors = np.ldexp(centred, -self._exponent)
        self._largest = float(sum_squares(self._vectors).max())
        self._index = NearestNeighbors(algorithm="brute").fit(self._vectors)

    def find(self, queries: RealArray, k: int) -> tuple[RealArray, Indices]:
        """Distances to the k nearest vectors and their indices, in this order."""
        moved = np.ldexp(queries - self._middle, -self._exponent)
        distances, neighbors = self._index.kneighbors(moved, min(k + 1, len(self._vectors)))
        rounding = _ROUNDINGS * np.finfo(float).eps * (sum_squares(moved) + self._largest)
        farthest = distances[:, k - 1] ** 2 + 2 * rounding
        neighbors = neighbors[:, :k].astype(np.intp, copy=False)
        if distances.shape[1] > k:
            for row in np.flatnonzero(distances[:, k] ** 2 <= farthest):
                neighbors[row] = self._compare(moved[row], float(farthest[row]), k)
        gaps = moved[:, None] - self._vectors[neighbors]
        found = np.ldexp(np.linalg.norm(gaps, axis=2), self._exponent)
        return take_nearest(found, neighbors, k)

    def _compare(self, query: RealArray, farthest: float, k: int) -> Indices:
        """Find the k nearest by differences from all vectors that may be among them."""
        squares = sum_squares(self._vectors) - 2 * (self._vectors @ query) + query @ query
        candidates = np.flatnonzero(squares <= farthest)
        gaps = sum_squares(self._vectors[candidates] - query)
        return candidates[np.argsort(gaps, kind="stable")[:k]]


def take_nearest(distances: RealArray, neighbors: Indices, k: int) -> tuple[RealArray, Indices]:
    """Return the k nearest of some neighbours, in the order of distances, then of indices."""
    order = np.lexsort((neighbors, distances), axis=1)[:, :k]
    rows = np.arange(len(order))[:, None]
    return distances[rows, order], neighbors[rows, order]
