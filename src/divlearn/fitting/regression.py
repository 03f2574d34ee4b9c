"""Regressors of SPD matrices that choose their parameters on held-out data."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Annotated, Generic, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import column_or_1d

from divlearn.arrays import Indices, RealArray
from divlearn.fitting.folds import check_groups
from divlearn.fitting.held_out import FoldedData, Grid, HeldOutEstimator, shares_of
from divlearn.fitting.labelled import Checked, MatricesMixin, check_training, prepare_new
from divlearn.fitting.selection import Criterion, HeldOut
from divlearn.fitting.targets import check_numbers
from divlearn.weights import check_weights

_T = TypeVar("_T", bound=Hashable)
ROUNDING = 1e-14  # of a standard deviation, relative to the largest number


@dataclass(frozen=True, eq=False)
class Numbered(Checked):
    """Matrices and numbers to predict, without those of weight zero."""

    _classes = False

    numbers: RealArray  # standardised, shape (n_matrices,) or (n_matrices, n_outputs)
    mean: RealArray
    scale: RealArray

    @property
    def strata(self) -> Indices:
        return np.zeros(len(self.matrices), dtype=np.intp)

    def standardize(self, values: RealArray) -> RealArray:
        return (values - self.mean) / self.scale


class NumberedTraining(FoldedData):
    """Checked matrices, their numbers and folds, and features that regressors share."""

    data: Numbered


def number(
    matrices: RealArray, y: RealArray, weights: RealArray, groups: ArrayLike | None = None
) -> Numbered:
    """Standardise numbers of matrices and weights that were checked before."""
    kept = np.flatnonzero(weights)  # a weight of zero leaves a matrix out
    weights, values = weights[kept], y[kept]
    _, power = np.frexp(np.abs(values).max(axis=0))
    values = np.ldexp(values, -power)  # exactly; squares neither overflow nor underflow
    mean = np.asarray(np.average(values, axis=0, weights=weights))
    deviation = np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weights))
    constant = deviation <= ROUNDING
    scale = np.where(constant, 1.0, deviation)
    numbers = np.where(constant, 0.0, (values - mean) / scale)
    mean, scale = np.ldexp(mean, power), np.ldexp(scale, power)
    groups = check_groups(groups, len(y))
    return Numbered(matrices[kept], weights, kept, y, groups, numbers, mean, scale)


def restore(numbers: RealArray, mean: float | RealArray, scale: float | RealArray) -> RealArray:
    """Undo the standardisation of numbers."""
    return numbers * scale + mean


def check_numbered(
    estimator: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike | None,
    sample_weight: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> Numbered:
    """Check the data to learn from, with one number for every matrix."""
    matrices = check_training(estimator, X, sample_weight)
    numbers = column_or_1d(check_numbers(y, len(matrices)), warn=True)
    data = number(matrices, numbers, check_weights(sample_weight, len(matrices)), groups)
    if len(data.matrices) < 2:
        raise ValueError(
            f"n_samples={len(data.matrices)} of weight > 0 must be >= 2, one to train on and one "
            "to test on; pass more matrices"
        )
    return data


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
        return restore(values, self.mean_, self.scale_)

    def predict(self, X: ArrayLike) -> RealArray:
        """Predict numbers, shape (n_matrices,)."""
        return self._restore(self._decide_new(prepare_new(self, X)))
