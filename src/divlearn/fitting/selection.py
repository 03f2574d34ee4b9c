"""Models chosen on held-out data: candidates, folds and a score.

The searches of scikit-learn need folds that hold out every sample once, which small classes and
groups do not allow: a class of one matrix is never held out.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from divlearn.arrays import Indices, RealArray
from divlearn.fitting.folds import Folds
from divlearn.fitting.interrupts import stoppable

_T = TypeVar("_T")


def choose(candidates: Iterable[_T], score: Callable[[_T], float]) -> tuple[int, list[float]]:
    """Index of the first candidate of the highest score, and all scores before an interrupt."""
    scores: list[float] = []
    with stoppable(lambda: scores):
        for candidate in candidates:
            scores.append(score(candidate))
    # What cannot be judged loses, unless nothing can be.
    return int(np.argmax(np.nan_to_num(scores, nan=-np.inf))), scores


def average_held_out(
    parts: Sequence[RealArray], folds: Folds, n_matrices: int
) -> tuple[Indices, RealArray]:
    """Rows that some fold holds out, ascending, and the mean of what folds say of them."""
    total, count = np.zeros((n_matrices, *parts[0].shape[1:])), np.zeros(n_matrices)
    for (_, held), values in zip(folds, parts, strict=True):
        total[held] += values
        count[held] += 1
    rows = np.flatnonzero(count)
    return rows, (total[rows].T / count[rows]).T
