"""Where learning starts: atoms from the data, divergences from a grid of the plane."""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from sklearn.cluster import KMeans

from divlearn.arrays import Indices, RealArray, beside, on_device, to_host
from divlearn.engines import Prepared
from divlearn.iddl.features import FeatureMap
from divlearn.iddl.heads import scores_of, solve_heads
from divlearn.iddl.training import Judge, Part, Settings
from divlearn.log_vectors import (
    fit_vectors,
    from_log_vectors,
    greedy_seeds,
    log_vectors,
    refine_centres,
)
from divlearn.sharded.blocks import Block

METHODS = ("class-kmeans", "kmeans", "samples", "identity")
_MOST_DISTANCES = 1 << 24  # between all vectors, if they are to be known at once
_VALUES = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0)  # of alpha and beta on the grid


def share_atoms(n_atoms: int, n_classes: int) -> Indices:
    """Numbers of atoms per class that differ by one at most."""
    shares = np.full(n_classes, n_atoms // n_classes)
    shares[: n_atoms % n_classes] += 1
    return shares


def initial_atoms(
    X: RealArray,
    codes: Indices | None,
    n_atoms: int,
    method: str,
    random_state: np.random.RandomState,
    logarithms: Callable[[], RealArray] | None = None,
) -> RealArray:
    """Choose atoms: class means by k-means, random matrices of every class, or identities.

    `codes` are the classes of X, None where there are none; `logarithms` returns `log_vectors(X)`,
    which may be on a device.
    """
    if method not in METHODS:
        raise ValueError(
            f"init={method!r} must be one of {', '.join(METHODS)}, or an array of atoms"
        )
    if method == "identity":
        return np.tile(np.eye(X.shape[-1]), (n_atoms, 1, 1))
    if codes is None or method == "kmeans":
        codes = np.zeros(len(X), dtype=np.intp)
    groups = [np.flatnonzero(codes == code) for code in np.unique(codes)]
    chosen = zip(groups, share_atoms(n_atoms, len(groups)), strict=True)
    if method == "samples":
        drawn = [random_state.choice(group, n, replace=n > len(group)) for group, n in chosen if n]
        return X[np.concatenate(drawn)]
    vectors = log_vectors(X) if logarithms is None else logarithms()
    centres = [
        _centres(vectors[beside(group, vectors)], n, random_state) for group, n in chosen if n
    ]
    return to_host(from_log_vectors(np.concatenate(centres)))


def _centres(vectors: RealArray, n: int, random_state: np.random.RandomState) -> RealArray:
    """Means of k-means; where there are too few different vectors, some come twice."""
    # Vectors that differ in one entry differ: to compare whole ones takes long.
    n_different = len(np.unique(to_host(vectors[:, 0])))
    k = n if n_different >= n else min(n, len(np.unique(to_host(vectors), axis=0)))
    centres = _means(vectors, _seeds(vectors, k, random_state), k, random_state)
    return centres if k == n else centres[beside(np.arange(n) % k, centres)]


def _means(
    vectors: RealArray, seeds: list[int] | None, k: int, random_state: np.random.RandomState
) -> RealArray:
    """Means of k-means, where the vectors are."""
    if on_device(vectors) and seeds is not None:
        found = refine_centres(vectors, vectors[beside(np.array(seeds), vectors)])
        if found is not None:
            return found
    host = to_host(vectors)
    init = "k-means++" if seeds is None else host[seeds]
    start = KMeans(k, init=init, n_init=1, random_state=random_state)
    return beside(fit_vectors(start, host).cluster_centers_, vectors)


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


def search_plane(
    parts: Sequence[Part], settings: Settings, judge: Judge, *, tied: bool
) -> list[tuple[float, float]]:
    """Find the points whose divergences to the first atoms, with a head, do best held out.

    Returns the best without each fold, which the model of the fold starts from, and that of all.
    """
    points = list(product(_VALUES, _VALUES))
    if tied:
        points = [(a, b) for a, b in points if a == b > 0]
    rows = np.concatenate([part.rows for part in parts])
    scores = np.concatenate([_scores(part, settings, points) for part in parts], axis=1)
    shares = np.stack([judge(one, rows) for one in scores])
    others = [np.flatnonzero(~np.isin(rows, part.rows)) for part in parts]
    everything = np.arange(len(rows))
    judged = [some if len(some) else everything for some in (*others, everything)]
    return [points[int(shares[:, some].sum(axis=1).argmin())] for some in judged]


def _scores(part: Part, settings: Settings, points: Sequence[tuple[float, float]]) -> RealArray:
    """Scores of what is held out by heads of what is seen, (n_points, n_matrices, n_outputs)."""
    seen, unseen = (_encode(block, part.atoms, points) for block in (part.shards.whole, part.held))
    known = part.shards, part.targets, [seen.reshape(len(seen), -1)]
    feature_map = FeatureMap.start(*known, plain=settings.loss.plain)
    units = feature_map.units(*known)

    def stack(V: RealArray) -> RealArray:
        """Features of every point, in one piece of memory each, as products need them."""
        features = feature_map.compute(V.reshape(len(V), -1), units)
        return np.moveaxis(features.reshape(V.shape), 2, 0).copy()

    loss = settings.loss.roughly()
    heads = solve_heads(loss, part.shards, part.targets, stack(seen), settings.penalty)
    return to_host(scores_of(heads, stack(unseen)))


def _encode(
    block: Block | None, atoms: RealArray, points: Sequence[tuple[float, float]]
) -> RealArray:
    """Divergences to atoms, (n_matrices, n_atoms, n_points)."""
    assert block is not None
    alpha, beta = np.array(points).T
    shape = len(atoms), len(points)
    return block.engine.encode(
        block.data,
        Prepared.checked(atoms),
        np.broadcast_to(alpha, shape),
        np.broadcast_to(beta, shape),
    )
