"""What an optimiser needs to know of a problem, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from divlearn.arrays import RealArray

__all__ = ["Callback", "Problem", "Progress", "Result", "Trial", "check_end", "projected", "stuck"]


@dataclass(frozen=True, eq=False)
class Trial:
    """A point that was looked at.

    Attributes
    ----------
    point : whatever the problem takes for a point.
    value : float, the objective there.
    memo : what the problem keeps to compute the gradient from.
    """

    point: Any
    value: float
    memo: Any = None


class Problem(Protocol):
    """Minimise a function on a manifold, in flat coordinates around the current point.

    Steps and gradients are vectors in coordinates that move with the point, chosen such that
    carrying a vector along a step leaves its coordinates as they are. The inner product is the
    ordinary one.
    """

    def trial(self, point: Any) -> Trial:
        """Compute the objective."""

    def gradient(self, trial: Trial) -> RealArray:
        """Compute the gradient, in the coordinates of the trial's point."""

    def move(self, point: Any, step: RealArray) -> Any:
        """Take a step."""

    def size(self, step: RealArray) -> float:
        """How long a step is, in units in which the objective changes at about one."""

    def limits(self, point: Any) -> RealArray | float:
        """Most negative step allowed in each coordinate: minus infinity where it is free."""


@dataclass(frozen=True, eq=False)
class Progress:
    """Where an optimiser stands after an iteration; number 0 is the start.

    Some can go on from there: what they need for that, beside the trial, is what `state` returns.
    """

    iteration: int
    trial: Trial
    gradient_norm: float
    state: Callable[[], Any] | None = None


Callback = Callable[[Progress], str | None]


@dataclass(frozen=True, eq=False)
class Result:
    """Where an optimiser ended.

    Attributes
    ----------
    trial : Trial, the best point.
    gradient_norm : float, of the gradient projected on the feasible directions.
    n_iter : int
    converged : bool
    message : str, why it stopped, in a sentence.
    """

    trial: Trial
    gradient_norm: float
    n_iter: int
    converged: bool
    message: str


def check_end(
    progress: Progress, max_iter: int, tol: float, callback: Callback | None
) -> Result | None:
    """Decide whether an optimiser has come to an end, after telling the callback."""
    size = progress.gradient_norm
    stop = callback(progress) if callback else None
    if stop is not None:
        return Result(progress.trial, size, progress.iteration, False, stop)
    if size <= tol:
        message = f"size of the gradient {size:.2g} <= tol={tol:g}"
        return Result(progress.trial, size, progress.iteration, True, message)
    if progress.iteration == max_iter:
        message = f"max_iter={max_iter} reached; size of the gradient {size:.2g}"
        return Result(progress.trial, size, progress.iteration, False, message)
    return None


def stuck(progress: Progress) -> Result:
    """End where no step lowers the objective."""
    size = progress.gradient_norm
    message = f"no step lowers the objective; size of the gradient {size:.2g}"
    return Result(progress.trial, size, progress.iteration, False, message)


def projected(gradient: RealArray, limits: RealArray | float) -> RealArray:
    """Gradient without the part that pushes against a limit.

    Examples
    --------
    >>> projected(np.array([1.0, 1.0, -1.0]), np.array([-np.inf, 0.0, 0.0]))
    array([ 1.,  0., -1.])
    """
    return np.where((limits >= 0) & (gradient > 0), 0, gradient)
