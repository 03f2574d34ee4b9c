"""Ridge regression on tangent vectors of SPD matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import numpy as np
from scipy.linalg import eigh, svd

from divlearn.arrays import RealArray, to_host
from divlearn.checks import RandomState, check_name
from divlearn.engines import Engine, Prepared
from divlearn.fitting.folds import Splitter
from divlearn.fitting.held_out import Grid
from divlearn.fitting.regression import HeldOutRegressor, NumberedTraining
from divlearn.heads.discriminants import Linear
from divlearn.kernels.classifier import Candidate
from divlearn.log_vectors import log_vectors
from divlearn.tangent.classifier import POINTS, space

_PENALTIES = tuple(10.0 ** (power / 2) for power in range(-8, 9))  # to choose from


class TangentRegressor(HeldOutRegressor[Candidate]):
    r"""Predict numbers by ridge regression on tangent vectors of SPD matrices.

    The vectors are those of `TangentClassifier`, divided by one number, so that their total
    variance is one. The penalty is chosen by the held-out squared error.

    Parameters
    ----------
    at : {"mean", "identity"}, default="mean"
        Point of tangency: the AIRM mean of the training matrices, or the identity, where vectors
        are those of log X.
    cv, random_state, engine, n_jobs, regularize : as in `TangentClassifier`

    Attributes
    ----------
    best_params_ : dict, "penalty", the factor of the squared norm of the coefficients.
    cv_results_ : dict, "params" and their held-out "mean_test_score", an R2.
    oof_prediction_ : ndarray, shape (n_matrices,)
        Held-out predictions, with the penalty chosen without each fold.
    held_out_r2_, held_out_mae_ : float, of these predictions.
    n_features_in_ : int, size of the matrices.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, _ = make_wishart_clusters(1, 120, 3, random_state=0)
    >>> y = np.linalg.slogdet(X)[1]
    >>> regressor = TangentRegressor(random_state=0).fit(X[::2], y[::2])
    >>> bool(regressor.score(X[1::2], y[1::2]) > 0.99)
    True
    """

    model_: Linear
    whitener_: Annotated[RealArray, "d d"]
    deviation_: float

    def __init__(
        self,
        at: str = "mean",
        *,
        cv: Splitter = 4,
        random_state: RandomState = None,
        engine: str | Engine = "auto",
        n_jobs: int | None = None,
        regularize: str | float = "raise",
    ) -> None:
        self.at, self.cv, self.random_state = at, cv, random_state
        self.engine, self.n_jobs, self.regularize = engine, n_jobs, regularize

    def _check_parameters(self) -> None:
        check_name(self.at, "at", POINTS)

    def _grid(self, training: NumberedTraining) -> Grid[Candidate]:
        return Grid([(("penalty", penalty),) for penalty in _PENALTIES])

    def _learner(self, training: NumberedTraining, number: int) -> Callable[[Candidate], Linear]:
        rows, data = training.parts[number][0], training.data
        whitener, vectors, deviation = space(training, self.at, number)
        if number == training.whole:
            self.whitener_, self.deviation_ = whitener, deviation
        features = to_host(vectors[rows]) / deviation
        return ridge(features, data.numbers[rows], data.weights[rows])

    def _decide(self, model: Linear, training: NumberedTraining, number: int) -> RealArray:
        _, vectors, deviation = space(training, self.at, number)
        return to_host(model.decide(vectors[training.parts[number][1]] / deviation))[:, 0]

    def _decide_new(self, new: Prepared) -> RealArray:
        return self.model_.decide(log_vectors(new, self.whitener_) / self.deviation_)[:, 0]


def ridge(
    vectors: RealArray, numbers: RealArray, weights: RealArray
) -> Callable[[Candidate], Linear]:
    """Decompose weighted, centred vectors once for all penalties."""
    roots = np.sqrt(weights)
    centre = np.average(vectors, axis=0, weights=weights)
    offset = np.average(numbers, axis=0, weights=weights)
    weighted = roots[:, None] * (vectors - centre)
    if len(vectors) < vectors.shape[1]:
        _, values, axes = svd(weighted, full_matrices=False)
        squares = values**2
    else:  # faster; its errors in small squares are small relative to the least penalty
        squares, basis = eigh(weighted.T @ weighted, driver="evd")
        axes = basis.T
    projected = axes @ (weighted.T @ (roots * (numbers - offset)))

    def learn(candidate: Candidate) -> Linear:
        coefficients = (projected / (squares + dict(candidate)["penalty"])) @ axes
        return Linear(coefficients[None], np.atleast_1d(offset - centre @ coefficients))

    return learn
