"""Training on folds: fit candidates, choose one by held-out data, refit it.

Probabilities of classifiers are calibrated on held-out data.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from typing import Annotated, ClassVar, Generic, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin

from divlearn.arrays import Indices, RealArray
from divlearn.checks import ClassWeight
from divlearn.fitting.calibration import (
    Calibration,
    as_forms,
    calibrate,
    calibrate_by,
    fit_temperature,
    log_probabilities,
    log_softmax,
    middle_form,
)
from divlearn.fitting.held_out import (
    FoldedData,
    Grid,
    HeldOutEstimator,
    coordinate_grid,
    shares_of,
)
from divlearn.fitting.labelled import (
    Labelled,
    MatricesMixin,
    MatrixClassifierMixin,
    Numbered,
    check_labelled,
    check_numbered,
    prepare_new,
)
from divlearn.fitting.selection import Criterion, HeldOut, average_held_out

__all__ = [
    "Grid",
    "HeldOutClassifier",
    "HeldOutRegressor",
    "NumberedTraining",
    "Training",
    "choose",
    "coordinate_grid",
]

_T = TypeVar("_T", bound=Hashable)

_LOWEST = np.log(1e-4)  # of logarithms in the loss, so that no single matrix decides


class Training(FoldedData):
    """Checked matrices, their classes and folds, and features that classifiers share."""

    data: Labelled


class Chosen(NamedTuple, Generic[_T]):
    """The best candidate, and held-out figures.

    The figures of a fold are those of a candidate that is chosen and calibrated without the fold.
    """

    best: _T
    calibration: Calibration  # of the best
    rows: Indices  # held out by some fold
    probabilities: RealArray  # of these rows
    decisions: RealArray  # likewise
    optimistic: RealArray  # probabilities by the best, chosen and calibrated by these labels


def choose(
    training: Training,
    held_out: HeldOut[_T],
    grid: Grid[_T],
    inner: Grid[_T],
    rough: HeldOut[_T] | None = None,
) -> Chosen[_T]:
    """Choose a candidate of a grid; without each fold, one of the inner grid, which may be cheaper.

    `rough`, if given, compares candidates; figures of the chosen ones are those of `held_out`.
    """
    comparison = held_out if rough is None else rough
    folds, codes, weights = training.folds, training.data.codes, training.data.weights
    best = comparison.best(*grid)
    rows, decisions = held_out.average([best] * len(folds), len(codes))
    scores = as_forms(decisions)
    calibration = calibrate(scores, codes[rows], weights[rows])
    optimistic = np.exp(log_probabilities(scores, *calibration))
    chosen = [comparison.best(*inner, without=number) for number in range(len(folds))]
    probabilities = []
    for number, decisions in enumerate(held_out.decisions(chosen)):
        other_decisions, other_rows = held_out.without(chosen[number], number)
        others = np.concatenate([rows[:0], *other_rows])
        other_scores = as_forms(np.concatenate([decisions[:0], *other_decisions]))
        known = other_scores, codes[others], weights[others]
        probabilities.append(calibrate_by(as_forms(decisions), *known))
    rows, averaged = average_held_out(probabilities, folds, len(codes))
    _, decisions = held_out.average(chosen, len(codes))
    return Chosen(best, calibration, rows, averaged, decisions, optimistic)


def accuracy_criterion(training: Training) -> Criterion:
    """Return a function to the shares of rows in the mean accuracy of folds."""
    codes, weights = training.data.codes, training.data.weights

    def criterion(parts: Sequence[RealArray], rows: Sequence[Indices]) -> RealArray:
        scores = middle_form(np.concatenate(parts))
        right = scores.argmax(axis=1) == codes[np.concatenate(rows)]
        return right * shares_of(rows, weights)

    return criterion


def likelihood_criterion(training: Training) -> Criterion:
    """Return a function to the shares of rows in the mean calibrated log-likelihood of folds."""
    codes, weights = training.data.codes, training.data.weights

    def criterion(parts: Sequence[RealArray], rows: Sequence[Indices]) -> RealArray:
        targets = codes[np.concatenate(rows)]
        scores = middle_form(np.concatenate(parts))
        shares = shares_of(rows, weights)
        temperature, _ = fit_temperature(scores, targets, shares)
        log_likelihoods = log_softmax(scores / temperature)[np.arange(len(targets)), targets]
        return shares * np.maximum(log_likelihoods, _LOWEST)

    return criterion


_CRITERIA = {"accuracy": accuracy_criterion, "likelihood": likelihood_criterion}


class HeldOutClassifier(MatrixClassifierMixin, HeldOutEstimator[_T, Training], Generic[_T]):
    """Base of classifiers that choose their parameters on held-out data; see `HeldOutEstimator`."""

    _needs_folds: ClassVar[bool] = True
    _training = Training
    _criterion: ClassVar[str] = "likelihood"  # or "accuracy", of held-out matrices

    class_weight: ClassWeight

    calibration_: Calibration
    oof_proba_: Annotated[RealArray, "n_matrices n_classes"]
    _optimistic_proba: Annotated[RealArray, "n_matrices n_classes"]
    held_out_accuracy_: float

    def _check_data(
        self,
        X: ArrayLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None,
        groups: ArrayLike | None,
    ) -> Labelled:
        class_weight = self.get_params(deep=False).get("class_weight")
        return check_labelled(self, X, y, sample_weight, class_weight, groups)

    def fit_training(self, training: Training) -> Self:
        """Fit to data that was checked, and to features that were computed before."""
        self.classes_ = training.data.classes
        if not training.folds and self._needs_folds:
            raise ValueError(
                "every class has 1 matrix or group, but some must have >= 2, one to train on and "
                "one to test on; pass more matrices"
            )
        with warnings.catch_warnings():
            # Parts of folds may have few matrices of each class; `keep_classes` judges all data.
            warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
            return super().fit_training(training)

    def _make_criterion(self, training: Training) -> Criterion:
        return _CRITERIA[self._criterion](training)

    def _choose(self, training: Training, held_out: HeldOut[_T], grid: Grid[_T]) -> _T:
        chosen = choose(training, held_out, grid, self._inner_grid(grid))
        self._keep(training, held_out, grid, chosen)
        return chosen.best

    def _keep(
        self, training: Training, held_out: HeldOut[_T], grid: Grid[_T], chosen: Chosen[_T]
    ) -> None:
        data = training.data
        self.calibration_ = chosen.calibration
        self.oof_proba_ = data.scatter(chosen.rows, chosen.probabilities)
        self._optimistic_proba = data.scatter(chosen.rows, chosen.optimistic)
        right = chosen.probabilities.argmax(axis=1) == data.codes[chosen.rows]
        shares = data.sample_weights[chosen.rows]
        self.held_out_accuracy_ = float(np.average(right, weights=shares))
        figure = f"accuracy {self.held_out_accuracy_:.3f}"
        self._keep_tried(training, held_out, grid, chosen.best, figure)

    def predict_log_proba(self, X: ArrayLike) -> RealArray:
        """Logarithms of `predict_proba`, exact where probabilities underflow."""
        form, temperature = self.calibration_
        decisions = self._decide_new(prepare_new(self, X))
        return log_probabilities(as_forms(decisions), form, temperature)

    def predict_proba(self, X: ArrayLike) -> RealArray:
        """Probabilities of the classes, shape (n_matrices, n_classes), by held-out calibration."""
        return np.exp(self.predict_log_proba(X))


# --- regressors -----------------------------------------------------------------------------------


class NumberedTraining(FoldedData):
    """Checked matrices, their numbers and folds, and features that regressors share."""

    data: Numbered


def r_squared(numbers: RealArray, predictions: RealArray, weights: RealArray) -> float:
    """Coefficient of determination; for constant numbers 1 if predictions are exact, or 0."""
    variance = np.average((numbers - np.average(numbers, weights=weights)) ** 2, weights=weights)
    error = np.average((numbers - predictions) ** 2, weights=weights)
    return float(1 - error / variance) if variance > 0 else float(error == 0)


class HeldOutRegressor(
    RegressorMixin,  # type: ignore[misc]
    MatricesMixin,
    HeldOutEstimator[_T, NumberedTraining],
    Generic[_T],
):
    """Base of regressors that choose their parameters on held-out data; see `HeldOutEstimator`.

    Models learn and decide on numbers that are standardised.
    """

    _nested = True
    _training = NumberedTraining
    _check_data = check_numbered

    mean_: float
    scale_: float
    oof_prediction_: Annotated[RealArray, "n_matrices"]
    _optimistic_prediction: Annotated[RealArray, "n_matrices"]
    held_out_r2_: float
    held_out_mae_: float

    def fit_training(self, training: NumberedTraining) -> Self:
        """Fit to data that was checked, and to features that were computed before."""
        self.mean_, self.scale_ = float(training.data.mean), float(training.data.scale)
        return super().fit_training(training)

    def _make_criterion(self, training: NumberedTraining) -> Criterion:
        numbers, weights = training.data.numbers, training.data.weights

        def criterion(parts: Sequence[RealArray], rows: Sequence[Indices]) -> RealArray:
            errors = np.concatenate(parts) - numbers[np.concatenate(rows)]
            return (1 - errors**2) * shares_of(rows, weights)

        return criterion

    def _choose(self, training: NumberedTraining, held_out: HeldOut[_T], grid: Grid[_T]) -> _T:
        """Choose a candidate, and for every fold one without the fold."""
        data, inner, n_folds = training.data, self._inner_grid(grid), len(training.folds)
        best = held_out.best(*grid)
        chosen = [held_out.best(*inner, without=number) for number in range(n_folds)]
        rows, predictions = held_out.average(chosen, len(data.matrices))
        _, optimistic = held_out.average([best] * n_folds, len(data.matrices))
        self.oof_prediction_ = data.scatter(rows, self._restore(predictions))
        self._optimistic_prediction = data.scatter(rows, self._restore(optimistic))
        numbers, weights = data.numbers[rows], data.weights[rows]
        self.held_out_r2_ = r_squared(numbers, predictions, weights)
        error = np.average(np.abs(predictions - numbers), weights=weights)
        self.held_out_mae_ = self.scale_ * float(error)
        self._keep_tried(training, held_out, grid, best, f"R2 {self.held_out_r2_:.3f}")
        return best

    def _restore(self, values: RealArray) -> RealArray:
        return values * self.scale_ + self.mean_

    def predict(self, X: ArrayLike) -> RealArray:
        """Predict numbers, shape (n_matrices,)."""
        return self._restore(self._decide_new(prepare_new(self, X)))
