"""What solvers share, and the joint solver: all atoms and parameters move at once."""

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import to_host
from divlearn.checks import check_finite
from divlearn.fitting.checkpoint import Loop, loop
from divlearn.fitting.interrupts import note_interrupt
from divlearn.fitting.progress import tell
from divlearn.iddl.features import units_on_host
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
    """What happens in a run: kept when the user stops it, and resumed when it was killed."""

    def __init__(self, objective: Objective, start: Trial, max_iter: int, rounds: Loop) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self._objective, self._max_iter, self._rounds = objective, max_iter, rounds
        self._trial, self._n_iter = start, 0
        self._started = time.perf_counter()
        if rounds.state is not None:  # listeners hear it all again
            rows, objective.warm, objective.eigenproblems = rounds.state[:3]
            self.rows = list(rows)
            self._started -= rows[-1][4] if rows else 0.0
            ends = (row[0] for row in rows if row[2] not in _WITHIN)
            for iteration, value in enumerate(ends):
                self._tell(iteration, value)

    def _tell(self, iteration: int, value: float) -> None:
        tell("iterations", iteration, self._max_iter, f"objective {value:.6g}")

    def save(self, *state: Any) -> None:
        """Keep where things stand, before the next is noted."""
        warm, eigenproblems = self._objective.warm, self._objective.eigenproblems
        self._rounds.save((list(self.rows), warm, eigenproblems, *state))

    def note(self, iteration: int, trial: Trial, gradient_norm: float, block: str) -> None:
        check_finite(trial.value, "the objective", f"in iteration {iteration}, after {block}")
        self._trial, self._n_iter = trial, iteration
        self._add(trial, gradient_norm, block)
        if block not in _WITHIN:
            self._tell(iteration, trial.value)

    def _add(self, trial: Trial, gradient_norm: float, block: str) -> None:
        pairs = np.stack(self._objective.variant.expand(trial.point.parameters))
        seconds = time.perf_counter() - self._started
        self.rows.append(
            (trial.value, gradient_norm, block, pairs, seconds, self._objective.eigenproblems)
        )

    def interrupted(self) -> Fit:
        """Make the last point the result, be it the start."""
        note_interrupt()
        if not self.rows:
            self._add(self._trial, np.nan, "start")
        message = f"interrupted by the user in iteration {self._n_iter + 1}"
        return self.end(self._trial, self._n_iter, message)

    def end(self, trial: Trial, n_iter: int, message: str) -> Fit:
        names = ("objective", "gradient_norm", "block", "pairs", "seconds", "eigenproblems")
        columns = map(np.array, zip(*self.rows, strict=True))
        history = dict(zip(names, columns, strict=True))
        pairs = history.pop("pairs")
        history |= {"alpha": pairs[:, 0], "beta": pairs[:, 1]}
        return Fit(trial, n_iter, message, history)


def on_host(trial: Trial) -> Trial:
    """Take of a trial what prediction needs, which can be kept in a file."""
    point = replace(trial.point, frames=to_host(trial.point.frames))
    units = units_on_host(trial.memo.units)
    return replace(trial, point=point, memo=replace(trial.memo, V=(), units=units, trace=None))


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
    with loop("joint") as rounds:
        kept, largest, state = rounds.state[3:] if rounds.state else (None, 0.0, None)
        # What a file is to keep stays on the host.
        first = kept or first_trial(objective, start if rounds.kept else objective.reside(start))
        run = Run(objective, first, max_iter, rounds)

        def callback(progress: Progress) -> str | None:
            nonlocal largest
            if rounds.kept and progress.state is not None:
                run.save(on_host(progress.trial), largest, progress.state())
            norm = progress.gradient_norm
            largest = max(largest, norm) if progress.iteration == 0 else largest
            run.note(progress.iteration, progress.trial, norm, "joint")
            if not norm <= tol * largest:
                return None
            share = norm / largest if largest else 0.0
            return f"the gradient fell to {share:.2g} of its start, <= tol={tol:g}"

        try:
            result = minimize_lbfgs(
                objective,
                first,
                max_iter=max_iter,
                tol=0.0,
                first_step=0.2,
                callback=callback,
                broken_off=state,
            )
        except KeyboardInterrupt:
            return run.interrupted()
        return run.end(result.trial, result.n_iter, result.message)
