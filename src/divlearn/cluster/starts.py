"""Where clusters start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.cluster import KMeans

from divlearn.arrays import IntArray, RealArray, to_host
from divlearn.fitting.progress import tell
from divlearn.log_vectors import from_log_vectors, log_vectors
from divlearn.means import arithmetic_mean
from divlearn.sharded.blocks import Block
from divlearn.spd import check_spd
from divlearn.threads import limit_blas
from divlearn.vector_kmeans import fit_vectors, greedy_seeds

__all__ = ["INITS", "Starts", "best_of", "check_centers", "check_init"]

_Run = TypeVar("_Run", bound=Any)  # a dataclass that has a message and may be interrupted

INITS = ("tangent", "log-euclidean", "k-means++", "random")


def check_init(init: Any, n_clusters: int, d: int) -> str | RealArray:
    """Name of a start, or checked centroids.

    Examples
    --------
    >>> check_init("nearest", 3, 2)
    Traceback (most recent call last):
    ValueError: init='nearest' must be one of tangent, log-euclidean, k-means++, random, or an array
    of centroids, shape (n_clusters, d, d)
    """
    if isinstance(init, str):
        if init not in INITS:
            raise ValueError(
                f"init={init!r} must be one of {', '.join(INITS)}, or an array of centroids, shape "
                "(n_clusters, d, d)"
            )
        return init
    return check_centers(init, n_clusters, d)


def check_centers(init: ArrayLike, n_clusters: int, d: int) -> RealArray:
    """Check centroids to start from.

    Examples
    --------
    >>> check_centers([np.eye(2)], 3, 2)
    Traceback (most recent call last):
    ValueError: init has shape (1, 2, 2), but must have (3, 2, 2): n_clusters centroids of the
    size of the data
    """
    centers = check_spd(init, ndim=3, name="init", dtype=np.float64)
    if centers.shape != (n_clusters, d, d):
        raise ValueError(
            f"init has shape {centers.shape}, but must have {(n_clusters, d, d)}: n_clusters "
            "centroids of the size of the data"
        )
    return centers


def best_of(
    n_init: int, run_once: Callable[[], _Run], loss: Callable[[_Run], float],
    say: Callable[[str, _Run], None],
) -> _Run:  # fmt: skip
    """Return the best of several runs, or of those before the user wanted no more.

    Parameters
    ----------
    n_init : int
    run_once : callable, makes the next run.
    loss : callable, of which the smallest is best.
    say : callable, told the number of every run, in words, and the run.
    """
    best: _Run | None = None
    for number in range(1, n_init + 1):
        stopped = {"interrupted": True, "message": f"interrupted by the user in start {number}"}
        try:
            tell("starts", number - 1, n_init)
            with limit_blas(1):  # threads would cost more than these matrices
                run = run_once()
        except KeyboardInterrupt:  # before the run had anything to keep
            if best is None:
                raise
            return replace(best, **stopped)
        say(f"start {number} of {n_init}", run)
        if best is None or loss(run) < loss(best):
            best = run
        elif run.interrupted:  # and others are better
            best = replace(best, **stopped)
        if run.interrupted:
            break
    assert best is not None
    return best


class Starts:
    """Starts of one data set; what they share is computed once.

    Parameters
    ----------
    block : Block
        All matrices, or a sample of them, with positive weights.
    n_clusters : int
    """

    def __init__(self, block: Block, n_clusters: int) -> None:
        self._block = block
        self._n_clusters = n_clusters

    def draw(
        self, init: str | RealArray, alpha: float, beta: float, random_state: np.random.RandomState
    ) -> RealArray:
        """Centroids to start from.

        Parameters
        ----------
        init : {"tangent", "log-euclidean", "k-means++", "random"} or ndarray of centroids
            Centres of log-Euclidean k-means, in the frame of the mean matrix or as it stands;
            matrices drawn one after the other with probabilities in proportion to their divergences
            from those before, the best of a few each time; matrices drawn at random; or what is
            given.
        alpha, beta : float
            The divergence for "k-means++".
        random_state : RandomState

        Returns
        -------
        ndarray, shape (n_clusters, d, d)
        """
        if not isinstance(init, str):
            return init.copy()
        if init == "log-euclidean":
            return self._log_euclidean(self._vectors, random_state)
        if init == "tangent":
            frame, vectors = self._whitened_vectors
            centers = frame @ self._log_euclidean(vectors, random_state) @ frame.T
            return 0.5 * (centers + centers.mT)
        if init == "k-means++":
            return self._plus_plus(alpha, beta, random_state)
        weights = self._block.weights
        chosen = random_state.choice(
            len(weights), self._n_clusters, replace=False, p=weights / weights.sum()
        )
        return self._block.matrices[chosen]

    @cached_property
    def _vectors(self) -> RealArray:
        return log_vectors(self._block.matrices)

    @cached_property
    def _whitened_vectors(self) -> tuple[RealArray, RealArray]:
        """Frame L of the mean L L^T, and the vectors of L^-1 X L^-T.

        A congruence of the data rotates these, of which k-means knows nothing.
        """
        matrices, weights = self._block.matrices, self._block.weights
        frame = np.linalg.cholesky(arithmetic_mean(matrices, weights / weights.sum()))
        whitener = np.linalg.inv(frame)
        return frame, log_vectors(matrices, whitener)

    def _log_euclidean(self, vectors: RealArray, random_state: np.random.RandomState) -> RealArray:
        # Too few different matrices are dealt with, and spoken of, after the last step.
        start = KMeans(self._n_clusters, n_init=1, random_state=random_state)
        found = fit_vectors(start, vectors, self._block.weights)
        return from_log_vectors(found.cluster_centers_)

    def _plus_plus(
        self, alpha: float, beta: float, random_state: np.random.RandomState
    ) -> RealArray:
        """Greedy k-means++, with divergences for squares."""
        block, matrices = self._block, self._block.matrices

        def measure(some: IntArray) -> RealArray:
            return to_host(block.engine.encode(block.data, matrices[some], alpha, beta))

        seeds = greedy_seeds(measure, block.weights, self._n_clusters, random_state)
        return matrices[seeds]
