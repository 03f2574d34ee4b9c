"""Problems and results of optimisers on manifolds, and the search along a line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np

from divlearn.arrays import RealArray
from divlearn.checks import check_finite

_ARMIJO = 1e-4  # least decrease of the objective, relative to the first-order decrease
_TRIALS = 30
_LONGEST = 2.0  # size of a step, beyond which no model of the objective is accurate
_ROUNDING = 1e-14  # relative change of the objective that is rounding error
_NEAR = 1e-8  # size of a step, below which the objective must be a number


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
