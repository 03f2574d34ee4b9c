"""What a fit learns from: classes or numbers of matrices, wherever these are."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d

from divlearn.arrays import Indices, Labels, RealArray
from divlearn.checks import ClassWeight, check_finite
from divlearn.engines import Engine, get_engine
from divlearn.engines.cpu import cpu_engine
from divlearn.engines.dask import as_dask
from divlearn.fitting.calibration import fit_temperature, log_softmax
from divlearn.fitting.folds import Folds, Splitter, number_units
from divlearn.fitting.held_out import Memo
from divlearn.fitting.labelled import Labelled
from divlearn.fitting.regression import ROUNDING, Numbered
from divlearn.fitting.targets import (
    check_labels,
    check_numbers,
    class_factors,
    find_classes,
    join_classes,
    keep_classes,
)
from divlearn.heads.losses import Targets
from divlearn.iddl.features import Moments, column_moments, merge_moments
from divlearn.iddl.training import Part
from divlearn.sharded.blocks import Block, block_in_memory, locate_block
from divlearn.sharded.shards import SAMPLE, MemoryShards, Parts, Shards, draw_rows
from divlearn.tolerances import LEARNING_ACCURACY
from divlearn.weights import check_total_weight


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


def _targets_here(shards: Shards, wanted: RealArray, weights: RealArray) -> Parts:
    """Targets of the one block of shards, and weights scaled to a sum of one."""
    return [(shards.place(wanted), shards.place(weights / weights.sum()))]


# --- matrices out of memory, of which a sample chooses --------------------------------------------


def draw_sample(
    shards: Shards, targets: Parts, engine: str | Engine, seed: int
) -> tuple[Block, RealArray, RealArray, int]:
    """Bring matrices into memory: one block, targets, weights, and how many there are to see."""
    n_seen = shards.reduce(_count, parts=[targets])
    drawn = shards.map(_draw, min(1.0, SAMPLE / n_seen), seed, parts=[targets])
    X, wanted, weights = map(np.concatenate, zip(*drawn, strict=True))
    dask = as_dask(engine) is not None
    here = cpu_engine() if dask else get_engine(engine, accuracy=LEARNING_ACCURACY)
    return block_in_memory(here, X, None, np.ones(len(X))), wanted, weights, n_seen


def _count(_: Block, targets: Targets) -> int:
    return int(np.count_nonzero(targets[1]))


def _draw(
    block: Block, targets: Targets, share: float, seed: int
) -> tuple[RealArray, RealArray, RealArray]:
    wanted, weights = targets
    rows = draw_rows(block, weights, share, seed)
    return block.matrices[rows], wanted[rows], weights[rows]


def sharded_classes_task(
    shards: Shards,
    class_weight: ClassWeight,
    cv: Splitter,
    engine: str | Engine,
    seeds: tuple[int, int],
) -> Task:
    classes = shards.reduce(_classes, merge=join_classes)
    counts, totals = shards.reduce(_class_sums, classes)
    factors = class_factors(class_weight, classes, counts)
    with np.errstate(over="ignore"):
        totals = factors * totals
    kept = keep_classes(classes, counts, totals)
    check_total_weight(totals)
    classes = classes[kept]
    targets = shards.hold(_indicators, classes, factors[kept], float(totals.sum()))
    block, wanted, weights, n_seen = draw_sample(shards, targets, engine, seeds[1])
    codes = wanted.argmax(axis=1)
    rows = np.arange(len(codes))
    data = Labelled(block.matrices, weights, rows, classes[codes], None, codes, classes, weights)
    task = make_task(block, data, data.folds(cv, seeds[0]))
    return replace(task, shards=shards, targets=targets, n_seen=n_seen)


def _classes(block: Block) -> Labels:
    with locate_block(block):
        labels = check_labels(block.y, len(block), warn=block.number == 0)
    return find_classes(labels[block.weights > 0])


def _codes(block: Block, classes: Labels) -> tuple[Indices, NDArray[np.bool_]]:
    """Classes of the matrices, and which matrices are samples of one."""
    labels = column_or_1d(block.y)
    codes = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    return codes, (classes[codes] == labels) & (block.weights > 0)


def _class_sums(block: Block, classes: Labels) -> tuple[RealArray, RealArray]:
    codes, seen = _codes(block, classes)
    counts = np.bincount(codes[seen], minlength=len(classes)).astype(float)
    totals: RealArray = np.bincount(codes[seen], block.weights[seen], len(classes)).astype(float)
    return counts, totals


def _indicators(
    block: Block, classes: Labels, factors: RealArray, total: float
) -> tuple[RealArray, RealArray]:
    codes, seen = _codes(block, classes)
    return np.eye(len(classes))[codes], np.where(seen, block.weights * factors[codes] / total, 0)


def sharded_numbers_task(
    shards: Shards, cv: Splitter, engine: str | Engine, seeds: tuple[int, int]
) -> Task:
    _, power = np.frexp(shards.reduce(_largest, merge=np.maximum))
    (total, mean, squares), single = shards.reduce(_number_moments, power, merge=_merge_numbers)
    deviation = np.sqrt(squares / total)
    scale = np.where(deviation > ROUNDING, deviation, 1)
    targets = shards.hold(_scaled, power, mean, scale, total)
    mean, scale = np.ldexp(mean, power), np.ldexp(scale, power)
    block, wanted, weights, n_seen = draw_sample(shards, targets, engine, seeds[1])
    y, rows = wanted[:, 0] if single else wanted, np.arange(len(wanted))
    data = Numbered(block.matrices, weights, rows, y, None, wanted, mean, scale)
    task = make_task(block, data, data.folds(cv, seeds[0]))
    return replace(task, shards=shards, targets=targets, n_seen=n_seen)


def _columns(block: Block) -> RealArray:
    with locate_block(block):
        y = check_numbers(block.y, len(block))
    columns = y[:, None] if y.ndim == 1 else y
    return np.where(block.weights[:, None] > 0, columns, 0.0)  # without weight it is no sample


def _largest(block: Block) -> RealArray:
    """Return the largest number of every column, without its sign."""
    return np.abs(_columns(block)).max(axis=0, initial=0.0)


def _shrunk(block: Block, power: Indices) -> RealArray:
    """Numbers over powers of two, exactly: squares neither overflow nor underflow."""
    return np.ldexp(_columns(block), -power)


def _number_moments(block: Block, power: Indices) -> tuple[Moments, bool]:
    assert block.y is not None
    return column_moments(_shrunk(block, power), block.weights), block.y.ndim == 1


def _merge_numbers(
    first: tuple[Moments, bool], second: tuple[Moments, bool]
) -> tuple[Moments, bool]:
    return merge_moments(first[0], second[0]), first[1]


def _scaled(
    block: Block, power: Indices, mean: RealArray, scale: RealArray, total: float
) -> tuple[RealArray, RealArray]:
    return (_shrunk(block, power) - mean) / scale, block.weights / total
