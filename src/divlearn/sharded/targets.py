"""Classes or numbers of matrices in shards, and a sample of both in memory."""

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d

from divlearn.arrays import Indices, Labels, RealArray
from divlearn.checks import ClassWeight
from divlearn.engines import Engine, get_engine
from divlearn.engines.cpu import cpu_engine
from divlearn.engines.dask import as_dask
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
from divlearn.sharded.blocks import Block, block_in_memory, locate_block
from divlearn.sharded.shards import SAMPLE, Parts, Shards, draw_rows
from divlearn.tolerances import LEARNING_ACCURACY
from divlearn.weights import Moments, check_total_weight, column_moments, merge_moments

Targets = tuple[RealArray, RealArray]  # of a block, shape (n_matrices, n_outputs), and weights


def draw_sample(
    shards: Shards, targets: Parts, engine: str | Engine, seed: int
) -> tuple[Block, RealArray, RealArray]:
    """Bring matrices into memory: one block, with targets and weights."""
    share = min(1.0, SAMPLE / count_seen(shards, targets))
    drawn = shards.map(_draw, share, seed, parts=[targets])
    X, wanted, weights = map(np.concatenate, zip(*drawn, strict=True))
    dask = as_dask(engine) is not None
    here = cpu_engine() if dask else get_engine(engine, accuracy=LEARNING_ACCURACY)
    return block_in_memory(here, X, None, np.ones(len(X))), wanted, weights


def count_seen(shards: Shards, targets: Parts) -> int:
    """Count matrices with a weight."""
    return int(shards.reduce(_count, parts=[targets]))


def _count(_: Block, targets: Targets) -> int:
    return int(np.count_nonzero(targets[1]))


def _draw(
    block: Block, targets: Targets, share: float, seed: int
) -> tuple[RealArray, RealArray, RealArray]:
    wanted, weights = targets
    rows = draw_rows(block, weights, share, seed)
    return block.matrices[rows], wanted[rows], weights[rows]


def label_shards(
    shards: Shards, class_weight: ClassWeight, engine: str | Engine, seed: int
) -> tuple[Parts, Block, Labelled]:
    """Hold indicators of classes, with weights, where matrices are; return also a sample."""
    classes = shards.reduce(_classes, merge=join_classes)
    counts, totals = shards.reduce(_class_sums, classes)
    factors = class_factors(class_weight, classes, counts)
    with np.errstate(over="ignore"):
        totals = factors * totals
    kept = keep_classes(classes, counts, totals)
    check_total_weight(totals)
    classes = classes[kept]
    targets = shards.hold(_indicators, classes, factors[kept], float(totals.sum()))
    block, wanted, weights = draw_sample(shards, targets, engine, seed)
    codes = wanted.argmax(axis=1)
    rows = np.arange(len(codes))
    data = Labelled(block.matrices, weights, rows, classes[codes], None, codes, classes, weights)
    return targets, block, data


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


def number_shards(shards: Shards, engine: str | Engine, seed: int) -> tuple[Parts, Block, Numbered]:
    """Hold standardised numbers, with weights, where matrices are; return also a sample."""
    _, power = np.frexp(shards.reduce(_largest, merge=np.maximum))
    (total, mean, squares), single = shards.reduce(_number_moments, power, merge=_merge_numbers)
    deviation = np.sqrt(squares / total)
    scale = np.where(deviation > ROUNDING, deviation, 1)
    targets = shards.hold(_scaled, power, mean, scale, total)
    mean, scale = np.ldexp(mean, power), np.ldexp(scale, power)
    block, wanted, weights = draw_sample(shards, targets, engine, seed)
    y, rows = wanted[:, 0] if single else wanted, np.arange(len(wanted))
    data = Numbered(block.matrices, weights, rows, y, None, wanted, mean, scale)
    return targets, block, data


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
