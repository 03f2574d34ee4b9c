"""k-means in the log-Euclidean metric."""

from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.cluster import KMeans
from sklearn.metrics.pairwise import euclidean_distances

from divlearn.arrays import RealArray
from divlearn.checks import RandomState, check_count
from divlearn.cluster.base import CentroidModel, Measure, check_centers
from divlearn.divergence import LOG_EUCLIDEAN
from divlearn.engines import Engine
from divlearn.fitting.labelled import fit_method
from divlearn.fitting.progress import say
from divlearn.sharded.blocks import Block
from divlearn.sharded.opening import open_training
from divlearn.vector_kmeans import fit_vectors


class LogEuclideanKMeans(CentroidModel):
    r"""k-means of the logarithms of SPD matrices.

    It minimises :math:`\sum_i w_i \| \log X_i - \log C \|_F^2`, C the centroid nearest to
    :math:`X_i`. Logarithms are taken once; scikit-learn's `KMeans` does the rest.

    Parameters
    ----------
    n_clusters, n_init, max_iter, random_state, verbose, regularize : as in `ABKMeans`
    init : {"k-means++", "random"} or array-like, shape (n_clusters, d, d), default="k-means++"
        Where the centroids start.
    tol : float, default=1e-4
        Squared movement of all centroids, relative to the mean variance of the logarithms, below
        which to stop. Clusters that stay as they are stop it too.

    Attributes
    ----------
    cluster_centers_, labels_, n_iter_, message_, n_features_in_ : as in `ABKMeans`
    inertia_ : float
        Weighted sum of squared distances to the nearest centroids, for weights of mean one.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, random_state=0)
    >>> found = LogEuclideanKMeans(3, random_state=0).fit(X)
    >>> found.transform(X[:5]).shape  # squared distances
    (5, 3)
    """

    inertia_: float
    n_iter_: int
    message_: str

    engine: str | Engine = "reference"  # which only hands out the matrices

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: str | ArrayLike = "k-means++",
        n_init: int = 4,
        max_iter: int = 300,
        tol: float = 1e-4,
        random_state: RandomState = None,
        verbose: int = 0,
        regularize: str | float = "raise",
    ) -> None:
        self.n_clusters, self.init, self.n_init = n_clusters, init, n_init
        self.max_iter, self.tol, self.regularize = max_iter, tol, regularize
        self.random_state, self.verbose = random_state, verbose

    @fit_method
    def fit(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Cluster matrices.

        Parameters
        ----------
        X, y, sample_weight : as in `ABKMeans.fit`
            The logarithms of shards, half as large as these, must fit into memory.
        """
        shards = open_training(self, X, None, sample_weight)
        self._check_n_clusters(shards.n_seen)
        check_count(self.n_init, "n_init")
        init, n_init = self.init, self.n_init
        if not isinstance(init, str):
            init = LOG_EUCLIDEAN.embed(check_centers(init, self.n_clusters, shards.d))
            n_init = 1
        means = KMeans(
            self.n_clusters,
            init=init,
            n_init=n_init,
            max_iter=self.max_iter,
            tol=self.tol,
            random_state=self.random_state,
            verbose=self.verbose,
        )
        parts = shards.map(lambda block: (LOG_EUCLIDEAN.embed(block.matrices), block.weights))
        fit_vectors(means, *map(np.concatenate, zip(*parts, strict=True)))
        self.n_features_in_ = shards.d
        self.cluster_centers_ = LOG_EUCLIDEAN.restore(means.cluster_centers_)
        self.labels_, self.inertia_ = means.labels_.astype(np.intp), float(means.inertia_)
        self.n_iter_ = means.n_iter_
        self.message_ = "the clusters no longer change, or centroids moved by less than tol"
        if self.n_iter_ >= self.max_iter:
            self.message_ = f"max_iter={self.max_iter} reached"
        say(self, f"{self.n_iter_} iterations, inertia {self.inertia_:.6g}; {self.message_}")
        self._warn_of_empty_clusters()
        return self

    def _measure(self) -> Measure:
        return partial(_squares_block, centers=LOG_EUCLIDEAN.embed(self.cluster_centers_))


def _squares_block(block: Block, centers: RealArray) -> RealArray:
    return euclidean_distances(LOG_EUCLIDEAN.embed(block.matrices), centers, squared=True)
