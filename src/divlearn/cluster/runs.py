"""Starts and runs of k-means and of mixtures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import KMeans

from divlearn.arrays import Indices, RealArray, to_host
from divlearn.fitting.progress import is_interrupted, notify, stoppable
from divlearn.log_vectors import fit_vectors, from_log_vectors, greedy_seeds, log_vectors
from divlearn.means import arithmetic_mean
from divlearn.sharded.blocks import Block
from divlearn.spd import check_spd
from divlearn.text import counted
from divlearn.threads import limit_blas

_INITS = ("tangent", "log-euclidean", "k-means++", "random")

_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class Run(Generic[_T]):
    """The end of a run of an iterative algorithm from one start."""

    result: _T
    objective: float  # the lower, the better
    n_iter: int
    converged: bool
    message: str
    history: dict[str, NDArray[np.generic]]


def repeat(turn: Callable[[int], tuple[str, str | None]], max_iter: int) -> tuple[int, bool, str]:
    """Iterate until a turn returns a reason to stop; return (n_iter, converged, message)."""
    iteration = 0
    with stoppable():
        while iteration < max_iter:
            news, stop = turn(iteration + 1)
            iteration += 1
            notify("iterations", iteration, max_iter, news)
            if stop is not None:
                return iteration, True, stop
        return iteration, False, f"max_iter={max_iter} reached"
    return iteration, False, f"interrupted by the user in iteration {iteration + 1}"


def best_of(n_init: int, run_once: Callable[[], Run[_T]]) -> Run[_T]:
    """Return the best of several runs, or of those before the user stopped the search."""
    best: Run[_T] | None = None
    number, news = 0, ""
    with stoppable(lambda: best):
        for number in range(1, n_init + 1):
            notify("starts", number - 1, n_init, news)
            with limit_blas(1):  # threads would cost more than these matrices
                run = run_once()
            steps = counted(run.n_iter, "iterations")
            news = f"objective {run.objective:.6g} after {steps}; {run.message}"
            if best is None or run.objective < best.objective:
                best = run
            if is_interrupted():
                break
        notify("starts", number, n_init, news)
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
    """Starts from a block of matrices with positive weights; they share cached vectors."""

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

        def measure(indices: Indices) -> RealArray:  # k-means++, with divergences for squares
            return to_host(block.engine.encode(block.data, block.matrices[indices], alpha, beta))

        return block.matrices[greedy_seeds(measure, weights, count, random_state)]

    @cached_property
    def _vectors(self) -> RealArray:
        return log_vectors(self._block.matrices)

    @cached_property
    def _whitened_vectors(self) -> tuple[RealArray, RealArray]:
        """Frame L of the mean L L^T, and vectors of L^-1 X L^-T, equivariant under congruence."""
        matrices, weights = self._block.matrices, self._block.weights
        frame = np.linalg.cholesky(arithmetic_mean(matrices, weights / weights.sum()))
        return frame, log_vectors(matrices, np.linalg.inv(frame))

    def _log_euclidean(self, vectors: RealArray, random_state: np.random.RandomState) -> RealArray:
        # The estimator warns of too few different matrices after the fit.
        model = KMeans(self._n_clusters, n_init=1, random_state=random_state)
        fitted = fit_vectors(model, vectors, self._block.weights)
        return from_log_vectors(fitted.cluster_centers_)
