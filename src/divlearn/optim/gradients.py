"""Gradient methods on manifolds: limited-memory BFGS, conjugate and projected gradients."""

from collections import deque

import numpy as np

from divlearn.arrays import RealArray, to_device_of, to_host
from divlearn.optim.problem import (
    Callback,
    Problem,
    Progress,
    Trial,
    gradient_at,
    projected,
    search,
)

_CURVATURE = 1e-12  # of a pair, relative to its lengths, below which nothing is learned from it
_FIRST_STEP = 0.1  # its size
_SHORTEST, _LONGEST = 1e-10, 1e10  # factors of the gradient in a spectral step


class Memory:
    """At most `size` pairs of steps and changes of the gradient, and the quasi-Newton step."""

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
        """Multiply by the inverse of the learned Hessian, on the free coordinates alone."""
        if self._vectors is None:
            return gradient if free is None else gradient * free
        vectors, held = self._vectors, None
        vectors[-1] = gradient.ravel()
        if free is not None and not free.all():  # what is held is taken out, and put back
            held = np.flatnonzero(free == 0)
            kept = vectors[:, held]
            vectors[:, held] = 0
        # The result is a sum of these vectors, and its weights depend on their products alone.
        weights = _two_loops(to_host(vectors @ vectors.T), list(reversed(self._slots)))
        product: RealArray = (to_device_of(weights, vectors) @ vectors).reshape(gradient.shape)
        if held is not None:
            vectors[:, held] = kept
        return product


def _two_loops(gram: RealArray, slots: list[int]) -> RealArray:
    """Weights of steps, changes and the gradient, from their products; the latest pairs first."""
    size = len(gram) // 2
    weights = np.zeros(len(gram))
    weights[-1] = 1.0
    used = []
    for s, y in [(slot, size + slot) for slot in slots]:
        curvature = gram[s, y]
        if curvature <= _CURVATURE * np.sqrt(gram[s, s]) * np.sqrt(gram[y, y]):
            continue
        along = gram[s] @ weights / curvature
        weights[y] -= along
        used.append((s, y, curvature, along))
    if used:
        _, y, curvature, _ = used[0]
        weights *= curvature / gram[y, y]
    for s, y, curvature, along in reversed(used):
        weights[s] += along - gram[y] @ weights / curvature
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

    In coordinates that move with the point parallel transport is the identity, and the flat two-
    loop recursion holds. Coordinates at their limit that the gradient pushes outwards are held. The
    first step, along the gradient, has the size ``first_step``. A sentence that the callback
    returns stops the run.
    """
    learned, trial, iteration = Memory(memory), start, 0
    gradient = gradient_at(problem, start, 0)
    limits = problem.limits(trial.point)
    while True:
        slope = projected(gradient, limits)
        progress = Progress(iteration, trial, problem.size(slope))
        if end := progress.end(max_iter, tol, callback):
            return end
        found = None
        if len(learned):
            free = (slope != 0).astype(float)
            found = search(problem, trial, slope, -learned.multiply(slope, free), limits)
        if found is None:  # what was learned leads nowhere, or there is nothing yet
            learned.clear()
            steepest = -slope * (first_step / problem.size(slope))
            found = search(problem, trial, slope, steepest, limits)
        if found is None:
            return progress.stuck()
        following, step = found
        iteration += 1
        change = gradient_at(problem, following, iteration)
        learned.learn(step, change - gradient)
        trial, gradient = following, change
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
