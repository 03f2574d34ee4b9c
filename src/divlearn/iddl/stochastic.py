"""Learning from minibatches: Riemannian Adam in moving frames, with a head that follows."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np

from divlearn.arrays import Indices, IntArray, RealArray, to_host
from divlearn.checks import check_finite
from divlearn.fitting.interrupts import stoppable
from divlearn.heads.samples import Head
from divlearn.iddl.atoms import Dictionary
from divlearn.iddl.objective import Objective, head_slopes
from divlearn.iddl.solvers import Run, first_trial
from divlearn.optim.problem import Trial, projected
from divlearn.sharded.blocks import Block
from divlearn.sharded.shards import MemoryShards, Parts, Shards
from divlearn.sharded.targets import Targets
from divlearn.spd import usable
from divlearn.threads import limit_blas

_FIRST_STEP = 0.1  # way of an atom in a minibatch, in units of the metric
_SHORTEST_STEP = 1e-4  # below, an epoch that fails is the last
_HEAD_RATE = 0.2  # of a Newton step: about five minibatches make up the mind of the head
_LEAST_CURVATURE = 0.1  # few samples of a minibatch lie in the corner of a hinge, or none
_BATCH = 64  # matrices per minibatch, at least; fewer matrices are one
_MOST_BATCHES = 20_000  # of an epoch: after that many steps it is time to look at the objective
_ROOM = 1e208  # factor of gradients that must not overflow: their squares are summed up
_DECAY = 0.9  # of both moments: with one decay for both no step is longer than it says
_FLAT = 1e-8  # of the largest second moment's root: groups below have no gradient but rounding

Spread = tuple[RealArray, RealArray, RealArray]  # mean of features, eigenvalues and -vectors


@dataclass(frozen=True, eq=False)
class Moments:
    """Running moments of noisy gradients, and the direction Adam takes from them.

    The second moment is one number for each factor of a product of manifolds (Becigneul and Ganea,
    2019): rotating its frame changes nothing. No factor of a direction is longer than one.
    """

    groups: IntArray  # of every coordinate, from 0
    first: RealArray  # (n_coordinates,)
    second: RealArray  # (n_groups,)
    count: int = 0  # of gradients seen

    @classmethod
    def start(cls, groups: IntArray) -> Self:
        return cls(groups, np.zeros(len(groups)), np.zeros(int(groups.max()) + 1))

    def learn(self, gradient: RealArray) -> Self:
        squares = np.bincount(self.groups, weights=gradient**2, minlength=len(self.second))
        first = _DECAY * self.first + (1 - _DECAY) * gradient
        second = _DECAY * self.second + (1 - _DECAY) * squares
        return type(self)(self.groups, first, second, self.count + 1)

    @property
    def mean(self) -> RealArray:
        """Running mean of the gradients; needs one."""
        return self.first / (1 - _DECAY**self.count)

    def direction(self) -> RealArray:
        """Where to go, in units of the step size; needs a gradient."""
        root = np.sqrt(self.second / (1 - _DECAY**self.count))
        divisor = np.where(root > _FLAT * root.max(), root, np.inf)
        return -self.mean / divisor[self.groups]


@dataclass(frozen=True, eq=False)
class Learner:
    r"""A dictionary and a head that learn from one minibatch at a time.

    Atoms and parameters take a step of Adam, :math:`A_k \leftarrow A_k e^{\eta P_k / 2}`, with one
    second moment per atom and one per parameter: congruence and rotations of the frames change
    nothing. The head is not solved for, which on a minibatch would fit its noise, but takes a
    fifth of a Newton step,

    .. math:: W \leftarrow W - \tfrac15 \, G_W \, (c \Sigma + 2 \gamma I)^{-1}

    with :math:`G_W` its gradient on the minibatch, :math:`\Sigma` the covariance of the features
    when all data was last seen, and c the mean curvature of the loss on the minibatch (one for
    ridge: then this is recursive least squares with forgetting). Features are standardised by the
    minibatch.

    Learners do not change: a step gives a new one, and the old one undoes it.
    """

    point: Dictionary
    head: Head
    spread: Spread
    moments: Moments

    @classmethod
    def start(cls, objective: Objective, trial: Trial) -> Self:
        """Start where the objective was computed on data that determines a head."""
        point = trial.point
        n_atoms, d = point.frames.shape[:2]
        each = n_atoms + np.arange(len(point.parameters))
        groups = np.concatenate([np.repeat(np.arange(n_atoms), d * d), each])
        return cls(point, trial.memo.head, _spread(objective, trial), Moments.start(groups))

    def settle(self, objective: Objective, trial: Trial) -> Self:
        """Continue from where the head was solved for on all data; the moments stay."""
        spread = _spread(objective, trial)
        return replace(self, point=trial.point, head=trial.memo.head, spread=spread)

    def step(self, batch: Objective, step_size: float) -> Self:
        """Learn from a minibatch; raise where earlier steps were too long to compute with."""
        if not usable(self.point.atoms):
            raise FloatingPointError("atoms are too close to singular; steps were too long")
        V, where = batch.encode(self.point.atoms, self.point.parameters), "on a minibatch"
        check_finite(batch.shards.reduce(_largest, parts=[V], merge=max), "a divergence", where)
        trial = batch.hold_head(self.point, V, self.head)
        check_finite(trial.value, "the objective", where)
        gradient = batch.gradient(trial)
        check_finite(_ROOM * float(np.abs(gradient).max()), "the gradient", where)
        moments = self.moments.learn(gradient)
        point = batch.move(self.point, step_size * moments.direction())
        return replace(self, point=point, head=self._follow(batch, trial), moments=moments)

    def _follow(self, batch: Objective, trial: Trial) -> Head:
        """Take part of a Newton step of the head."""
        head, (middle, squares, vectors) = self.head, self.spread
        in_weights, in_bias, size = batch.shards.reduce(
            head_slopes,
            trial.memo.feature_map,
            batch.loss,
            head,
            middle,
            parts=[batch.targets, trial.memo.V],
        )
        # Twice, for the typical size of a Hessian is about half of its norm.
        curvature = 1.0 if batch.loss.quadratic else max(2 * size, _LEAST_CURVATURE)
        gradient = in_weights + 2 * batch.gamma * head[0]
        scale = curvature * squares + 2 * batch.gamma
        inverse = np.where(scale > 0, 1 / np.where(scale > 0, scale, 1), 0)
        step = _HEAD_RATE * (gradient @ vectors * inverse) @ vectors.T
        bias = head[1]
        if batch.loss.bias:
            bias = bias + step @ middle - _HEAD_RATE * in_bias / curvature
        return head[0] - step, bias


def solve_stochastic(
    objective: Objective, start: Dictionary, *, max_iter: int, tol: float, seed: int = 0
) -> Run:
    """Move atoms and parameters by Riemannian Adam on minibatches, for many matrices.

    An iteration is an epoch, see `Learner`, after which the head is solved for on all data. An
    epoch that raises the objective is undone, and the steps are halved. Stop where an epoch lowers
    it by at most `tol` of it. No more than one encoding of all data is held at any time.
    """
    trial = first_trial(objective, start)
    learner, trial = Learner.start(objective, trial), _on_host(trial)
    run, random = Run(objective, trial, max_iter), np.random.RandomState(seed)
    iteration, step_size = 0, _FIRST_STEP
    with stoppable():
        run.note(0, trial, np.nan, "start")
        while iteration < max_iter:
            before = trial.value
            iteration += 1
            ended, random = _pass_over(objective, learner, step_size, random)
            following = objective.trial(ended.point) if ended else None
            lower, reached = False, following.value if following else np.inf
            if ended and following and reached <= before:
                lower = True
                learner = ended.settle(objective, following)
                trial = _on_host(following)
            else:
                step_size /= 2
            del following  # the next encoding needs its room
            run.note(iteration, trial, _norm(objective, ended), "stochastic")
            if lower and (message := run.say_if_flat(before, tol, "an epoch")):
                return run.end(message)
            if step_size < _SHORTEST_STEP:
                where = f"after an epoch of steps of size {2 * step_size:.2g}"
                check_finite(reached, "the objective", where, or_infinite=True)
                message = f"no epoch lowers the objective, with steps down to {2 * step_size:.2g}"
                return run.end(message)
        return run.end(f"max_iter={max_iter} reached")
    return run.interrupted()


def _on_host(trial: Trial) -> Trial:
    """Keep what prediction needs of a trial; encodings of all data need room."""
    point = replace(trial.point, frames=to_host(trial.point.frames))
    feature_map = trial.memo.feature_map.on_host()
    memo = replace(trial.memo, V=(), feature_map=feature_map, pull=None)
    return replace(trial, point=point, memo=memo)


# --- minibatches ----------------------------------------------------------------------------------

_Carried = tuple[Learner | None, np.random.RandomState, int]  # with a count of eigenproblems
_Maker = Callable[[Shards, Parts], Objective]


def _pass_over(
    objective: Objective, learner: Learner, step_size: float, random: np.random.RandomState
) -> tuple[Learner | None, np.random.RandomState]:
    """Learn from all data once, in a random order; None where steps were too long."""
    order = random.permutation(len(objective.shards)).tolist()
    make = partial(
        Objective,
        variant=objective.variant,
        feature_map=objective.feature_map,
        settings=replace(objective.settings, tether=0.0),
    )
    size = max(_BATCH, objective.shards.n_matrices // _MOST_BATCHES)
    first = learner.moments.count  # gradients seen, at the point that epochs before have ended at
    ended, random, eigenproblems = objective.shards.fold(
        _learn_block,
        (learner, random, 0),
        order,
        make,
        size,
        step_size,
        first,
        parts=[objective.targets],
    )
    objective.eigenproblems += eigenproblems
    return ended, random


def _learn_block(
    block: Block,
    targets: Targets,
    state: _Carried,
    make: _Maker,
    size: int,
    step_size: float,
    first: int,
) -> _Carried:
    learner, random, eigenproblems = state
    # A minibatch of no weight would have nothing to standardise by.
    rows = np.flatnonzero(to_host(targets[1]))
    if learner is None or not len(rows):
        return state
    random = deepcopy(random)  # the state that came is left as it is
    for chosen in np.array_split(random.permutation(rows), max(1, len(rows) // size)):
        batch = take_rows(block, targets, chosen, make)
        try:
            with limit_blas(1):
                learner = learner.step(batch, step_size)
        except FloatingPointError:
            if learner.moments.count == first:  # before any step that might have been too long
                raise
            learner = None
        eigenproblems += batch.eigenproblems
        if learner is None:
            break
    return learner, random, eigenproblems


def take_rows(block: Block, targets: Targets, rows: Indices, make: _Maker) -> Objective:
    """Make the objective of some matrices of a block."""
    wanted, weights = (one[rows] for one in targets)
    some = [(wanted, weights / weights.sum())]
    return make(MemoryShards(block.only(rows)), some)


def _spread(objective: Objective, trial: Trial) -> Spread:
    """How features spread: what a step of the head is measured by."""
    samples = objective.samples(trial.memo.V, trial.memo.feature_map)
    values, vectors = np.linalg.eigh(samples.products[0])
    return samples.centre[0], np.maximum(values, 0), vectors


def _norm(objective: Objective, learner: Learner | None) -> float:
    """Size of the running mean of gradients; NaN where there is no learner."""
    if learner is None:
        return np.nan
    return objective.size(projected(learner.moments.mean, objective.limits(learner.point)))


def _largest(_: Block, V: RealArray) -> float:
    return float(V.max())
