"""Backtracking along a direction, within limits."""

from __future__ import annotations

import numpy as np

from divlearn.arrays import RealArray
from divlearn.optim.problem import Problem, Trial

__all__ = ["search"]

_ARMIJO = 1e-4  # share of the decrease a tangent promises that must be kept
_TRIALS = 30
_LONGEST = 2.0  # size of a step: further than any model of the objective reaches
_ROUNDING = 1e-14  # relative changes of the objective that mean nothing


def search(
    problem: Problem, trial: Trial, slope: RealArray, direction: RealArray,
    limits: RealArray | float,
) -> tuple[Trial, RealArray] | None:  # fmt: skip
    """Find a step along a direction that lowers the objective enough.

    Parameters
    ----------
    problem : Problem
    trial : Trial
        Where to start.
    slope : ndarray
        The projected gradient there.
    direction : ndarray
        The first step to try; it is cut at the limits, and to a sensible length.
    limits : ndarray or float
        As in `Problem.limits`.

    Returns
    -------
    (Trial, step) or None
        None where no step is found.
    """
    size = problem.size(direction)
    if not 0 < size < np.inf:
        return None
    length = min(1.0, _LONGEST / size)
    for _ in range(_TRIALS):
        step = np.maximum(length * direction, limits)
        expected = float(np.vdot(step, slope))
        if expected >= 0 or abs(expected) <= _ROUNDING * abs(trial.value):
            return None
        following = problem.trial(problem.move(trial.point, step))
        if following.value <= trial.value + _ARMIJO * expected:
            return following, step
        length *= _shorten(following.value - trial.value, expected)
    return None


def _shorten(rise: float, expected: float) -> float:
    """Where the parabola through what is known has its minimum, within reason."""
    if not np.isfinite(rise):
        return 0.1
    curvature = rise - expected
    ratio = -expected / (2 * curvature) if curvature > 0 else 0.5
    return float(np.clip(ratio, 0.1, 0.5))
