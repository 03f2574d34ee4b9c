"""Where learning starts: atoms from the data, parameters from a grid."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from divlearn.arrays import RealArray
from divlearn.log_vectors import from_log_vectors, log_vectors
from divlearn.vector_kmeans import fit_vectors, greedy_seeds

__all__ = ["initial_atoms", "share_atoms"]

_METHODS = ("class-kmeans", "kmeans", "samples", "identity")
_MOST_DISTANCES = 1 << 24  # between all vectors, if they are to be known at once


def share_atoms(n_atoms: int, n_classes: int) -> NDArray[np.intp]:
    """Numbers of atoms per class that differ by one at most.

    Examples
    --------
    >>> share_atoms(7, 3)
    array([3, 2, 2])
    """
    shares = np.full(n_classes, n_atoms // n_classes)
    shares[: n_atoms % n_classes] += 1
    return shares


def initial_atoms(
    X: RealArray, codes: NDArray[np.intp] | None, n_atoms: int, method: str,
    random_state: np.random.RandomState, logarithms: Callable[[], RealArray] | None = None,
) -> RealArray:  # fmt: skip
    """Choose atoms.

    Parameters
    ----------
    X : ndarray, shape (n_matrices, d, d)
    codes : ndarray of int, shape (n_matrices,), or None
        Classes, 0 to n_classes - 1; None where there are none.
    n_atoms : int
    method : {"class-kmeans", "kmeans", "samples", "identity"}
        Log-Euclidean k-means in every class or over all data, random matrices of every class, or
        identity matrices.
    random_state : RandomState
    logarithms : callable, optional
        Returns `log_vectors` of X where they are known.

    Returns
    -------
    ndarray, shape (n_atoms, d, d)
    """
    if method not in _METHODS:
        raise ValueError(
            f"init={method!r} must be one of {', '.join(_METHODS)}, or an array of atoms"
        )
    if method == "identity":
        return np.tile(np.eye(X.shape[-1]), (n_atoms, 1, 1))
    if codes is None or method == "kmeans":
        codes = np.zeros(len(X), dtype=np.intp)
    groups = [np.flatnonzero(codes == code) for code in np.unique(codes)]
    chosen = zip(groups, share_atoms(n_atoms, len(groups)), strict=True)
    if method == "samples":
        return np.concatenate([_sample(X[group], n, random_state) for group, n in chosen if n])
    vectors = log_vectors(X) if logarithms is None else logarithms()
    centres = [_centres(vectors[group], n, random_state) for group, n in chosen if n]
    return from_log_vectors(np.concatenate(centres))


def _sample(X: RealArray, n: int, random_state: np.random.RandomState) -> RealArray:
    return X[random_state.choice(len(X), n, replace=n > len(X))]


def _centres(vectors: RealArray, n: int, random_state: np.random.RandomState) -> RealArray:
    """Means of k-means; where there are too few different vectors, some come twice."""
    # Vectors that differ in one entry differ: to compare whole ones takes long.
    k = n if len(np.unique(vectors[:, 0])) >= n else min(n, len(np.unique(vectors, axis=0)))
    seeds = _seeds(vectors, k, random_state)
    start = KMeans(k, init=seeds, n_init=1, random_state=random_state)
    centres: RealArray = fit_vectors(start, vectors).cluster_centers_
    return centres if k == n else centres[np.arange(n) % k]


def _seeds(vectors: RealArray, n: int, random_state: np.random.RandomState) -> RealArray | str:
    """Seeds of k-means, as KMeans draws them, with one product for all distances if that fits."""
    if len(vectors) ** 2 > _MOST_DISTANCES:
        return "k-means++"
    centred = vectors - vectors.mean(axis=0)
    products = centred @ centred.T
    squares = np.diagonal(products)

    def measure(some: NDArray[np.intp]) -> RealArray:
        table: RealArray = squares[:, None] + squares[some] - 2 * products[some].T
        return np.maximum(table, 0)

    return vectors[greedy_seeds(measure, np.ones(len(vectors)), n, random_state)]
