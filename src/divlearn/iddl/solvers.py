"""Solvers: the joint one moves everything at once, the paper's moves one block after another."""

import time
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray, to_host
from divlearn.checks import check_finite
from divlearn.fitting.interrupts import is_interrupted, stoppable
from divlearn.fitting.progress import tell
from divlearn.geometry import in_frames, move_frames
from divlearn.iddl.atoms import Dictionary
from divlearn.iddl.objective import Memo, Objective, encode_rows
from divlearn.optim.gradients import (
    minimize_conjugate_gradient,
    minimize_lbfgs,
    minimize_projected_gradient,
)
from divlearn.optim.problem import Problem, Progress, Trial
from divlearn.sharded.blocks import Block
from divlearn.spd import usable

_WITHIN = ("atoms", "parameters")  # blocks that do not end an iteration


class Run:
    """A solver under way, and its result: the last point, which is one if the user stops it too."""

    message: str  # why the solver stopped, in a sentence
    history: dict[str, NDArray[np.generic]]

    def __init__(self, objective: Objective, start: Trial, max_iter: int) -> None:
        self.trial, self.n_iter = start, 0  # of a Dictionary, with a Memo
        self._rows: list[tuple[Any, ...]] = []
        self._objective, self._max_iter = objective, max_iter
        self._started = time.perf_counter()

    def note(self, iteration: int, trial: Trial, gradient_norm: float, block: str) -> None:
        check_finite(trial.value, "the objective", f"in iteration {iteration}, after {block}")
        self.trial, self.n_iter = trial, iteration
        self._add(gradient_norm, block)
        if block not in _WITHIN:
            tell("iterations", iteration, self._max_iter, f"objective {trial.value:.6g}")

    def _add(self, gradient_norm: float, block: str) -> None:
        trial, eigenproblems = self.trial, self._objective.eigenproblems
        pairs = np.stack(self._objective.variant.expand(trial.point.parameters))
        seconds = time.perf_counter() - self._started
        self._rows.append((trial.value, gradient_norm, block, pairs, seconds, eigenproblems))

    def say_if_flat(self, before: float, tol: float, what: str) -> str | None:
        """Say so if the objective was lowered by at most `tol` of it."""
        gain = before - self.trial.value
        share = gain / abs(before) if before else 0.0
        message = f"{what} lowered the objective by a relative {share:.2g} <= tol={tol:g}"
        return message if gain <= tol * abs(before) else None

    def interrupted(self) -> Self:
        """End where it is, be it at the start."""
        if not self._rows:
            self._add(np.nan, "start")
        return self.end(f"interrupted by the user in iteration {self.n_iter + 1}")

    def end(self, message: str) -> Self:
        names = ("objective", "gradient_norm", "block", "pairs", "seconds", "eigenproblems")
        columns = map(np.array, zip(*self._rows, strict=True))
        self.message, self.history = message, dict(zip(names, columns, strict=True))
        pairs = self.history.pop("pairs")
        self.history |= {"alpha": pairs[:, 0], "beta": pairs[:, 1]}
        return self


def first_trial(objective: Objective, start: Dictionary) -> Trial:
    """Compute the objective where a solver starts; raise where there is nothing to start from."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            trial = objective.evaluate(start)
        check_finite(trial.value, "the objective", "at the start")
    except FloatingPointError as error:
        raise ValueError(
            f"there is nothing to start from: {error}. Matrices or atoms are too close to "
            'singular, or differ too much in scale; pass regularize="shrink", or divide each by '
            "its trace"
        ) from error
    return trial


def solve_joint(
    objective: Objective, start: Dictionary, *, max_iter: int, tol: float, seed: int = 0
) -> Run:
    """Move all atoms and parameters by L-BFGS, until the gradient is at most `tol` of the first."""
    objective.tracing = True  # the gradient of nearly every trial is wanted next
    first = first_trial(objective, objective.reside(start))
    run, largest = Run(objective, first, max_iter), 0.0

    def callback(progress: Progress) -> str | None:
        nonlocal largest
        if is_interrupted() and progress.n_iter < max_iter:  # in another model's thread
            raise KeyboardInterrupt
        norm = progress.gradient_norm
        largest = norm if progress.n_iter == 0 else largest
        run.note(progress.n_iter, progress.trial, norm, "joint")
        if not norm <= tol * largest:
            return None
        share = norm / largest if largest else 0.0
        return f"the gradient fell to {share:.2g} of its start, <= tol={tol:g}"

    with stoppable():
        result = minimize_lbfgs(
            objective, first, max_iter=max_iter, tol=0.0, first_step=0.2, callback=callback
        )
        return run.end(result.message)
    return run.interrupted()


_INNER = 8  # steps of conjugate gradients per atom, and of spectral projected gradients


def solve_bcd(
    objective: Objective, start: Dictionary, *, max_iter: int, tol: float, seed: int = 0
) -> Run:
    """Take turns; stop where an iteration lowers the objective by at most `tol` of it."""
    trial, iteration = first_trial(objective, start), 0
    run = Run(objective, trial, max_iter)
    with stoppable():
        run.note(0, trial, np.nan, "start")
        while iteration < max_iter:
            before = trial.value
            iteration += 1
            norm = 0.0
            if objective.learn_atoms:
                for atom in range(len(trial.point.frames)):
                    trial, last = _update_atom(objective, trial, atom)
                    norm = max(norm, last)
                run.note(iteration, trial, norm, "atoms")
            if objective.learn_parameters:
                trial, last = _update_parameters(objective, trial)
                norm = max(norm, last)
                run.note(iteration, trial, last, "parameters")
            trial = objective.solve_head(trial.point, trial.memo.V)
            run.note(iteration, trial, norm, "head")
            if message := run.say_if_flat(before, tol, "an iteration"):
                return run.end(message)
        return run.end(f"max_iter={max_iter} reached")
    return run.interrupted()


def _update_atom(objective: Objective, trial: Trial, atom: int) -> tuple[Trial, float]:
    block = AtomBlock(objective, trial.point, trial.memo, atom)
    frames = trial.point.frames
    start = replace(trial, point=frames[atom])
    result = minimize_conjugate_gradient(block, start, max_iter=_INNER, tol=0.0)
    moved = frames.copy()
    moved[atom] = result.trial.point
    point = Dictionary(moved, trial.point.parameters)
    return replace(result.trial, point=point), result.gradient_norm


def _update_parameters(objective: Objective, trial: Trial) -> tuple[Trial, float]:
    block = ParameterBlock(objective, trial.point, trial.memo)
    start = replace(trial, point=trial.point.parameters)
    result = minimize_projected_gradient(block, start, max_iter=_INNER, tol=0.0)
    point = Dictionary(trial.point.frames, result.trial.point)
    return replace(result.trial, point=point), result.gradient_norm


class AtomBlock(Problem):
    """The objective as a function of one atom, head and all else held."""

    def __init__(self, objective: Objective, point: Dictionary, memo: Memo, atom: int) -> None:
        self._objective = objective
        self._memo = memo
        alpha, beta = objective.variant.expand(point.parameters)
        self._alpha, self._beta = alpha[atom : atom + 1], beta[atom : atom + 1]
        pairs = alpha.shape[1]
        self._columns = slice(atom * pairs, (atom + 1) * pairs)

    def trial(self, frame: RealArray) -> Trial:
        objective, shards = self._objective, self._objective.shards
        atom = (frame @ frame.T)[None]
        if not usable(atom):
            return Trial(frame, np.inf)
        objective.eigenproblems += shards.n_matrices
        shared = self._columns, atom, self._alpha, self._beta
        V = shards.hold(_replace_columns, *shared, parts=[self._memo.V])
        return objective.hold_head(frame, V, self._memo.head)

    def gradient(self, trial: Trial) -> RealArray:
        frame = trial.point
        atom = (frame @ frame.T)[None]
        whitened, *_ = self._objective.pull(
            trial.memo, atom, self._alpha, self._beta, parameters=False, columns=self._columns
        )
        return in_frames(to_host(whitened), atom, frame[None])[0].ravel()

    def move(self, frame: RealArray, step: RealArray) -> RealArray:
        return move_frames(frame[None], step.reshape(1, *frame.shape))[0]

    def size(self, step: RealArray) -> float:
        return float(np.linalg.norm(step))


class ParameterBlock(Problem):
    """The objective as a function of the parameters, atoms and head held."""

    def __init__(self, objective: Objective, point: Dictionary, memo: Memo) -> None:
        self._objective = objective
        self._head = memo.head
        self._atoms = point.atoms

    def trial(self, parameters: RealArray) -> Trial:
        V = self._objective.encode(self._atoms, parameters)
        return self._objective.hold_head(parameters, V, self._head)

    def gradient(self, trial: Trial) -> RealArray:
        variant = self._objective.variant
        alpha, beta = variant.expand(trial.point)
        _, *slopes = self._objective.pull(trial.memo, self._atoms, alpha, beta, parameters=True)
        return variant.pull(*map(to_host, slopes))

    def move(self, parameters: RealArray, step: RealArray) -> RealArray:
        return np.maximum(parameters + step, 0)

    def size(self, step: RealArray) -> float:
        return float(np.abs(step).max())

    def limits(self, parameters: RealArray) -> RealArray:
        return -parameters


def _replace_columns(block: Block, V: RealArray, columns: slice, *atom: Any) -> RealArray:
    changed = V.copy()
    changed[:, columns] = encode_rows(block, *atom)
    return changed
