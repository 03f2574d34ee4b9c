"""The objective of IDDL: divergences to atoms, features, and a head solved inside."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from divlearn.arrays import RealArray, to_device_of, to_host
from divlearn.engines import Prepared
from divlearn.engines.data import Gradients, Pull
from divlearn.heads.heads import is_rough, objective_of, scores_of, slopes_of, solve_head
from divlearn.heads.losses import Loss
from divlearn.heads.samples import FeatureMap, Head, Samples
from divlearn.iddl.atoms import Dictionary, Variant, are_filters
from divlearn.optim import Trial
from divlearn.sharded.blocks import Block
from divlearn.sharded.shards import Parts, Shards
from divlearn.sharded.targets import Targets

_HEADS_PER_BASIS = 3  # whose components are those of the first


@dataclass(frozen=True, eq=False)
class Settings:
    """Settings of the training of one model."""

    loss: Loss
    penalty: float  # on the squared norm of the head
    tether: float = 0.0  # penalty on the squared distance of the atoms to the initial ones
    solver: str = "joint"
    max_iter: int = 10
    learn_atoms: bool = True
    learn_parameters: bool = True
    seed: int = 0  # of minibatches


@dataclass(frozen=True, eq=False)
class Memo:
    """Intermediate results of a trial, for its gradient."""

    V: Parts  # divergences, (n_matrices, n_atoms * n_pairs), kept with every block
    feature_map: FeatureMap
    head: Head
    pull: Pull | None = None  # computes gradients of the divergences, if the objective is `tracing`


class Objective:
    r"""Minimise the loss of the best head over atoms and divergences.

    Around a dictionary, coordinates are symmetric matrices :math:`S_k` with
    :math:`B_k(S_k) = A_k e^{S_k} A_k^T`, followed by the parameters. After a step
    :math:`A_k \leftarrow A_k e^{S_k / 2}`; in these frames affine-invariant parallel transport
    along the step is the identity.

    `targets` of a block are targets, shape (n_matrices, n_outputs), and weights; all weights sum to
    one. Trials include the tether times the mean squared distance of the atoms to `anchors`.
    """

    def __init__(
        self,
        shards: Shards,
        targets: Parts,
        variant: Variant,
        feature_map: FeatureMap,
        settings: Settings,
        anchors: RealArray | None = None,
    ) -> None:
        self.shards, self.targets = shards, targets
        self.variant, self.feature_map = variant, feature_map
        self.settings, self.loss, self.gamma = settings, settings.loss, settings.penalty
        self.learn_atoms = settings.learn_atoms
        self.learn_parameters = settings.learn_parameters and variant.learned
        self.tether, self.anchors = settings.tether if settings.learn_atoms else 0.0, anchors
        self._anchor_steps: tuple[Dictionary, RealArray] | None = None  # of the last dictionary
        self.eigenproblems = 0  # pairs of a matrix and an atom that were decomposed so far
        self.warm: Head | None = None  # warm start of the next head
        self._solved = 0  # heads so far
        self._components: Any = None  # of the features of an earlier head
        self.tracing = False  # whether trials of one block keep factorisations for the gradient

    def trial(self, point: Dictionary) -> Trial:
        """Compute the objective; NaN if an engine or a head fails, as after too long a step."""
        try:
            return self.evaluate(point)
        except FloatingPointError:
            return Trial(point, np.nan)

    def evaluate(self, point: Dictionary) -> Trial:
        """Compute the objective, or raise if an engine or a head fails."""
        block = self.shards.whole
        if not point.usable(block):
            return Trial(point, np.inf)
        if block is not None and self.tracing:
            trial = self._trace(block, point)
        else:
            trial = self.solve_head(point, self.encode(point.atoms, point.parameters))
        if not self.tether:
            return trial
        steps = self._steps_to_anchors(point)
        penalty = self.tether * float((steps**2).sum()) / len(steps)
        return replace(trial, value=trial.value + penalty)

    def _trace(self, block: Block, point: Dictionary) -> Trial:
        """Compute the objective, and keep the function that continues to its gradient."""
        self.eigenproblems += len(block) * len(point.atoms)
        alpha, beta = self.variant.expand(point.parameters)
        values, pull = trace_rows(block, point.atoms, alpha, beta)
        trial = self.solve_head(point, [values.reshape(len(block), -1)])
        return replace(trial, memo=replace(trial.memo, pull=pull))

    def _steps_to_anchors(self, point: Dictionary) -> RealArray:
        """Return the steps from atoms to their anchors, in the frames of the atoms."""
        if self._anchor_steps is None or self._anchor_steps[0] is not point:
            assert self.anchors is not None
            self._anchor_steps = point, point.steps_to(self.anchors)
        return self._anchor_steps[1]

    def encode(self, atoms: RealArray, parameters: RealArray) -> Parts:
        self.eigenproblems += self.shards.n_matrices * len(atoms)
        return self.shards.hold(encode_rows, atoms, *self.variant.expand(parameters))

    def solve_head(self, point: Dictionary, V: Parts) -> Trial:
        """Compute the objective from divergences."""
        feature_map = self.feature_map.standardize(self.shards, self.targets, V)
        samples = self.samples(V, feature_map)
        if is_rough(self.loss) and not self.loss.quadratic:
            self._share_components(samples)
        self.warm, value = solve_head(self.loss, samples, self.gamma, self.warm)
        return Trial(point, value, Memo(V, feature_map, self.warm))

    def _share_components(self, samples: Samples) -> None:
        """Take components of an earlier head: they change little, and serve a rough head."""
        if self._solved % _HEADS_PER_BASIS:
            samples.components = self._components
        self._components = samples.components
        self._solved += 1

    def hold_head(self, point: Any, V: Parts, head: Head) -> Trial:
        """Compute the objective with a fixed head, from divergences."""
        feature_map = self.feature_map.standardize(self.shards, self.targets, V)
        value = objective_of(self.loss, self.samples(V, feature_map), head, self.gamma)
        return Trial(point, value, Memo(V, feature_map, head))

    def samples(self, V: Parts, feature_map: FeatureMap) -> Samples:
        features = self.shards.hold(lambda _, V: feature_map.compute(V), parts=[V])
        return Samples(self.shards, self.targets, features, self.loss.bias)

    def gradient(self, trial: Trial) -> RealArray:
        point, memo = trial.point, trial.memo
        alpha, beta = self.variant.expand(point.parameters)
        whitened, *in_pairs = self.pull(
            memo, point.atoms, alpha, beta, parameters=self.learn_parameters, traced=memo.pull
        )
        size, frames = point.frames.size, point.frames
        gradient = np.zeros(size + len(point.parameters), like=frames)
        if self.learn_atoms:
            gradient[:size] = point.gradient(whitened).ravel()
        if self.tether:
            steps = self._steps_to_anchors(point)
            gradient[:size] -= (2 * self.tether / len(steps) * steps).ravel()
        if self.learn_parameters:
            gradient[size:] = to_device_of(self.variant.pull(*map(to_host, in_pairs)), frames)
        return gradient

    def pull(
        self,
        memo: Memo,
        atoms: RealArray,
        alpha: RealArray,
        beta: RealArray,
        *,
        parameters: bool,
        columns: slice = slice(None),
        traced: Pull | None = None,
    ) -> Any:
        """Compute gradients in some atoms (whitened), alpha and beta; `columns` are the atoms'."""
        self.eigenproblems += self.shards.n_matrices * len(atoms)
        feature_map, loss, head = memo.feature_map, self.loss, memo.head
        parts = [self.targets, memo.V]
        sums: tuple[RealArray, RealArray] | None = None
        if len(self.shards) > 1:  # `FeatureMap.pull` needs sums over all blocks
            in_weights, in_bias, _ = self.shards.reduce(
                head_slopes, feature_map, loss, head, parts=parts
            )
            sums = in_bias @ head[0], (head[0] * in_weights).sum(axis=0)

        def pull(block: Block, targets: Targets, V: RealArray) -> Gradients:
            features = feature_map.compute(V)
            slopes = slopes_of(targets, features, loss, head)
            cotangent = slopes @ to_device_of(head[0], slopes)
            in_V = feature_map.pull(V, features, targets[1], cotangent, sums)
            in_V = in_V[:, columns].reshape(len(in_V), len(atoms), -1)
            if traced is not None:
                return traced(in_V, parameters)
            at = alpha, beta, in_V
            if are_filters(atoms):
                return block.engine.pull_filters(block.data, atoms, *at, parameters=parameters)
            checked = Prepared.checked(atoms)
            back = block.engine.pullback(block.data, checked, *at, parameters=parameters)
            return back.whitened, back.alpha, back.beta

        return self.shards.reduce(pull, parts=parts)

    def reside(self, point: Dictionary) -> Dictionary:
        """Move atoms to the device of the data, for solvers that work there."""
        return replace(point, frames=self.shards.place(point.frames))

    def move(self, point: Dictionary, step: RealArray) -> Dictionary:
        size = point.frames.size
        frames, parameters = point.frames, point.parameters
        if self.learn_atoms:
            frames = point.moved(step[:size])
        if self.learn_parameters:
            parameters = np.maximum(parameters + to_host(step[size:]), 0)
        return replace(point, frames=frames, parameters=parameters)

    def size(self, step: RealArray) -> float:
        squares, n_atoms = step**2, len(self.variant.alpha_index)
        atoms = squares[: len(step) - len(self.variant.start)].reshape(n_atoms, -1)
        longest = atoms.sum(axis=1).max()
        if atoms.size < len(step):
            longest = np.maximum(longest, squares[atoms.size :].max())
        return float(longest) ** 0.5

    def limits(self, point: Dictionary) -> RealArray:
        size = point.frames.size
        limits = np.full_like(point.frames, -np.inf, shape=size + len(point.parameters))
        limits[size:] = to_device_of(-point.parameters, limits)
        return limits


def encode_rows(block: Block, atoms: RealArray, alpha: RealArray, beta: RealArray) -> RealArray:
    """Divergences of a block to usable atoms or filters, shape (n_matrices, n_atoms * n_pairs)."""
    if are_filters(atoms):
        V = block.engine.encode_filters(block.data, atoms, alpha, beta)
    else:
        V = block.engine.encode(block.data, Prepared.checked(atoms), alpha, beta)
    return V.reshape(len(V), -1)


def trace_rows(
    block: Block, atoms: RealArray, alpha: RealArray, beta: RealArray
) -> tuple[RealArray, Pull]:
    """Compute divergences of a block, and a function from cotangents to gradients."""
    if not are_filters(atoms):
        return block.engine.trace(block.data, Prepared.checked(atoms), alpha, beta)
    args = block.data, atoms, alpha, beta

    def pull(cotangent: RealArray, parameters: bool) -> Gradients:
        return block.engine.pull_filters(*args, cotangent, parameters=parameters)

    return block.engine.encode_filters(*args), pull


def head_slopes(
    _: Block,
    targets: Targets,
    V: RealArray,
    feature_map: FeatureMap,
    loss: Loss,
    head: Head,
    mean: RealArray | None = None,
) -> tuple[RealArray, RealArray, float]:
    """Gradients in weights, of features centred by `mean`, and bias; typical second derivative."""
    Y, weights = targets
    features = feature_map.compute(V)
    expansion = loss.expand(scores_of(head, features), Y)
    slopes = weights[:, None] * expansion.slopes
    centred = features if mean is None else features - to_device_of(mean, features)
    in_weights, in_bias = to_host(slopes.T @ centred), to_host(slopes.sum(axis=0))
    return in_weights, in_bias, float(weights @ expansion.sizes)
