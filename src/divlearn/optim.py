"""Gradient methods on manifolds: limited-memory BFGS, conjugate and projected gradients."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np

from divlearn.arrays import RealArray, to_device_of, to_host
from divlearn.checks import check_finite

_ARMIJO = 1e-4  # least decrease of the objective, relative to the first-order decrease
_TRIALS = 30
_LONGEST = 2.0  # size of a step, beyond which no model of the objective is accurate
_ROUNDING = 1e-14  # relative change of the objective that is rounding error
_NEAR = 1e-8  # size of a step, below which the objective must be a number
_CURVATURE = 1e-12  # s^T y relative to |s| |y|, below which a pair is ignored
_FIRST_STEP = 0.1  # size of the first step
_SMALLEST_FACTOR, _LARGEST_FACTOR = 1e-10, 1e10  # factors of the gradient in a spectral step


@dataclass(frozen=True, eq=False)
class Trial:
    point: Any  # of a type that the problem defines
    value: float  # the objective at the point
    memo: Any = None  # intermediate results, from which the problem computes the gradient


class Problem(Protocol):
    """Minimise a function on a manifold, in flat coordinates around the current point.

    Steps and gradients are vectors in coordinates that move with the point, such that parallel
    transport along a step does not change the coordinates of a vector. The inner product is the
    Euclidean one.
    """

    def trial(self, point: Any) -> Trial:
        """Compute the objective."""

    def gradient(self, trial: Trial) -> RealArray:
        """Compute the gradient, in the coordinates of the trial's point."""

    def move(self, point: Any, step: RealArray) -> Any:
        """Take a step."""

    def size(self, step: RealArray) -> float:
        """Length of a step, in units of the length over which the objective changes."""

    def limits(self, point: Any) -> RealArray | float:
        """Most negative step allowed in each coordinate: minus infinity where it is free."""
        return -np.inf


@dataclass(frozen=True, eq=False)
class Progress:
    """State of an optimiser after some iterations, or its result."""

    n_iter: int
    trial: Trial  # the best point so far
    gradient_norm: float  # of the gradient projected on the feasible directions
    message: str = ""  # why the optimiser stopped

    def end(self, max_iter: int, tol: float, callback: Callback | None) -> Self | None:
        """Call the callback; return the result if the optimiser stops here."""
        size, stop = self.gradient_norm, callback(self) if callback else None
        if stop is None and size <= tol:
            stop = f"size of the gradient {size:.2g} <= tol={tol:g}"
        elif stop is None and self.n_iter == max_iter:
            stop = f"max_iter={max_iter} reached; size of the gradient {size:.2g}"
        return None if stop is None else replace(self, message=stop)

    def stuck(self) -> Self:
        size = self.gradient_norm
        message = f"no step lowers the objective; size of the gradient {size:.2g}"
        return replace(self, message=message)


Callback = Callable[[Progress], str | None]


def gradient_at(problem: Problem, trial: Trial, iteration: int) -> RealArray:
    """Compute the gradient; raise unless it and the objective are finite."""
    where = f"in iteration {iteration}"
    check_finite(trial.value, "the objective", where)
    gradient = problem.gradient(trial)
    check_finite(problem.size(gradient), "the size of the gradient", where)
    return gradient


def projected(gradient: RealArray, limits: RealArray | float) -> RealArray:
    """Gradient, with zeros for coordinates at a limit that descent would cross."""
    return np.where((limits >= 0) & (gradient > 0), 0, gradient)


def search(
    problem: Problem,
    trial: Trial,
    slope: RealArray,
    direction: RealArray,
    limits: RealArray | float,
) -> tuple[Trial, RealArray] | None:
    """Backtrack along a direction, cut at the limits; return the trial and its step, or None."""
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
        if length * size < _NEAR:  # the domain may end here, but NaN would be an error
            where = f"after a step of size {length * size:.0e}"
            check_finite(following.value, "the objective", where, or_infinite=True)
        length *= _shorten(following.value - trial.value, expected)
    return None


def _shorten(rise: float, expected: float) -> float:
    """Factor of the next step: the minimum of the interpolating parabola, clipped to [0.1, 0.5]."""
    if not np.isfinite(rise):
        return 0.1
    curvature = rise - expected
    ratio = -expected / (2 * curvature) if curvature > 0 else 0.5
    return float(np.clip(ratio, 0.1, 0.5))


# --- methods --------------------------------------------------------------------------------------


class Memory:
    """The inverse Hessian of L-BFGS: the last `size` steps s and changes y of the gradient."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._slots: deque[int] = deque(maxlen=size)  # the oldest first
        self._vectors: RealArray | None = None  # steps, changes, and room for a gradient

    def __len__(self) -> int:
        return len(self._slots)

    def clear(self) -> None:
        self._slots.clear()

    def learn(self, step: RealArray, change: RealArray) -> None:
        """Remember a step and how the gradient changed along it, if the curvature is positive."""
        pair = np.stack([step.ravel(), change.ravel()])
        (length, curvature), (_, gain) = to_host(pair @ pair.T)
        if curvature > _CURVATURE * np.sqrt(length) * np.sqrt(gain):
            if self._vectors is None:
                self._vectors = np.zeros((2 * self._size + 1, step.size), like=step)
            slot = (self._slots[-1] + 1) % self._size if self._slots else 0
            self._slots.append(slot)
            self._vectors[slot], self._vectors[self._size + slot] = pair

    def multiply(self, gradient: RealArray, free: RealArray | None = None) -> RealArray:
        """Multiply by the inverse Hessian; on the free coordinates only, zero in the others."""
        if self._vectors is None:
            return gradient if free is None else gradient * free
        vectors, fixed = self._vectors, None
        vectors[-1] = gradient.ravel()
        if free is not None and not free.all():  # set the others to zero, and restore them below
            fixed = np.flatnonzero(free == 0)
            fixed_entries = vectors[:, fixed]
            vectors[:, fixed] = 0
        # The product is a linear combination of these vectors; its weights need their Gram matrix.
        weights = _two_loops(to_host(vectors @ vectors.T), list(reversed(self._slots)))
        product: RealArray = (to_device_of(weights, vectors) @ vectors).reshape(gradient.shape)
        if fixed is not None:
            vectors[:, fixed] = fixed_entries
        return product


def _two_loops(gram: RealArray, slots: list[int]) -> RealArray:
    """Weights of all s, all y and the gradient, from their Gram matrix; the latest slot first."""
    size = len(gram) // 2
    weights = np.zeros(len(gram))
    weights[-1] = 1.0
    pairs = []
    for s, y in [(slot, size + slot) for slot in slots]:
        curvature = gram[s, y]
        if curvature <= _CURVATURE * np.sqrt(gram[s, s]) * np.sqrt(gram[y, y]):
            continue
        factor = gram[s] @ weights / curvature
        weights[y] -= factor
        pairs.append((s, y, curvature, factor))
    if pairs:
        _, y, curvature, _ = pairs[0]
        weights *= curvature / gram[y, y]
    for s, y, curvature, factor in reversed(pairs):
        weights[s] += factor - gram[y] @ weights / curvature
    return weights


def minimize_lbfgs(
    problem: Problem,
    start: Trial,
    *,
    max_iter: int,
    tol: float,
    memory: int = 10,
    first_step: float = 1.0,
    callback: Callback | None = None,
) -> Progress:
    """Minimise by limited-memory BFGS until the size of the projected gradient is at most ``tol``.

    In coordinates that move with the point, parallel transport is the identity, and the Euclidean
    two-loop recursion holds. Coordinates at their limit stay fixed if the gradient pushes them
    outwards. The first step, along the gradient, has the size ``first_step``. If the callback
    returns a message, the run stops.
    """
    inverse_hessian, trial, iteration = Memory(memory), start, 0
    gradient = gradient_at(problem, start, 0)
    limits = problem.limits(trial.point)
    while True:
        slope = projected(gradient, limits)
        progress = Progress(iteration, trial, problem.size(slope))
        if end := progress.end(max_iter, tol, callback):
            return end
        result = None
        if len(inverse_hessian):
            free = (slope != 0).astype(float)
            result = search(problem, trial, slope, -inverse_hessian.multiply(slope, free), limits)
        if result is None:  # restart along the gradient
            inverse_hessian.clear()
            steepest = -slope * (first_step / problem.size(slope))
            result = search(problem, trial, slope, steepest, limits)
        if result is None:
            return progress.stuck()
        trial, step = result
        iteration += 1
        previous, gradient = gradient, gradient_at(problem, trial, iteration)
        inverse_hessian.learn(step, gradient - previous)
        limits = problem.limits(trial.point)


def minimize_conjugate_gradient(
    problem: Problem,
    start: Trial,
    *,
    max_iter: int,
    tol: float,
    callback: Callback | None = None,
) -> Progress:
    """Minimise by conjugate gradients (Polak-Ribiere), without limits; see `minimize_lbfgs`."""
    trial, gradient = start, gradient_at(problem, start, 0)
    direction = -gradient
    length = _FIRST_STEP / max(problem.size(gradient), np.finfo(float).tiny)
    iteration = 0
    while True:
        progress = Progress(iteration, trial, problem.size(gradient))
        if end := progress.end(max_iter, tol, callback):
            return end
        result = search(problem, trial, gradient, length * direction, -np.inf)
        if result is None and np.array_equal(direction, -gradient):
            return progress.stuck()
        if result is None:
            direction = -gradient
            continue
        trial, step = result
        taken = float(np.linalg.norm(step) / np.linalg.norm(direction))
        iteration += 1
        previous, gradient = gradient, gradient_at(problem, trial, iteration)
        previous_slope = float(np.vdot(direction, previous))
        factor = float(np.vdot(gradient, gradient - previous)) / float(np.vdot(previous, previous))
        direction = -gradient + max(0.0, factor) * direction
        if not np.vdot(direction, gradient) < 0:
            direction = -gradient
        # The first-order decrease of the next step is 1.5 times that of this one.
        slope = min(float(np.vdot(direction, gradient)), -np.finfo(float).tiny)
        length = 1.5 * taken * previous_slope / slope


def minimize_projected_gradient(
    problem: Problem,
    start: Trial,
    *,
    max_iter: int,
    tol: float,
    callback: Callback | None = None,
) -> Progress:
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
        result = search(problem, trial, slope, -length * slope, limits)
        if result is None:
            return progress.stuck()
        trial, step = result
        iteration += 1
        previous, gradient = gradient, gradient_at(problem, trial, iteration)
        curvature = float(np.vdot(step, gradient - previous))
        squared = float(np.vdot(step, step))
        length = squared / curvature if curvature > squared / _LARGEST_FACTOR else _LARGEST_FACTOR
        length = float(np.clip(length, _SMALLEST_FACTOR, _LARGEST_FACTOR))
