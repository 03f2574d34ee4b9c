"""What shards are to be predicted by: classes or numbers, and weights of sum one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d

from divlearn.arrays import RealArray
from divlearn.fitting.targets import (
    check_labels,
    check_numbers,
    class_factors,
    find_classes,
    join_classes,
    keep_classes,
)
from divlearn.sharded.blocks import Block, locate_block
from divlearn.sharded.heads import Targets
from divlearn.sharded.shards import Parts, Shards
from divlearn.sharded.statistics import Moments, merge_moments
from divlearn.weights import check_total_weight

__all__ = ["class_targets", "codes_block", "number_targets"]


def class_targets(shards: Shards, class_weight: Any) -> tuple[NDArray[Any], Parts]:
    """Find the classes with a weight; the targets of a block are indicators of these.

    As `divlearn.fitting.labelled.check_labelled` does for data in memory.

    Parameters
    ----------
    shards : Shards
    class_weight : dict, "balanced" or None

    Returns
    -------
    classes : ndarray
    targets : parts, `Targets` of every block.
    """
    classes = shards.reduce(_classes_block, merge=join_classes)
    counts, totals = shards.reduce(_counts_block, classes)
    factors = class_factors(class_weight, classes, counts)
    with np.errstate(over="ignore"):
        totals = factors * totals
    kept = keep_classes(classes, counts, totals)
    check_total_weight(totals)
    classes = classes[kept]
    return classes, shards.hold(_indicators_block, classes, factors[kept], float(totals.sum()))


def number_targets(shards: Shards) -> tuple[RealArray, RealArray, bool, Parts]:
    """Find the units of numbers; the targets of a block are in these.

    Returns
    -------
    mean, scale : ndarray, shape (n_outputs,)
    single : bool, whether y has one dimension.
    targets : parts
    """
    total = shards.total_weight
    moments, single = shards.reduce(_numbers_block, total, merge=_merge_numbers)
    deviation = np.sqrt(np.diagonal(moments.scatter) / moments.weight)
    scale = np.where(deviation > 0, deviation, 1)
    return moments.mean, scale, single, shards.hold(_scaled_block, moments.mean, scale, total)


def _classes_block(block: Block) -> NDArray[Any]:
    """Classes of a block, all of whose labels are checked."""
    with locate_block(block):
        labels = check_labels(block.y, len(block), warn=block.number == 0)
    return find_classes(labels[block.weights > 0])


def codes_block(block: Block, classes: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Find the classes of the matrices, and which matrices are samples of one."""
    labels = column_or_1d(block.y)
    codes = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    return codes, (classes[codes] == labels) & (block.weights > 0)


def _counts_block(block: Block, classes: NDArray[Any]) -> tuple[RealArray, RealArray]:
    codes, seen = codes_block(block, classes)
    counts = np.bincount(codes[seen], minlength=len(classes)).astype(float)
    totals: RealArray = np.bincount(codes[seen], block.weights[seen], len(classes)).astype(float)
    return counts, totals


def _indicators_block(
    block: Block, classes: NDArray[Any], factors: RealArray, total: float
) -> Targets:
    codes, seen = codes_block(block, classes)
    return np.eye(len(classes))[codes], np.where(seen, block.weights * factors[codes] / total, 0)


def _columns(block: Block) -> RealArray:
    with locate_block(block):
        y = check_numbers(block.y, len(block))
    return y[:, None] if y.ndim == 1 else y


def _numbers_block(block: Block, total: float) -> tuple[Moments, bool]:
    columns = _columns(block)
    assert block.y is not None
    return Moments.of(columns, block.weights / total), block.y.ndim == 1


def _merge_numbers(
    first: tuple[Moments, bool], second: tuple[Moments, bool]
) -> tuple[Moments, bool]:
    return merge_moments(first[0], second[0]), first[1]


def _scaled_block(block: Block, mean: RealArray, scale: RealArray, total: float) -> Targets:
    return (_columns(block) - mean) / scale, block.weights / total
