"""Classification and regression targets of shards, and a sample in memory."""

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d

from divlearn.arrays import Indices, Labels, RealArray
from divlearn.checks import ClassWeight
from divlearn.engines import Engine, get_engine
from divlearn.engines.cpu import cpu_engine
from divlearn.engines.dask import as_dask
from divlearn.fitting.labelled import ROUNDING, Labelled, Numbered
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
    """Draw a sample of matrices into one block in memory, with targets and weights."""
    share = min(1.0, SAMPLE / count_seen(shards, targets))
    samples = shards.map(_draw, share, seed, parts=[targets])
    X, sample_targets, weights = map(np.concatenate, zip(*samples, strict=True))
    dask = as_dask(engine) is not None
    local_engine = cpu_engine() if dask else get_engine(engine, accuracy=LEARNING_ACCURACY)
    return block_in_memory(local_engine, X, None, np.ones(len(X))), sample_targets, weights


def count_seen(shards: Shards, targets: Parts) -> int:
    """Count matrices with a weight > 0."""
    return int(shards.reduce(_count, parts=[targets]))


def _count(_: Block, targets: Targets) -> int:
    return int(np.count_nonzero(targets[1]))


def _draw(
    block: Block, targets: Targets, share: float, seed: int
) -> tuple[RealArray, RealArray, RealArray]:
    outputs, weights = targets
    rows = draw_rows(block, weights, share, seed)
    return block.matrices[rows], outputs[rows], weights[rows]


def label_shards(
    shards: Shards, class_weight: ClassWeight, engine: str | Engine, seed: int
) -> tuple[Parts, Block, Labelled]:
    """Compute indicators of classes and weights next to the blocks; also draw a sample."""
    classes = shards.reduce(_classes, merge=join_classes)
    counts, totals = shards.reduce(_class_sums, classes)
    factors = class_factors(class_weight, classes, counts)
    with np.errstate(over="ignore"):
        totals = factors * totals
    used = keep_classes(classes, counts, totals)
    check_total_weight(totals)
    classes = classes[used]
    targets = shards.hold(_indicators, classes, factors[used], float(totals.sum()))
    block, indicators, weights = draw_sample(shards, targets, engine, seed)
    codes = indicators.argmax(axis=1)
    rows = np.arange(len(codes))
    data = Labelled(block.matrices, weights, rows, classes[codes], None, codes, classes, weights)
    return targets, block, data


def _classes(block: Block) -> Labels:
    with locate_block(block):
        labels = check_labels(block.y, len(block), warn=block.number == 0)
    return find_classes(labels[block.weights > 0])


def _codes(block: Block, classes: Labels) -> tuple[Indices, NDArray[np.bool_]]:
    """Codes of classes, and a mask of the matrices that belong to a class and have a weight."""
    labels = column_or_1d(block.y)
    codes = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    return codes, (classes[codes] == labels) & (block.weights > 0)


def _class_sums(block: Block, classes: Labels) -> tuple[RealArray, RealArray]:
    codes, used = _codes(block, classes)
    counts = np.bincount(codes[used], minlength=len(classes)).astype(float)
    totals: RealArray = np.bincount(codes[used], block.weights[used], len(classes)).astype(float)
    return counts, totals


def _indicators(
    block: Block, classes: Labels, factors: RealArray, total: float
) -> tuple[RealArray, RealArray]:
    codes, used = _codes(block, classes)
    return np.eye(len(classes))[codes], np.where(used, block.weights * factors[codes] / total, 0)


def number_shards(shards: Shards, engine: str | Engine, seed: int) -> tuple[Parts, Block, Numbered]:
    """Compute standardized numbers and weights next to the blocks; also draw a sample."""
    _, power = np.frexp(shards.reduce(_largest, merge=np.maximum))
    (total, mean, squares), single = shards.reduce(_number_moments, power, merge=_merge_numbers)
    deviation = np.sqrt(squares / total)
    scale = np.where(deviation > ROUNDING, deviation, 1)
    targets = shards.hold(_scaled, power, mean, scale, total)
    mean, scale = np.ldexp(mean, power), np.ldexp(scale, power)
    block, standardized, weights = draw_sample(shards, targets, engine, seed)
    y, rows = standardized[:, 0] if single else standardized, np.arange(len(standardized))
    data = Numbered(block.matrices, weights, rows, y, None, standardized, mean, scale)
    return targets, block, data


def _columns(block: Block) -> RealArray:
    with locate_block(block):
        y = check_numbers(block.y, len(block))
    columns = y[:, None] if y.ndim == 1 else y
    return np.where(block.weights[:, None] > 0, columns, 0.0)  # weight 0: not a sample


def _largest(block: Block) -> RealArray:
    """Return the largest absolute value of every column."""
    return np.abs(_columns(block)).max(axis=0, initial=0.0)


def _shrunk(block: Block, power: Indices) -> RealArray:
    """Divide numbers by powers of two, so that squares neither overflow nor underflow."""
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
