"""Logarithms of SPD matrices as vectors, and k-means of vectors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from divlearn.arrays import Indices, RealArray, on_device, to_device_of, to_host
from divlearn.engines.cpu import cpu_engine
from divlearn.engines.data import Prepared
from divlearn.geometry import compose, expm, graded_eigh, normalize, unvectorize, vectorize
from divlearn.threads import one_thread

if TYPE_CHECKING:
    from sklearn.cluster import KMeans  # takes seconds to import

_ROUNDING = float(np.finfo(float).eps)  # of an eigenvalue on a device, relative to the largest
_BLOCK_ENTRIES = 1 << 23  # matrix entries in a block of logarithms
_NO_SPREAD = 1e-12  # of vectors, relative to their largest entry, that is taken for rounding
_TOLERANCE, _MAX_ITER = 1e-4, 300  # as in KMeans
_MAX_DISTANCES = 1 << 24  # entries of a table of distances between all vectors


def log_vectors(matrices: RealArray | Prepared, whitener: RealArray | None = None) -> RealArray:
    """Upper triangles of log X, or log W X W^T, with off-diagonal entries times sqrt(2).

    Euclidean distances of these vectors are log-Euclidean distances of the matrices. Vectors of
    `Prepared` matrices are computed once and cached.
    """
    if isinstance(matrices, Prepared):
        data, key = matrices, None if whitener is None else whitener.tobytes()
        return data.cached(("log vectors", key), lambda: log_vectors(data.matrices, whitener))
    if on_device(matrices):
        if whitener is not None:
            frame = to_device_of(whitener, matrices)
            matrices = frame @ matrices @ frame.T
            matrices = 0.5 * (matrices + matrices.mT)
        normalized, exponent = normalize(matrices.astype(np.float64))
        values, basis = graded_eigh(normalized)
        logarithms = np.log(np.maximum(values, _ROUNDING * values[:, -1:]))
        return vectorize(compose(basis, logarithms + np.log(2) * exponent[:, None]))
    d = matrices.shape[-1]
    vectors = np.empty((len(matrices), d * (d + 1) // 2))
    step = max(1, _BLOCK_ENTRIES // d**2)
    for start in range(0, len(matrices), step):
        block = matrices[start : start + step].astype(np.float64, copy=False)
        if whitener is not None:
            block = whitener @ block @ whitener.T
            block = 0.5 * (block + block.mT)
        vectors[start : start + step] = vectorize(cpu_engine().logarithms(block))
    return vectors


def spread(vectors: RealArray) -> float:
    """Square root of the total variance; 1 if all vectors are equal."""
    deviation = float(np.sqrt(vectors.var(axis=0).sum()))
    return 1.0 if deviation <= _NO_SPREAD * float(np.abs(vectors).max()) else deviation


class Centred(NamedTuple):
    """Vectors around their mean, and their squared norms."""

    middle: RealArray
    vectors: RealArray
    squares: RealArray


def centre(vectors: RealArray) -> Centred:
    middle = vectors.mean(axis=0)
    centred = vectors - middle
    return Centred(middle, centred, sum_squares(centred))


def squared_distances(vectors: RealArray, others: RealArray | Centred) -> RealArray:
    """Squared Euclidean distances, shape (n_vectors, n_others), on the host or on a device."""
    # By products, whose rounding is relative to squared distances from the mean of the others.
    # Without the checks of scikit-learn, which take longer than the distances of one vector.
    known = others if isinstance(others, Centred) else centre(others)
    moved = vectors - known.middle
    table = (-2 * moved) @ known.vectors.T
    table += sum_squares(moved)[:, None]
    table += known.squares
    return np.maximum(table, 0, out=table)


def sum_squares(vectors: RealArray) -> RealArray:
    """Squared norms, shape (n_vectors,)."""
    norms: RealArray = (vectors * vectors).sum(axis=1)
    return norms


def from_log_vectors(vectors: RealArray) -> RealArray:
    """SPD matrices, shape (n, d, d), from rows of `log_vectors`."""
    logarithms = unvectorize(vectors)
    if on_device(vectors):
        values, basis = np.linalg.eigh(logarithms)
        return compose(basis, np.exp(values))
    return expm(logarithms)


def fit_vectors(model: KMeans, vectors: RealArray, weights: RealArray | None = None) -> KMeans:
    """Fit k-means with one thread: with several the order of summation varies."""
    from sklearn.exceptions import ConvergenceWarning

    with one_thread(), warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        return model.fit(vectors, sample_weight=weights)


def refine_centres(vectors: RealArray, centres: RealArray) -> RealArray | None:
    """Lloyd iterations as in KMeans, on the device of the vectors; None if a cluster is empty."""
    middle = vectors.mean(axis=0)
    vectors, centres = vectors - middle, centres - middle
    numbers = to_device_of(np.arange(len(centres))[:, None], vectors)
    limit = _TOLERANCE * float(vectors.var(axis=0).mean())
    nearest = to_device_of(np.full(len(vectors), -1), vectors)
    for _ in range(_MAX_ITER):
        before, old = nearest, centres
        nearest = ((old**2).sum(axis=1) - 2 * (vectors @ old.T)).argmin(axis=1)
        members = (nearest == numbers).astype(float)
        counts = members.sum(axis=1)
        centres = members @ vectors / np.maximum(counts, 1)[:, None]
        changes = (nearest != before).sum().astype(float), ((centres - old) ** 2).sum()
        smallest, n_changed, moved = to_host(np.stack([counts.min(), *changes]))
        if smallest == 0:
            return None
        if n_changed == 0 or moved <= limit:
            break
    return centres + middle


def greedy_seeds(
    measure: Callable[[Indices], RealArray],
    weights: RealArray,
    n_seeds: int,
    random_state: np.random.RandomState,
) -> list[int]:
    """Greedy k-means++ (Arthur and Vassilvitskii, 2007): the best of a few random seeds."""
    # ``measure`` turns indices of samples into a table of divergences of all samples to these.
    n_trials = 2 + int(np.log(n_seeds))
    chosen = [int(random_state.choice(len(weights), p=weights / weights.sum()))]
    nearest = measure(np.array(chosen))[:, 0]
    while len(chosen) < n_seeds:
        cumulative = np.cumsum(weights * nearest)
        drawn = random_state.uniform(size=n_trials) * cumulative[-1]
        trials = np.minimum(np.searchsorted(cumulative, drawn), len(weights) - 1)
        table = measure(trials)
        np.minimum(table, nearest[:, None], out=table)
        best = int((weights @ table).argmin())
        chosen.append(int(trials[best]))
        nearest = table[:, best]
    return chosen


def find_centres(vectors: RealArray, n: int, random_state: np.random.RandomState) -> RealArray:
    """Means of k-means; if there are fewer than n different vectors, means are repeated."""
    # First compare one entry: the comparison of whole vectors is slow.
    n_different = len(np.unique(to_host(vectors[:, 0])))
    k = n if n_different >= n else min(n, len(np.unique(to_host(vectors), axis=0)))
    centres = _means(vectors, _seeds(vectors, k, random_state), k, random_state)
    return centres if k == n else centres[to_device_of(np.arange(n) % k, centres)]


def _means(
    vectors: RealArray, seeds: list[int] | None, k: int, random_state: np.random.RandomState
) -> RealArray:
    """Means of k-means, on the device of the vectors."""
    if on_device(vectors) and seeds is not None:
        centres = refine_centres(vectors, vectors[to_device_of(np.array(seeds), vectors)])
        if centres is not None:
            return centres
    host = to_host(vectors)
    init = "k-means++" if seeds is None else host[seeds]
    from sklearn.cluster import KMeans

    model = KMeans(k, init=init, n_init=1, random_state=random_state)
    return to_device_of(fit_vectors(model, host).cluster_centers_, vectors)


def _seeds(vectors: RealArray, n: int, random_state: np.random.RandomState) -> list[int] | None:
    """Seeds of k-means as KMeans draws them, from a table of distances; None if it is too large."""
    if len(vectors) ** 2 > _MAX_DISTANCES:
        return None
    centred = vectors - vectors.mean(axis=0)
    products = to_host(centred @ centred.T)
    squares = np.diagonal(products)

    def measure(indices: Indices) -> RealArray:
        rows: RealArray = squares + squares[indices, None] - 2 * products[indices]
        return np.maximum(rows, 0, out=rows).T

    return greedy_seeds(measure, np.ones(len(vectors)), n, random_state)
