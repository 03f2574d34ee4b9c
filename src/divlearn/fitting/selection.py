"""Models chosen on held-out data: candidates, folds and a score.

The searches of scikit-learn need folds that hold out every sample once, which small classes and
groups do not allow: a class of one matrix is never held out.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.fitting.folds import Folds
from divlearn.fitting.interrupts import note_interrupt

_T = TypeVar("_T")
Rows = NDArray[np.intp]
Predict = Callable[[Rows, Rows], NDArray[Any]]  # fit on the first rows, predict the second


def choose(candidates: Iterable[_T], score: Callable[[_T], float]) -> tuple[int, list[float]]:
    """Index of the first candidate of the highest score, and all scores before an interrupt."""
    scores: list[float] = []
    try:
        for candidate in candidates:
            scores.append(score(candidate))
    except KeyboardInterrupt:
        note_interrupt()
        if not scores:
            raise
    return int(np.argmax(scores)), scores


def predict_held_out(predict: Predict, folds: Folds, n_matrices: int) -> tuple[Rows, RealArray]:
    """Rows that some fold holds out, ascending, and the mean of their held-out predictions."""
    parts = [(held, predict(train, held)) for train, held in folds]
    total, count = np.zeros((n_matrices, *parts[0][1].shape[1:])), np.zeros(n_matrices)
    for held, values in parts:
        total[held] += values
        count[held] += 1
    rows = np.flatnonzero(count)
    return rows, (total[rows].T / count[rows]).T


def held_out_accuracy(predict: Predict, y: NDArray[Any], folds: Folds) -> float:
    """Share of right predictions among all that are held out."""
    right = [predict(train, held) == y[held] for train, held in folds]
    return float(np.concatenate(right).mean())
