"""What shards are to be predicted by: classes or numbers, and weights of sum one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite, check_array, compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from divlearn.arrays import RealArray
from divlearn.checks import check_sortable
from divlearn.sharded.blocks import Block
from divlearn.sharded.heads import Targets
from divlearn.sharded.shards import Parts, Shards
from divlearn.sharded.statistics import Moments, merge_moments

__all__ = ["class_targets", "labels_of", "number_targets"]


def class_targets(shards: Shards, class_weight: Any) -> tuple[NDArray[Any], Parts]:
    """Find the classes; the targets of a block are indicators of these.

    Parameters
    ----------
    shards : Shards
    class_weight : dict, "balanced" or None

    Returns
    -------
    classes : ndarray
    targets : parts, `Targets` of every block.
    """
    classes = shards.reduce(_classes_block, merge=np.union1d)
    if len(classes) < 2:
        raise ValueError(f"y holds the one class {classes[0]!s}, must hold >= 2; pass data of more")
    counts, sums = shards.reduce(_counts_block, classes)
    if isinstance(class_weight, str) and class_weight == "balanced":
        factors = counts.sum() / (len(classes) * counts)
    else:
        factors = compute_class_weight(class_weight, classes=classes, y=classes)
    targets = shards.hold(_indicators_block, classes, factors / float(factors @ sums))
    return classes, targets


def number_targets(shards: Shards) -> tuple[RealArray, RealArray, bool, Parts]:
    """Find the units of numbers; the targets of a block are in these.

    Returns
    -------
    mean, scale : ndarray, shape (n_outputs,)
    single : bool, whether y has one dimension.
    targets : parts
    """
    moments, single = shards.reduce(_numbers_block, merge=_merge_numbers)
    deviation = np.sqrt(np.diagonal(moments.scatter) / moments.weight)
    scale = np.where(deviation > 0, deviation, 1)
    targets = shards.hold(_scaled_block, moments.mean, scale, moments.weight)
    return moments.mean, scale, single, targets


def labels_of(block: Block, *, warn: bool = False) -> NDArray[Any]:
    """Labels of classes, in one dimension."""
    labels: NDArray[Any] = column_or_1d(_given(block), warn=warn)
    return labels


def _given(block: Block) -> NDArray[Any]:
    if block.y is None:
        raise ValueError(
            f"shard {block.number} has no y; pass an array, files (those of X again, where they "
            'hold an array "y"), or a callable that yields (X, y)'
        )
    return block.y


def _classes_block(block: Block) -> NDArray[Any]:
    """Classes of a block, all of whose labels are checked."""
    labels = labels_of(block, warn=block.number == 0)
    assert_all_finite(labels, input_name="y")
    check_sortable(labels, f"shard {block.number}: y")
    # Every label twice: that a block has as many classes as matrices is nothing to warn of.
    check_classification_targets(np.repeat(np.unique(labels), 2))
    return np.unique(labels[block.weights > 0])


def _counts_block(block: Block, classes: NDArray[Any]) -> tuple[RealArray, RealArray]:
    seen = block.weights > 0
    codes = np.searchsorted(classes, labels_of(block)[seen])
    counts = np.bincount(codes, minlength=len(classes)).astype(float)
    sums: RealArray = np.bincount(codes, block.weights[seen], len(classes)).astype(float)
    return counts, sums


def _indicators_block(block: Block, classes: NDArray[Any], factors: RealArray) -> Targets:
    # What has no weight may be of no class.
    codes = np.minimum(np.searchsorted(classes, labels_of(block)), len(classes) - 1)
    return np.eye(len(classes))[codes], block.weights * factors[codes]


def _columns(block: Block) -> RealArray:
    y: RealArray = check_array(_given(block), ensure_2d=False, dtype=np.float64, input_name="y")
    return y[:, None] if y.ndim == 1 else y


def _numbers_block(block: Block) -> tuple[Moments, bool]:
    return Moments.of(_columns(block), block.weights), _given(block).ndim == 1


def _merge_numbers(
    first: tuple[Moments, bool], second: tuple[Moments, bool]
) -> tuple[Moments, bool]:
    return merge_moments(first[0], second[0]), first[1]


def _scaled_block(block: Block, mean: RealArray, scale: RealArray, total: float) -> Targets:
    return (_columns(block) - mean) / scale, block.weights / total
