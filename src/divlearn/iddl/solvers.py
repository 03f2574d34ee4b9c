"""Solvers: how atoms, divergences and head are learned together."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.fitting.checkpoint import Loop, loop
from divlearn.iddl.blocks import AtomBlock, ParameterBlock
from divlearn.iddl.features import Features
from divlearn.iddl.losses import Head
from divlearn.iddl.objective import Coordinates, Dictionary, Objective
from divlearn.optim.gradients import minimize_conjugate_gradient, minimize_projected_gradient
from divlearn.optim.lbfgs import minimize_lbfgs
from divlearn.optim.problem import Progress, Trial

__all__ = [
    "Fit", "History", "Interruptible", "Known", "Watch", "first_trial", "solve_bcd", "solve_joint",
]  # fmt: skip

Watch = Callable[[int, Trial], str | None]


@dataclass(frozen=True, eq=False)
class Known:
    """What prediction needs of a memo: features without samples, and the head."""

    features: Features
    head: Head

    @classmethod
    def of(cls, trial: Trial) -> Trial:
        """Take a trial with no more than that, which can be kept in a file."""
        return replace(trial, memo=cls(trial.memo.features.on_host(), trial.memo.head))

    def without_rows(self) -> Known:
        """Return the same."""
        return self


@dataclass(eq=False)
class History:
    """What happened, one entry per iteration, and the start."""

    objective: Coordinates
    rows: list[tuple[float, float, str, RealArray, float, int]] = field(default_factory=list)
    started: float = field(default_factory=time.perf_counter)

    def add(self, trial: Trial, gradient_norm: float, block: str) -> None:
        """Note where things stand."""
        alpha, beta = self.objective.variant.expand(trial.point.parameters)
        seconds = time.perf_counter() - self.started
        self.rows.append(
            (trial.value, gradient_norm, block, np.stack([alpha, beta]), seconds,
             self.objective.eigenproblems)
        )  # fmt: skip

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Columns by name."""
        values, norms, blocks, parameters, seconds, eigenproblems = zip(*self.rows, strict=True)
        both = np.stack(parameters)
        return {
            "objective": np.array(values),
            "gradient_norm": np.array(norms),
            "block": np.array(blocks),
            "alpha": both[:, 0],
            "beta": both[:, 1],
            "seconds": np.array(seconds),
            "eigenproblems": np.array(eigenproblems),
        }


@dataclass(frozen=True, eq=False)
class Fit:
    """The best dictionary that was found.

    Attributes
    ----------
    trial : Trial, of a `Dictionary`, with a `Memo`.
    n_iter : int
    converged : bool
    message : str, why the solver stopped, in a sentence.
    history : dict of arrays
    """

    trial: Trial
    n_iter: int
    converged: bool
    message: str
    history: dict[str, NDArray[np.generic]]


class Interruptible:
    """Keep the last point when the user stops a run, and all that was told when it is killed."""

    def __init__(
        self, objective: Coordinates, start: Trial, watch: Watch | None, rounds: Loop
    ) -> None:
        self.history = History(objective)
        self.trial = start
        self.n_iter = 0
        self._watch = watch
        self._rounds = rounds
        self._told: list[tuple[int, Trial]] = []
        if rounds.state is not None:
            self._replay(*rounds.state[:3])

    def _replay(
        self, rows: list[Any], told: list[tuple[int, Trial]], effort: tuple[Head | None, int]
    ) -> None:
        """Go on where a run was broken off: whoever watches hears it all again."""
        self.history.rows = list(rows)
        self.history.started -= rows[-1][4] if rows else 0.0
        self.history.objective.effort = effort
        self._told = list(told)
        for iteration, trial in told:
            assert self._watch is not None
            self._watch(iteration, trial)

    def save(self, *state: Any) -> None:
        """Keep where things stand, before the next is noted."""
        effort = self.history.objective.effort
        self._rounds.save((list(self.history.rows), list(self._told), effort, *state))

    def note(self, iteration: int, trial: Trial, gradient_norm: float, block: str) -> str | None:
        """Remember where things stand; returns a sentence where the watcher wants to stop."""
        self.trial, self.n_iter = trial, iteration
        self.history.add(trial, gradient_norm, block)
        if block in ("atoms", "parameters") or self._watch is None:
            return None
        if self._rounds.kept:
            self._told.append((iteration, Known.of(trial)))
        return self._watch(iteration, trial)

    def interrupted(self) -> Fit:
        """Make the last point the result, be it the start."""
        if not self.history.rows:
            self.history.add(self.trial, np.nan, "start")
        message = f"interrupted by the user in iteration {self.n_iter + 1}"
        return Fit(self.trial, self.n_iter, False, message, self.history.arrays())


def first_trial(objective: Any, start: Dictionary) -> Trial:
    """Compute the objective where a solver starts; raise where there is nothing to start from."""
    with np.errstate(over="ignore", invalid="ignore"):
        trial: Trial = objective.trial(start)
    if not np.isfinite(trial.value):
        raise ValueError(
            "the objective is infinite at the start: matrices or atoms are too close to singular, "
            "or of sizes that differ too much; regularize them by check_spd, divide each by its "
            'size, or set features="log"'
        )
    return trial


def solve_joint(
    objective: Objective, start: Dictionary, *, max_iter: int, tol: float,
    watch: Watch | None = None,
) -> Fit:  # fmt: skip
    """Move all atoms and parameters at once by limited-memory BFGS in moving frames.

    Parameters
    ----------
    objective : Objective
    start : Dictionary
    max_iter : int
    tol : float
        Stop where the size of the gradient is at most this share of that at the start.
    watch : callable, optional
        Called with the iteration and the trial; a sentence it returns stops the solver.

    Returns
    -------
    Fit
    """
    with loop("joint") as rounds:
        return _joint(objective, start, max_iter, tol, watch, rounds)


def _joint(
    objective: Objective, start: Dictionary, max_iter: int, tol: float, watch: Watch | None,
    rounds: Loop,
) -> Fit:  # fmt: skip
    first, largest, state = rounds.state[3:] if rounds.state else (None, 0.0, None)
    # What a file is to keep stays on the host.
    first = first or first_trial(objective, start if rounds.kept else objective.reside(start))
    run = Interruptible(objective, first, watch, rounds)

    def callback(progress: Progress) -> str | None:
        nonlocal largest
        if rounds.kept and progress.state is not None:
            run.save(Known.of(progress.trial), largest, progress.state())
        largest = max(largest, progress.gradient_norm) if progress.iteration == 0 else largest
        stop = run.note(progress.iteration, progress.trial, progress.gradient_norm, "joint")
        if stop is None and progress.gradient_norm <= tol * largest:
            share = progress.gradient_norm / largest if largest else 0.0
            return f"the gradient fell to {share:.2g} of its start, <= tol={tol:g}"
        return stop

    try:
        result = minimize_lbfgs(
            objective, first, max_iter=max_iter, tol=0.0, first_step=0.2, callback=callback,
            broken_off=state,
        )  # fmt: skip
    except KeyboardInterrupt:
        return run.interrupted()
    return Fit(result.trial, result.n_iter, result.converged, result.message, run.history.arrays())


def solve_bcd(
    objective: Objective, start: Dictionary, *, max_iter: int, tol: float,
    watch: Watch | None = None, inner: int = 8,
) -> Fit:  # fmt: skip
    """Take turns, as the paper does: each atom, all parameters, then the head.

    Parameters
    ----------
    objective, start, max_iter, watch : as in `solve_joint`
    tol : float
        Stop where an iteration lowers the objective by at most this share of it.
    inner : int, default=8
        Steps of conjugate gradients per atom, and of spectral projected gradients.

    Returns
    -------
    Fit
    """
    with loop("blocks") as rounds:
        trial, iteration = rounds.state[3:] if rounds.state else (first_trial(objective, start), 0)
        if rounds.kept and not isinstance(trial.memo.V, np.ndarray):
            raise ValueError(
                'resumable(...) cannot be used with solver="bcd" on a GPU; set solver="joint" or '
                'engine="native"'
            )
        run = Interruptible(objective, trial, watch, rounds)
        try:
            return _bcd(objective, trial, iteration, max_iter, tol, inner, run)
        except KeyboardInterrupt:
            return run.interrupted()


def _bcd(
    objective: Objective, trial: Trial, iteration: int, max_iter: int, tol: float, inner: int,
    run: Interruptible,
) -> Fit:  # fmt: skip
    message, converged = f"max_iter={max_iter} reached", False
    stop = None if run.history.rows else run.note(0, trial, np.nan, "start")
    while stop is None and iteration < max_iter:
        run.save(trial, iteration)
        before = trial.value
        iteration += 1
        norm = 0.0
        if objective.learn_atoms:
            for atom in range(len(trial.point.frames)):
                trial, last = _update_atom(objective, trial, atom, inner)
                norm = max(norm, last)
            run.note(iteration, trial, norm, "atoms")
        if objective.learn_parameters:
            trial, last = _update_parameters(objective, trial, inner)
            norm = max(norm, last)
            run.note(iteration, trial, last, "parameters")
        trial = objective.solve_head(trial.point, trial.memo.V)
        stop = run.note(iteration, trial, norm, "head")
        if stop is None and before - trial.value <= tol * abs(before):
            converged = True
            share = (before - trial.value) / abs(before) if before else 0.0
            stop = f"an iteration lowered the objective by {share:.2g} of it, <= tol={tol:g}"
    return Fit(trial, iteration, converged, stop or message, run.history.arrays())


def _update_atom(objective: Objective, trial: Trial, atom: int, steps: int) -> tuple[Trial, float]:
    block = AtomBlock(objective, trial.point, trial.memo, atom)
    frames = trial.point.frames
    start = replace(trial, point=frames[atom])
    result = minimize_conjugate_gradient(block, start, max_iter=steps, tol=0.0)
    moved = frames.copy()
    moved[atom] = result.trial.point
    point = Dictionary(moved, trial.point.parameters)
    return replace(result.trial, point=point), result.gradient_norm


def _update_parameters(objective: Objective, trial: Trial, steps: int) -> tuple[Trial, float]:
    block = ParameterBlock(objective, trial.point, trial.memo)
    start = replace(trial, point=trial.point.parameters)
    result = minimize_projected_gradient(block, start, max_iter=steps, tol=0.0)
    point = Dictionary(trial.point.frames, result.trial.point)
    return replace(result.trial, point=point), result.gradient_norm
