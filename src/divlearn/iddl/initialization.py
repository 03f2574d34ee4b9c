"""Where learning starts: atoms from the data, parameters from a grid."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from divlearn.arrays import RealArray
from divlearn.geometry import expm, logm

__all__ = ["initial_atoms", "share_atoms"]

_METHODS = ("class-kmeans", "kmeans", "samples", "identity")


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
    random_state: np.random.RandomState,
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
    return np.concatenate([_centres(X[group], n, random_state) for group, n in chosen if n])


def _sample(X: RealArray, n: int, random_state: np.random.RandomState) -> RealArray:
    return X[random_state.choice(len(X), n, replace=n > len(X))]


def _centres(X: RealArray, n: int, random_state: np.random.RandomState) -> RealArray:
    """Log-Euclidean k-means; where there are too few different matrices, some come twice."""
    logarithms = logm(X)
    d = X.shape[-1]
    rows = logarithms.reshape(len(X), -1)
    n_different = len(np.unique(rows, axis=0))
    k = min(n, n_different)
    found = KMeans(k, n_init=1, random_state=random_state).fit(rows)
    centres = found.cluster_centers_.reshape(k, d, d)
    atoms = expm(0.5 * (centres + centres.mT))
    return atoms if k == n else atoms[np.arange(n) % k]
