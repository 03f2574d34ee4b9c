"""k-means estimators on shards."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from divlearn.arrays import RealArray
from divlearn.checkpoint import checkpointed, loop
from divlearn.cluster.minibatch import Progress
from divlearn.cluster.parameters import LearnedRule
from divlearn.cluster.samples import Labels, Samples
from divlearn.engines import cpu_engine
from divlearn.sharded.blocks import Block
from divlearn.sharded.encoding import encode_block
from divlearn.sharded.fingerprints import fingerprint_block
from divlearn.sharded.lloyd import assign_block, run_sharded_lloyd
from divlearn.sharded.shards import SAMPLE, Shards
from divlearn.threads import limit_blas

__all__ = ["draw_samples", "fit_kmeans", "fit_minibatches", "tables"]

_LEARNED = ("cluster_centers_", "weights_", "n_steps_", "message_", "_random")


def fit_kmeans(estimator: Any, shards: Shards) -> None:
    """Fit k-means in a given divergence."""
    estimator._check_n_clusters(shards.n_seen)
    settings, rule = estimator._settings(), estimator._rule()
    if isinstance(rule, LearnedRule):
        raise ValueError(
            f"divergence={estimator.divergence!r} must be given for data in shards, not learned; "
            "fit ABKMeans on a subset and pass its (alpha_, beta_)"
        )
    samples = draw_samples(estimator, shards, max(SAMPLE, 3 * estimator.n_clusters))
    with checkpointed(estimator, X=lambda: shards.map(fingerprint_block)):
        best = estimator._best_run(
            samples, lambda centers: run_sharded_lloyd(shards, centers, rule.start, settings)
        )
    estimator.n_features_in_ = shards.d
    estimator._keep(best)
    estimator._warn_of_empty_clusters(best.labels)


def fit_minibatches(estimator: Any, shards: Shards) -> None:
    """Fit k-means that sees a batch at a time; centroids go from shard to shard."""
    estimator._begin(shards.d, shards.n_seen)
    estimator._random = check_random_state(estimator.random_state)
    progress = estimator._progress(shards.n_seen)
    with (
        limit_blas(1),
        checkpointed(estimator, X=lambda: shards.map(fingerprint_block)),
        loop("passes") as passes,
    ):
        if passes.state is None:
            count = 3 * max(estimator.batch_size, estimator.n_clusters)
            estimator._start(draw_samples(estimator, shards, count))
        try:
            for _ in estimator.passes(passes, progress):
                order = estimator._random.permutation(len(shards)).tolist()
                state = estimator, progress, False
                found, moved, stop = shards.fold(_batches_block, state, order)
                progress.state = moved.state
                for name in _LEARNED:
                    setattr(estimator, name, getattr(found, name))
                if stop:
                    break
        except KeyboardInterrupt:
            estimator.message_ = f"interrupted by the user after {estimator.n_steps_} batches"
    estimator.history_ = progress.arrays()
    nearest = shards.map(_nearest_block, *_centers(estimator))
    labels, sums = zip(*nearest, strict=True)
    estimator.labels_, estimator.inertia_ = np.concatenate(labels), float(sum(sums))
    estimator._warn_of_empty_clusters(estimator.labels_)


_State = tuple[Any, Progress, bool]


def _batches_block(block: Block, state: _State) -> _State:
    estimator, progress, stop = deepcopy(state)  # what came is left as it is
    rows = np.flatnonzero(block.weights)
    if stop or not len(rows):
        return estimator, progress, stop
    matrices, count = block.data.matrices, max(1, len(rows) // estimator.batch_size)
    with limit_blas(1):
        for chosen in np.array_split(estimator._random.permutation(rows), count):
            samples = Samples.prepare(
                block.engine, matrices[chosen], block.weights[chosen], estimator.n_clusters
            )
            if estimator._learn(samples, progress):
                return estimator, progress, True
    return estimator, progress, False


def _centers(estimator: Any) -> tuple[RealArray, float, float]:
    return estimator.cluster_centers_, estimator.alpha_, estimator.beta_


def _nearest_block(
    block: Block, centers: RealArray, alpha: float, beta: float
) -> tuple[Labels, float]:
    labels, divergences = assign_block(block, centers, alpha, beta)
    return labels, float(block.weights @ divergences)


def draw_samples(estimator: Any, shards: Shards, count: int) -> Samples:
    """Matrices to start from: all, where there are few."""
    X, _, weights = shards.sample(count, 0)
    return Samples.prepare(cpu_engine(), X, weights, estimator.n_clusters)


def tables(estimator: Any, shards: Shards) -> list[RealArray]:
    """Divergences of the matrices of every block to the centroids."""
    estimator._check_size(np.empty((0, shards.d, shards.d)))
    found: list[RealArray] = shards.map(encode_block, *_centers(estimator))
    return found
