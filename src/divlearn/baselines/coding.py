"""What it takes to code matrices by a dictionary, and the runs that learn one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray

__all__ = ["Coder", "LearnedDictionary", "Stage", "learn_dictionary"]


@dataclass(frozen=True, eq=False)
class Stage:
    """Where learning stands.

    Attributes
    ----------
    block : {"start", "atoms", "codes"}
        What was updated last.
    atoms : ndarray, shape (n_atoms, d, d)
    codes : ndarray, shape (n_matrices, n_atoms)
    objective : float
    """

    block: str
    atoms: RealArray
    codes: RealArray
    objective: float


class Coder(Protocol):
    """Codes matrices by given atoms, its parameters fixed."""

    @property
    def parameters(self) -> dict[str, float]:
        """The parameters, by name."""

    def codes(self, view: Any) -> RealArray:
        """Code matrices, given what their estimator's ``_view`` says of them and the atoms."""

    def learn(self, matrices: RealArray, atoms: RealArray) -> Iterator[Stage]:
        """Yield the start, then atoms and codes in turn, without end where there is learning."""


@dataclass(frozen=True, eq=False)
class LearnedDictionary:
    """The best dictionary that was found.

    Attributes
    ----------
    stage : Stage
    n_iter : int
    message : str, why learning stopped, in a sentence.
    history : dict of arrays
    """

    stage: Stage
    n_iter: int
    message: str
    history: dict[str, NDArray[np.generic]]


@dataclass(eq=False)
class _History:
    rows: list[tuple[int, str, float, float]] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    def add(self, iteration: int, stage: Stage) -> None:
        seconds = time.perf_counter() - self.started
        self.rows.append((iteration, stage.block, stage.objective, seconds))

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        columns = zip(*self.rows, strict=True)
        names = "iteration", "block", "objective", "seconds"
        return {name: np.array(column) for name, column in zip(names, columns, strict=True)}


def learn_dictionary(
    coder: Coder, matrices: RealArray, atoms: RealArray, *, max_iter: int, tol: float,
    tell: Callable[[int, str], None],
) -> LearnedDictionary:  # fmt: skip
    """Update atoms and codes in turn until that gains little.

    Parameters
    ----------
    coder : Coder
    matrices : ndarray, shape (n_matrices, d, d)
    atoms : ndarray, shape (n_atoms, d, d)
    max_iter : int
        Updates of all atoms and all codes.
    tol : float
        Stop where an iteration lowers the objective by at most this share of it.
    tell : callable
        Called with a level and a line of progress.

    Returns
    -------
    LearnedDictionary
        What was reached last where the user stops it.
    """
    stages = coder.learn(matrices, atoms)
    stage = next(stages)
    history, n_iter, message = _History(), 0, "the dictionary stays as it starts"
    history.add(0, stage)
    if max_iter:
        message = f"max_iter={max_iter} reached"
    try:
        while n_iter < max_iter:
            before = stage.objective
            for _ in range(2):  # atoms, codes
                stage = next(stages)
                history.add(n_iter + 1, stage)
            n_iter += 1
            tell(2, f"iteration {n_iter}: objective {stage.objective:.6g}")
            if before - stage.objective <= tol * abs(before):
                share = (before - stage.objective) / abs(before) if before else 0.0
                message = f"an iteration lowered the objective by {share:.2g} of it, <= tol={tol:g}"
                break
    except KeyboardInterrupt:
        message = f"interrupted by the user in iteration {n_iter + 1}"
    return LearnedDictionary(stage, n_iter, message, history.arrays())
