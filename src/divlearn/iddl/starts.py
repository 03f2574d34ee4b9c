"""Where learning starts: atoms from the data, divergences from a grid of the plane."""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from divlearn.arrays import RealArray, to_host
from divlearn.iddl.features import FeatureMap
from divlearn.iddl.heads import Samples, scores_of, solve_head
from divlearn.iddl.training import Judge, Part, Recipe
from divlearn.log_vectors import from_log_vectors, log_vectors
from divlearn.sharded.blocks import Block
from divlearn.vector_kmeans import fit_vectors, greedy_seeds

_METHODS = ("class-kmeans", "kmeans", "samples", "identity")
_MOST_DISTANCES = 1 << 24  # between all vectors, if they are to be known at once
_VALUES = (0.0, 0.25, 0.5, 1.0, 1.5, 2.0)  # of alpha and beta on the grid


def share_atoms(n_atoms: int, n_classes: int) -> NDArray[np.intp]:
    """Numbers of atoms per class that differ by one at most."""
    shares = np.full(n_classes, n_atoms // n_classes)
    shares[: n_atoms % n_classes] += 1
    return shares


def initial_atoms(
    X: RealArray, codes: NDArray[np.intp] | None, n_atoms: int, method: str,
    random_state: np.random.RandomState, logarithms: Callable[[], RealArray] | None = None,
) -> RealArray:  # fmt: skip
    """Choose atoms: class means by k-means, random matrices of every class, or identities.

    `codes` are the classes of X, None where there are none; `logarithms` returns `log_vectors(X)`.
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


def search_plane(
    parts: Sequence[Part], recipe: Recipe, judge: Judge, *, tied: bool
) -> tuple[float, float]:
    """Find the point whose divergences to the first atoms, with a head, do best held out."""
    points = list(product(_VALUES, _VALUES))
    if tied:
        points = [(a, b) for a, b in points if a == b > 0]
    rows = np.concatenate([part.rows for part in parts])
    seen = [_encode(part.shards.whole, part.atoms, points) for part in parts]
    unseen = [_encode(part.held, part.atoms, points) for part in parts]

    def loss(index: int) -> float:
        scores = [
            _scores(part, recipe, V[..., index], W[..., index])
            for part, V, W in zip(parts, seen, unseen, strict=True)
        ]
        return judge(np.concatenate(scores), rows)

    return points[int(np.argmin([loss(index) for index in range(len(points))]))]


def _encode(
    block: Block | None, atoms: RealArray, points: Sequence[tuple[float, float]]
) -> RealArray:
    assert block is not None
    alpha, beta = np.array(points).T
    shape = len(atoms), len(points)
    return block.engine.encode(
        block.data, atoms, np.broadcast_to(alpha, shape), np.broadcast_to(beta, shape)
    )


def _scores(part: Part, recipe: Recipe, V: RealArray, W: RealArray) -> RealArray:
    """Scores of what is held out, W, by a head of what is seen, V."""
    known = part.shards, part.targets, [V]
    feature_map = FeatureMap.start(
        *known, logarithm=recipe.logarithm, standardize=recipe.standardize
    )
    units = feature_map.units(*known)
    loss = recipe.loss.roughly()
    samples = Samples(part.shards, part.targets, [feature_map.compute(V, units)], loss.bias)
    head, _ = solve_head(loss, samples, recipe.gamma)
    return to_host(scores_of(head, feature_map.compute(W, units)))
