"""k-means in a metric of vectors: scikit-learn's, from starts of SPD matrices."""

from operator import attrgetter

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.cluster import KMeans
from sklearn.utils import check_random_state

from divlearn.arrays import RealArray
from divlearn.cluster.base import Starts
from divlearn.divergence import EmbeddedMetric
from divlearn.log_vectors import fit_vectors
from divlearn.sharded.shards import Shards

_DRAWN = ("k-means++", "random")  # starts that scikit-learn draws itself
_SHARED = ("n_clusters", "max_iter", "tol", "random_state", "verbose")


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
