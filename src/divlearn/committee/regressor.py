"""Committee of regressors, weighted by the likelihood of held-out numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import Indices, RealArray
from divlearn.checks import RandomState
from divlearn.committee import base
from divlearn.committee.base import Committee, MemberNames, Members
from divlearn.committee.weights import Average, find_simple, fit_number_average
from divlearn.committee.wrapped import CrossValidatedRegressor
from divlearn.engines import Engine
from divlearn.fitting.folds import Splitter
from divlearn.fitting.labelled import (
    MatricesMixin,
    check_numbered,
    fit_method,
    prepare_new,
)
from divlearn.fitting.progress import say
from divlearn.fitting.training import NumberedTraining, r_squared
from divlearn.iddl import IDDLRegressor
from divlearn.kernels import DivergenceKernelRegressor
from divlearn.kernels.regressor import count_cubes
from divlearn.nearest import NearestRegressor
from divlearn.tangent import TangentRegressor
from divlearn.threads import count_jobs, limit_blas

_QUICK: dict[str, Callable[..., BaseEstimator]] = {
    "tangent ridge": TangentRegressor,
    "log ridge": partial(TangentRegressor, "identity"),
    "kernel": DivergenceKernelRegressor,
    "nearest neighbour": NearestRegressor,
}
_SMALLEST_PROBE = 64  # size of a matrix, to measure the time of eigenvectors
REGRESSORS = (*_QUICK, "iddl")


class SPDRegressor(
    RegressorMixin,  # type: ignore[misc]
    MatricesMixin,
    Committee[NumberedTraining],
):
    r"""Predict numbers from SPD matrices by a weighted average of different regressors.

    .. math:: f(X) = \sum_m w_m \, f_m(X)

    The weights maximise the likelihood of held-out numbers with Gaussian errors, with a prior for
    equal weights that is worth 3 samples. `fit` leaves out members that cannot be fitted, and
    ``message_`` says why. After an interrupt, the committee consists of the members fitted so far.

    Parameters
    ----------
    members : sequence of str and (str, regressor), default=REGRESSORS
        "tangent ridge" and "log ridge" are ridge regressions on tangent vectors at the mean and on
        logarithms, "kernel" is kernel ridge regression with a divergence kernel. "nearest
        neighbour" chooses its divergence. "iddl" is `IDDLRegressor`. A pair of a name and any
        regressor of matrices, such as a pipeline, adds a member of your own; see
        `CrossValidatedRegressor`.
    time_limit, cv, random_state, engine, n_jobs, verbose, regularize : as in `SPDClassifier`

    Attributes
    ----------
    weights_ : dict, of the members.
    oof_r2_, oof_mae_ : dict, of the members and of "average"
        Held-out coefficient of determination, and mean absolute error. For every fold, the choices
        of the members and the weights are made without the fold.
    oof_prediction_ : ndarray, shape (n_matrices,), held-out average, in the same way.
    members_ : dict of fitted regressors, each of which predicts by itself.
    message_ : str, how many members there are, and why the others were left out.
    n_features_in_ : int, size of the matrices.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, _ = make_wishart_clusters(1, 120, 3, random_state=0)
    >>> y = np.linalg.slogdet(X)[1]
    >>> members = ("tangent ridge", "kernel", "nearest neighbour")
    >>> regressor = SPDRegressor(members, random_state=0).fit(X[::2], y[::2])
    >>> bool(regressor.score(X[1::2], y[1::2]) > 0.9)
    True
    """

    _kind = "regressor"
    _quick = _QUICK
    _learned = IDDLRegressor
    _wrapper = CrossValidatedRegressor

    oof_r2_: dict[str, float]
    oof_mae_: dict[str, float]
    oof_prediction_: Annotated[RealArray, "n_matrices"]

    def __init__(
        self,
        members: MemberNames = REGRESSORS,
        *,
        time_limit: float | None = None,
        cv: Splitter = 4,
        random_state: RandomState = None,
        engine: str | Engine = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
        regularize: str | float = "raise",
    ) -> None:
        self.members, self.time_limit, self.cv = members, time_limit, cv
        self.random_state, self.engine, self.n_jobs = random_state, engine, n_jobs
        self.verbose, self.regularize = verbose, regularize

    @fit_method
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit and weight the members; parameters are those of `TangentRegressor.fit`."""
        users = self._check_parameters()
        data = check_numbered(self, X, y, sample_weight, groups)
        self.n_features_in_ = data.matrices.shape[-1]
        self._fit(NumberedTraining, data, data.y[data.positions], users)
        return self

    def _held_out(self, member: BaseEstimator) -> RealArray:
        return member.oof_prediction_

    def _figure(self, name: str, member: BaseEstimator, training: NumberedTraining) -> str:
        data, rows = training.data, training.tested
        predictions = data.standardize(member.oof_prediction_[data.positions[rows]])
        return f"R2: {name} {r_squared(data.numbers[rows], predictions, data.weights[rows]):.3f}"

    def _estimate(self, name: str, fitted: Members, training: NumberedTraining) -> float:
        seconds = super()._estimate(name, fitted, training)
        if name == "kernel" and (cubes := count_cubes(training)):
            n_jobs = count_jobs(self.n_jobs, training.engine.n_threads)
            seconds += cubes * self._measure_cube(len(training.data.matrices)) / n_jobs
        return seconds

    def _measure_cube(self, n_matrices: int) -> float:
        """Measure the seconds of eigenvectors of a symmetric matrix, over the cube of its size."""
        enough, size, random = self._probe_seconds(), _SMALLEST_PROBE, np.random.RandomState(0)
        with limit_blas(1):  # as in the fit
            while True:
                matrix, began = random.normal(size=(size, size)), base.clock()
                eigh(matrix + matrix.T, driver="evd")
                seconds, next_size = base.clock() - began, 2 * size
                if seconds >= enough or next_size > n_matrices:
                    return float(seconds / size**3)
                size = next_size

    def _weigh(self, training: NumberedTraining) -> None:
        data, tested = training.data, training.tested
        rows, members = data.positions[tested], self.members_.values()
        held_out = data.standardize(np.stack([m.oof_prediction_[rows] for m in members]))
        optimistic = data.standardize(np.stack([m._optimistic_prediction[rows] for m in members]))

        def fit(predictions: RealArray, rows: Indices, counts: RealArray) -> Average:
            return fit_number_average(predictions, data.numbers[rows], counts)

        counts, units = self._count(training)
        _, average = self._average(training, held_out, optimistic, counts, fit)
        self.oof_prediction_ = data.scatter(tested, data.restore(average))
        numbers, names = data.numbers[tested], [*self.members_, "average"]
        predictions = dict(zip(names, [*held_out, average], strict=True))
        self.oof_r2_ = {name: r_squared(numbers, p, counts) for name, p in predictions.items()}
        self.oof_mae_ = {
            name: float(data.scale * np.average(np.abs(p - numbers), weights=counts))
            for name, p in predictions.items()
        }
        scores = {name: -((p - numbers) ** 2) for name, p in predictions.items()}
        simple = {name: scores[name] for name in self.members_ if name != "iddl"}
        self.simple_ = find_simple(simple, scores["average"], counts, units)
        say(self, self.summary())

    def summary(self) -> str:
        """List the weights of the members, and say whether a single member would do as well."""
        check_is_fitted(self)
        figures = {name: f"R2 {r2:.3f}" for name, r2 in self.oof_r2_.items()}
        result = (
            f"The average has a held-out R2 of {self.oof_r2_['average']:.3f} and a mean absolute "
            f"error of {self.oof_mae_['average']:.4g}."
        )
        return self._summarize("numbers", figures, result)

    def predict(self, X: ArrayLike) -> RealArray:
        """Predict numbers, shape (n_matrices,)."""
        checked = prepare_new(self, X)
        members = self.members_.items()
        return np.sum([self.weights_[name] * m.predict(checked) for name, m in members], axis=0)
