"""Spectral projected gradients: Barzilai-Borwein steps, projected on the limits."""

from __future__ import annotations

import numpy as np

from divlearn.optim.line_search import search
from divlearn.optim.problem import (
    Callback,
    Problem,
    Progress,
    Result,
    Trial,
    check_end,
    projected,
    stuck,
)

__all__ = ["minimize_projected_gradient"]

_SHORTEST, _LONGEST = 1e-10, 1e10


def minimize_projected_gradient(
    problem: Problem, start: Trial, *, max_iter: int, tol: float, first_step: float = 0.1,
    callback: Callback | None = None,
) -> Result:  # fmt: skip
    """Minimise by spectral projected gradients (Birgin, Martinez and Raydan, 2000), monotonically.

    Parameters
    ----------
    problem : Problem
    start : Trial
    max_iter : int
    tol : float
        Stop where the size of the projected gradient is at most this.
    first_step : float, default=0.1
        Size of the first step.
    callback : callable, optional
        As in `divlearn.optim.minimize_lbfgs`.

    Returns
    -------
    Result
    """
    trial, gradient = start, problem.gradient(start)
    length = first_step / max(problem.size(gradient), np.finfo(float).tiny)
    iteration = 0
    while True:
        limits = problem.limits(trial.point)
        slope = projected(gradient, limits)
        progress = Progress(iteration, trial, problem.size(slope))
        end = check_end(progress, max_iter, tol, callback)
        if end is not None:
            return end
        found = search(problem, trial, slope, -length * slope, limits)
        if found is None:
            return stuck(progress)
        trial, step = found
        previous, gradient = gradient, problem.gradient(trial)
        curvature = float(np.vdot(step, gradient - previous))
        squared = float(np.vdot(step, step))
        length = squared / curvature if curvature > squared / _LONGEST else _LONGEST
        length = float(np.clip(length, _SHORTEST, _LONGEST))
        iteration += 1
