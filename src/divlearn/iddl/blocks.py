"""The blocks of the paper's descent: one atom, or all parameters, with everything else held."""

from __future__ import annotations

import numpy as np

from divlearn.arrays import RealArray, to_host
from divlearn.iddl.objective import Dictionary, Memo, Objective
from divlearn.optim.frames import in_frames, move_frames, usable
from divlearn.optim.problem import Trial

__all__ = ["AtomBlock", "ParameterBlock"]


class AtomBlock:
    """The objective as a function of one atom, with the head and all else held.

    Parameters
    ----------
    objective : Objective
    point : Dictionary
    memo : Memo
        Of the objective at `point`.
    atom : int
    """

    def __init__(self, objective: Objective, point: Dictionary, memo: Memo, atom: int) -> None:
        self._objective = objective
        self._memo = memo
        alpha, beta = objective.variant.expand(point.parameters)
        self._alpha, self._beta = alpha[atom : atom + 1], beta[atom : atom + 1]
        pairs = alpha.shape[1]
        self._columns = slice(atom * pairs, (atom + 1) * pairs)

    def trial(self, frame: RealArray) -> Trial:
        """Compute the objective. See `Problem.trial`."""
        objective = self._objective
        atom = (frame @ frame.T)[None]
        if not usable(atom):
            return Trial(frame, np.inf)
        V = self._memo.V.copy()
        encoded = objective.engine.encode(objective.data, atom, self._alpha, self._beta)
        V[:, self._columns] = encoded.reshape(len(V), -1)
        objective.eigenproblems += len(V)
        return objective.hold_head(frame, V, self._memo.head)

    def gradient(self, trial: Trial) -> RealArray:
        """Compute the gradient. See `Problem.gradient`."""
        objective, frame = self._objective, trial.point
        cotangent = objective.pull(trial.memo)[:, self._columns]
        atom = (frame @ frame.T)[None]
        back = objective.engine.pullback(
            objective.data, atom, self._alpha, self._beta,
            cotangent.reshape(-1, *self._alpha.shape), parameters=False,
        )  # fmt: skip
        objective.eigenproblems += len(cotangent)
        gradient: RealArray = in_frames(to_host(back.whitened), atom, frame[None])[0].ravel()
        return gradient

    def move(self, frame: RealArray, step: RealArray) -> RealArray:
        """Take a step. See `Problem.move`."""
        moved: RealArray = move_frames(frame[None], step.reshape(1, *frame.shape))[0]
        return moved

    def size(self, step: RealArray) -> float:
        """How far the atom goes. See `Problem.size`."""
        return float(np.linalg.norm(step))

    def limits(self, frame: RealArray) -> float:
        """Nothing is limited. See `Problem.limits`."""
        return -np.inf


class ParameterBlock:
    """The objective as a function of the parameters, with atoms and head held.

    Parameters
    ----------
    objective : Objective
    point : Dictionary
    memo : Memo
        Of the objective at `point`.
    """

    def __init__(self, objective: Objective, point: Dictionary, memo: Memo) -> None:
        self._objective = objective
        self._head = memo.head
        self._atoms = point.atoms

    def trial(self, parameters: RealArray) -> Trial:
        """Compute the objective. See `Problem.trial`."""
        V = self._objective.encode(self._atoms, parameters)
        return self._objective.hold_head(parameters, V, self._head)

    def gradient(self, trial: Trial) -> RealArray:
        """Compute the gradient. See `Problem.gradient`."""
        objective = self._objective
        alpha, beta = objective.variant.expand(trial.point)
        cotangent = objective.pull(trial.memo).reshape(-1, *alpha.shape)
        back = objective.engine.pullback(objective.data, self._atoms, alpha, beta, cotangent)
        objective.eigenproblems += len(cotangent) * len(alpha)
        return objective.variant.pull(to_host(back.alpha), to_host(back.beta))

    def move(self, parameters: RealArray, step: RealArray) -> RealArray:
        """Take a step. See `Problem.move`."""
        return np.maximum(parameters + step, 0)

    def size(self, step: RealArray) -> float:
        """How far a parameter goes, at most. See `Problem.size`."""
        return float(np.abs(step).max())

    def limits(self, parameters: RealArray) -> RealArray:
        """Parameters stay non-negative. See `Problem.limits`."""
        return -parameters
