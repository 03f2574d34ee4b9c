"""k-means that sees a small batch of matrices at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state

from divlearn.arrays import RealArray
from divlearn.checkpoint import Loop, checkpointed, loop
from divlearn.checks import check_count, check_number
from divlearn.cluster.base import CentroidModel
from divlearn.cluster.centroids import Cluster, partial_step
from divlearn.cluster.kmeans import DEFAULT_DIVERGENCE, given_point
from divlearn.cluster.samples import Labels, Samples, checked_blocks
from divlearn.cluster.starts import Starts, check_init
from divlearn.divergence import Divergence
from divlearn.engines import Engine, get_engine
from divlearn.labelled import all_or_nothing
from divlearn.sharded.opening import is_sharded, open_shards
from divlearn.spd import check_spd
from divlearn.threads import limit_blas
from divlearn.weights import check_weights

__all__ = ["MiniBatchABKMeans", "Progress"]

_IMPROVEMENT = 1e-4  # relative, that is worth another batch


@dataclass(eq=False)
class Progress:
    """How batches did so far, smoothed: a new one has a share in what is told."""

    share: float
    smoothed: float = np.inf
    best: float = np.inf
    waited: int = 0
    rows: list[tuple[float, float, float]] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    def add(self, mean: float) -> int:
        """Add the mean divergence in a batch; returns in how many there was no improvement."""
        first = np.isinf(self.smoothed)
        self.smoothed = mean if first else self.smoothed + self.share * (mean - self.smoothed)
        self.rows.append((mean, self.smoothed, time.perf_counter() - self.started))
        better = self.smoothed < (1 - _IMPROVEMENT) * self.best
        self.waited = 0 if better else self.waited + 1
        self.best = min(self.best, self.smoothed)
        return self.waited

    @property
    def state(self) -> tuple[Any, ...]:
        """All of it, to go on from later."""
        return self.smoothed, self.best, self.waited, list(self.rows)

    @state.setter
    def state(self, state: tuple[Any, ...]) -> None:
        self.smoothed, self.best, self.waited, rows = state
        self.rows = list(rows)
        self.started = time.perf_counter() - (self.rows[-1][2] if rows else 0.0)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Columns by name."""
        columns = np.array(self.rows).reshape(-1, 3).T
        return dict(zip(("objective", "smoothed", "seconds"), columns, strict=True))


class MiniBatchABKMeans(CentroidModel):
    r"""k-means in a given divergence for very many matrices, or for matrices that come in a stream.

    Every batch moves the centroids a little. With G the mean slope :math:`f_t` of the matrices a
    centroid :math:`C = L L^T` gets, see `divlearn.mean_abld`, and h the inverse of :math:`f_t`,

    .. math:: C \leftarrow L \exp(h(r G)) L^T , \qquad
              r = \frac{\text{weight of these matrices}}{\text{weight of all it ever got}} .

    At (0, 1), (1, 0) and for 1 x 1 matrices at (0, 0) this is the mean of all it ever got, exactly:
    arithmetic, harmonic and geometric. Elsewhere it comes close; where alpha + beta > 2 the step
    is to the centroid of these matrices, along the share r of the geodesic.

    Parameters
    ----------
    n_clusters : int, default=8
    divergence : str, pair (alpha, beta) or Divergence
        As in `ABKMeans`, but not learned: fit that on a subset to learn one.
    init : {"tangent", "log-euclidean", "k-means++", "random"} or array-like of centroids
        Where the centroids start, as in `ABKMeans`, on a random subset of three batches.
    n_init : int, default=3
        Starts; the best on the subset is gone on with. 1 where ``init`` is an array.
    batch_size : int, default=4096
    max_iter : int, default=100
        Passes over the data.
    max_no_improvement : int, default=10
        Stop after as many batches without an improvement of the smoothed mean divergence.
    reassignment_ratio : float, default=0.01
        Centroids with less than this share of the largest weight start anew from a matrix of the
        batch.
    random_state : int, RandomState or None
    engine : str or Engine, default="auto"
    verbose : int, default=0
    checkpoint : str, path-like or None, default=None
        File that `fit` keeps its progress in, at most every five seconds: after a kill the same
        call goes on from there. It is removed at the end, but stays after Ctrl-C. See
        `divlearn.IDDLClassifier`.

    Attributes
    ----------
    cluster_centers_ : ndarray, shape (n_clusters, d, d)
    alpha_, beta_ : float
    labels_ : ndarray of int, shape (n_matrices,)
        Of all matrices, or of the last batch after `partial_fit`.
    inertia_ : float, weighted sum of divergences to the nearest centroids, of the same matrices.
    weights_ : ndarray, shape (n_clusters,), the weight of all matrices each centroid ever got.
    n_iter_ : int, passes over the data.
    n_steps_ : int, batches.
    message_ : str, why it stopped.
    history_ : dict of arrays: "objective", the mean divergence in every batch before it moved the
        centroids, "smoothed" and "seconds".
    n_features_in_ : int, size of the matrices.

    See Also
    --------
    ABKMeans : for data that can be looked at as a whole, at every turn.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 200, 4, random_state=0)
    >>> found = MiniBatchABKMeans(3, batch_size=100, random_state=0).fit(X)
    >>> found.predict(X).shape
    (600,)
    """

    labels_: Labels
    weights_: RealArray
    history_: dict[str, NDArray[np.generic]]

    def __init__(
        self,
        n_clusters: int = 8,
        divergence: str | Sequence[float] | Divergence = DEFAULT_DIVERGENCE,
        *,
        init: str | ArrayLike = "tangent",
        n_init: int = 3,
        batch_size: int = 4096,
        max_iter: int = 100,
        max_no_improvement: int = 10,
        reassignment_ratio: float = 0.01,
        random_state: int | np.random.RandomState | None = None,
        engine: str | Engine = "auto",
        verbose: int = 0,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.divergence = divergence
        self.init = init
        self.n_init = n_init
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.max_no_improvement = max_no_improvement
        self.reassignment_ratio = reassignment_ratio
        self.random_state = random_state
        self.engine = engine
        self.verbose = verbose
        self.checkpoint = checkpoint

    @all_or_nothing
    def fit(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Cluster matrices, batch by batch.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d), or shards
            May be a memory map: never more than a block of it is copied. What
            `divlearn.sharded.open_shards` takes is gone through shard by shard, with batches from
            one shard each: matrices are best well mixed.
        y : ignored
        sample_weight : array-like, shape (n_matrices,), optional
            Non-negative weights.

        Returns
        -------
        self
        """
        if is_sharded(X, self.engine):
            from divlearn.sharded.clustering import fit_minibatches

            fit_minibatches(self, open_shards(X, None, sample_weight, engine=self.engine))
            return self
        array = X if isinstance(X, np.ndarray) and X.ndim == 3 else check_spd(X, ndim=3)
        weights = check_weights(sample_weight, len(array))
        for _ in checked_blocks(array, 1):
            pass
        kept = np.flatnonzero(weights)
        self._begin(array.shape[-1], len(kept))
        self._random = check_random_state(self.random_state)
        with limit_blas(1), checkpointed(self, X=array, weights=weights):
            self._run(array, weights, kept)
        found = [(table.argmin(axis=1), table.min(axis=1)) for table in self._tables(array)]
        self.labels_, nearest = map(np.concatenate, zip(*found, strict=True))
        self.inertia_ = float(weights @ nearest)
        self._warn_of_empty_clusters(self.labels_)
        return self

    @all_or_nothing
    def partial_fit(
        self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Move the centroids by one batch; the first one is also where they start from.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)
        y : ignored
        sample_weight : array-like, shape (n_matrices,), optional

        Returns
        -------
        self
        """
        matrices = check_spd(X, ndim=3, dtype=np.float64)
        weights = check_weights(sample_weight, len(matrices))
        kept = np.flatnonzero(weights)
        with limit_blas(1):
            samples = self._take(matrices, weights, kept)
            if not hasattr(self, "cluster_centers_"):
                self._begin(matrices.shape[-1], len(kept))
                self._random = check_random_state(self.random_state)
                self._start(samples)
            else:
                self._check_size(matrices)
                self._check_same_number()
            self._step(samples)
        self.message_ = f"{self.n_steps_} batches seen"
        table = self._divergences(matrices)
        self.labels_ = table.argmin(axis=1)
        self.inertia_ = float(weights @ table.min(axis=1))
        return self

    # ------------------------------------------------------------------ batches

    def _begin(self, d: int, n_matrices: int) -> None:
        """Check parameters, and forget what was."""
        self._check_n_clusters(n_matrices)
        for name in ("n_init", "batch_size", "max_iter", "max_no_improvement"):
            check_count(getattr(self, name), name)
        check_number(self.reassignment_ratio, "reassignment_ratio")
        if self.reassignment_ratio > 1:
            raise ValueError(f"reassignment_ratio={self.reassignment_ratio} must be <= 1")
        self.alpha_, self.beta_ = given_point(self.divergence)
        self._init = check_init(self.init, self.n_clusters, d)
        self.n_features_in_ = d
        self.weights_ = np.zeros(self.n_clusters)
        self.n_steps_ = 0

    def _check_same_number(self) -> None:
        there = len(self.cluster_centers_)
        if self.n_clusters != there:
            raise ValueError(
                f"n_clusters={self.n_clusters} must be {there}, as many as there are by now; call "
                "fit to start anew"
            )

    def _take(self, array: RealArray, weights: RealArray, rows: Labels) -> Samples:
        """Prepare some of the matrices, which were checked."""
        matrices = np.asarray(array[rows], dtype=np.float64)
        matrices = 0.5 * (matrices + matrices.mT)
        engine = get_engine(self.engine)
        return Samples.prepare(engine, matrices, weights[rows], self.n_clusters)

    def _start(self, samples: Samples) -> None:
        starts, point = Starts(samples, self.n_clusters), (self.alpha_, self.beta_)
        n_init = self.n_init if isinstance(self._init, str) else 1
        drawn = [starts.draw(self._init, *point, self._random) for _ in range(n_init)]
        losses = [samples.weights @ samples.assign(one, *point).divergences for one in drawn]
        self.cluster_centers_ = drawn[int(np.argmin(losses))]

    def _run(self, array: RealArray, weights: RealArray, kept: Labels) -> None:
        progress = self._progress(len(kept))
        with loop("passes") as passes:
            if passes.state is None:
                count = 3 * max(self.batch_size, self.n_clusters)
                self._start(self._take(array, weights, self._random.permutation(kept)[:count]))
            try:
                for _ in self.passes(passes, progress):
                    if self._pass(array, weights, kept, progress):
                        break
            except KeyboardInterrupt:
                self.message_ = f"interrupted by the user after {self.n_steps_} batches"
        self.history_ = progress.arrays()

    def passes(self, rounds: Loop, progress: Progress) -> Iterator[None]:
        """Go through the data again and again, from where a fit was broken off."""
        for number in range(self._go_on(rounds, progress, 1), self.max_iter + 1):
            self._keep_now(rounds, progress, number)
            self.n_iter_ = number
            yield

    def _pass(self, array: RealArray, weights: RealArray, kept: Labels, progress: Progress) -> bool:
        """Learn from all batches, in an order of chance; returns whether it is time to stop."""
        count = max(1, len(kept) // self.batch_size)
        drawn = np.array_split(self._random.permutation(kept), count)
        with loop("batches") as batches:
            for index in range(self._go_on(batches, progress, 0), count):
                self._keep_now(batches, progress, index)
                if self._learn(self._take(array, weights, drawn[index]), progress):
                    return True
        return False

    def _keep_now(self, rounds: Loop, progress: Progress, number: int) -> None:
        """Keep where a fit stands."""
        if rounds.kept:
            learned = self.cluster_centers_, self.weights_, self.n_steps_, deepcopy(self._random)
            rounds.save((number, progress.state, learned))

    def _go_on(self, rounds: Loop, progress: Progress, first: int) -> int:
        """Go back to where a fit stood; returns the number it had then."""
        if rounds.state is None:
            return first
        number, progress.state, learned = rounds.state
        self.cluster_centers_, self.weights_, self.n_steps_, random = learned
        self._random = deepcopy(random)
        return int(number)

    def _progress(self, n_matrices: int) -> Progress:
        """Begin to look how batches do."""
        self.message_, self.n_iter_ = f"max_iter={self.max_iter} reached", 0
        return Progress(min(1.0, 2 * self.batch_size / (n_matrices + 1)))

    def _learn(self, samples: Samples, progress: Progress) -> bool:
        """Move the centroids by one batch; returns whether it is time to stop."""
        mean = self._step(samples)
        waited = progress.add(mean)
        self._say(f"batch {self.n_steps_}: mean divergence {mean:.6g}, {progress.smoothed:.6g}")
        if waited < self.max_no_improvement:
            return False
        self.message_ = (
            f"no improvement of the smoothed mean divergence in {waited} batches, "
            f"max_no_improvement={self.max_no_improvement}"
        )
        return True

    def _step(self, samples: Samples) -> float:
        """Move the centroids by one batch; returns the mean divergence before."""
        alpha, beta = self.alpha_, self.beta_
        found = samples.assign(self.cluster_centers_, alpha, beta)
        gained = np.bincount(found.labels, samples.weights, self.n_clusters)
        total = self.weights_ + gained
        filled = np.flatnonzero(gained)
        centers = self.cluster_centers_.copy()
        for z in filled:
            rows = np.flatnonzero(found.labels == z)
            weights = samples.weights[rows] / gained[z]
            engine = samples.engine_for(len(rows))
            cluster = Cluster(engine, rows, samples.take(rows), weights, alpha, beta)
            centers[z] = partial_step(cluster, centers[z], gained[z] / total[z])
        self._reassign(samples, found.divergences, centers, total)
        self.cluster_centers_, self.weights_ = centers, total
        self.n_steps_ += 1
        return float(samples.weights @ found.divergences) / samples.total_weight

    def _reassign(
        self, samples: Samples, divergences: RealArray, centers: RealArray, total: RealArray
    ) -> None:
        """Let centroids that get next to nothing start anew, in place."""
        low = np.flatnonzero(total < self.reassignment_ratio * total.max())
        losses = samples.weights * divergences
        low = low[: np.count_nonzero(losses) // 2]
        if len(low):
            drawn = self._random.choice(
                len(losses), len(low), replace=False, p=losses / losses.sum()
            )
            centers[low] = samples.matrices[drawn]
            # Not the least: they would be the first to go again.
            total[low] = np.delete(total, low).min()
