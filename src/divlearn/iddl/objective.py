"""The objective of IDDL: divergences to atoms, features, and a head solved inside."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from divlearn.arrays import RealArray, beside, to_host
from divlearn.engines import Engine, Prepared, Pullback
from divlearn.iddl.features import FeatureMap, Features
from divlearn.iddl.losses import Head, Loss, Solved
from divlearn.iddl.spread import Spread
from divlearn.iddl.variants import Variant
from divlearn.optim.frames import in_frames, move_frames, usable
from divlearn.optim.problem import Trial
from divlearn.threads import limit_blas

__all__ = ["Coordinates", "Dictionary", "Memo", "Objective"]


@dataclass(frozen=True, eq=False)
class Dictionary:
    """Atoms :math:`B_k = A_k A_k^T` and their parameters.

    Attributes
    ----------
    frames : ndarray, shape (n_atoms, d, d), the A_k; on a device where the atoms are moved there.
    parameters : ndarray, shape (n_parameters,), always on the host.
    """

    frames: RealArray
    parameters: RealArray

    @cached_property
    def atoms(self) -> RealArray:
        """The B_k, shape (n_atoms, d, d), exactly symmetric."""
        products = self.frames @ self.frames.mT
        atoms: RealArray = 0.5 * products + 0.5 * products.mT
        return atoms


@dataclass(frozen=True, eq=False)
class Memo:
    """What the objective computed at a dictionary."""

    V: RealArray  # (N, n_atoms * n_pairs)
    features: Features
    solved: Solved

    @property
    def head(self) -> Head:
        """The best head."""
        return self.solved.head

    def without_rows(self) -> Memo:
        """Keep what prediction needs; copies, for a view would hold the whole."""
        return Memo(
            self.V[:0].copy(),
            self.features.without_rows(),
            replace(self.solved, cotangent=self.solved.cotangent[:0].copy()),
        )


class Coordinates:
    """Atoms and parameters as an optimiser sees them, wherever the data is; see `Objective`.

    Parameters
    ----------
    d : int, size of the matrices.
    variant : Variant
    learn_atoms, learn_parameters : bool
    """

    def __init__(self, d: int, variant: Variant, learn_atoms: bool, learn_parameters: bool) -> None:
        self.d = d
        self.variant = variant
        self.learn_atoms = learn_atoms
        self.learn_parameters = learn_parameters and variant.learned
        self.eigenproblems = 0
        self._warm: Head | None = None  # where the next head starts from

    @property
    def effort(self) -> tuple[Head | None, int]:
        """What later trials depend on beside their points: the last head, and a count."""
        return self._warm, self.eigenproblems

    @effort.setter
    def effort(self, effort: tuple[Head | None, int]) -> None:
        self._warm, self.eigenproblems = effort

    def reside(self, point: Dictionary) -> Dictionary:
        """Move atoms to where the data is, for a solver that does little else with them."""
        return point

    def collect(self, point: Dictionary, atoms: RealArray, back: Pullback) -> RealArray:
        """Put a gradient together."""
        size, frames = point.frames.size, point.frames
        parts = np.zeros(size + len(point.parameters), like=frames)
        if self.learn_atoms:
            parts[:size] = in_frames(beside(back.whitened, frames), atoms, frames).ravel()
        if self.learn_parameters:
            slopes = self.variant.pull(to_host(back.alpha), to_host(back.beta))
            parts[size:] = beside(slopes, frames)
        return parts

    def move(self, point: Dictionary, step: RealArray) -> Dictionary:
        """Take a step. See `Problem.move`."""
        size = point.frames.size
        frames, parameters = point.frames, point.parameters
        if self.learn_atoms:
            frames = move_frames(frames, step[:size].reshape(frames.shape))
        if self.learn_parameters:
            parameters = np.maximum(parameters + to_host(step[size:]), 0)
        return Dictionary(frames, parameters)

    def size(self, step: RealArray) -> float:
        """Longest way an atom or a parameter goes. See `Problem.size`."""
        atoms = step[: len(step) - len(self.variant.start)].reshape(-1, self.d**2)
        ways = [np.linalg.norm(atoms, axis=1), np.abs(step[atoms.size :])]
        return float(max(way.max() for way in ways if way.size))

    def limits(self, point: Dictionary) -> RealArray:
        """Parameters stay non-negative. See `Problem.limits`."""
        free = np.full_like(point.frames.ravel(), -np.inf)
        return np.concatenate([free, beside(-point.parameters, free)])


class Objective(Coordinates):
    r"""Minimise the loss of the best head over atoms and divergences.

    Around a dictionary, coordinates are symmetric matrices :math:`S_k` with
    :math:`B_k(S_k) = A_k e^{S_k} A_k^T`, followed by the parameters. After a step
    :math:`A_k \leftarrow A_k e^{S_k / 2}`; in these frames affine-invariant parallel transport
    along the step is the identity.

    Parameters
    ----------
    engine : Engine
    data : Prepared
    targets : ndarray, shape (n_matrices, n_outputs)
    weights : ndarray, shape (n_matrices,), with sum one.
    variant : Variant
    feature_map : FeatureMap
    loss : Loss
    gamma : float
    learn_atoms, learn_parameters : bool, default=True
    extra : ndarray, shape (n_matrices, n_extra), optional
        Features beside the divergences, which nothing changes.

    Attributes
    ----------
    eigenproblems : int
        Pairs of a matrix and an atom that were decomposed so far.
    """

    def __init__(
        self, engine: Engine, data: Prepared, targets: RealArray, weights: RealArray,
        variant: Variant, feature_map: FeatureMap, loss: Loss, gamma: float, *,
        learn_atoms: bool = True, learn_parameters: bool = True, extra: RealArray | None = None,
    ) -> None:  # fmt: skip
        super().__init__(data.d, variant, learn_atoms, learn_parameters)
        self.engine = engine
        self.data = data
        self.targets = engine.place(targets, data)
        self.weights = engine.place(weights, data)
        self.feature_map = feature_map
        self.loss = loss
        self.gamma = gamma
        self.extra = None if extra is None else engine.place(extra, data)

    @property
    def n_matrices(self) -> int:
        """Matrices of the data."""
        return self.data.n_matrices

    def trial(self, point: Dictionary) -> Trial:
        """Compute the objective. See `Problem.trial`."""
        atoms = point.atoms
        if not usable(atoms):
            return Trial(point, np.inf)
        return self.solve_head(point, self.encode(atoms, point.parameters))

    def reside(self, point: Dictionary) -> Dictionary:
        """Move atoms to where the data is. See `Coordinates.reside`."""
        return replace(point, frames=self.engine.place(point.frames, self.data))

    def encode(self, atoms: RealArray, parameters: RealArray) -> RealArray:
        """Divergences of the data to atoms, shape (n_matrices, n_atoms * n_pairs)."""
        checked = Prepared.checked(atoms)  # those of a dictionary that is usable
        V = self.engine.encode(self.data, checked, *self.variant.expand(parameters))
        self.eigenproblems += V.shape[0] * V.shape[1]
        return V.reshape(len(V), -1)

    def solve_head(self, point: Dictionary, V: RealArray) -> Trial:
        """Compute the objective from divergences that are known."""
        features = self.feature_map.compute(V, self.weights)
        with limit_blas(1):
            solved = self.loss.solve(
                self.design(features), self.targets, self.weights, self.gamma, self._warm
            )
        self._warm = solved.head
        return Trial(point, solved.value, Memo(V, features, solved))

    def hold_head(self, point: Any, V: RealArray, head: Head) -> Trial:
        """Compute the objective from divergences that are known, with a head that is given.

        The gradient of the trial is that with the head held; where the head is the best one, that
        of the objective.
        """
        features = self.feature_map.compute(V, self.weights)
        scores = head.scores(self.design(features))
        losses = self.loss.losses(scores, self.targets)
        slopes = self.weights[:, None] * self.loss.slopes(scores, self.targets)
        value = float(self.weights @ losses) + self.gamma * float((head.weights**2).sum())
        cotangent = slopes @ beside(head.weights, slopes)
        return Trial(point, value, Memo(V, features, Solved(head, value, cotangent)))

    def pull(self, memo: Memo) -> RealArray:
        """Gradient in the divergences, shape (n_matrices, n_atoms * n_pairs)."""
        slopes = memo.solved.cotangent[:, : memo.V.shape[1]]
        return self.feature_map.pull(memo.V, memo.features, self.weights, slopes)

    def gradient(self, trial: Trial) -> RealArray:
        """Compute the gradient. See `Problem.gradient`."""
        point, memo = trial.point, trial.memo
        alpha, beta = self.variant.expand(point.parameters)
        atoms = point.atoms
        cotangent = self.pull(memo).reshape(-1, *alpha.shape)
        back = self.engine.pullback(
            self.data, Prepared.checked(atoms), alpha, beta, cotangent,
            parameters=self.learn_parameters,
        )  # fmt: skip
        self.eigenproblems += len(memo.V) * len(atoms)
        return self.collect(point, atoms, back)

    def design(self, features: Features) -> RealArray:
        """Put together what the head sees."""
        if self.extra is None:
            return features.values
        return np.concatenate([features.values, self.extra], axis=1)

    def spread(self, memo: Memo) -> Spread:
        """Spread of what the head sees."""
        return Spread.of(self.design(memo.features), self.weights, centre=self.loss.bias)
