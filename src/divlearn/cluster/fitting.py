"""k-means from several starts: what estimators that look at all matrices at once share."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from divlearn.arrays import RealArray
from divlearn.checkpoint import checkpointed, stage
from divlearn.checks import check_count, check_number
from divlearn.cluster.base import CentroidModel
from divlearn.cluster.centroids import SOLVERS
from divlearn.cluster.lloyd import Run, run_lloyd
from divlearn.cluster.parameters import Rule
from divlearn.cluster.samples import Labels, Samples
from divlearn.cluster.starts import Starts, check_init
from divlearn.cluster.turns import Settings
from divlearn.engines import get_engine
from divlearn.labelled import all_or_nothing
from divlearn.progress import tell
from divlearn.sharded.opening import is_sharded, open_shards
from divlearn.spd import check_spd
from divlearn.threads import limit_blas
from divlearn.weights import check_weights

__all__ = ["LloydModel"]


class LloydModel(CentroidModel):
    """k-means in a divergence that a rule fixes or learns; see `divlearn.cluster.ABKMeans`."""

    init: str | ArrayLike
    n_init: int
    max_iter: int
    tol: float
    solver: str
    steps: int
    random_state: int | np.random.RandomState | None
    checkpoint: str | os.PathLike[str] | None = None

    kappa_: float
    labels_: Labels
    inertia_: float
    objective_: float
    n_iter_: int
    message_: str
    history_: dict[str, NDArray[np.generic]]

    @abstractmethod
    def _rule(self) -> Rule:
        """How alpha and beta are chosen."""

    @all_or_nothing
    def fit(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Cluster matrices.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d), or shards
            What `divlearn.sharded.open_shards` takes: a Dask array, files and so on, which stay
            where they are. Starts are then made of a sample of 10,000 matrices.
        y : ignored
        sample_weight : array-like, shape (n_matrices,), optional
            Non-negative weights. A matrix of no weight gets a label, but moves no centroid.

        Returns
        -------
        self
        """
        if is_sharded(X, self.engine):
            from divlearn.sharded.clustering import fit_kmeans

            fit_kmeans(self, open_shards(X, None, sample_weight, engine=self.engine))
            return self
        matrices = check_spd(X, ndim=3, dtype=np.float64)
        weights = check_weights(sample_weight, len(matrices))
        kept = np.flatnonzero(weights)
        self._check_n_clusters(len(kept))
        settings, rule = self._settings(), self._rule()
        if len(kept) < len(matrices):
            seen, weights = matrices[kept], weights[kept]
        else:
            seen = matrices
        engine = get_engine(self.engine)
        samples = Samples.prepare(engine, seen, weights, self.n_clusters)
        with checkpointed(self, X=seen, weights=weights):
            best = self._best_run(samples, lambda start: run_lloyd(samples, start, rule, settings))
        self.n_features_in_ = matrices.shape[-1]
        self._keep(best)
        if len(kept) < len(matrices):
            self.labels_ = self.predict(matrices)
        self._warn_of_empty_clusters(best.labels)
        trouble = rule.trouble(best.point)
        if trouble is not None:
            warnings.warn(trouble, ConvergenceWarning, stacklevel=3)
        return self

    def _best_run(self, samples: Samples, run_from: Callable[[RealArray], Run]) -> Run:
        """Return the best of several runs, with starts made of samples."""
        init, rule = check_init(self.init, self.n_clusters, samples.d), self._rule()
        random = check_random_state(self.random_state)
        starts = Starts(samples, self.n_clusters)
        n_init = self.n_init if isinstance(init, str) else 1  # the same start, the same end
        draw = partial(starts.draw, init, rule.start.alpha, rule.start.beta, random)
        best: Run | None = None
        for number in range(1, n_init + 1):
            try:
                tell("starts", number - 1, n_init)
                centers = stage("start", draw, random)
                with limit_blas(1):  # threads would cost more than these matrices
                    run = stage("run", partial(run_from, centers))
            except KeyboardInterrupt:  # before the run had anything to keep
                if best is None:
                    raise
                best = _stopped(best, number)
                break
            self._say(f"start {number} of {n_init}: objective {run.objective:.6g}; {run.message}")
            if best is None or run.objective < best.objective:
                best = run
            elif run.interrupted:  # and others are better
                best = _stopped(best, number)
            if run.interrupted:
                break
        assert best is not None
        return best

    def _keep(self, run: Run) -> None:
        self.cluster_centers_, self.labels_ = run.centers, run.labels
        self.alpha_, self.beta_, kappa = run.point
        if not np.isnan(kappa):
            self.kappa_ = kappa
        elif hasattr(self, "kappa_"):  # of a fit before
            del self.kappa_
        self.inertia_, self.objective_ = run.inertia, run.objective
        self.n_iter_, self.message_, self.history_ = run.n_iter, run.message, run.history

    def _settings(self) -> Settings:
        for name in ("n_init", "max_iter", "steps"):
            check_count(getattr(self, name), name)
        if self.solver not in SOLVERS:
            raise ValueError(f"solver={self.solver!r} must be one of {', '.join(SOLVERS)}")
        check_number(self.tol, "tol")
        silent = self.verbose < 2
        return Settings(
            SOLVERS[self.solver], self.steps, self.max_iter, self.tol,
            (lambda text: None) if silent else self._say,
        )  # fmt: skip


def _stopped(best: Run, number: int) -> Run:
    return replace(best, message=f"interrupted by the user in start {number}")
