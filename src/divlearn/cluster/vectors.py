"""k-means in a metric of vectors: scikit-learn's, from starts of SPD matrices."""

from operator import attrgetter

import numpy as np
from numpy.typing import ArrayLike
from sklearn.cluster import KMeans
from sklearn.utils import check_random_state

from divlearn.arrays import RealArray
from divlearn.checks import RandomState
from divlearn.cluster.base import Starts, check_init
from divlearn.divergence import EmbeddedMetric
from divlearn.log_vectors import fit_vectors
from divlearn.sharded.shards import Shards

_DRAWN = ("k-means++", "random")  # starts that scikit-learn draws itself


def run_vectors(
    shards: Shards,
    metric: EmbeddedMetric,
    n_clusters: int,
    init: str | ArrayLike,
    n_init: int,
    max_iter: int,
    tol: float,
    random_state: RandomState,
    verbose: int,
) -> KMeans:
    """Cluster vectors of all matrices; the best of ``n_init`` runs."""
    parts = shards.map(lambda block: (metric.embed(block.matrices), block.weights))
    vectors, weights = map(np.concatenate, zip(*parts, strict=True))
    runs = [
        KMeans(
            n_clusters,
            init=start,
            n_init=n_init if isinstance(start, str) else 1,
            max_iter=max_iter,
            tol=tol,
            random_state=random_state,
            verbose=verbose,
        )
        for start in _starts(shards, metric, n_clusters, init, n_init, random_state)
    ]
    return min((fit_vectors(run, vectors, weights) for run in runs), key=attrgetter("inertia_"))


def _starts(
    shards: Shards,
    metric: EmbeddedMetric,
    n_clusters: int,
    init: str | ArrayLike,
    n_init: int,
    random_state: RandomState,
) -> list[str | RealArray]:
    init = check_init(init, n_clusters, shards.d)
    if not isinstance(init, str):
        return [metric.embed(init)]
    if init in _DRAWN:
        return [init]
    random = check_random_state(random_state)
    starts = Starts(shards.draw(3 * n_clusters), n_clusters)
    return [metric.embed(starts.draw(init, 0, 0, random)) for _ in range(n_init)]
