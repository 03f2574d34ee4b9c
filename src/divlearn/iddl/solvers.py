"""What solvers share, and the joint solver: all atoms and parameters move at once."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divlearn.checks import check_finite
from divlearn.fitting.interrupts import stoppable
from divlearn.fitting.progress import tell
from divlearn.iddl.objective import Dictionary, Objective
from divlearn.optim.lbfgs import minimize_lbfgs
from divlearn.optim.problem import Progress, Trial

_WITHIN = ("atoms", "parameters")  # blocks that do not end an iteration


@dataclass(frozen=True, eq=False)
class Fit:
    trial: Trial  # of a Dictionary, with a Memo
    n_iter: int
    message: str  # why the solver stopped, in a sentence
    history: dict[str, NDArray[np.generic]]


class Run:
    """The history of a solver, and the last point, which is the result if the user stops it."""

    def __init__(self, objective: Objective, start: Trial, max_iter: int) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._objective, self._max_iter = objective, max_iter
        self._trial, self._n_iter = start, 0
        self._started = time.perf_counter()

    def note(self, iteration: int, trial: Trial, gradient_norm: float, block: str) -> None:
        check_finite(trial.value, "the objective", f"in iteration {iteration}, after {block}")
        self._trial, self._n_iter = trial, iteration
        self._add(trial, gradient_norm, block)
        if block not in _WITHIN:
            tell("iterations", iteration, self._max_iter, f"objective {trial.value:.6g}")

    def _add(self, trial: Trial, gradient_norm: float, block: str) -> None:
        pairs = np.stack(self._objective.variant.expand(trial.point.parameters))
        seconds = time.perf_counter() - self._started
        self._rows.append(
            (trial.value, gradient_norm, block, pairs, seconds, self._objective.eigenproblems)
        )

    def interrupted(self) -> Fit:
        """Make the last point the result, be it the start."""
        if not self._rows:
            self._add(self._trial, np.nan, "start")
        message = f"interrupted by the user in iteration {self._n_iter + 1}"
        return self.end(self._trial, self._n_iter, message)

    def end(self, trial: Trial, n_iter: int, message: str) -> Fit:
        names = ("objective", "gradient_norm", "block", "pairs", "seconds", "eigenproblems")
        columns = map(np.array, zip(*self._rows, strict=True))
        history = dict(zip(names, columns, strict=True))
        pairs = history.pop("pairs")
        history |= {"alpha": pairs[:, 0], "beta": pairs[:, 1]}
        return Fit(trial, n_iter, message, history)


def first_trial(objective: Objective, start: Dictionary) -> Trial:
    """Compute the objective where a solver starts; raise where there is nothing to start from."""
    with np.errstate(over="ignore", invalid="ignore"):
        trial = objective.trial(start)
    if not np.isfinite(trial.value):
        raise ValueError(
            f"the objective is {trial.value} at the start: matrices or atoms are too close to "
            'singular, or differ too much in scale; pass regularize="shrink", or divide each by '
            "its trace"
        )
    return trial


def solve_joint(
    objective: Objective, start: Dictionary, *, max_iter: int, tol: float, seed: int = 0
) -> Fit:
    """Move all atoms and parameters by L-BFGS, until the gradient is at most `tol` of the first."""
    objective.tracing = True  # the gradient of nearly every trial is wanted next
    first = first_trial(objective, objective.reside(start))
    run, largest = Run(objective, first, max_iter), 0.0

    def callback(progress: Progress) -> str | None:
        nonlocal largest
        norm = progress.gradient_norm
        largest = norm if progress.iteration == 0 else largest
        run.note(progress.iteration, progress.trial, norm, "joint")
        if not norm <= tol * largest:
            return None
        share = norm / largest if largest else 0.0
        return f"the gradient fell to {share:.2g} of its start, <= tol={tol:g}"

    with stoppable():
        result = minimize_lbfgs(
            objective, first, max_iter=max_iter, tol=0.0, first_step=0.2, callback=callback
        )
        return run.end(result.trial, result.n_iter, result.message)
    return run.interrupted()
