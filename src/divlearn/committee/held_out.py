"""Choosing among candidates by the calibrated log-loss of held-out data."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from scipy.special import log_softmax

from divlearn.arrays import Indices, RealArray
from divlearn.fitting.folds import Folds
from divlearn.fitting.selection import average_held_out, choose
from divlearn.iddl.tasks import fit_temperature
from divlearn.kernels import coupling

_LEAST = np.log(1e-4)  # of logarithms in the loss: no single matrix decides

_T = TypeVar("_T")
Calibration = tuple[float, float]  # sharpness, zero unless decisions are of pairs; temperature


def choose_held_out(
    candidates: Sequence[_T], decide: Callable[[_T, int], RealArray], y: Indices,
    weights: RealArray, folds: Folds, *, pairs: bool = False,
) -> tuple[_T, Calibration, RealArray]:  # fmt: skip
    """Choose a candidate; return it, its calibration and its held-out probabilities."""
    # `decide` gives the decisions of a candidate on the held-out part of a fold, by its number:
    # scores of classes, or decisions between `pairs` of them. Probabilities may be NaN: of matrices
    # that no fold holds out.
    n_classes = int(y.max()) + 1
    found = []

    def score(candidate: _T) -> float:
        parts = [decide(candidate, k) for k in range(len(folds))]
        rows, decisions = average_held_out(parts, folds, len(y))
        own = weights[rows]
        if pairs:
            calibration, scores = coupling.fit_coupling(decisions, y[rows], n_classes, own)
            said = coupling.log_probabilities(scores, calibration[1])
        else:
            calibration = 0.0, fit_temperature(decisions, y[rows], own / own.sum())[0]
            said = log_probabilities(decisions, n_classes, calibration)
        found.append((calibration, rows, said))
        true = np.maximum(said[np.arange(len(rows)), y[rows]], _LEAST)
        return float(np.average(true, weights=own))

    best, _ = choose(candidates, score)
    calibration, rows, said = found[best]
    probabilities = np.full((len(y), n_classes), np.nan)
    probabilities[rows] = np.exp(said)
    return candidates[best], calibration, probabilities


def log_probabilities(decisions: RealArray, n_classes: int, calibration: Calibration) -> RealArray:
    sharpness, temperature = calibration
    if not sharpness:
        return log_softmax(decisions / temperature, axis=1)
    scores = coupling.couple(decisions, n_classes, sharpness)
    return coupling.log_probabilities(scores, temperature)
