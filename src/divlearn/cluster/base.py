"""Base of k-means estimators, in an alpha-beta log-det divergence or in a metric of vectors."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, ClusterMixin, TransformerMixin
from sklearn.base import ClassNamePrefixFeaturesOutMixin as NamesMixin
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import Indices, RealArray, to_host
from divlearn.checks import check_count, check_number
from divlearn.cluster.clusters import find_nearest, nearest_block
from divlearn.cluster.lloyd import Partition, run_lloyd
from divlearn.cluster.parameters import Learned, Rule
from divlearn.cluster.runs import Run, Starts, best_of, check_init
from divlearn.divergence import LOG_EUCLIDEAN, EmbeddedMetric
from divlearn.engines import Engine
from divlearn.fitting.checkpoint import checkpointed, stage
from divlearn.fitting.labelled import MatricesMixin, fit_method, real_new
from divlearn.fitting.progress import say
from divlearn.hermitian import real_form
from divlearn.log_vectors import fit_vectors
from divlearn.sharded.blocks import Block, encode_block, fingerprint_block
from divlearn.sharded.opening import open_new, open_training
from divlearn.sharded.shards import Shards
from divlearn.text import counted

# Functions of a block: divergences to all centroids; nearest centroids and divergences to them.
Measure = Callable[[Block], RealArray]
Nearest = Callable[[Block], tuple[Indices, RealArray]]

_SKLEARN_INITS = ("k-means++", "random")
_SKLEARN_PARAMETERS = ("n_clusters", "max_iter", "tol", "random_state", "verbose")


class KMeansModel(NamesMixin, TransformerMixin, ClusterMixin, MatricesMixin, BaseEstimator):  # type: ignore[misc]
    engine: str | Engine
    n_clusters: int
    n_features_in_: Annotated[int, "d"]
    cluster_centers_: Annotated[RealArray, "n_clusters d d"]
    labels_: Annotated[Indices, "n_matrices"]
    alpha_: float
    beta_: float
    kappa_: float
    inertia_: float
    objective_: float
    n_iter_: int
    message_: str
    history_: dict[str, NDArray[np.generic]]
    _metric: EmbeddedMetric | None = None

    @abstractmethod
    def _rule(self) -> Rule | EmbeddedMetric:
        """Return the rule that chooses alpha and beta, or a metric of vectors instead."""

    @fit_method
    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Cluster matrices.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d), or shards
            What `divlearn.sharded.open_shards` takes: a Dask array, files and so on, which stay
            where they are. Initial centroids then come from a sample of 10,000 matrices.
        y : ignored
        sample_weight : array-like, shape (n_matrices,), optional
            Non-negative weights, which are divided by their mean: only their ratios matter. A
            matrix with zero weight gets a label, but moves no centroid.

        Notes
        -----
        In a metric of vectors, those of shards must fit into memory.
        """
        shards = open_training(self, X, None, sample_weight)
        self._check_n_clusters(shards.n_seen)
        for name in ("n_init", "max_iter"):
            check_count(getattr(self, name), name)
        check_number(self.tol, "tol")
        rule = self._rule()
        if self.hermitian_ and isinstance(rule, Learned):
            raise ValueError(
                f"divergence={self.divergence!r} is learned from real matrices only, but X is "
                "complex; pass a divergence"
            )
        self.n_features_in_ = shards.d
        warning = None
        if isinstance(rule, EmbeddedMetric):
            self._fit_vectors(shards, rule)
        else:
            with checkpointed(self, X=partial(shards.map, fingerprint_block)):
                best = self._best_run(shards, rule)
            self._keep(best)
            warning = rule.warning(best.result.parameters)
        self._warn_of_empty_clusters()
        if warning is not None:
            warnings.warn(warning, ConvergenceWarning, stacklevel=3)
        return self

    def _best_run(self, shards: Shards, rule: Rule) -> Run[Partition]:
        init = self._check_init(shards.d)
        random = check_random_state(self.random_state)
        starts = Starts(shards.draw(3 * self.n_clusters), self.n_clusters)
        n_init = self.n_init if isinstance(init, str) else 1  # runs from the same start are equal

        def run() -> Run[Partition]:
            centers = starts.draw(init, *rule.start[:2], random)
            return run_lloyd(shards, centers, rule, self.max_iter, self.tol)

        return best_of(n_init, partial(stage, "start", run, random))

    def _keep(self, run: Run[Partition]) -> None:
        final = run.result
        self.cluster_centers_, self.labels_ = self._as_given(final.centers), final.labels
        self.alpha_, self.beta_, kappa = final.parameters
        if not np.isnan(kappa):
            self.kappa_ = kappa
        self.inertia_, self.objective_ = self._share * final.inertia, self._share * run.objective
        self.n_iter_, self.message_, self.history_ = run.n_iter, run.message, run.history
        self.history_["objective"] = np.multiply(self._share, self.history_["objective"])

    def _check_init(self, d: int) -> str | RealArray:
        init = self.init if isinstance(self.init, str) else real_new(self, self.init, "init")
        return check_init(init, self.n_clusters, d)

    def _fit_vectors(self, shards: Shards, metric: EmbeddedMetric) -> None:
        parts = shards.map(
            lambda block, embed: (embed(block.matrices), block.weights), metric.embed_for_squares
        )
        vectors, weights = map(np.concatenate, zip(*parts, strict=True))
        options = {name: getattr(self, name) for name in _SKLEARN_PARAMETERS}
        runs = [
            KMeans(init=start, n_init=self.n_init if isinstance(start, str) else 1, **options)
            for start in self._vector_starts(shards, metric)
        ]
        fitted = (fit_vectors(run, vectors, weights) for run in runs)
        means = min(fitted, key=attrgetter("inertia_"))
        self._metric = metric
        self.cluster_centers_ = self._as_given(metric.restore(means.cluster_centers_))
        self.labels_, self.n_iter_ = means.labels_.astype(np.intp), means.n_iter_
        self.inertia_ = self._share * float(means.inertia_)
        self.message_ = "the clusters no longer change, or centroids moved by less than tol"
        if self.n_iter_ >= self.max_iter:
            self.message_ = f"max_iter={self.max_iter} reached"
        say(
            self,
            f"{counted(self.n_iter_, 'iterations')}, inertia {self.inertia_:.6g}; {self.message_}",
        )

    def _vector_starts(self, shards: Shards, metric: EmbeddedMetric) -> list[str | RealArray]:
        init = self._check_init(shards.d)
        if not isinstance(init, str):
            return [metric.embed(init)]
        if init in _SKLEARN_INITS:
            return [init]
        random = check_random_state(self.random_state)
        starts = Starts(shards.draw(3 * self.n_clusters), self.n_clusters)
        return [metric.embed(starts.draw(init, 0, 0, random)) for _ in range(self.n_init)]

    def centroids(self) -> RealArray:
        """Return ``cluster_centers_``, by pyRiemann's name."""
        check_is_fitted(self)
        return self.cluster_centers_

    def _measure(self) -> Measure:
        """Return a function of a block that computes divergences to the centroids."""
        centers = np.asarray(real_form(self.cluster_centers_))
        if hasattr(self, "alpha_"):
            return partial(encode_block, atoms=centers, alpha=self.alpha_, beta=self.beta_)
        metric = self._metric or LOG_EUCLIDEAN  # files of version 0.2 have no metric
        embed = metric.embed_for_squares
        vectors = embed(centers)
        return lambda block: cdist(embed(block.matrices), vectors, "sqeuclidean")

    def _nearest(self) -> Nearest:
        """Return a function of a block that finds the nearest centroids, and the divergences."""
        if not hasattr(self, "alpha_"):
            measure = self._measure()
            return lambda block: find_nearest(measure(block))
        centers, alpha, beta = real_form(self.cluster_centers_), self.alpha_, self.beta_
        return lambda block: nearest_block(block, np.asarray(centers), alpha, beta)[:2]

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
