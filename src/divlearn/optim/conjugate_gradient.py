"""Riemannian conjugate gradients, with parallel transport that is the identity in moving frames."""

from __future__ import annotations

import numpy as np

from divlearn.arrays import RealArray
from divlearn.optim.line_search import search
from divlearn.optim.problem import Callback, Problem, Progress, Result, Trial, check_end, stuck

__all__ = ["minimize_conjugate_gradient"]


def minimize_conjugate_gradient(
    problem: Problem, start: Trial, *, max_iter: int, tol: float, first_step: float = 0.1,
    callback: Callback | None = None,
) -> Result:  # fmt: skip
    r"""Minimise by nonlinear conjugate gradients.

    Directions are :math:`p \leftarrow -g + \eta p` with the Polak-Ribiere factor
    :math:`\eta = \max(0, \langle g, g - g' \rangle / \|g'\|^2)`, :math:`g'` the gradient before,
    restarted where they do not descend. Limits are not supported.

    Parameters
    ----------
    problem : Problem
    start : Trial
    max_iter : int
    tol : float
        Stop where the size of the gradient is at most this.
    first_step : float, default=0.1
        Size of the first step.
    callback : callable, optional
        As in `divlearn.optim.minimize_lbfgs`.

    Returns
    -------
    Result
    """
    trial, gradient = start, problem.gradient(start)
    direction = -gradient
    length = first_step / max(problem.size(gradient), np.finfo(float).tiny)
    iteration = 0
    while True:
        progress = Progress(iteration, trial, problem.size(gradient))
        end = check_end(progress, max_iter, tol, callback)
        if end is not None:
            return end
        found = search(problem, trial, gradient, length * direction, -np.inf)
        if found is None and np.array_equal(direction, -gradient):
            return stuck(progress)
        if found is None:
            direction = -gradient
            continue
        following, step = found
        taken = float(np.linalg.norm(step) / np.linalg.norm(direction))
        trial, previous, gradient = following, gradient, problem.gradient(following)
        before = float(np.vdot(direction, previous))
        direction = _next_direction(direction, previous, gradient)
        # The next step promises as much as this one did at its start, and a little more.
        length = (
            1.5 * taken * before / min(float(np.vdot(direction, gradient)), -np.finfo(float).tiny)
        )
        iteration += 1


def _next_direction(direction: RealArray, previous: RealArray, gradient: RealArray) -> RealArray:
    factor = float(np.vdot(gradient, gradient - previous)) / float(np.vdot(previous, previous))
    following = -gradient + max(0.0, factor) * direction
    return following if np.vdot(following, gradient) < 0 else -gradient
