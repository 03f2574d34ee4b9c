"""Minibatches of shards: a learner goes from block to block."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from divlearn.iddl.features import FeatureMap
from divlearn.iddl.losses import Loss
from divlearn.iddl.objective import Objective
from divlearn.iddl.stochastic import Learner, take_rows
from divlearn.iddl.variants import Variant
from divlearn.sharded.blocks import Block
from divlearn.sharded.heads import Targets
from divlearn.sharded.objective import ShardedObjective
from divlearn.threads import limit_blas

__all__ = ["ShardedBatches"]


@dataclass(frozen=True, eq=False)
class _Lesson:
    """What a minibatch is learned with, beside its matrices."""

    variant: Variant
    feature_map: FeatureMap
    loss: Loss
    gamma: float
    learn_atoms: bool
    learn_parameters: bool
    batch_size: int
    step_size: float


class ShardedBatches:
    """Minibatches within the blocks, blocks and matrices in an order drawn anew for every epoch.

    The learner is what travels. With one block the minibatches are those of data in memory.
    """

    def __init__(
        self, objective: ShardedObjective, batch_size: int, random: np.random.RandomState
    ) -> None:
        self._objective = objective
        self._batch_size = batch_size
        self.random = random

    def run(self, learner: Learner, step_size: float) -> Learner | None:
        """Learn from all data once; None where the steps were too long."""
        objective = self._objective
        order = self.random.permutation(len(objective.shards)).tolist()
        lesson = _Lesson(
            objective.variant, objective.feature_map, objective.loss, objective.gamma,
            objective.learn_atoms, objective.learn_parameters, self._batch_size, step_size,
        )  # fmt: skip
        ended, self.random, eigenproblems = objective.shards.fold(
            _learn_block, (learner, self.random, 0), order, lesson, beside=[objective.targets]
        )
        objective.eigenproblems += eigenproblems
        following: Learner | None = ended
        return following


_State = tuple[Learner | None, np.random.RandomState, int]


def _learn_block(block: Block, targets: Targets, state: _State, lesson: _Lesson) -> _State:
    learner, random, eigenproblems = state
    wanted, weights = targets
    rows = np.flatnonzero(weights)
    if learner is None or not len(rows):
        return state
    random = deepcopy(random)  # the state that came is left as it is
    whole = Objective(
        block.engine, block.data, wanted, weights, lesson.variant, lesson.feature_map, lesson.loss,
        lesson.gamma, learn_atoms=lesson.learn_atoms, learn_parameters=lesson.learn_parameters,
    )  # fmt: skip
    count = max(1, len(rows) // lesson.batch_size)
    for chosen in np.array_split(random.permutation(rows), count):
        batch = take_rows(whole, chosen)
        with limit_blas(1):
            learner = learner.step(batch, lesson.step_size)
        eigenproblems += batch.eigenproblems
        if learner is None:
            break
    return learner, random, eigenproblems
