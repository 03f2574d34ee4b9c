"""Learning from minibatches: Riemannian Adam in moving frames, with Newton steps of the head."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np

from divlearn.arrays import Indices, IntArray, RealArray, to_host
from divlearn.checks import check_finite
from divlearn.fitting.progress import stoppable
from divlearn.heads.samples import Head
from divlearn.iddl.atoms import Dictionary
from divlearn.iddl.objective import Objective, head_slopes
from divlearn.iddl.solvers import Run, first_trial
from divlearn.optim import Trial, projected
from divlearn.sharded.blocks import Block
from divlearn.sharded.shards import MemoryShards, Parts, Shards
from divlearn.sharded.targets import Targets
from divlearn.spd import usable
from divlearn.threads import limit_blas

_FIRST_STEP = 0.1  # length of an atom's step in a minibatch, in units of the metric
_SHORTEST_STEP = 1e-4  # if an epoch with shorter steps raises the objective, the solver stops
_HEAD_RATE = 0.2  # of a Newton step: the head is an average over about five minibatches
_LEAST_CURVATURE = 0.1  # for minibatches with no samples in the corners of hinges
_BATCH = 64  # least number of matrices per minibatch; fewer make one minibatch
_MOST_BATCHES = 20_000  # per epoch, after which the objective of all data is computed
_ROOM = 1e208  # factor by which gradients must not overflow, as their squares are summed
_DECAY = 0.9  # of both moments: with equal decays, no step is longer than the step size
_FLAT = 1e-8  # relative to the largest root of a second moment: below, gradients are rounding error

# Mean of the features of all data; eigenvalues and eigenvectors of their covariance.
Spread = tuple[RealArray, RealArray, RealArray]


@dataclass(frozen=True, eq=False)
class Moments:
    """Running moments of noisy gradients, and the direction of Adam.

    The second moment is one number for each factor of a product of manifolds (Becigneul and Ganea,
    2019), which makes it invariant to rotations of frames. No factor of a direction is longer than
    one.
    """

    groups: IntArray  # number of the factor that each coordinate belongs to
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
        """Running mean of the gradients, at least one."""
        return self.first / (1 - _DECAY**self.count)

    def direction(self) -> RealArray:
        """Direction of the next step, in units of the step size."""
        root = np.sqrt(self.second / (1 - _DECAY**self.count))
        divisor = np.where(root > _FLAT * root.max(), root, np.inf)
        return -self.mean / divisor[self.groups]


@dataclass(frozen=True, eq=False)
class Learner:
    r"""A dictionary and a head that learn from one minibatch at a time.

    Atoms and parameters take a step of Adam, :math:`A_k \leftarrow A_k e^{\eta P_k / 2}`, with one
    second moment per atom and one per parameter, so that steps are invariant to congruence and to
    rotations of the frames. The head is not solved for, which would fit the noise of a minibatch,
    but takes a fifth of a Newton step,

    .. math:: W \leftarrow W - \tfrac15 \, G_W \, (c \Sigma + 2 \gamma I)^{-1}

    with :math:`G_W` its gradient on the minibatch, :math:`\Sigma` the covariance of the features of
    all data after the last epoch, and c the mean curvature of the loss on the minibatch (one for
    ridge: then this is recursive least squares with forgetting). Features are standardised by the
    minibatch.

    Learners are immutable: a step returns a new one, and dropping it undoes the step.
    """

    point: Dictionary
    head: Head
    spread: Spread
    moments: Moments

    @classmethod
    def start(cls, objective: Objective, trial: Trial) -> Self:
        """Start from a trial on all data, which has a head."""
        point = trial.point
        n_atoms, d = point.frames.shape[:2]
        parameter_groups = n_atoms + np.arange(len(point.parameters))
        groups = np.concatenate([np.repeat(np.arange(n_atoms), d * d), parameter_groups])
        return cls(point, trial.memo.head, _spread(objective, trial), Moments.start(groups))

    def settle(self, objective: Objective, trial: Trial) -> Self:
        """Continue from a trial on all data, with the moments of this learner."""
        spread = _spread(objective, trial)
        return replace(self, point=trial.point, head=trial.memo.head, spread=spread)

    def step(self, batch: Objective, step_size: float) -> Self:
        """Learn from a minibatch; raise if earlier steps were so long that computations fail."""
        if not usable(self.point.atoms):
            raise FloatingPointError("atoms are too close to singular; steps were too long")
        V, where = batch.encode(self.point.atoms, self.point.parameters), "on a minibatch"
        check_finite(float(V[0].max()), "a divergence", where)
        trial = batch.hold_head(self.point, V, self.head)
        check_finite(trial.value, "the objective", where)
        gradient = batch.gradient(trial)
        check_finite(_ROOM * float(np.abs(gradient).max()), "the gradient", where)
        moments = self.moments.learn(gradient)
        point = batch.move(self.point, step_size * moments.direction())
        return replace(self, point=point, head=self._follow(batch, trial), moments=moments)

    def _follow(self, batch: Objective, trial: Trial) -> Head:
        """Take part of a Newton step of the head."""
        (weights, bias), (mean, values, vectors) = self.head, self.spread
        args = trial.memo.feature_map, batch.loss, self.head, mean
        in_weights, in_bias, size = batch.shards.reduce(
            head_slopes, *args, parts=[batch.targets, trial.memo.V]
        )
        # Twice, as the typical size of a Hessian is about half of its norm.
        curvature = 1.0 if batch.loss.quadratic else max(2 * size, _LEAST_CURVATURE)
        gradient = in_weights + 2 * batch.gamma * weights
        scale = curvature * values + 2 * batch.gamma
        inverse = np.where(scale > 0, 1 / np.where(scale > 0, scale, 1), 0)
        step = _HEAD_RATE * (gradient @ vectors * inverse) @ vectors.T
        if batch.loss.bias:
            bias = bias + step @ mean - _HEAD_RATE * in_bias / curvature
        return weights - step, bias


def solve_stochastic(
    objective: Objective, start: Dictionary, *, max_iter: int, tol: float, seed: int = 0
) -> Run:
    """Optimise atoms and parameters by Riemannian Adam on minibatches, for many matrices.

    An iteration is an epoch, see `Learner`, after which the head is solved for on all data. An
    epoch that raises the objective is undone, and the steps are halved. Stop when an epoch lowers
    it by at most `tol` of it. At most one encoding of all data is in memory.
    """
    trial = first_trial(objective, start)
    learner, trial = Learner.start(objective, trial), _on_host(trial)
    run, random = Run(objective, trial, max_iter), np.random.RandomState(seed)
    iteration, step_size = 0, _FIRST_STEP
    with stoppable():
        run.note(0, trial, np.nan, "start")
        while iteration < max_iter:
            previous = trial.value
            iteration += 1
            last_learner, random = _learn_epoch(objective, learner, step_size, random)
            following = objective.trial(last_learner.point) if last_learner else None
            lower, value = False, following.value if following else np.inf
            if last_learner and following and value <= previous:
                lower = True
                learner = last_learner.settle(objective, following)
                trial = _on_host(following)
            else:
                step_size /= 2
            del following  # frees memory for the next encoding
            run.note(iteration, trial, _gradient_norm(objective, last_learner), "stochastic")
            if lower and (message := run.converged(previous, tol, "an epoch")):
                return run.end(message)
            if step_size < _SHORTEST_STEP:
                where = f"after an epoch of steps of size {2 * step_size:.2g}"
                check_finite(value, "the objective", where, or_infinite=True)
                message = f"no epoch lowers the objective, with steps down to {2 * step_size:.2g}"
                return run.end(message)
        return run.end(f"max_iter={max_iter} reached")
    return run.interrupted()


def _on_host(trial: Trial) -> Trial:
    """Return a trial without the encoding of all data, and with the rest on the host."""
    point = replace(trial.point, frames=to_host(trial.point.frames))
    feature_map = trial.memo.feature_map.on_host()
    memo = replace(trial.memo, V=(), feature_map=feature_map, pull=None)
    return replace(trial, point=point, memo=memo)


# --- minibatches ----------------------------------------------------------------------------------

_State = tuple[Learner | None, np.random.RandomState, int]  # with the number of eigenproblems
_MakeObjective = Callable[[Shards, Parts], Objective]


def _learn_epoch(
    objective: Objective, learner: Learner, step_size: float, random: np.random.RandomState
) -> tuple[Learner | None, np.random.RandomState]:
    """Learn from all data once, in a random order; the learner is None if steps were too long."""
    order = random.permutation(len(objective.shards)).tolist()
    make = partial(
        Objective,
        variant=objective.variant,
        feature_map=objective.feature_map,
        settings=replace(objective.settings, tether=0.0),
    )
    size = max(_BATCH, objective.shards.n_matrices // _MOST_BATCHES)
    initial_count = learner.moments.count

    def learn(block: Block, targets: Targets, state: _State) -> _State:
        """Learn from the minibatches of a block, in a random order."""
        learner, random, eigenproblems = state
        # The features of a minibatch without weight could not be standardised.
        rows = np.flatnonzero(to_host(targets[1]))
        if learner is None or not len(rows):
            return state
        random = deepcopy(random)  # the argument must not change
        for batch_rows in np.array_split(random.permutation(rows), max(1, len(rows) // size)):
            batch = take_rows(block, targets, batch_rows, make)
            try:
                with limit_blas(1):
                    learner = learner.step(batch, step_size)
            except FloatingPointError:
                if learner.moments.count == initial_count:  # no step can have been too long
                    raise
                learner = None
            eigenproblems += batch.eigenproblems
            if learner is None:
                break
        return learner, random, eigenproblems

    last_learner, random, eigenproblems = objective.shards.fold(
        learn, (learner, random, 0), order, parts=[objective.targets]
    )
    objective.eigenproblems += eigenproblems
    return last_learner, random


def take_rows(block: Block, targets: Targets, rows: Indices, make: _MakeObjective) -> Objective:
    """Make the objective of these rows of a block."""
    Y, weights = (array[rows] for array in targets)
    return make(MemoryShards(block.only(rows)), [(Y, weights / weights.sum())])


def _spread(objective: Objective, trial: Trial) -> Spread:
    samples = objective.samples(trial.memo.V, trial.memo.feature_map)
    values, vectors = np.linalg.eigh(samples.products[0])
    return samples.centre[0], np.maximum(values, 0), vectors


def _gradient_norm(objective: Objective, learner: Learner | None) -> float:
    """Size of the running mean of gradients; NaN without a learner."""
    if learner is None:
        return np.nan
    return objective.size(projected(learner.moments.mean, objective.limits(learner.point)))
