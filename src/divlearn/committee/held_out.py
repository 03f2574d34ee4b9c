"""Choosing among candidates by the calibrated log-loss of held-out data."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from divlearn.arrays import Indices, RealArray
from divlearn.fitting.calibration import Calibration, calibrate, fit_temperature
from divlearn.fitting.folds import Folds
from divlearn.fitting.selection import (
    HeldOut,
    Nest,
    average_held_out,
    calibrated_without_each,
)

_LEAST = np.log(1e-4)  # of logarithms in the loss: no single matrix decides

_T = TypeVar("_T")


class Target(NamedTuple):
    """Classes of matrices, and their weights."""

    codes: Indices
    weights: RealArray


def choose_held_out(
    candidates: Sequence[_T],
    decide: Callable[[_T, int], RealArray],
    target: Target,
    folds: Folds,
    nest: Nest | None = None,
    neighbours: Callable[[_T], Sequence[_T]] | None = None,
) -> tuple[_T, Calibration, RealArray]:
    """Choose a candidate; return it, its calibration, and held-out probabilities.

    `decide` gives scores, shape (n_samples, n_classes, n_forms), as in `HeldOut`. Probabilities of
    a fold are those of the candidate that is chosen without the fold. They are NaN for matrices
    that no fold holds out. To save time in a nest, this choice is among the neighbours of the
    candidate in the middle, then among those of the best of them.
    """
    codes, weights = target

    def judge(parts: Sequence[RealArray], rows: Sequence[Indices]) -> RealArray:
        scores, where = np.concatenate(parts), np.concatenate(rows)
        form = scores.shape[-1] // 2  # to try all takes long, and seldom changes the order
        shares = weights[where] / weights[where].sum()
        known = Calibration(form, fit_temperature(scores[..., form], codes[where], shares)[0])
        true = known.log_probabilities(scores)[np.arange(len(where)), codes[where]]
        return shares * np.maximum(true, _LEAST)

    held_out = HeldOut(decide, judge, folds, nest)
    best = held_out.best(candidates, lambda _: ())
    tested, scores = average_held_out(held_out.parts([best] * len(folds)), folds, len(codes))
    calibration = calibrate(scores, codes[tested], weights[tested])
    first, then = candidates, neighbours or (lambda _: ())
    if neighbours is not None:
        first = neighbours(candidates[len(candidates) // 2])
    chosen = held_out.best_without_each(first, then)
    rows, said = calibrated_without_each(held_out, chosen, codes, weights)
    probabilities = np.full((len(codes), said.shape[1]), np.nan)
    probabilities[rows] = said
    return best, calibration, probabilities
