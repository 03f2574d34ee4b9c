"""Learning from a stream: batches that are seen once, and let go."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.engines import Engine
from divlearn.iddl.features import FeatureMap, Features
from divlearn.iddl.losses import Head, NewtonLoss
from divlearn.iddl.objective import Dictionary, Objective
from divlearn.iddl.running import Recent, Running, Standing
from divlearn.iddl.stochastic import Learner, gradient_norm
from divlearn.iddl.tangent import TangentBlock
from divlearn.iddl.training import Model, Recipe, Start, Task
from divlearn.iddl.variants import Variant
from divlearn.optim.frames import move_frames, usable

__all__ = ["Lesson", "Online"]

_MINIBATCH = 64
_FIRST_STEP = 0.1  # way of an atom in a minibatch, in units of the metric
_SHORTEST_STEP = 1e-4
# After t minibatches steps are shorter by (1 + t/10)^(-2/3). The sum of all diverges, so that atoms
# get anywhere; that of their squares does not, so that the noise of minibatches dies away (Robbins
# and Monro, 1951).
_UNDECAYED = 10
_DECAY = 2 / 3
# Averages weigh what was seen when a share s of the stream had passed by s: what was said by atoms
# that have moved since fades, and all data still counts.
_FORGETTING = 2
_APART = 0.3  # way from an atom to its double, in units of the metric


@dataclass(frozen=True, eq=False)
class Lesson:
    """What became of a batch, or of a part of it.

    Attributes
    ----------
    online : Online, after it.
    rows : ndarray of int, the matrices that were learned from.
    scores : ndarray, shape (n_rows, n_outputs), of each before it was learned from.
    loss : float, the objective of these scores.
    gradient_norm : float, of the running mean of gradients.
    message : str
    """

    online: Online
    rows: NDArray[np.intp]
    scores: RealArray
    loss: float
    gradient_norm: float
    message: str = ""

    @classmethod
    def none(cls, online: Online, message: str = "") -> Self:
        """Nothing was learned."""
        scores = np.zeros((0, len(online.learner.head.bias)))
        return cls(online, np.zeros(0, dtype=np.intp), scores, np.nan, np.nan, message)

    @classmethod
    def join(cls, parts: list[Lesson], message: str) -> Self:
        """Put minibatches together, one after the other; the first part is nothing."""
        last = parts[-1]
        rows = np.concatenate([part.rows for part in parts])
        scores = np.concatenate([part.scores for part in parts])
        losses = [len(part.rows) / max(len(rows), 1) * part.loss for part in parts[1:]]
        loss = float(np.sum(losses)) if losses else np.nan
        return cls(last.online, rows, scores, loss, last.gradient_norm, message)


@dataclass(frozen=True, eq=False)
class Online:
    """What a stream has taught so far. It never changes: a batch makes another.

    Attributes
    ----------
    learner : Learner
    running : Running
    recipe : Recipe
    variant : Variant
    feature_map : FeatureMap
    tangent : TangentBlock or None
    count : int, matrices seen.
    weight : float, of what the averages have seen.
    recent : Recent
    n_batches : int
    step_size : float, before it decays.
    """

    learner: Learner
    running: Running
    recipe: Recipe
    variant: Variant
    feature_map: FeatureMap
    tangent: TangentBlock | None
    count: int
    weight: float
    recent: Recent
    n_batches: int = 0
    step_size: float = _FIRST_STEP

    @classmethod
    def start(cls, engine: Engine, task: Task, start: Start, recipe: Recipe, weight: float) -> Self:
        """Start from atoms, with features and a head of a first batch of some weight."""
        tangent = None
        if recipe.n_tangent:
            tangent = TangentBlock.fit(task.X, task.weights, recipe.n_tangent)
        frames = np.linalg.cholesky(start.atoms)
        if recipe.learn_atoms:
            frames = _apart(frames, np.random.RandomState(recipe.seed))
        point = Dictionary(frames, start.variant.start)
        alpha, beta = start.variant.expand(point.parameters)
        V = engine.encode(task.data, point.atoms, alpha, beta).reshape(len(task.X), -1)
        feature_map = FeatureMap.for_data(
            V, task.weights, logarithm=recipe.logarithm, standardize=recipe.standardize
        )
        features = feature_map.compute(V, task.weights)
        design = _beside(features.values, tangent, task.X)
        head = _first_head(recipe, design, task)
        raw = _beside(_unscaled(feature_map, V), tangent, task.X)
        running = Running.of(raw, task.weights)
        learner = Learner.at(point, head, running.spread(features, centre=recipe.loss.bias))
        recent = Recent.none(task.targets.shape[1], unseen=False)
        return cls(learner, running, recipe, start.variant, feature_map, tangent, 0, weight, recent)

    @classmethod
    def resume(
        cls, engine: Engine, task: Task, model: Model, variant: Variant, recipe: Recipe, count: int,
        weight: float,
    ) -> Self:  # fmt: skip
        """Go on from a model with a linear head that has seen matrices of some weight."""
        assert isinstance(model.head, Head)
        design = model.embed(engine, task.X, task.data)
        running = Running.guess(design, task.weights, model)
        point = Dictionary(np.linalg.cholesky(model.atoms), variant.start)
        learner = Learner.at(
            point, model.head, running.spread(model.features, centre=recipe.loss.bias)
        )
        return cls(
            learner, running, recipe, variant, model.feature_map, model.tangent, count, weight,
            Recent.none(task.targets.shape[1], unseen=True),
        )  # fmt: skip

    def model(self) -> Model:
        """Make what predicts."""
        point = self.learner.point
        alpha, beta = self.variant.expand(point.parameters)
        features = self.running.features(self.feature_map, alpha.size)
        return Model(
            point.atoms, alpha, beta, self.feature_map, features, self.learner.head, self.tangent
        )

    def learn(self, engine: Engine, task: Task, weight: float) -> Lesson:
        """Learn from a batch, once, in minibatches.

        Where atoms go astray the batch is undone, and tried anew with steps half as long. An
        interrupt keeps what was learned until then.

        Parameters
        ----------
        engine : Engine
        task : Task
        weight : float, of the batch.
        """
        tried = replace(self, n_batches=self.n_batches + 1)
        while tried.step_size >= _SHORTEST_STEP:
            lesson = tried._pass(engine, task, weight)
            if lesson is not None:
                return lesson
            tried = replace(tried, step_size=tried.step_size / 2)
        message = (
            f"batch {tried.n_batches} taught nothing: with steps down to {2 * tried.step_size:.2g} "
            "divergences overflow, or atoms are singular"
        )
        return Lesson.none(replace(tried, step_size=self.step_size), message)

    def _pass(self, engine: Engine, task: Task, weight: float) -> Lesson | None:
        """Learn from all minibatches; None where the steps were too long."""
        random = np.random.RandomState([self.recipe.seed, self.n_batches])
        order = random.permutation(len(task.X))
        parts = [Lesson.none(self)]
        message = f"batch {self.n_batches} is learned"
        try:
            for rows in np.array_split(order, max(1, round(len(order) / _MINIBATCH))):
                minibatch, share = task.part(engine, rows), float(task.weights[rows].sum())
                part = parts[-1].online._step(engine, minibatch, rows, weight * share)
                if part is None:
                    return None
                parts.append(part)
        except KeyboardInterrupt:
            message = f"interrupted by the user in batch {self.n_batches}"
        lesson = Lesson.join(parts, message)
        rows, unseen = lesson.rows, self.recent.unseen or self.n_batches > 1
        latest = Recent(lesson.scores, task.targets[rows], weight * task.weights[rows], unseen)
        return replace(lesson, online=replace(lesson.online, recent=self.recent.add(latest)))

    def _step(
        self, engine: Engine, part: Task, rows: NDArray[np.intp], weight: float
    ) -> Lesson | None:
        """Learn from a minibatch, once it has changed what features are standardised by."""
        recipe, point = self.recipe, self.learner.point
        alpha, beta = self.variant.expand(point.parameters)
        V = engine.encode(part.data, point.atoms, alpha, beta).reshape(len(rows), -1)
        if not np.isfinite(V).all():
            return None
        gain = 1 - (self.weight / (self.weight + weight)) ** _FORGETTING
        raw = _beside(_unscaled(self.feature_map, V), self.tangent, part.X)
        with np.errstate(over="ignore"):
            running = self.running.learn(raw, part.weights, gain)
        if not np.isfinite(running.covariance).all():
            return None
        before, features = (
            r.features(self.feature_map, V.shape[1]) for r in (self.running, running)
        )
        head = _carry(self.learner.head, before, features, shift=recipe.loss.bias)
        push = 2 * recipe.gamma * (head.weights[:, : V.shape[1]] ** 2).sum(axis=0)
        batch = Objective(
            engine, part.data, part.targets, part.weights, self.variant,
            Standing(self.feature_map.offset, self.feature_map.standardize, features, push),
            recipe.loss, recipe.gamma, learn_atoms=recipe.learn_atoms,
            learn_parameters=recipe.learn_parameters,
            extra=None if self.tangent is None else raw[:, V.shape[1] :],
        )  # fmt: skip
        trial = batch.hold_head(point, V, head)
        spread = running.spread(features, centre=recipe.loss.bias)
        learner = replace(self.learner, head=head, spread=spread).learn(
            batch, trial, self._step_size(len(rows)), gain
        )
        if learner is None or not usable(learner.point.atoms):
            return None
        following = replace(
            self, learner=learner, running=running, count=self.count + len(rows),
            weight=self.weight + weight,
        )  # fmt: skip
        scores = head.scores(batch.design(trial.memo.features))
        return Lesson(following, rows, scores, trial.value, gradient_norm(batch, learner))

    def _step_size(self, n_matrices: int) -> float:
        """Length of a step, shorter for what is less than a minibatch."""
        full = self.step_size * min(1.0, n_matrices / _MINIBATCH)
        return float(full * (1 + self.count / (_UNDECAYED * _MINIBATCH)) ** -_DECAY)


def _first_head(recipe: Recipe, design: RealArray, task: Task) -> Head:
    """Solve for the head of a first batch.

    A class that is yet to come would drive softmax and hinge to infinity. As the rule of succession
    has it, one more matrix is of any class; nothing else is known of it.
    """
    n, size = task.targets.shape
    targets, weights = task.targets, task.weights
    if isinstance(recipe.loss, NewtonLoss):
        design = np.concatenate([design, np.tile(weights @ design, (size, 1))])
        targets = np.concatenate([targets, np.eye(size)])
        weights = np.concatenate([n * weights, np.full(size, 1 / size)]) / (n + 1)
    return recipe.loss.solve(design, targets, weights, recipe.gamma).head


def _carry(head: Head, before: Features, after: Features, *, shift: bool) -> Head:
    """Make a head for features that are standardised otherwise, with the same scores.

    What weights cancel each other out must not depend on the deviations of a minibatch.
    """
    size = len(before.mean)
    weights, bias = head.weights.copy(), head.bias
    weights[:, :size] *= after.scale / before.scale
    if shift:
        bias = bias + head.weights[:, :size] @ ((after.mean - before.mean) / before.scale)
    return Head(weights, bias)


def _apart(frames: RealArray, random: np.random.RandomState) -> RealArray:
    """Move atoms that come twice, as they do where a first batch is small.

    Atoms that are the same have the same gradient, and would stay the same.
    """
    n, d = frames.shape[:2]
    _, firsts = np.unique(frames.reshape(n, -1), axis=0, return_index=True)
    steps = random.standard_normal((n, d, d))
    steps += steps.mT
    steps *= _APART / np.linalg.norm(steps, axis=(1, 2), keepdims=True)
    steps[firsts] = 0
    return np.where(steps.any(axis=(1, 2), keepdims=True), move_frames(frames, steps), frames)


def _unscaled(feature_map: FeatureMap, V: RealArray) -> RealArray:
    """Features before they are standardised."""
    return FeatureMap(feature_map.offset, False).compute(V, np.ones(len(V))).values


def _beside(values: RealArray, tangent: TangentBlock | None, X: RealArray) -> RealArray:
    """Features with the tangent block beside them, where there is one."""
    if tangent is None:
        return values
    return np.concatenate([values, tangent.compute(X)], axis=1)
