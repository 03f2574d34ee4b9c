"""Nearest neighbours of SPD matrices that predict numbers."""

from __future__ import annotations

from itertools import product
from typing import Annotated

import numpy as np

from divlearn.arrays import Indices, RealArray, to_host
from divlearn.divergence import LOG_EUCLIDEAN
from divlearn.engines import Prepared
from divlearn.fitting.held_out import Grid
from divlearn.fitting.labelled import engine_of
from divlearn.fitting.training import HeldOutRegressor, NumberedTraining
from divlearn.kernels.classifier import POINTS
from divlearn.kernels.regressor import usual_divergences
from divlearn.kernels.tables import are_many, cut, shared_table, training_table
from divlearn.nearest.neighbors import Candidate, Nearest
from divlearn.nearest.vectors import VectorNeighbors
from divlearn.tolerances import LEARNING_ACCURACY

_COUNTS = (1, 2, 4, 8, 16, 32, 64)  # of neighbours, to choose from


class NearestRegressor(Nearest, HeldOutRegressor[Candidate]):
    r"""Predict the mean number of the nearest training matrices.

    Neighbours of a matrix are the training matrices with the smallest symmetrised divergences to
    it. The divergence and the number of neighbours are chosen by the held-out squared error. With
    more than 4,000 matrices the divergence is log-Euclidean: others would take too long between all
    pairs.

    Parameters
    ----------
    cv, random_state, engine, n_jobs, regularize : as in `TangentClassifier`

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

    def _grid(self, training: NumberedTraining) -> Grid[Candidate]:
        fewest = min(len(train) for train, _ in training.parts)
        counts = [count for count in _COUNTS if count <= max(fewest, 1)]
        divergences = [LOG_EUCLIDEAN] if are_many(training) else usual_divergences()
        return Grid(list(product(divergences, counts)))

    def _fit_model(self, training: NumberedTraining, best: Candidate) -> None:
        data = training.data
        self.matrices_, self.numbers_, self.shares_ = data.matrices, data.numbers, data.weights

    def _decide(self, model: Candidate, training: NumberedTraining, number: int) -> RealArray:
        (divergence, count), (train, held) = model, training.parts[number]
        if are_many(training):
            nearest = _log_neighbors(training, number)[:, :count]
        else:
            table = cut(shared_table(training, divergence, POINTS), held, train)
            nearest = _find_nearest(table, count)
        return _mean_of(nearest, training.data.numbers[train], training.data.weights[train])

    def _decide_new(self, new: Prepared) -> RealArray:
        divergence, count = self.best_params_["divergence"], self.best_params_["n_neighbors"]
        engine = engine_of(self, LEARNING_ACCURACY)
        table = training_table(self, divergence, engine, new)
        return _mean_of(_find_nearest(table, count), self.numbers_, self.shares_)


def _log_neighbors(training: NumberedTraining, number: int) -> Indices:
    """Neighbours of held-out matrices in the log-Euclidean distance, the nearest first."""

    def search() -> Indices:
        (train, held), vectors = training.parts[number], to_host(training.log_vectors)
        count = min(_COUNTS[-1], len(train))
        return VectorNeighbors(vectors[train]).find(vectors[held], count)[1]

    return training.cached(("log neighbours", number), search)


def _find_nearest(table: RealArray, count: int) -> Indices:
    return np.argpartition(table, count - 1, axis=1)[:, :count]


def _mean_of(nearest: Indices, numbers: RealArray, weights: RealArray) -> RealArray:
    nearest = np.sort(nearest, axis=1)  # sums do not depend on the order of neighbours
    shares = weights[nearest]
    return (shares * numbers[nearest]).sum(axis=1) / shares.sum(axis=1)
