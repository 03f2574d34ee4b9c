"""Base of k-means estimators; starts and runs of k-means, also of vectors, and of mixtures."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Annotated, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.base import ClassNamePrefixFeaturesOutMixin as NamesMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from divlearn.arrays import Indices, RealArray, to_host
from divlearn.checks import check_count
from divlearn.cluster.clusters import find_nearest
from divlearn.divergence import EmbeddedMetric
from divlearn.engines import Engine
from divlearn.fitting.interrupts import is_interrupted, stoppable
from divlearn.fitting.labelled import MatricesMixin
from divlearn.fitting.progress import tell
from divlearn.log_vectors import fit_vectors, from_log_vectors, greedy_seeds, log_vectors
from divlearn.means import arithmetic_mean
from divlearn.sharded.blocks import Block
from divlearn.sharded.opening import open_new
from divlearn.sharded.shards import Shards
from divlearn.spd import check_spd
from divlearn.threads import limit_blas

# From a block to a table of divergences to centroids; or to the nearest, and the divergence to it.
Measure = Callable[[Block], RealArray]
Nearest = Callable[[Block], tuple[Indices, RealArray]]

_INITS = ("tangent", "log-euclidean", "k-means++", "random")
_DRAWN = ("k-means++", "random")  # starts that scikit-learn draws itself
_SHARED = ("n_clusters", "max_iter", "tol", "random_state", "verbose")  # with its KMeans


@dataclass(frozen=True, eq=False)
class Run:
    """The end of a run of an iterative algorithm from one start."""

    objective: float  # the less, the better
    n_iter: int
    message: str
    history: dict[str, NDArray[np.generic]]


AnyRun = TypeVar("AnyRun", bound=Run)


class CentroidModel(NamesMixin, TransformerMixin, ClusterMixin, MatricesMixin, BaseEstimator):  # type: ignore[misc]
    engine: str | Engine
    n_clusters: int
    n_features_in_: Annotated[int, "d"]
    cluster_centers_: Annotated[RealArray, "n_clusters d d"]
    labels_: Annotated[Indices, "n_matrices"]

    @abstractmethod
    def _measure(self) -> Measure:
        """Return a function of a block that computes divergences to the centroids."""

    def _nearest(self) -> Nearest:
        """Return a function of a block that finds the nearest centroids, and the divergences."""
        measure = self._measure()
        return lambda block: find_nearest(measure(block))

    def predict(self, X: ArrayLike) -> Indices:
        """Find the nearest centroid of every matrix: labels, shape (n_matrices,)."""
        shards = open_new(self, X)
        return np.concatenate(shards.map(lambda block, find: find(block)[0], self._nearest()))

    def transform(self, X: ArrayLike) -> RealArray:
        """Compute the divergences to all centroids, shape (n_matrices, n_clusters)."""
        shards = open_new(self, X)
        parts = shards.map(lambda block, measure: to_host(measure(block)), self._measure())
        return self._share * np.concatenate(parts)

    def score(
        self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """Compute minus the sum of divergences to the nearest centroids, weights of mean one."""
        shards = open_new(self, X, sample_weight)
        loss = shards.reduce(lambda block, find: block.weights @ find(block)[1], self._nearest())
        return -self._share * float(loss)

    def _check_n_clusters(self, n_matrices: int) -> None:
        check_count(self.n_clusters, "n_clusters")
        if self.n_clusters > n_matrices:
            raise ValueError(
                f"n_clusters={self.n_clusters} must be <= n_matrices={n_matrices} (n_samples="
                f"{n_matrices} with a weight > 0); lower n_clusters or pass more data"
            )

    def _warn_of_empty_clusters(self) -> None:
        n_found = len(np.unique(self.labels_))
        if n_found < self.n_clusters:
            message = (
                f"found n_found={n_found} distinct clusters, fewer than n_clusters="
                f"{self.n_clusters}, probably because X holds equal matrices; lower n_clusters"
            )
            warnings.warn(message, ConvergenceWarning, stacklevel=4)

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)


def repeat(turn: Callable[[int], tuple[str, str | None]], max_iter: int) -> tuple[int, bool, str]:
    """Iterate until a turn returns a reason to stop; return their number, convergence and why."""
    iteration = 0
    with stoppable():
        while iteration < max_iter:
            news, stop = turn(iteration + 1)
            iteration += 1
            tell("iterations", iteration, max_iter, news)
            if stop is not None:
                return iteration, True, stop
        return iteration, False, f"max_iter={max_iter} reached"
    return iteration, False, f"interrupted by the user in iteration {iteration + 1}"


def best_of(n_init: int, run_once: Callable[[], AnyRun]) -> AnyRun:
    """Return the best run, of several or of those before the user stopped the search."""
    best: AnyRun | None = None
    number, news = 0, ""
    with stoppable(lambda: best):
        for number in range(1, n_init + 1):
            tell("starts", number - 1, n_init, news)
            with limit_blas(1):  # threads would cost more than these matrices
                run = run_once()
            news = f"objective {run.objective:.6g} after {run.n_iter} iterations; {run.message}"
            if best is None or run.objective < best.objective:
                best = run
            if is_interrupted():
                break
        tell("starts", number, n_init, news)
    assert best is not None
    if is_interrupted() and "interrupted" not in best.message:
        best = replace(best, message=f"interrupted by the user in start {number}")
    return best


def check_init(init: str | ArrayLike, n_clusters: int, d: int) -> str | RealArray:
    if isinstance(init, str):
        if init not in _INITS:
            raise ValueError(
                f"init={init!r} must be one of {', '.join(_INITS)}, or an array of centroids, "
                "shape (n_clusters, d, d)"
            )
        return init
    centers = check_spd(init, ndim=3, name="init", dtype=np.float64)
    if centers.shape != (n_clusters, d, d):
        raise ValueError(
            f"init has shape {centers.shape}, but must have {(n_clusters, d, d)}: n_clusters "
            "centroids of the size of the data"
        )
    return centers


class Starts:
    """Starts from a block of matrices with positive weights; what they share is computed once."""

    def __init__(self, block: Block, n_clusters: int) -> None:
        self._block, self._n_clusters = block, n_clusters

    def draw(
        self, init: str | RealArray, alpha: float, beta: float, random_state: np.random.RandomState
    ) -> RealArray:
        """Centroids to start from; (alpha, beta) is the divergence of "k-means++"."""
        if not isinstance(init, str):
            return init.copy()
        if init == "log-euclidean":
            return self._log_euclidean(self._vectors, random_state)
        if init == "tangent":
            frame, vectors = self._whitened_vectors
            centers = frame @ self._log_euclidean(vectors, random_state) @ frame.T
            return 0.5 * (centers + centers.mT)
        block, weights, count = self._block, self._block.weights, self._n_clusters
        if init == "random":
            shares = weights / weights.sum()
            return block.matrices[random_state.choice(len(weights), count, False, shares)]

        def measure(some: Indices) -> RealArray:  # k-means++, with divergences for squares
            return to_host(block.engine.encode(block.data, block.matrices[some], alpha, beta))

        return block.matrices[greedy_seeds(measure, weights, count, random_state)]

    @cached_property
    def _vectors(self) -> RealArray:
        return log_vectors(self._block.matrices)

    @cached_property
    def _whitened_vectors(self) -> tuple[RealArray, RealArray]:
        """Frame L of the mean L L^T, and the vectors of L^-1 X L^-T, which a congruence rotates."""
        matrices, weights = self._block.matrices, self._block.weights
        frame = np.linalg.cholesky(arithmetic_mean(matrices, weights / weights.sum()))
        return frame, log_vectors(matrices, np.linalg.inv(frame))

    def _log_euclidean(self, vectors: RealArray, random_state: np.random.RandomState) -> RealArray:
        # Too few different matrices are dealt with, and spoken of, after the last step.
        start = KMeans(self._n_clusters, n_init=1, random_state=random_state)
        found = fit_vectors(start, vectors, self._block.weights)
        return from_log_vectors(found.cluster_centers_)


def run_vectors(
    model: BaseEstimator, shards: Shards, metric: EmbeddedMetric, init: str | RealArray
) -> KMeans:
    """Cluster vectors of all matrices with the parameters of a model; the best of its runs."""
    parts = shards.map(lambda block, of: (of.embed(block.matrices), block.weights), metric)
    vectors, weights = map(np.concatenate, zip(*parts, strict=True))
    given = {name: getattr(model, name) for name in _SHARED}
    runs = [
        KMeans(init=start, n_init=model.n_init if isinstance(start, str) else 1, **given)
        for start in _starts(model, shards, metric, init)
    ]
    return min((fit_vectors(run, vectors, weights) for run in runs), key=attrgetter("inertia_"))


def _starts(
    model: BaseEstimator, shards: Shards, metric: EmbeddedMetric, init: str | RealArray
) -> list[str | RealArray]:
    if not isinstance(init, str):
        return [metric.embed(init)]
    if init in _DRAWN:
        return [init]
    random = check_random_state(model.random_state)
    starts = Starts(shards.draw(3 * model.n_clusters), model.n_clusters)
    return [metric.embed(starts.draw(init, 0, 0, random)) for _ in range(model.n_init)]
