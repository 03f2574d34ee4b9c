"""Goals: what a fit is after, for classes and for numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold

from divlearn.arrays import RealArray
from divlearn.iddl.calibration import fit_temperature
from divlearn.iddl.ensemble import Folds
from divlearn.labelled import limit_folds

__all__ = ["Goal", "classes_goal", "make_folds", "numbers_goal"]

_SCREENING_FOLDS = 4  # where nothing is averaged


@dataclass(frozen=True, eq=False)
class Goal:
    """What a fit is after.

    Attributes
    ----------
    targets : ndarray, shape (n_matrices, n_outputs)
    weights : ndarray, shape (n_matrices,), with sum one.
    codes : ndarray of int or None, the classes.
    n_groups : int, classes, or 1 without them.
    folds : sequence of (train, held out), or None where there are too few matrices.
    loss : callable, from held-out scores and their rows to a number, the lower the better.
    losses : names of the losses that "auto" chooses from.
    """

    targets: RealArray
    weights: RealArray
    codes: NDArray[np.intp] | None
    n_groups: int
    folds: Folds | None
    loss: Callable[[RealArray, NDArray[np.intp]], float]
    losses: tuple[str, ...]


def classes_goal(codes: NDArray[np.intp], weights: RealArray, folds: Folds | None) -> Goal:
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


def numbers_goal(targets: RealArray, weights: RealArray, folds: Folds | None) -> Goal:
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


def make_folds(
    ensemble: Any, n_matrices: int, codes: NDArray[np.intp] | None, groups: NDArray[Any] | None,
    seed: int, name: str = "ensemble",
) -> Folds | None:  # fmt: skip
    """Folds of data held out, stratified where there are classes of two matrices or more.

    Parameters
    ----------
    ensemble : int, splitter or None
        None makes folds to choose by, though nothing is averaged.
    n_matrices : int
    codes : ndarray of int or None
    groups : ndarray or None
        What no fold may split.
    seed : int
    name : str
        What users call the first parameter.

    Returns
    -------
    sequence of (train, held out), or None where there is one matrix.
    """
    if hasattr(ensemble, "split") and not isinstance(ensemble, str):
        return list(ensemble.split(np.zeros(n_matrices), codes, groups))
    number = isinstance(ensemble, int | np.integer) and not isinstance(ensemble, bool)
    if ensemble is not None and (not number or ensemble < 2):
        raise ValueError(f"{name}={ensemble!r} must be an integer >= 2, a splitter or None")
    wanted = _SCREENING_FOLDS if ensemble is None else int(ensemble)
    fewest = 1 if codes is None else int(np.bincount(codes).min())
    n_splits = min(wanted, fewest if fewest >= 2 else n_matrices)
    if n_splits < 2:
        return None
    splitter = StratifiedKFold if fewest >= 2 else KFold
    if groups is not None:
        splitter = StratifiedGroupKFold if fewest >= 2 else GroupKFold
        n_splits = limit_folds(n_splits, groups)
    shuffled = splitter(n_splits, shuffle=True, random_state=seed)
    return list(shuffled.split(np.zeros(n_matrices), codes, groups))
