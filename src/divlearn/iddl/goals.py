"""Goals: what a fit is after, for classes and for numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.fitting.folds import Folds
from divlearn.iddl.calibration import fit_temperature

__all__ = ["Goal", "classes_goal", "numbers_goal"]


@dataclass(frozen=True, eq=False)
class Goal:
    """What a fit is after.

    Attributes
    ----------
    targets : ndarray, shape (n_matrices, n_outputs)
    weights : ndarray, shape (n_matrices,), with sum one.
    codes : ndarray of int or None, the classes.
    n_groups : int, classes, or 1 without them.
    folds : sequence of (train, held out), empty where there are too few matrices.
    loss : callable, from held-out scores and their rows to a number, the lower the better.
    losses : names of the losses that "auto" chooses from.
    """

    targets: RealArray
    weights: RealArray
    codes: NDArray[np.intp] | None
    n_groups: int
    folds: Folds
    loss: Callable[[RealArray, NDArray[np.intp]], float]
    losses: tuple[str, ...]


def classes_goal(codes: NDArray[np.intp], weights: RealArray, folds: Folds) -> Goal:
    """Tell classes apart: held-out scores are judged by their calibrated log-loss.

    Parameters
    ----------
    codes : ndarray of int, shape (n_matrices,), 0 to n_classes - 1.
    weights : ndarray, shape (n_matrices,), with sum one.
    folds : as in `Goal`
    """

    def loss(scores: RealArray, rows: NDArray[np.intp]) -> float:
        return fit_temperature(scores, codes[rows], weights[rows] / weights[rows].sum())[1]

    n_classes = int(codes.max()) + 1
    targets = np.eye(n_classes)[codes]
    return Goal(targets, weights, codes, n_classes, folds, loss, ("softmax", "ridge"))


def numbers_goal(targets: RealArray, weights: RealArray, folds: Folds) -> Goal:
    """Predict numbers: held-out scores are judged by their mean squared error.

    Parameters
    ----------
    targets : ndarray, shape (n_matrices, n_outputs), of comparable sizes.
    weights, folds : as in `classes_goal`
    """

    def loss(scores: RealArray, rows: NDArray[np.intp]) -> float:
        squares = ((scores - targets[rows]) ** 2).mean(axis=1)
        return float(weights[rows] @ squares / weights[rows].sum())

    return Goal(targets, weights, None, 1, folds, loss, ("ridge",))
