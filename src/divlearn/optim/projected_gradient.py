"""Spectral projected gradients: Barzilai-Borwein steps, projected on the limits."""

from __future__ import annotations

from collections import deque

import numpy as np

from divlearn.optim.line_search import search
from divlearn.optim.problem import Callback, Problem, Progress, Result, Trial, projected

__all__ = ["minimize_projected_gradient"]

_SHORTEST, _LONGEST = 1e-10, 1e10


def minimize_projected_gradient(
    problem: Problem, start: Trial, *, max_iter: int, tol: float, first_step: float = 0.1,
    history: int = 1, callback: Callback | None = None,
) -> Result:  # fmt: skip
    """Minimise by spectral projected gradients (Birgin, Martinez and Raydan, 2000).

    Parameters
    ----------
    problem : Problem
    start : Trial
    max_iter : int
    tol : float
        Stop where the size of the projected gradient is at most this.
    first_step : float, default=0.1
        Size of the first step.
    history : int, default=1
        Past values of which the largest bounds the next; with 1 the objective never rises.
    callback : callable, optional
        As in `divlearn.optim.minimize_lbfgs`.

    Returns
    -------
    Result
        The best point seen.
    """
    trial, gradient = start, problem.gradient(start)
    best, values = trial, deque([trial.value], maxlen=history)
    length = first_step / max(problem.size(gradient), np.finfo(float).tiny)
    iteration = 0
    while True:
        limits = problem.limits(trial.point)
        slope = projected(gradient, limits)
        size = problem.size(slope)
        stop = callback(Progress(iteration, trial, size)) if callback else None
        if stop is not None:
            return Result(best, size, iteration, False, stop)
        if size <= tol:
            message = f"size of the projected gradient {size:.2g} <= tol={tol:g}"
            return Result(best, size, iteration, True, message)
        if iteration == max_iter:
            message = f"max_iter={max_iter} reached; size of the gradient {size:.2g}"
            return Result(best, size, iteration, False, message)
        found = search(problem, trial, slope, -length * slope, limits, max(values))
        if found is None:
            message = f"no step lowers the objective; size of the gradient {size:.2g}"
            return Result(best, size, iteration, False, message)
        trial, step = found
        previous, gradient = gradient, problem.gradient(trial)
        curvature = float(np.vdot(step, gradient - previous))
        squared = float(np.vdot(step, step))
        length = squared / curvature if curvature > squared / _LONGEST else _LONGEST
        length = float(np.clip(length, _SHORTEST, _LONGEST))
        values.append(trial.value)
        best = min(best, trial, key=lambda one: one.value)
        iteration += 1
