"""Gradient descent on manifolds: conjugate gradients, and spectral steps projected on limits."""

import numpy as np

from divlearn.optim.problem import (
    Callback,
    Problem,
    Progress,
    Result,
    Trial,
    gradient_at,
    projected,
    search,
)

_FIRST_STEP = 0.1  # its size
_SHORTEST, _LONGEST = 1e-10, 1e10  # factors of the gradient in a spectral step


def minimize_conjugate_gradient(
    problem: Problem,
    start: Trial,
    *,
    max_iter: int,
    tol: float,
    callback: Callback | None = None,
) -> Result:
    """Minimise by conjugate gradients (Polak-Ribiere), without limits; see `minimize_lbfgs`."""
    trial, gradient = start, gradient_at(problem, start, 0)
    direction = -gradient
    length = _FIRST_STEP / max(problem.size(gradient), np.finfo(float).tiny)
    iteration = 0
    while True:
        progress = Progress(iteration, trial, problem.size(gradient))
        if end := progress.end(max_iter, tol, callback):
            return end
        found = search(problem, trial, gradient, length * direction, -np.inf)
        if found is None and np.array_equal(direction, -gradient):
            return progress.stuck()
        if found is None:
            direction = -gradient
            continue
        following, step = found
        taken = float(np.linalg.norm(step) / np.linalg.norm(direction))
        iteration += 1
        trial, previous, gradient = following, gradient, gradient_at(problem, following, iteration)
        before = float(np.vdot(direction, previous))
        factor = float(np.vdot(gradient, gradient - previous)) / float(np.vdot(previous, previous))
        direction = -gradient + max(0.0, factor) * direction
        if not np.vdot(direction, gradient) < 0:
            direction = -gradient
        # The next step promises as much as this one did at its start, and a little more.
        promise = min(float(np.vdot(direction, gradient)), -np.finfo(float).tiny)
        length = 1.5 * taken * before / promise


def minimize_projected_gradient(
    problem: Problem,
    start: Trial,
    *,
    max_iter: int,
    tol: float,
    callback: Callback | None = None,
) -> Result:
    """Minimise by monotone spectral projected gradients (Birgin, Martinez and Raydan, 2000)."""
    trial, gradient = start, gradient_at(problem, start, 0)
    length = _FIRST_STEP / max(problem.size(gradient), np.finfo(float).tiny)
    iteration = 0
    while True:
        limits = problem.limits(trial.point)
        slope = projected(gradient, limits)
        progress = Progress(iteration, trial, problem.size(slope))
        if end := progress.end(max_iter, tol, callback):
            return end
        found = search(problem, trial, slope, -length * slope, limits)
        if found is None:
            return progress.stuck()
        trial, step = found
        iteration += 1
        previous, gradient = gradient, gradient_at(problem, trial, iteration)
        curvature = float(np.vdot(step, gradient - previous))
        squared = float(np.vdot(step, step))
        length = squared / curvature if curvature > squared / _LONGEST else _LONGEST
        length = float(np.clip(length, _SHORTEST, _LONGEST))
