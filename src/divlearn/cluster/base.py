"""What the estimators of this package share, and what centroids say of matrices."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.base import ClassNamePrefixFeaturesOutMixin as NamesMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import RealArray, to_host
from divlearn.checks import check_count
from divlearn.cluster.clusters import Labels
from divlearn.engines import Engine
from divlearn.fitting.labelled import MatricesMixin
from divlearn.sharded.blocks import Block
from divlearn.sharded.opening import open_data
from divlearn.sharded.shards import Shards

__all__ = ["CentroidModel", "ClusterBase", "Measure", "Nearest"]

# From a block to a table of divergences to centroids; or to the nearest, and the divergence to it.
Measure = Callable[[Block], RealArray]
Nearest = Callable[[Block], tuple[Any, ...]]


class ClusterBase(MatricesMixin, BaseEstimator):  # type: ignore[misc]
    """What k-means and mixtures share: how they open matrices of the size they know."""

    engine: str | Engine
    n_features_in_: int

    def _open(self, X: Any, sample_weight: ArrayLike | None = None) -> Shards:
        """Open matrices that a fitted estimator is asked about."""
        check_is_fitted(self)
        shards = open_data(X, None, sample_weight, engine=self.engine)
        if shards.d != self.n_features_in_:
            raise ValueError(
                f"X has matrices of size {shards.d}, but {type(self).__name__} is expecting "
                f"{self.n_features_in_}"
            )
        return shards


class CentroidModel(NamesMixin, TransformerMixin, ClusterMixin, ClusterBase):  # type: ignore[misc]
    """Clusters of matrices around centroids: all that only takes divergences to these."""

    n_clusters: int
    cluster_centers_: RealArray
    labels_: Labels

    @abstractmethod
    def _measure(self) -> Measure:
        """How divergences of a block of matrices to the centroids are computed."""

    @abstractmethod
    def _nearest(self) -> Nearest:
        """How the nearest centroids of a block of matrices are found."""

    def predict(self, X: ArrayLike) -> Labels:
        """Find the nearest centroid of every matrix.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d), or shards

        Returns
        -------
        ndarray of int, shape (n_matrices,)
        """
        return np.concatenate(self._open(X).map(_labels_block, self._nearest()))

    def transform(self, X: ArrayLike) -> RealArray:
        """Compute the divergences of matrices to all centroids.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d), or shards

        Returns
        -------
        ndarray, shape (n_matrices, n_clusters)
        """
        return np.concatenate(self._open(X).map(_table_block, self._measure()))

    def score(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Compute minus the weighted sum of divergences to the nearest centroids.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d), or shards with their weights
        y : ignored
        sample_weight : array-like, shape (n_matrices,), optional

        Returns
        -------
        float
        """
        return -float(self._open(X, sample_weight).reduce(_loss_block, self._nearest()))

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
            warnings.warn(
                f"found n_found={n_found} distinct clusters, fewer than n_clusters="
                f"{self.n_clusters}, possibly since X holds equal matrices; lower n_clusters",
                ConvergenceWarning,
                stacklevel=4,
            )

    @property
    def _n_features_out(self) -> int:
        return len(self.cluster_centers_)


def _table_block(block: Block, measure: Measure) -> RealArray:
    return to_host(measure(block))


def _labels_block(block: Block, nearest: Nearest) -> Labels:
    labels: Labels = nearest(block)[0]
    return labels


def _loss_block(block: Block, nearest: Nearest) -> float:
    return float(block.weights @ nearest(block)[1])
