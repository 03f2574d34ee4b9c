"""Estimators of users as members of committees, fitted to parts of the data without a search."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from divlearn.arrays import RealArray
from divlearn.checks import RandomState
from divlearn.engines import Engine, Prepared
from divlearn.fitting.folds import Splitter, fit_grouped
from divlearn.fitting.held_out import FoldedData, Grid
from divlearn.fitting.labelled import MatricesMixin
from divlearn.fitting.training import HeldOutClassifier, HeldOutRegressor

# Shares of a uniform distribution that probabilities are mixed with, of which calibration chooses
# one: votes of neighbours or trees are often zero, and their logarithms say too much.
_UNIFORM = (1e-12, 1e-3, 1e-1)


class Wrapped(MatricesMixin):
    """An estimator of a user, with a grid of one candidate without parameters."""

    estimator_: Any  # of any class that a file may hold
    engine: str | Engine = "auto"

    def __init__(
        self,
        estimator: BaseEstimator,
        *,
        cv: Splitter = 4,
        random_state: RandomState = None,
        n_jobs: int | None = 1,
        regularize: str | float = "raise",
    ) -> None:
        self.estimator, self.cv = estimator, cv
        self.random_state, self.n_jobs, self.regularize = random_state, n_jobs, regularize

    @abstractmethod
    def _answer(self, model: BaseEstimator, matrices: RealArray) -> RealArray:
        """Return scores of classes, or standardised numbers."""

    def _grid(self, training: FoldedData) -> Grid[tuple[()]]:
        return Grid([()])

    def _learner(self, training: FoldedData, number: int) -> Callable[[tuple[()]], BaseEstimator]:
        data, rows = training.data, training.parts[number][0]
        groups = data.matrix_groups

        def learn(_: tuple[()]) -> BaseEstimator:
            return fit_grouped(
                clone(self.estimator),
                self._as_given(data.matrices[rows]),
                data.y[data.positions[rows]],
                None if groups is None else groups[rows],
                None if np.ptp(data.weights) == 0 else data.weights[rows],
            )

        return learn

    def _fit_model(self, training: FoldedData, best: tuple[()]) -> None:
        self.estimator_ = self._learner(training, training.whole)(best)

    def _decide(self, model: BaseEstimator, training: FoldedData, number: int) -> RealArray:
        return self._answer(model, self._held_matrices(training, number))

    def _decide_new(self, new: Prepared) -> RealArray:
        return self._answer(self.estimator_, self._as_given(new.matrices))

    def _held_matrices(self, training: FoldedData, number: int) -> RealArray:
        return self._as_given(training.data.matrices[training.parts[number][1]])


class CalibratedClassifier(Wrapped, HeldOutClassifier[tuple[()]]):
    """A classifier of SPD matrices, with probabilities that are calibrated on held-out data.

    It is fitted to all data, to the training part of every fold, and to parts without two folds,
    which calibrate held-out probabilities. `SPDClassifier` wraps its users' classifiers in this.

    Parameters
    ----------
    estimator : classifier or pipeline
        It takes matrices, shape (n_matrices, d, d), and has `decision_function` or `predict_proba`;
        the former is preferred, as in scikit-learn's CalibratedClassifierCV. Sample weights and
        groups are passed to it if its `fit` takes them.
    cv : int or splitter, default=4
    random_state : int, RandomState or None, default=None
        Shuffles the folds.
    n_jobs : int or None, default=1
        Threads that fit copies of the estimator, as in scikit-learn; None for all that
        ``OMP_NUM_THREADS`` allows.
    regularize : {"raise", "shrink"} or float, default="raise", see `Regularize`

    Attributes
    ----------
    estimator_ : the estimator, fitted to all data.
    classes_ : ndarray, shape (n_classes,)
    oof_proba_ : ndarray, shape (n_matrices, n_classes), held-out probabilities.
    held_out_accuracy_ : float, of these probabilities.
    n_features_in_ : int, size of the matrices.

    Examples
    --------
    >>> from divlearn.nearest import DivergenceKNN
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, random_state=0)
    >>> model = CalibratedClassifier(DivergenceKNN(5), random_state=0).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2])
    1.0
    """

    def _check_parameters(self) -> None:
        methods = "decision_function", "predict_proba"
        scores = any(hasattr(self.estimator, name) for name in methods)
        if not (hasattr(self.estimator, "fit") and scores):
            raise ValueError(
                f"{self.estimator!r} must have fit, and decision_function or predict_proba; pass a "
                "classifier that has"
            )

    def _answer(self, model: BaseEstimator, matrices: RealArray) -> RealArray:
        scores, classes = _score(model, matrices), np.asarray(model.classes_)
        if scores.shape[1] != len(classes) or not np.isin(self.classes_, classes).all():
            raise ValueError(
                f"{type(model).__name__} has {scores.shape[1]} scores of the classes "
                f"{classes.tolist()}, must have one for each of {self.classes_.tolist()}; pass a "
                "classifier of these classes, SVC with decision_function_shape='ovr'"
            )
        return scores[:, np.searchsorted(classes, self.classes_)]  # a frozen model may have more

    def _decide(self, model: BaseEstimator, training: FoldedData, number: int) -> RealArray:
        scores = super()._decide(model, training, number)
        if len(self.classes_) == 3 and hasattr(model, "decision_function"):  # and 3 pairs
            predicted = model.predict(self._held_matrices(training, number))
            agreement = np.mean(self.classes_[scores.argmax(axis=1)] == predicted)
            if agreement < 0.5:
                raise ValueError(
                    f"the highest score of {type(model).__name__} is that of the predicted class "
                    f"for {agreement:.0%} of held-out matrices, must be >= 50%; pass a classifier "
                    "with scores of classes, SVC with decision_function_shape='ovr'"
                )
        return scores


def _score(model: BaseEstimator, matrices: RealArray) -> RealArray:
    """Return scores of the classes of a model, (n_matrices, n_classes), or several forms."""
    # Decisions come first: probabilities of scores in a tiny unit are equal up to rounding.
    if not hasattr(model, "decision_function"):
        shares, p = np.array(_UNIFORM), np.asarray(model.predict_proba(matrices))[..., None]
        return np.log((1 - shares) * p + shares / p.shape[1])
    decisions = np.asarray(model.decision_function(matrices))
    return np.stack([-decisions, decisions], axis=1) / 2 if decisions.ndim == 1 else decisions


class CrossValidatedRegressor(Wrapped, HeldOutRegressor[tuple[()]]):
    """A regressor of SPD matrices, with its held-out predictions.

    It is fitted to all data and to the training part of every fold. `SPDRegressor` wraps its users'
    regressors in this.

    Parameters
    ----------
    estimator : regressor or pipeline
        It takes matrices, shape (n_matrices, d, d), and has `predict`. Sample weights and groups
        are passed to it if its `fit` takes them.
    cv, random_state, n_jobs, regularize : as in `CalibratedClassifier`

    Attributes
    ----------
    estimator_ : the estimator, fitted to all data.
    oof_prediction_ : ndarray, shape (n_matrices,), held-out predictions.
    held_out_r2_, held_out_mae_ : float, of these predictions.
    n_features_in_ : int, size of the matrices.

    Examples
    --------
    >>> from divlearn.iddl import IDDLRegressor
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, _ = make_wishart_clusters(1, 120, 3, random_state=0)
    >>> y = np.linalg.slogdet(X)[1]
    >>> iddl = IDDLRegressor(2, rank="full", max_iter=0, random_state=0)
    >>> model = CrossValidatedRegressor(iddl, cv=3, random_state=0).fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.8)
    True
    """

    def _check_parameters(self) -> None:
        if not (hasattr(self.estimator, "fit") and hasattr(self.estimator, "predict")):
            raise ValueError(f"{self.estimator!r} must have fit and predict; pass a regressor")

    def _answer(self, model: BaseEstimator, matrices: RealArray) -> RealArray:
        numbers: RealArray = np.asarray(model.predict(matrices), float).reshape(len(matrices))
        return (numbers - self.mean_) / self.scale_
