"""Limited-memory BFGS on manifolds, with lower limits on some coordinates."""

from __future__ import annotations

from collections import deque

import numpy as np

from divlearn.arrays import RealArray
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

__all__ = ["Memory", "minimize_lbfgs"]

State = tuple[int, RealArray, list[tuple[RealArray, RealArray]]]  # iteration, gradient, pairs

_CURVATURE = 1e-12  # of a pair, relative to its lengths, below which nothing is learned from it


class Memory:
    """Pairs of steps and changes of the gradient, and the quasi-Newton step they give.

    Parameters
    ----------
    size : int
        Pairs to remember.
    """

    def __init__(self, size: int) -> None:
        self._pairs: deque[tuple[RealArray, RealArray]] = deque(maxlen=size)

    @property
    def pairs(self) -> list[tuple[RealArray, RealArray]]:
        """What is remembered, the oldest first."""
        return list(self._pairs)

    @pairs.setter
    def pairs(self, pairs: list[tuple[RealArray, RealArray]]) -> None:
        self._pairs.clear()
        self._pairs.extend(pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def clear(self) -> None:
        """Forget everything."""
        self._pairs.clear()

    def learn(self, step: RealArray, change: RealArray) -> None:
        """Remember a step and how the gradient changed along it, if the curvature is positive."""
        if np.vdot(step, change) > _CURVATURE * np.linalg.norm(step) * np.linalg.norm(change):
            self._pairs.append((step, change))

    def multiply(self, gradient: RealArray, free: RealArray | float = 1.0) -> RealArray:
        """Multiply by the inverse of the learned Hessian, on the free coordinates alone.

        Examples
        --------
        >>> memory = Memory(5)
        >>> memory.learn(np.array([1.0, 0.0]), np.array([4.0, 0.0]))
        >>> memory.multiply(np.array([8.0, 0.0]))
        array([2., 0.])
        """
        q = gradient * free
        used = []
        for step, change in reversed(self._pairs):
            s, y = step * free, change * free
            curvature = float(np.vdot(s, y))
            if curvature <= _CURVATURE * np.linalg.norm(s) * np.linalg.norm(y):
                continue
            weight = float(np.vdot(s, q)) / curvature
            q = q - weight * y
            used.append((s, y, curvature, weight))
        if used:
            s, y, curvature, _ = used[0]
            q = q * (curvature / float(np.vdot(y, y)))
        for s, y, curvature, weight in reversed(used):
            q = q + (weight - float(np.vdot(y, q)) / curvature) * s
        return q


def minimize_lbfgs(
    problem: Problem,
    start: Trial,
    *,
    max_iter: int,
    tol: float,
    memory: int = 10,
    first_step: float = 1.0,
    callback: Callback | None = None,
    state: State | None = None,
) -> Result:
    r"""Minimise by limited-memory BFGS.

    In coordinates that move with the point, parallel transport is the identity and the flat
    two-loop recursion holds as it stands. Coordinates at their limit that the gradient pushes
    outwards are held; steps are cut at the limits. The objective never rises.

    Parameters
    ----------
    problem : Problem
    start : Trial
    max_iter : int
    tol : float
        Stop where the size of the projected gradient is at most this.
    memory : int, default=10
        Pairs to remember.
    first_step : float, default=1.0
        Size of the first step, which is along the gradient.
    callback : callable, optional
        Called after each iteration, and at the start; a sentence it returns stops the run.
    state : state, optional
        Of the progress of a run that was broken off: go on from there, where `start` is.

    Returns
    -------
    Result
    """
    learned = Memory(memory)
    trial = start
    iteration, gradient, learned.pairs = state or (0, problem.gradient(start), [])
    limits = problem.limits(trial.point)
    while True:
        slope = projected(gradient, limits)
        now = iteration, gradient, learned.pairs
        progress = Progress(iteration, trial, problem.size(slope), now)
        end = check_end(progress, max_iter, tol, callback)
        if end is not None:
            return end
        found = _line_search(problem, trial, slope, limits, learned, first_step)
        if found is None:
            return stuck(progress)
        following, step = found
        change = problem.gradient(following)
        learned.learn(step, change - gradient)
        trial, gradient = following, change
        limits = problem.limits(trial.point)
        iteration += 1


def _line_search(
    problem: Problem, trial: Trial, slope: RealArray, limits: RealArray | float, learned: Memory,
    first_step: float,
) -> tuple[Trial, RealArray] | None:  # fmt: skip
    """Step along the learned direction, or along the gradient where that fails; None if both do."""
    free = (slope != 0).astype(float)
    if len(learned):
        found = search(problem, trial, slope, -learned.multiply(slope, free), limits)
        if found is not None:
            return found
        learned.clear()
    return search(problem, trial, slope, -slope * (first_step / problem.size(slope)), limits)
