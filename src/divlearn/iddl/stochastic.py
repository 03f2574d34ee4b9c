"""Learning from minibatches: Riemannian Adam in moving frames, with a head that follows."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from divlearn.arrays import beside, to_host
from divlearn.fitting.checkpoint import loop
from divlearn.iddl.features import Features
from divlearn.iddl.losses import Head, NewtonLoss
from divlearn.iddl.objective import Coordinates, Dictionary, Objective
from divlearn.iddl.solvers import Fit, Interruptible, Known, Watch, first_trial
from divlearn.iddl.spread import Spread
from divlearn.optim.adam import Moments
from divlearn.optim.frames import usable
from divlearn.optim.problem import Trial, projected
from divlearn.threads import limit_blas

__all__ = [
    "Batches", "Learner", "Spread", "gradient_norm", "solve_stochastic", "take_rows", "trial_with",
]  # fmt: skip

_FIRST_STEP = 0.1  # way of an atom in a minibatch, in units of the metric
_SHORTEST_STEP = 1e-4  # below, an epoch that fails is the last
_HEAD_RATE = 0.2  # of a Newton step: about five minibatches make up the mind of the head
_LEAST_CURVATURE = 0.1  # few samples of a minibatch lie in the corner of a hinge, or none
_MOST_BATCHES = 20_000  # of an epoch: after that many steps it is time to look at the objective
_LARGEST_GRADIENT = 1e100  # beyond, squares overflow


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

    Attributes
    ----------
    point : Dictionary
    head : Head
    spread : Spread
    moments : Moments
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
        return cls(point, trial.memo.head, objective.spread(trial.memo), Moments.start(groups))

    def settle(self, objective: Objective, trial: Trial) -> Self:
        """Go on from where the head was solved for on all data; the moments stay."""
        spread = objective.spread(trial.memo)
        return replace(self, point=trial.point, head=trial.memo.head, spread=spread)

    def step(self, batch: Objective, step_size: float) -> Self | None:
        """Learn from a minibatch.

        Parameters
        ----------
        batch : Objective
            Of the minibatch; see `take_rows`.
        step_size : float
            The longest way of an atom, and of a parameter.

        Returns
        -------
        Learner or None
            None where earlier steps led out of what can be computed with: they were too long.
        """
        if not usable(self.point.atoms):
            return None
        trial = trial_with(batch, self.point, self.head)
        if not np.isfinite(trial.value):
            return None
        gradient = batch.gradient(trial)
        if not np.abs(gradient).max() < _LARGEST_GRADIENT:
            return None
        moments = self.moments.learn(gradient)
        point = batch.move(self.point, step_size * moments.direction())
        head = self._follow(batch, trial.memo.features)
        return replace(self, point=point, head=head, moments=moments)

    def _follow(self, batch: Objective, features: Features) -> Head:
        """Take part of a Newton step of the head."""
        head, spread, loss = self.head, self.spread, batch.loss
        design = batch.design(features)
        scores = head.scores(design)
        slopes = batch.weights[:, None] * loss.slopes(scores, batch.targets)
        curvature = 1.0
        if isinstance(loss, NewtonLoss):
            # Twice, for the typical size of a Hessian is about half of its norm.
            size = 2 * float(batch.weights @ loss.expand(scores, batch.targets).size)
            curvature = max(size, _LEAST_CURVATURE)
        gradient = to_host(slopes.T @ (design - beside(spread.mean, design)))
        gradient = gradient + 2 * batch.gamma * head.weights
        scale = curvature * spread.values + 2 * batch.gamma
        inverse = np.where(scale > 0, 1 / np.where(scale > 0, scale, 1), 0)
        step = _HEAD_RATE * (gradient @ spread.vectors * inverse) @ spread.vectors.T
        bias = head.bias
        if loss.bias:
            bias = bias + step @ spread.mean - _HEAD_RATE * to_host(slopes.sum(axis=0)) / curvature
        return Head(head.weights - step, bias)


def solve_stochastic(
    objective: Objective, start: Dictionary, *, max_iter: int, tol: float,
    watch: Watch | None = None, batch_size: int = 64,
    random_state: int | np.random.RandomState | None = 0,
    batches: Callable[[Any, int, np.random.RandomState], Batches] | None = None,
) -> Fit:  # fmt: skip
    """Move atoms and parameters by Riemannian Adam on minibatches, for many matrices.

    An iteration is an epoch: one pass over the data in minibatches drawn anew, see `Learner`, then
    the head is solved for on all data. Where that leaves the objective higher, the epoch is undone
    and the steps are halved: the objective never rises. An epoch costs three eigenproblems per
    matrix and atom, two in the minibatches and one on all data.

    The memo of the trials that are handed out has no rows: no more than one encoding of all data
    is held at any time.

    Parameters
    ----------
    objective, start, watch : as in `solve_joint`
    max_iter : int
        Epochs.
    tol : float
        Stop where an epoch lowers the objective by at most this share of it.
    batch_size : int, default=64
        Matrices per minibatch, at least; fewer matrices are one. Beyond 20,000 minibatches there
        are more in each.
    random_state : int, RandomState or None, default=0
        Draws the minibatches.
    batches : callable, optional
        Makes the minibatches of an objective whose data is elsewhere, from the objective, their
        size and what draws them.

    Returns
    -------
    Fit
        The gradient norms in the history are those of Adam's running mean; NaN for the start, and
        for epochs that were broken off.
    """
    if isinstance(batch_size, bool) or not isinstance(batch_size, int | np.integer):
        raise TypeError(f"batch_size={batch_size!r} must be an integer >= 2")
    if batch_size < 2:
        raise ValueError(
            f"batch_size={batch_size} must be >= 2, as features are standardised by the minibatch"
        )
    with loop("epochs") as rounds:
        state = rounds.state[3] if rounds.state else _begin(objective, start, random_state)
        run = Interruptible(objective, state.trial, watch, rounds)
        size = max(int(batch_size), objective.n_matrices // _MOST_BATCHES)
        passes = (batches or _Batches)(objective, size, deepcopy(state.random))
        try:
            return _epochs(objective, state, passes, max_iter, tol, run)
        except KeyboardInterrupt:
            return run.interrupted()


@dataclass(frozen=True, eq=False)
class Epoch:
    """Where an epoch begins: the best trial so far, the learner that goes on, and how it does."""

    number: int
    trial: Trial
    learner: Learner
    step_size: float
    random: np.random.RandomState


def _begin(
    objective: Objective, start: Dictionary, random_state: int | np.random.RandomState | None
) -> Epoch:
    first = first_trial(objective, start)
    learner = Learner.start(objective, first)
    return Epoch(0, Known.of(first), learner, _FIRST_STEP, check_random_state(random_state))


def _epochs(
    objective: Objective, state: Epoch, batches: Batches, max_iter: int, tol: float,
    run: Interruptible,
) -> Fit:  # fmt: skip
    message, converged, iteration = f"max_iter={max_iter} reached", False, state.number
    trial, learner, step_size = state.trial, state.learner, state.step_size
    stop = None if run.history.rows else run.note(0, trial, np.nan, "start")
    while stop is None and iteration < max_iter:
        run.save(Epoch(iteration, trial, learner, step_size, deepcopy(batches.random)))
        before = trial.value
        iteration += 1
        ended = batches.run(learner, step_size)
        following = objective.trial(ended.point) if ended else None
        lower = False
        if ended and following and following.value <= before:
            lower = True
            learner = ended.settle(objective, following)
            trial = Known.of(following)
        else:
            step_size /= 2
        del following  # the next encoding needs its room
        stop = run.note(iteration, trial, gradient_norm(objective, ended), "stochastic")
        if stop is None and lower and before - trial.value <= tol * abs(before):
            converged = True
            share = (before - trial.value) / abs(before) if before else 0.0
            stop = f"an epoch lowered the objective by {share:.2g} of it, <= tol={tol:g}"
        elif stop is None and step_size < _SHORTEST_STEP:
            stop = f"no epoch lowers the objective, with steps down to {2 * step_size:.2g}"
    return Fit(trial, iteration, converged, stop or message, run.history.arrays())


class Batches(Protocol):
    """Minibatches of all data, drawn at random."""

    random: np.random.RandomState

    def run(self, learner: Learner, step_size: float) -> Learner | None:
        """Learn from all data once; None where the steps were too long."""


class _Batches:
    """Minibatches of the data, prepared one at a time and drawn anew for every epoch."""

    def __init__(
        self, objective: Objective, batch_size: int, random: np.random.RandomState
    ) -> None:
        self._objective = objective
        # A minibatch of no weight would have nothing to standardise by.
        self._rows = np.flatnonzero(to_host(objective.weights))
        self._count = max(1, len(self._rows) // batch_size)
        self.random = random

    def run(self, learner: Learner, step_size: float) -> Learner | None:
        """Learn from all data once; None where the steps were too long."""
        drawn = np.array_split(self.random.permutation(self._rows), self._count)
        objective = self._objective
        with loop("minibatches") as rounds:
            done, learner, objective.effort = rounds.state or (0, learner, objective.effort)
            for number in range(done, len(drawn)):
                rounds.save((number, learner, objective.effort))
                batch = take_rows(objective, drawn[number])
                with limit_blas(1):
                    following = learner.step(batch, step_size)
                objective.eigenproblems += batch.eigenproblems
                if following is None:
                    return None
                learner = following
        return learner


def take_rows(objective: Objective, rows: NDArray[np.intp]) -> Objective:
    """Restrict an objective to some of its matrices."""
    weights = objective.weights[rows]
    engine = objective.engine
    return Objective(
        engine, engine.take(objective.data, rows), objective.targets[rows],
        weights / weights.sum(), objective.variant, objective.feature_map, objective.loss,
        objective.gamma, learn_atoms=objective.learn_atoms,
        learn_parameters=objective.learn_parameters,
        extra=None if objective.extra is None else objective.extra[rows],
    )  # fmt: skip


def trial_with(objective: Objective, point: Dictionary, head: Head) -> Trial:
    """Compute the objective with a head that is given; infinite where divergences are."""
    V = objective.encode(point.atoms, point.parameters)
    if not np.isfinite(V).all():
        return Trial(point, np.inf)
    return objective.hold_head(point, V, head)


def gradient_norm(objective: Coordinates, learner: Learner | None) -> float:
    """Size of the running mean of gradients; NaN where there is no learner."""
    if learner is None:
        return np.nan
    return objective.size(projected(learner.moments.mean, objective.limits(learner.point)))
