"""The turns k-means takes until clusters stay, whatever holds the matrices."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from divlearn.checkpoint import Loop
from divlearn.cluster.centroids import Solver
from divlearn.cluster.parameters import Point
from divlearn.progress import tell

__all__ = ["Ended", "History", "Settings", "Turning", "settled", "take_turns"]


@dataclass(frozen=True)
class Settings:
    """How a run goes.

    Attributes
    ----------
    solver : how centroids are found.
    steps : int, of the solver at every turn.
    max_iter : int
    tol : float, share of the assignments; the run stops when fewer change.
    watch : callable, told of every iteration in a sentence.
    """

    solver: Solver
    steps: int
    max_iter: int
    tol: float
    watch: Callable[[str], None]


@dataclass(eq=False)
class History:
    """What happened, one entry per block."""

    rows: list[tuple[int, str, float, Point, int, float]] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    @classmethod
    def of(cls, rows: Sequence[tuple[int, str, float, Point, int, float]]) -> History:
        """Go on with what happened before."""
        return cls(list(rows), time.perf_counter() - (rows[-1][-1] if rows else 0.0))

    def add(
        self, iteration: int, block: str, objective: float, point: Point, changed: int = 0
    ) -> None:
        """Note where things stand after a block."""
        seconds = time.perf_counter() - self.started
        self.rows.append((iteration, block, objective, point, changed, seconds))

    def arrays(self, n_iter: int) -> dict[str, NDArray[np.generic]]:
        """Columns by name, of whole iterations."""
        rows = [row for row in self.rows if row[0] <= n_iter]
        iterations, blocks, values, points, changed, seconds = zip(*rows, strict=True)
        alpha, beta, kappa = np.transpose(points)
        columns: dict[str, NDArray[np.generic]] = {
            "iteration": np.array(iterations),
            "block": np.array(blocks),
            "objective": np.array(values),
            "alpha": alpha,
            "beta": beta,
            "changed": np.array(changed),
            "seconds": np.array(seconds),
        }
        return columns if np.isnan(kappa).all() else columns | {"kappa": kappa}


class Turning(Protocol):
    """A run that is under way."""

    def kept(self) -> tuple[Any, ...]:
        """Return what it takes to go on from here in another process."""

    def turn(self, iteration: int) -> str | None:
        """Update all blocks; returns a sentence where that was the last time."""


class Ended(NamedTuple):
    """How a run ended; see `Run`."""

    n_iter: int
    interrupted: bool
    message: str


def take_turns(run: Turning, iteration: int, settings: Settings, rounds: Loop) -> Ended:
    """Let a run turn until it wants no more, or the user."""
    try:
        while iteration < settings.max_iter:
            rounds.save((iteration, *run.kept()))
            stop = run.turn(iteration + 1)
            iteration += 1
            tell("iterations", iteration, settings.max_iter)
            if stop is not None:
                return Ended(iteration, False, stop)
    except KeyboardInterrupt:
        return Ended(iteration, True, f"interrupted by the user in iteration {iteration + 1}")
    return Ended(iteration, False, f"max_iter={settings.max_iter} reached")


def settled(changed: int, n_matrices: int, tol: float) -> str | None:
    """Say that too few assignments changed to go on, if so."""
    share = changed / n_matrices
    if changed and share >= tol:
        return None
    return f"{share:.2%} of the assignments changed, tol={tol:g}"
