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
from divlearn.weights import check_total_weight, column_moments, merge_moments

Targets = tuple[RealArray, RealArray]  # of a block, shape (n_matrices, n_outputs), and weights


def draw_sample(
    shards: Shards, targets: Parts, engine: str | Engine, seed: int
) -> tuple[Block, RealArray, RealArray]:
    """Draw a sample of matrices into one block in memory, with targets and weights."""
    share = min(1.0, SAMPLE / count_seen(shards, targets))

    def draw(block: Block, targets: Targets) -> tuple[RealArray, RealArray, RealArray]:
        outputs, weights = targets
        rows = draw_rows(block, weights, share, seed)
        return block.matrices[rows], outputs[rows], weights[rows]

    samples = shards.map(draw, parts=[targets])
    X, sample_targets, weights = map(np.concatenate, zip(*samples, strict=True))
    dask = as_dask(engine) is not None
    local_engine = cpu_engine() if dask else get_engine(engine, accuracy=LEARNING_ACCURACY)
    return block_in_memory(local_engine, X, None, np.ones(len(X))), sample_targets, weights


def count_seen(shards: Shards, targets: Parts) -> int:
    """Count matrices with a weight > 0."""
    return int(shards.reduce(lambda _, targets: np.count_nonzero(targets[1]), parts=[targets]))


def label_shards(
    shards: Shards, class_weight: ClassWeight, engine: str | Engine, seed: int
) -> tuple[Parts, Block, Labelled]:
    """Compute indicators of classes and weights next to the blocks; also draw a sample."""
    classes = shards.reduce(_classes, merge=join_classes)

    def count(block: Block) -> tuple[RealArray, RealArray]:
        codes, used = _codes(block, classes)
        counts = np.bincount(codes[used], minlength=len(classes)).astype(float)
        return counts, np.bincount(codes[used], block.weights[used], len(classes)).astype(float)

    counts, totals = shards.reduce(count)
    factors = class_factors(class_weight, classes, counts)
    with np.errstate(over="ignore"):
        totals = factors * totals
    used = keep_classes(classes, counts, totals)
    check_total_weight(totals)
    kept, factors, total = classes[used], factors[used], float(totals.sum())

    def indicate(block: Block) -> Targets:
        codes, used = _codes(block, kept)
        return np.eye(len(kept))[codes], np.where(used, block.weights * factors[codes] / total, 0)

    targets = shards.hold(indicate)
    block, indicators, weights = draw_sample(shards, targets, engine, seed)
    codes = indicators.argmax(axis=1)
    rows = np.arange(len(codes))
    data = Labelled(block.matrices, weights, rows, kept[codes], None, codes, kept, weights)
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


def number_shards(shards: Shards, engine: str | Engine, seed: int) -> tuple[Parts, Block, Numbered]:
    """Compute standardized numbers and weights next to the blocks; also draw a sample."""
    largest, n_axes = shards.reduce(
        lambda block: (np.abs(_columns(block)).max(axis=0, initial=0.0), block.y.ndim),
        merge=lambda first, second: (np.maximum(first[0], second[0]), first[1]),
    )
    # Divided by powers of two, so that squares neither overflow nor underflow.
    _, power = np.frexp(largest)
    total, mean, squares = shards.reduce(
        lambda block: column_moments(np.ldexp(_columns(block), -power), block.weights),
        merge=merge_moments,
    )
    deviation = np.sqrt(squares / total)
    scale = np.where(deviation > ROUNDING, deviation, 1)
    targets = shards.hold(
        lambda block: (
            (np.ldexp(_columns(block), -power) - mean) / scale,
            block.weights / total,
        )
    )
    block, standardized, weights = draw_sample(shards, targets, engine, seed)
    y, rows = standardized[:, 0] if n_axes == 1 else standardized, np.arange(len(standardized))
    units = np.ldexp(mean, power), np.ldexp(scale, power)
    data = Numbered(block.matrices, weights, rows, y, None, standardized, *units)
    return targets, block, data


def _columns(block: Block) -> RealArray:
    with locate_block(block):
        y = check_numbers(block.y, len(block))
    columns = y[:, None] if y.ndim == 1 else y
    return np.where(block.weights[:, None] > 0, columns, 0.0)  # weight 0: not a sample
