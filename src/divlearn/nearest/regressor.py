"""Nearest neighbours of SPD matrices that predict numbers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Annotated

import numpy as np

from divlearn.arrays import RealArray
from divlearn.checks import RandomState
from divlearn.divergence import Divergence
from divlearn.engines import Engine, get_engine
from divlearn.fitting.folds import Splitter
from divlearn.fitting.held_out import Grid
from divlearn.fitting.regression import HeldOutRegressor, NumberedTraining
from divlearn.kernels.classifier import POINTS
from divlearn.kernels.regressor import usual_divergences
from divlearn.kernels.shared import shared_table
from divlearn.kernels.tables import symmetric_table
from divlearn.nearest.neighbors import Candidate
from divlearn.tolerances import LEARNING_ACCURACY

_COUNTS = (1, 2, 4, 8, 16, 32, 64)  # of neighbours, to choose from


class NearestRegressor(HeldOutRegressor[Candidate]):
    r"""Predict the mean number of the nearest training matrices.

    Neighbours of a matrix are the training matrices with the smallest symmetrised divergences to
    it. The divergence and the number of neighbours are chosen by the held-out squared error.

    Parameters
    ----------
    cv : int or splitter, default=4
    random_state : int, RandomState or None, default=None
    engine : str or Engine, default="auto"
    n_jobs : int or None, default=None
        Threads that fit candidates and folds, as in scikit-learn; None for those of the engine. The
        result is the same for any number.
    regularize : {"raise", "shrink"} or float, default="raise", see `Regularize`

    Attributes
    ----------
    best_params_ : dict, "divergence", a `Divergence`, and "n_neighbors".
    cv_results_ : dict, "params" and their held-out "mean_test_score", an R2.
    oof_prediction_ : ndarray, shape (n_matrices,)
        Held-out predictions, with parameters chosen without each fold.
    held_out_r2_, held_out_mae_ : float, of these predictions.
    n_features_in_ : int, size of the matrices.

    Notes
    -----
    Sample weights multiply the shares of neighbours in the mean.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, _ = make_wishart_clusters(1, 120, 3, random_state=0)
    >>> y = np.linalg.slogdet(X)[1]
    >>> regressor = NearestRegressor(random_state=0).fit(X[::2], y[::2])
    >>> bool(regressor.score(X[1::2], y[1::2]) > 0.6)
    True
    """

    matrices_: Annotated[RealArray, "n_kept d d"]
    numbers_: Annotated[RealArray, "n_kept"]
    shares_: Annotated[RealArray, "n_kept"]

    def __init__(
        self,
        *,
        cv: Splitter = 4,
        random_state: RandomState = None,
        engine: str | Engine = "auto",
        n_jobs: int | None = None,
        regularize: str | float = "raise",
    ) -> None:
        self.cv, self.random_state = cv, random_state
        self.engine, self.n_jobs, self.regularize = engine, n_jobs, regularize

    def _grid(self, training: NumberedTraining) -> Grid[Candidate]:
        fewest = min(len(train) for train, _ in training.parts)
        counts = [count for count in _COUNTS if count <= max(fewest, 1)]
        return Grid(list(product(usual_divergences(), counts)))

    def _describe(self, candidate: Candidate) -> dict[str, Divergence | int]:
        return dict(zip(("divergence", "n_neighbors"), candidate, strict=True))

    def _learner(self, training: NumberedTraining, number: int) -> Callable[[Candidate], Candidate]:
        return lambda candidate: candidate  # matrices are all there is to know

    def _fit_model(self, training: NumberedTraining, best: Candidate) -> None:
        data = training.data
        self.matrices_, self.numbers_, self.shares_ = data.matrices, data.numbers, data.weights

    def _decide(self, model: Candidate, training: NumberedTraining, number: int) -> RealArray:
        (divergence, count), (train, held) = model, training.parts[number]
        table, data = shared_table(training, divergence, POINTS), training.data
        known = data.numbers[train], data.weights[train]
        return _mean_of_nearest(table[np.ix_(held, train)], *known, count)

    def _decide_new(self, matrices: RealArray) -> RealArray:
        divergence, count = self.best_params_["divergence"], self.best_params_["n_neighbors"]
        engine = get_engine(self.engine, accuracy=LEARNING_ACCURACY)
        table = symmetric_table(divergence, engine, matrices, self.matrices_)
        return _mean_of_nearest(table, self.numbers_, self.shares_, count)


def _mean_of_nearest(
    table: RealArray, numbers: RealArray, weights: RealArray, count: int
) -> RealArray:
    nearest = np.argpartition(table, count - 1, axis=1)[:, :count]
    nearest.sort(axis=1)  # sums do not depend on the order that a partition leaves
    shares = weights[nearest]
    return (shares * numbers[nearest]).sum(axis=1) / shares.sum(axis=1)
