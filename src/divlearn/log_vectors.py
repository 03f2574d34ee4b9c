"""Logarithms of SPD matrices as vectors, and k-means of vectors."""

import warnings
from collections.abc import Callable

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from divlearn.arrays import Indices, RealArray, on_device, to_device_of, to_host
from divlearn.engines.cpu import cpu_engine
from divlearn.engines.data import Prepared
from divlearn.geometry import compose, expm, graded_eigh, normalize, unvectorize, vectorize
from divlearn.threads import one_thread

_ROUNDING = float(np.finfo(float).eps)  # of an eigenvalue on a device, relative to the largest
_BLOCK_ENTRIES = 1 << 23  # of matrices whose logarithms are taken at a time
_TOLERANCE, _MAX_ITER = 1e-4, 300  # as in KMeans
_MOST_DISTANCES = 1 << 24  # between all vectors, if they are to be known at once


def log_vectors(matrices: RealArray | Prepared, whitener: RealArray | None = None) -> RealArray:
    """Upper triangles of log X, or log W X W^T, with off-diagonal entries times sqrt(2).

    Euclidean distances of these vectors are log-Euclidean distances of the matrices. Those of
    `Prepared` matrices are computed once for all models that ask for them.
    """
    if isinstance(matrices, Prepared):
        given, key = matrices, None if whitener is None else whitener.tobytes()
        return given.once(("log vectors", key), lambda: log_vectors(given.matrices, whitener))
    if on_device(matrices):  # these are checked
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
        some = matrices[start : start + step].astype(np.float64, copy=False)
        if whitener is not None:
            some = whitener @ some @ whitener.T
            some = 0.5 * (some + some.mT)
        vectors[start : start + step] = vectorize(cpu_engine().logarithms(some))
    return vectors


def squared_distances(vectors: RealArray, others: RealArray) -> RealArray:
    """Squared Euclidean distances, shape (n_vectors, n_others), wherever the vectors are."""
    # Unlike scikit-learn's, without checks, which take longer than one vector.
    table = (-2 * vectors) @ others.T
    table += (vectors * vectors).sum(axis=1)[:, None]
    table += (others * others).sum(axis=1)
    return np.maximum(table, 0, out=table)


def from_log_vectors(vectors: RealArray) -> RealArray:
    """SPD matrices, shape (n, d, d), of which `log_vectors` are given."""
    logarithms = unvectorize(vectors)
    if on_device(vectors):
        values, basis = np.linalg.eigh(logarithms)
        return compose(basis, np.exp(values))
    return expm(logarithms)


def fit_vectors(model: KMeans, vectors: RealArray, weights: RealArray | None = None) -> KMeans:
    """Fit k-means to rows with one thread: several would sum in an order that changes."""
    with one_thread(), warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        return model.fit(vectors, sample_weight=weights)


def refine_centres(vectors: RealArray, centres: RealArray) -> RealArray | None:
    """Do what KMeans does, wherever the vectors are; None where a cluster runs empty."""
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
    """Greedy k-means++ (Arthur and Vassilvitskii, 2007): of a few seeds drawn, the best is kept."""
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
    """Means of k-means; where there are too few different vectors, some come twice."""
    # Vectors that differ in one entry differ: to compare whole ones takes long.
    n_different = len(np.unique(to_host(vectors[:, 0])))
    k = n if n_different >= n else min(n, len(np.unique(to_host(vectors), axis=0)))
    centres = _means(vectors, _seeds(vectors, k, random_state), k, random_state)
    return centres if k == n else centres[to_device_of(np.arange(n) % k, centres)]


def _means(
    vectors: RealArray, seeds: list[int] | None, k: int, random_state: np.random.RandomState
) -> RealArray:
    """Means of k-means, where the vectors are."""
    if on_device(vectors) and seeds is not None:
        found = refine_centres(vectors, vectors[to_device_of(np.array(seeds), vectors)])
        if found is not None:
            return found
    host = to_host(vectors)
    init = "k-means++" if seeds is None else host[seeds]
    start = KMeans(k, init=init, n_init=1, random_state=random_state)
    return to_device_of(fit_vectors(start, host).cluster_centers_, vectors)


def _seeds(vectors: RealArray, n: int, random_state: np.random.RandomState) -> list[int] | None:
    """Seeds of k-means, as KMeans draws them, from one product for all distances if that fits."""
    if len(vectors) ** 2 > _MOST_DISTANCES:
        return None
    centred = vectors - vectors.mean(axis=0)
    products = to_host(centred @ centred.T)
    squares = np.diagonal(products)

    def measure(some: Indices) -> RealArray:
        rows: RealArray = squares + squares[some, None] - 2 * products[some]
        return np.maximum(rows, 0, out=rows).T

    return greedy_seeds(measure, np.ones(len(vectors)), n, random_state)
