"""What the estimators of this package share, and what centroids say of matrices."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.base import ClassNamePrefixFeaturesOutMixin as NamesMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import RealArray
from divlearn.checks import check_count
from divlearn.cluster.samples import Labels, checked_blocks
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.labelled import MatricesMixin
from divlearn.sharded.opening import is_sharded, open_shards
from divlearn.sharded.scoring import gather_weights
from divlearn.sharded.shards import Shards
from divlearn.weights import check_weights

__all__ = ["CentroidModel", "ClusterBase"]


class ClusterBase(MatricesMixin, BaseEstimator):  # type: ignore[misc]
    """What k-means and mixtures share: the size of matrices, and speech."""

    verbose: int
    n_features_in_: int

    def _check_size(self, matrices: RealArray) -> None:
        if matrices.shape[-1] != self.n_features_in_:
            raise ValueError(
                f"X has matrices of size {matrices.shape[-1]}, but {type(self).__name__} is "
                f"expecting {self.n_features_in_}"
            )

    def _say(self, text: str) -> None:
        if self.verbose:
            print(f"[{type(self).__name__}] {text}")


class CentroidModel(NamesMixin, TransformerMixin, ClusterMixin, ClusterBase):  # type: ignore[misc]
    """Clusters of matrices around centroids: all that only takes divergences to these."""

    n_clusters: int
    engine: str | Engine
    alpha_: float
    beta_: float
    cluster_centers_: RealArray

    def _divergences(self, matrices: RealArray) -> RealArray:
        """Divergences of checked matrices to the centroids, shape (n_matrices, n_clusters)."""
        engine = get_engine(self.engine)
        return engine.encode(
            Prepared.checked(matrices), self.cluster_centers_, self.alpha_, self.beta_
        )

    def predict(self, X: ArrayLike) -> Labels:
        """Find the nearest centroid of every matrix.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)

        Returns
        -------
        ndarray of int, shape (n_matrices,)
        """
        return np.concatenate([table.argmin(axis=1) for table in self._tables(X)])

    def transform(self, X: ArrayLike) -> RealArray:
        """Compute the divergences of matrices to all centroids.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)

        Returns
        -------
        ndarray, shape (n_matrices, n_clusters)
        """
        return np.concatenate(list(self._tables(X)))

    def score(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Compute minus the weighted sum of divergences to the nearest centroids.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)
        y : ignored
        sample_weight : array-like, shape (n_matrices,), optional
            Those that shards hold, by default.

        Returns
        -------
        float
        """
        if isinstance(X, Shards) and sample_weight is None:
            sample_weight = gather_weights(X)
        nearest = np.concatenate([table.min(axis=1) for table in self._tables(X)])
        weights = check_weights(sample_weight, len(nearest))
        return -float(weights @ nearest)

    def _tables(self, X: ArrayLike) -> Iterator[RealArray]:
        """Yield tables of divergences to the centroids, block by block."""
        check_is_fitted(self)
        if hasattr(self, "engine") and is_sharded(X, self.engine):
            from divlearn.sharded.clustering import tables

            yield from tables(self, open_shards(X, engine=self.engine))
            return
        for _, matrices in checked_blocks(X, len(self.cluster_centers_)):
            self._check_size(matrices)
            yield self._divergences(matrices)

    def _check_n_clusters(self, n_matrices: int) -> None:
        check_count(self.n_clusters, "n_clusters")
        if self.n_clusters > n_matrices:
            raise ValueError(
                f"n_clusters={self.n_clusters} must be <= n_matrices={n_matrices} (n_samples="
                f"{n_matrices} with a weight > 0); lower n_clusters or pass more data"
            )

    def _warn_of_empty_clusters(self, labels: Labels) -> None:
        n_found = len(np.unique(labels))
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
