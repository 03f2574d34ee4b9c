"""Solvers: joint optimisation by L-BFGS, and the paper's block-coordinate descent."""

import time
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray, to_host
from divlearn.checks import check_finite
from divlearn.fitting.progress import is_interrupted, notify, stoppable
from divlearn.geometry import in_frames, move_frames
from divlearn.iddl.atoms import Dictionary
from divlearn.iddl.objective import Memo, Objective, encode_rows
from divlearn.optim import (
    Problem,
    Progress,
    Trial,
    minimize_conjugate_gradient,
    minimize_lbfgs,
    minimize_projected_gradient,
)
from divlearn.sharded.blocks import Block
from divlearn.spd import usable

_INNER_BLOCKS = ("atoms", "parameters")  # blocks that do not end an iteration


class Run:
    """The state of a solver, and its result, also if the user interrupts it."""

    message: str  # why the solver stopped
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
        if block not in _INNER_BLOCKS:
            notify("iterations", iteration, self._max_iter, f"objective {trial.value:.6g}")

    def _add(self, gradient_norm: float, block: str) -> None:
        trial, eigenproblems = self.trial, self._objective.eigenproblems
        pairs = np.stack(self._objective.variant.expand(trial.point.parameters))
        seconds = time.perf_counter() - self._started
        self._rows.append((trial.value, gradient_norm, block, pairs, seconds, eigenproblems))

    def converged(self, previous: float, tol: float, unit: str) -> str | None:
        """Return a message if an iteration lowered the objective by at most `tol` of it."""
        gain = previous - self.trial.value
        relative = gain / abs(previous) if previous else 0.0
        message = f"{unit} lowered the objective by a relative {relative:.2g} <= tol={tol:g}"
        return message if gain <= tol * abs(previous) else None

    def interrupted(self) -> Self:
        """End at the current point, or at the initial one."""
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
    """Compute the initial objective; raise if it is not finite."""
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
    """Optimise all by L-BFGS, until the gradient norm is at most `tol` of the initial one."""
    objective.tracing = True  # nearly every trial is followed by its gradient
    initial = first_trial(objective, objective.reside(start))
    run, initial_norm = Run(objective, initial, max_iter), 0.0

    def callback(progress: Progress) -> str | None:
        nonlocal initial_norm
        if is_interrupted() and progress.n_iter < max_iter:  # in another model's thread
            raise KeyboardInterrupt
        norm = progress.gradient_norm
        initial_norm = norm if progress.n_iter == 0 else initial_norm
        run.note(progress.n_iter, progress.trial, norm, "joint")
        if not norm <= tol * initial_norm:
            return None
        relative = norm / initial_norm if initial_norm else 0.0
        return f"the gradient fell to {relative:.2g} of its start, <= tol={tol:g}"

    with stoppable():
        result = minimize_lbfgs(
            objective, initial, max_iter=max_iter, tol=0.0, first_step=0.2, callback=callback
        )
        return run.end(result.message)
    return run.interrupted()


_INNER_STEPS = 8  # of conjugate gradients per atom, and of spectral projected gradients


def solve_bcd(
    objective: Objective, start: Dictionary, *, max_iter: int, tol: float, seed: int = 0
) -> Run:
    """Alternate between blocks, until an iteration lowers the objective by at most `tol` of it."""
    trial, iteration = first_trial(objective, start), 0
    run = Run(objective, trial, max_iter)
    with stoppable():
        run.note(0, trial, np.nan, "start")
        while iteration < max_iter:
            previous = trial.value
            iteration += 1
            norm = 0.0
            if objective.learn_atoms:
                for atom in range(len(trial.point.frames)):
                    trial, block_norm = _update_atom(objective, trial, atom)
                    norm = max(norm, block_norm)
                run.note(iteration, trial, norm, "atoms")
            if objective.learn_parameters:
                trial, block_norm = _update_parameters(objective, trial)
                norm = max(norm, block_norm)
                run.note(iteration, trial, block_norm, "parameters")
            trial = objective.solve_head(trial.point, trial.memo.V)
            run.note(iteration, trial, norm, "head")
            if message := run.converged(previous, tol, "an iteration"):
                return run.end(message)
        return run.end(f"max_iter={max_iter} reached")
    return run.interrupted()


def _update_atom(objective: Objective, trial: Trial, atom: int) -> tuple[Trial, float]:
    block = AtomBlock(objective, trial.point, trial.memo, atom)
    frames = trial.point.frames
    start = replace(trial, point=frames[atom])
    result = minimize_conjugate_gradient(block, start, max_iter=_INNER_STEPS, tol=0.0)
    frames = frames.copy()
    frames[atom] = result.trial.point
    point = Dictionary(frames, trial.point.parameters)
    return replace(result.trial, point=point), result.gradient_norm


def _update_parameters(objective: Objective, trial: Trial) -> tuple[Trial, float]:
    block = ParameterBlock(objective, trial.point, trial.memo)
    start = replace(trial, point=trial.point.parameters)
    result = minimize_projected_gradient(block, start, max_iter=_INNER_STEPS, tol=0.0)
    point = Dictionary(trial.point.frames, result.trial.point)
    return replace(result.trial, point=point), result.gradient_norm


class AtomBlock(Problem):
    """The objective as a function of one atom, with all else and the head fixed."""

    def __init__(self, objective: Objective, point: Dictionary, memo: Memo, atom: int) -> None:
        self._objective, self._memo = objective, memo
        alpha, beta = objective.variant.expand(point.parameters)
        self._alpha, self._beta = alpha[atom : atom + 1], beta[atom : atom + 1]
        n_pairs = alpha.shape[1]
        self._columns = slice(atom * n_pairs, (atom + 1) * n_pairs)

    def trial(self, frame: RealArray) -> Trial:
        objective, shards = self._objective, self._objective.shards
        atom = (frame @ frame.T)[None]
        if not usable(atom):
            return Trial(frame, np.inf)
        objective.eigenproblems += shards.n_matrices
        args = self._columns, atom, self._alpha, self._beta
        V = shards.hold(_replace_columns, *args, parts=[self._memo.V])
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
    """The objective as a function of the parameters, with atoms and head fixed."""

    def __init__(self, objective: Objective, point: Dictionary, memo: Memo) -> None:
        self._objective, self._head, self._atoms = objective, memo.head, point.atoms

    def trial(self, parameters: RealArray) -> Trial:
        V = self._objective.encode(self._atoms, parameters)
        return self._objective.hold_head(parameters, V, self._head)

    def gradient(self, trial: Trial) -> RealArray:
        variant = self._objective.variant
        alpha, beta = variant.expand(trial.point)
        _, *in_pairs = self._objective.pull(trial.memo, self._atoms, alpha, beta, parameters=True)
        return variant.pull(*map(to_host, in_pairs))

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
