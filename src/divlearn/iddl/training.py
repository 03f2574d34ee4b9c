"""One model: what it is trained on, how it is trained, and what it says of new matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import Indices, RealArray, on_device, to_device_of, to_host
from divlearn.checks import check_finite
from divlearn.engines import Prepared
from divlearn.fitting.calibration import fit_temperature, log_softmax
from divlearn.fitting.folds import Folds, number_units
from divlearn.fitting.held_out import Memo
from divlearn.fitting.interrupts import is_interrupted
from divlearn.fitting.labelled import Labelled
from divlearn.fitting.regression import Numbered
from divlearn.heads.discriminants import Quadratic
from divlearn.heads.heads import scores_of
from divlearn.heads.samples import FeatureMap, Head, Units
from divlearn.iddl.atoms import Dictionary, Filters, Variant, are_filters
from divlearn.iddl.objective import Objective, Settings, encode_rows
from divlearn.iddl.solvers import Run, solve_bcd, solve_joint
from divlearn.iddl.stochastic import solve_stochastic
from divlearn.sharded.blocks import Block
from divlearn.sharded.shards import MemoryShards, Parts, Shards
from divlearn.sharded.targets import Targets, count_seen
from divlearn.spd import invsqrtm

SOLVERS: dict[str, Callable[..., Run]] = {
    "joint": solve_joint,
    "bcd": solve_bcd,
    "stochastic": solve_stochastic,
}
_TOLERANCE = 1e-5  # of the gradient, relative to the start
_FEW = 256  # matrices of a prediction
_ROWS = 4096  # matrices that are predicted at once

History = dict[str, NDArray[np.generic]]
# Shares in the loss of held-out rows, which add up to it, from scores and rows.
Judge = Callable[[RealArray, Indices], RealArray]


def count_workers(shards: Shards, targets: Parts) -> int:
    """Threads for independent work on data in memory, one for data elsewhere."""
    block = shards.whole
    return 1 if block is None or on_device(targets[0][0]) else block.engine.n_threads


def _no_rows() -> Indices:
    return np.zeros(0, dtype=np.intp)


@dataclass(frozen=True, eq=False)
class Part:
    """What a model is trained on, the atoms it starts with, and what is held out meanwhile."""

    shards: Shards
    targets: Parts
    atoms: RealArray
    held: Block | None = None
    seen: Indices = field(default_factory=_no_rows)  # rows of the shards in the sample
    rows: Indices = field(default_factory=_no_rows)  # rows of what is held out

    @property
    def n_workers(self) -> int:
        """Threads for work on several folds; on a device, folds would wait for each other."""
        return count_workers(self.shards, self.targets)


@dataclass(frozen=True, eq=False)
class Task:
    """All matrices with their targets, and some in memory to choose by."""

    shards: Shards
    targets: Parts  # (n_matrices, n_outputs) and weights of every block; all weights sum to one
    sample: Block  # all matrices where they are in memory
    data: Labelled | Numbered  # of the sample
    wanted: RealArray  # targets of the sample
    weights: RealArray  # of the sample, with a sum of one
    folds: Folds  # of the sample
    n_seen: int  # matrices with a weight
    known: Memo = field(default_factory=Memo)  # what models of all ranks share

    @property
    def codes(self) -> Indices | None:
        """Classes of the sample."""
        return self.data.codes if isinstance(self.data, Labelled) else None

    @property
    def n_groups(self) -> int:
        """Classes, or 1 without them."""
        return 1 if self.codes is None else self.wanted.shape[1]

    def judge(self, scores: RealArray, rows: Indices) -> RealArray:
        """Return shares of held-out rows in the loss, which add up to it.

        It is the calibrated log-loss of classes, or the mean squared error of numbers.
        """
        weights = self.weights[rows]
        if self.codes is None:
            shares = weights * ((scores - self.wanted[rows]) ** 2).mean(axis=1) / weights.sum()
        else:
            own, weights = self.codes[rows], weights / weights.sum()
            temperature, _ = fit_temperature(scores, own, weights)
            shares = -weights * log_softmax(scores / temperature)[np.arange(len(rows)), own]
        # What is no number would be the least of all.
        where = "of models to choose from"
        check_finite(float(shares.sum()), "the held-out loss", where, or_infinite=True)
        return shares

    def sum_held_out(self, values: RealArray) -> RealArray:
        """Add up values of held-out rows, fold by fold, to one for each group or matrix.

        These are independent of each other.
        """
        rows = np.concatenate([held for _, held in self.folds])
        return np.bincount(number_units(rows, self.data.kept_groups), values).astype(float)

    def scale(self, scores: RealArray, rows: Indices) -> float:
        """Return the factor that makes scores of several models comparable."""
        if self.codes is None:
            return 1.0
        weights = self.weights[rows] / self.weights[rows].sum()
        return 1 / fit_temperature(scores, self.codes[rows], weights)[0]

    def part(self, number: int, make_atoms: Callable[[Indices], RealArray]) -> Part:
        """Return what a model of a fold is trained on, with the atoms it starts from."""
        train, held = self.folds[number]
        seen, unseen = self.known.once(
            ("fold", number), lambda: (self.sample.only(train), self.sample.only(held))
        )
        shards = MemoryShards(seen)
        targets = _targets_here(shards, self.wanted[train], self.weights[train])
        return Part(shards, targets, make_atoms(train), unseen, train, held)


def make_task(block: Block, data: Labelled | Numbered, folds: Folds) -> Task:
    """Learn from all matrices of a block in memory."""
    wanted: RealArray
    if isinstance(data, Labelled):
        wanted = np.eye(len(data.classes))[data.codes]
    else:
        wanted = data.numbers.reshape(len(data.numbers), -1)
    shards, weights = MemoryShards(block), data.weights / data.weights.sum()
    targets = _targets_here(shards, wanted, weights)
    return Task(shards, targets, block, data, wanted, weights, folds, len(wanted))


def sample_task(
    shards: Shards, targets: Parts, block: Block, data: Labelled | Numbered, folds: Folds
) -> Task:
    """Learn from all matrices in shards; those of a block, which was drawn from them, choose."""
    task = make_task(block, data, folds)
    return replace(task, shards=shards, targets=targets, n_seen=count_seen(shards, targets))


def _targets_here(shards: Shards, wanted: RealArray, weights: RealArray) -> Parts:
    """Targets of the one block of shards, and weights scaled to a sum of one."""
    return [(shards.place(wanted), shards.place(weights / weights.sum()))]


@dataclass(frozen=True, eq=False)
class Model:
    """A dictionary, the units of its features and its head: all that prediction needs.

    Attributes
    ----------
    atoms : ndarray, shape (n_atoms, d, d), or filters of atoms of rank p, (n_atoms, d, p)
    alpha, beta : ndarray, shape (n_atoms, n_pairs)
    offset : ndarray or None
        Features are logarithms of divergences plus this, or the divergences themselves.
    units : tuple of ndarray, or None
        Mean and scale of these logarithms.
    head : tuple of ndarray, weights and bias.
    rank : int or None
        The last size of atoms, by which files are checked; older ones have none.
    """

    atoms: Annotated[RealArray, "n_atoms d p"]
    alpha: Annotated[RealArray, "n_atoms n_pairs"]
    beta: Annotated[RealArray, "n_atoms n_pairs"]
    offset: Annotated[RealArray | None, "n_features"]
    units: Units
    head: Head
    rank: Annotated[int | None, "p"] = None

    def encode(self, block: Block) -> RealArray:
        """Divergences to the atoms, shape (n_matrices, n_atoms * n_pairs)."""
        return encode_rows(block, self.atoms, self.alpha, self.beta)

    def embed(self, block: Block) -> RealArray:
        """Compute what the head sees."""
        return FeatureMap(self.offset, self.units).compute(self.encode(block))

    def scores(self, block: Block) -> RealArray:
        """Compute scores, shape (n_matrices, n_outputs), on the host."""
        return to_host(scores_of(self.head, self.embed(block)))


@dataclass(frozen=True, eq=False)
class Discriminant:
    """A Gaussian of every class, for features of some models side by side."""

    models: Annotated[Indices, "n_models"]  # their numbers
    weight: float  # of its scores in the sum
    gaussians: Quadratic

    def scores(self, features: Sequence[RealArray]) -> RealArray:
        """Compute scores from the features of all models, on the host."""
        seen = np.concatenate([features[number] for number in self.models], axis=1)
        return self.weight * to_host(self.gaussians.decide(seen))


def sum_scores(
    block: Block, models: Sequence[Model], discriminants: Sequence[Discriminant]
) -> RealArray:
    """Add scores of discriminants to the mean of those of models."""
    if len(block) > _ROWS:  # features of all models are held at once
        parts = [
            np.arange(len(block))[start : start + _ROWS] for start in range(0, len(block), _ROWS)
        ]
        return np.concatenate([sum_scores(block.only(one), models, discriminants) for one in parts])
    features = _embed_all(block, models)
    known = zip(models, features, strict=True)
    mean: RealArray = np.mean([to_host(scores_of(one.head, seen)) for one, seen in known], axis=0)
    return mean + sum(one.scores(features) for one in discriminants)


def _embed_all(block: Block, models: Sequence[Model]) -> list[RealArray]:
    """Features for every model."""
    if len(block) > _FEW:
        return [model.embed(block) for model in models]
    # A call of an engine takes longer than few matrices: models of a rank share one.
    features: dict[int, RealArray] = {}
    for embed, places in _stacks(tuple(models)):
        found = embed(block)
        features |= {number: found[:, columns] for number, columns in places.items()}
    return [features[number] for number in range(len(models))]


def _embed_few(model: Model) -> Callable[[Block], RealArray]:
    """Make a function to features of few matrices, for which atoms are prepared once."""
    atoms, pairs = Prepared.checked(model.atoms), np.stack([model.beta, model.alpha])
    swaps = not are_filters(model.atoms) and bool((pairs == pairs[:, :1]).all())

    def embed(block: Block) -> RealArray:
        engine = block.engine
        if not swaps or on_device(block.data.there):
            return model.embed(block)
        # D^(a,b)(X || B) = D^(b,a)(B || X): engines are at their best on much data and few atoms.
        data = atoms.once(engine.name, lambda: engine.keep(atoms))
        swapped = np.repeat(pairs[:, :1], len(block), axis=1)
        V = np.moveaxis(engine.encode(data, block.data, *swapped), 1, 0)
        return FeatureMap(model.offset, model.units).compute(V.reshape(len(block), -1))

    return embed


@lru_cache(maxsize=4)  # of estimators that predict in turn
def _stacks(
    models: tuple[Model, ...],
) -> list[tuple[Callable[[Block], RealArray], dict[int, slice]]]:
    """Functions to features of models of one rank side by side, and the columns of each model."""
    stacks = []
    for rank in dict.fromkeys(model.atoms.shape[2] for model in models):
        alike = {number: one for number, one in enumerate(models) if one.atoms.shape[2] == rank}
        atoms, alpha, beta = (
            np.concatenate([getattr(one, name) for one in alike.values()])
            for name in ("atoms", "alpha", "beta")
        )
        offset, units = None, None
        known = [(one.offset, *one.units) for one in alike.values() if one.units is not None]
        if known:
            offset, *both = map(np.concatenate, zip(*known, strict=True))
            units = both[0], both[1]
        together = Model(atoms, alpha, beta, offset, units, (np.zeros((0, 0)), np.zeros(0)))
        ends = np.cumsum([0, *(one.head[0].shape[1] for one in alike.values())]).tolist()
        columns = dict(zip(alike, map(slice, ends, ends[1:]), strict=True))
        stacks.append((_embed_few(together), columns))
    return stacks


Trained = tuple[Model, int, str, History]  # with the number of iterations, and why they ended


def start_model(
    part: Part, settings: Settings, variant: Variant, sample: Block
) -> tuple[Model, RealArray]:
    """Make a model of the first atoms and divergences, without a head; and features of a sample."""
    alpha, beta = variant.expand(variant.start)
    V = encode_rows(sample, part.atoms, alpha, beta)
    seen = [V[to_device_of(part.seen, V)]]
    start = _start_map(part, settings, seen)
    feature_map = start.standardize(part.shards, part.targets, seen)
    none = np.zeros((0, V.shape[1])), np.zeros(0)
    return _model(part.atoms, alpha, beta, feature_map, none), feature_map.compute(V)


def _model(
    atoms: RealArray, alpha: RealArray, beta: RealArray, feature_map: FeatureMap, head: Head
) -> Model:
    host = feature_map.on_host()
    return Model(to_host(atoms), alpha, beta, host.offset, host.units, head, atoms.shape[2])


def _start_map(part: Part, settings: Settings, V: Parts) -> FeatureMap:
    sized = len(part.atoms) if are_filters(part.atoms) else 0
    return FeatureMap.start(part.shards, part.targets, V, plain=settings.loss.plain, sized=sized)


def train(part: Part, settings: Settings, variant: Variant, first: Model | None = None) -> Trained:
    """Learn atoms and divergences, from those of a first model where there is one."""
    if first is None:
        V = part.shards.hold(encode_rows, part.atoms, *variant.expand(variant.start))
        feature_map = _start_map(part, settings, V)
        del V  # the solver needs its room
    else:
        feature_map = FeatureMap(first.offset)
    known = part.shards, part.targets, variant, feature_map
    objective = Objective(*known, settings, anchors=part.atoms)
    if are_filters(part.atoms):
        mean = part.shards.reduce(_mean_matrix, parts=[part.targets])
        start: Dictionary = Filters(part.atoms, variant.start, invsqrtm(mean))
    else:
        start = Dictionary(np.linalg.cholesky(part.atoms), variant.start)
    learns = (objective.learn_atoms or objective.learn_parameters) and not is_interrupted()
    max_iter = settings.max_iter if learns else 0
    run = SOLVERS[settings.solver](
        objective, start, max_iter=max_iter, tol=_TOLERANCE, seed=settings.seed
    )
    point, memo = run.trial.point, run.trial.memo
    alpha, beta = variant.expand(point.parameters)
    model = _model(point.atoms, alpha, beta, memo.feature_map, memo.head)
    return model, run.n_iter, run.message, run.history


def _mean_matrix(block: Block, targets: Targets) -> RealArray:
    return np.tensordot(to_host(targets[1]), block.matrices, axes=1)
