"""One model: its training data, how it is trained, and how it predicts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from divlearn.alpha_beta import encode_pairs
from divlearn.arrays import Indices, RealArray, on_device, to_device_of, to_host
from divlearn.checks import check_finite
from divlearn.engines import Prepared
from divlearn.fitting.calibration import fit_temperature, log_softmax
from divlearn.fitting.folds import Folds, held_out_rows, number_units
from divlearn.fitting.held_out import Memo
from divlearn.fitting.labelled import Labelled, Numbered
from divlearn.fitting.progress import is_interrupted
from divlearn.heads.discriminants import Linear, Quadratic
from divlearn.heads.heads import scores_of
from divlearn.heads.samples import FeatureMap, Head, Units
from divlearn.iddl.atoms import Dictionary, Filters, Variant, are_filters
from divlearn.iddl.objective import Objective, Settings, encode_rows
from divlearn.iddl.solvers import Run, solve_bcd, solve_joint
from divlearn.iddl.stochastic import solve_stochastic
from divlearn.log_vectors import log_vectors
from divlearn.sharded.blocks import Block
from divlearn.sharded.shards import MemoryShards, Parts, Shards
from divlearn.sharded.targets import Targets, count_seen
from divlearn.spd import invsqrtm

SOLVERS: dict[str, Callable[..., Run]] = {
    "joint": solve_joint,
    "bcd": solve_bcd,
    "stochastic": solve_stochastic,
}
_TOLERANCE = 1e-5  # of the norm of the gradient, relative to the initial one
_SMALL_BATCH = 256  # matrices, up to which models of one rank share a call of the engine
_LOGARITHMS = -1  # in place of the index of a model: features that are logarithms
_CHUNK = 4096  # matrices whose features are in memory at once

History = dict[str, NDArray[np.generic]]
# Maps scores and row numbers to the weighted losses of these rows, whose sum is the held-out loss.
RowLosses = Callable[[RealArray, Indices], RealArray]


def count_workers(shards: Shards, targets: Parts) -> int:
    """Count threads for independent work: those of the engine for data on the host, or one."""
    block = shards.whole
    return 1 if block is None or on_device(targets[0][0]) else block.engine.n_threads


def _no_rows() -> Indices:
    return np.zeros(0, dtype=np.intp)


@dataclass(frozen=True, eq=False)
class Split:
    """Training data of one model, its initial atoms, and the held-out data."""

    shards: Shards
    targets: Parts
    atoms: RealArray
    held_out: Block | None = None
    train_rows: Indices = field(default_factory=_no_rows)  # row numbers in the sample
    held_rows: Indices = field(default_factory=_no_rows)

    @property
    def n_workers(self) -> int:
        """Threads for work on several folds; on a device, folds would wait for each other."""
        return count_workers(self.shards, self.targets)


@dataclass(frozen=True, eq=False)
class Task:
    """All matrices with their targets, and an in-memory sample for cross-validation."""

    shards: Shards
    targets: Parts  # (n_matrices, n_outputs) and weights of every block; all weights sum to one
    sample: Block  # all matrices if they are in memory
    data: Labelled | Numbered  # of the sample
    sample_targets: RealArray
    weights: RealArray  # of the sample, with a sum of one
    folds: Folds  # of the sample
    n_matrices: int  # in all shards, with a weight > 0
    cache: Memo = field(default_factory=Memo)  # shared by the models of all ranks

    @property
    def codes(self) -> Indices | None:
        """Class indices of the sample; None in regression."""
        return self.data.codes if isinstance(self.data, Labelled) else None

    @property
    def n_workers(self) -> int:
        return count_workers(self.shards, self.targets)

    @property
    def n_classes(self) -> int:
        """Number of classes; 1 in regression."""
        return 1 if self.codes is None else self.sample_targets.shape[1]

    def row_losses(self, scores: RealArray, rows: Indices) -> RealArray:
        """Compute the weighted losses of held-out rows, whose sum is the held-out loss.

        It is the calibrated log-loss of classes, or the mean squared error of numbers.
        """
        weights = self.weights[rows]
        if self.codes is None:
            errors = ((scores - self.sample_targets[rows]) ** 2).mean(axis=1)
            losses = weights * errors / weights.sum()
        else:
            codes, weights = self.codes[rows], weights / weights.sum()
            temperature, _ = fit_temperature(scores, codes, weights)
            losses = -weights * log_softmax(scores / temperature)[np.arange(len(rows)), codes]
        # `min` over candidates might return one whose loss is NaN.
        where = "of models to choose from"
        check_finite(float(losses.sum()), "the held-out loss", where, or_infinite=True)
        return losses

    def constant_losses(self, rows: Indices) -> RealArray:
        """Losses of rows for the best constant: frequencies of classes, or the mean number."""
        constant = np.zeros(self.sample_targets.shape[1])
        if self.codes is not None:
            constant = np.log(np.bincount(self.codes, self.weights))
        return self.row_losses(np.tile(constant, (len(rows), 1)), rows)

    def sum_by_group(self, row_losses: RealArray) -> RealArray:
        """Sum losses of held-out rows, fold by fold, over the rows of each group or matrix.

        The sums are independent of each other.
        """
        rows = held_out_rows(self.folds)
        return np.bincount(number_units(rows, self.data.matrix_groups), row_losses).astype(float)

    def factors(self, scores: Sequence[RealArray], rows: Indices) -> list[float]:
        """Return factors of the scores of several models, by which they are added up.

        Scores of classes are calibrated and averaged. Numbers are combined by least squares, with
        factors that are not negative.
        """
        weights = self.weights[rows] / self.weights[rows].sum()
        if self.codes is None:
            roots = np.sqrt(weights)[:, None]
            columns = [(roots * values).ravel() for values in scores]
            solution, _ = nnls(
                np.stack(columns, axis=1), (roots * self.sample_targets[rows]).ravel()
            )
            return list(map(float, solution))
        temperatures = [fit_temperature(each, self.codes[rows], weights)[0] for each in scores]
        return [1 / (temperature * len(scores)) for temperature in temperatures]

    def logarithms(self) -> RealArray:
        """Compute log-vectors of the sample, once; they may be on a device."""
        matrices = self.sample.data.device_matrices
        return self.cache.cached("log vectors", lambda: log_vectors(matrices))

    def split(self, fold: int, make_atoms: Callable[[Indices], RealArray]) -> Split:
        """Return training and held-out data of a fold, with initial atoms."""
        train, held = self.folds[fold]
        train_block, held_block = self.cache.cached(
            ("fold", fold), lambda: (self.sample.only(train), self.sample.only(held))
        )
        shards = MemoryShards(train_block)
        targets = _place_targets(shards, self.sample_targets[train], self.weights[train])
        return Split(shards, targets, make_atoms(train), held_block, train, held)


def make_task(block: Block, data: Labelled | Numbered, folds: Folds) -> Task:
    """Make the task of learning from all matrices of a block in memory."""
    Y: RealArray
    if isinstance(data, Labelled):
        Y = np.eye(len(data.classes))[data.codes]
    else:
        Y = data.numbers.reshape(len(data.numbers), -1)
    shards, weights = MemoryShards(block), data.weights / data.weights.sum()
    return Task(shards, _place_targets(shards, Y, weights), block, data, Y, weights, folds, len(Y))


def sample_task(
    shards: Shards, targets: Parts, block: Block, data: Labelled | Numbered, folds: Folds
) -> Task:
    """Make the task of learning from shards; the block is a sample for cross-validation."""
    task = make_task(block, data, folds)
    return replace(task, shards=shards, targets=targets, n_matrices=count_seen(shards, targets))


def _place_targets(shards: Shards, Y: RealArray, weights: RealArray) -> Parts:
    """Place targets with the one block of shards, and weights scaled to a sum of one."""
    return [(shards.place(Y), shards.place(weights / weights.sum()))]


@dataclass(frozen=True, eq=False)
class Model:
    """A dictionary of atoms, the standardisation of its features, and a head.

    Attributes
    ----------
    atoms : ndarray, shape (n_atoms, d, d), or filters of atoms of rank p, (n_atoms, d, p)
    alpha, beta : ndarray, shape (n_atoms, n_pairs)
    offset : ndarray or None
        Features are logarithms of divergences plus this; if None, the divergences themselves.
    units : tuple of ndarray, or None
        Mean and scale of these logarithms.
    head : tuple of ndarray, weights and bias.
    rank : int or None
        The size of the last axis of atoms, for the check of files; None in older files.
    """

    atoms: Annotated[RealArray, "n_atoms d p"]
    alpha: Annotated[RealArray, "n_atoms n_pairs"]
    beta: Annotated[RealArray, "n_atoms n_pairs"]
    offset: Annotated[RealArray | None, "n_features"]
    units: Units
    head: Head
    rank: Annotated[int | None, "p"] = None

    def encode(self, block: Block) -> RealArray:
        """Compute divergences to the atoms, shape (n_matrices, n_atoms * n_pairs)."""
        return encode_rows(block, self.atoms, self.alpha, self.beta)

    def embed(self, block: Block) -> RealArray:
        """Compute the features of the head, shape (n_matrices, n_features)."""
        return FeatureMap(self.offset, self.units).compute(self.encode(block))

    def scores(self, block: Block) -> RealArray:
        """Compute scores, shape (n_matrices, n_outputs), on the host."""
        return to_host(scores_of(self.head, self.embed(block)))


@dataclass(frozen=True, eq=False)
class VectorModel:
    """A function of the features of some models, or of the logarithms of matrices."""

    models: Annotated[Indices, "n_models"]  # indices of the models; logarithms need none
    weight: float  # of its scores in the sum
    function: Linear | Quadratic


class Joined:
    """Models, and models of vectors, as one function, which predictions prepare once."""

    def __init__(self, models: Sequence[Model], vector_models: Sequence[VectorModel]) -> None:
        order = sorted(range(len(models)), key=lambda i: models[i].atoms.shape[2])
        self._models = [models[i] for i in order]
        # Sum up all linear functions of the features of all models, and list what is not linear.
        heads = [model.head[0] for model in self._models]
        owners = np.repeat(order, [head.shape[1] for head in heads])
        weights = np.concatenate(heads, axis=1) / len(models)
        bias = np.mean([model.head[1] for model in models], axis=0)
        self._quadratics, self._takes_logarithms = [], False
        for each in vector_models:
            function = each.function.compact()
            linear = function.linear
            if not len(each.models) and not self._takes_logarithms:
                added = linear.coefficients.shape[1]
                owners = np.append(owners, np.full(added, _LOGARITHMS))
                weights = np.pad(weights, ((0, 0), (0, added)))
                self._takes_logarithms = True
            sources = each.models if len(each.models) else [_LOGARITHMS]
            columns = np.concatenate([np.flatnonzero(owners == source) for source in sources])
            weights[:, columns] += each.weight * linear.coefficients
            bias = bias + each.weight * linear.offsets
            if isinstance(function, Quadratic):
                self._quadratics.append((each.weight, columns, function))
        self._head = weights, bias

    def scores(self, block: Block) -> RealArray:
        """Add scores of models of vectors to the mean of those of models."""
        n = len(block)
        if n > _CHUNK:
            chunks = [np.arange(start, min(start + _CHUNK, n)) for start in range(0, n, _CHUNK)]
            return np.concatenate([self.scores(block.only(rows)) for rows in chunks])
        if n > _SMALL_BATCH:
            parts = [model.embed(block) for model in self._models]
        else:
            parts = [_embed_few(block, *stacked) for stacked in self._stacked]
        if self._takes_logarithms:
            logarithms = log_vectors(block.data.device_matrices)
            parts.append(to_device_of(logarithms, parts[0]))
        features = np.concatenate(parts, axis=1)
        total = scores_of(self._head, features)
        for weight, columns, quadratic in self._quadratics:
            selected = features[:, to_device_of(columns, features)]
            total += weight * quadratic.quadratic_part(selected)
        return to_host(total)

    @cached_property
    def _stacked(self) -> list[tuple[Model, Prepared]]:
        """All models of each rank as one, since a call takes longer than work on few matrices."""
        by_rank = groupby(self._models, lambda model: model.atoms.shape[2])
        stacked = [_stack(list(models)) for _, models in by_rank]
        return [(model, Prepared.checked(model.atoms)) for model in stacked]


def _stack(models: Sequence[Model]) -> Model:
    """Make a model, without a head, of the atoms of models of one rank."""
    atoms, alpha, beta = (
        np.concatenate([getattr(model, name) for model in models])
        for name in ("atoms", "alpha", "beta")
    )
    offset, units = None, None
    standardised = [(m.offset, *m.units) for m in models if m.units is not None]
    if standardised:
        offset, mean, scale = map(np.concatenate, zip(*standardised, strict=True))
        units = mean, scale
    return Model(atoms, alpha, beta, offset, units, (np.zeros((0, 0)), np.zeros(0)))


def _embed_few(block: Block, model: Model, atoms: Prepared) -> RealArray:
    """Compute features of few matrices, from atoms that stay prepared if their pairs are equal."""
    pairs = np.stack([model.alpha, model.beta], axis=2)
    unequal = are_filters(model.atoms) or bool((pairs != pairs[0]).any())
    if unequal or on_device(block.data.device_matrices):
        return model.embed(block)
    V = encode_pairs(block.engine, block.data, atoms, pairs[0])
    return FeatureMap(model.offset, model.units).compute(V.reshape(len(block), -1))


@dataclass(frozen=True, eq=False)
class Trained:
    model: Model
    n_iter: int
    message: str  # why the solver stopped
    history: History


def start_model(
    split: Split, settings: Settings, variant: Variant, sample: Block
) -> tuple[Model, RealArray]:
    """Make a model of the initial atoms, without a head; return also features of the sample."""
    alpha, beta = variant.expand(variant.start)
    V = encode_rows(sample, split.atoms, alpha, beta)
    V_train = [V[to_device_of(split.train_rows, V)]]
    offsets = _initial_feature_map(split, settings, V_train)
    feature_map = offsets.standardize(split.shards, split.targets, V_train)
    no_head = np.zeros((0, V.shape[1])), np.zeros(0)
    return _make_model(split.atoms, alpha, beta, feature_map, no_head), feature_map.compute(V)


def _make_model(
    atoms: RealArray, alpha: RealArray, beta: RealArray, feature_map: FeatureMap, head: Head
) -> Model:
    host = feature_map.on_host()
    return Model(to_host(atoms), alpha, beta, host.offset, host.units, head, atoms.shape[2])


def _initial_feature_map(split: Split, settings: Settings, V: Parts) -> FeatureMap:
    n_filters = len(split.atoms) if are_filters(split.atoms) else 0
    return FeatureMap.start(
        split.shards, split.targets, V, plain=settings.loss.plain, n_filters=n_filters
    )


def train(
    split: Split, settings: Settings, variant: Variant, initial: Model | None = None
) -> Trained:
    """Learn atoms and divergences; an initial model gives offsets of features, and a first head."""
    if initial is None:
        V = split.shards.hold(encode_rows, split.atoms, *variant.expand(variant.start))
        feature_map = _initial_feature_map(split, settings, V)
        del V  # frees memory for the solver
    else:
        feature_map = FeatureMap(initial.offset)
    objective = Objective(
        split.shards, split.targets, variant, feature_map, settings, anchors=split.atoms
    )
    objective.warm = None if initial is None else initial.head
    if are_filters(split.atoms):
        mean = split.shards.reduce(_mean_matrix, parts=[split.targets])
        start: Dictionary = Filters(split.atoms, variant.start, invsqrtm(mean))
    else:
        start = Dictionary(np.linalg.cholesky(split.atoms), variant.start)
    learns = (objective.learn_atoms or objective.learn_parameters) and not is_interrupted()
    max_iter = settings.max_iter if learns else 0
    run = SOLVERS[settings.solver](
        objective, start, max_iter=max_iter, tol=_TOLERANCE, seed=settings.seed
    )
    point, memo = run.trial.point, run.trial.memo
    alpha, beta = variant.expand(point.parameters)
    model = _make_model(point.atoms, alpha, beta, memo.feature_map, memo.head)
    return Trained(model, run.n_iter, run.message, run.history)


def _mean_matrix(block: Block, targets: Targets) -> RealArray:
    return np.tensordot(to_host(targets[1]), block.matrices, axes=1)
