"""Nearest neighbours among shards, or of shards."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.baselines.neighbors import find_nearest, take_nearest
from divlearn.divergence import Divergence
from divlearn.sharded.blocks import Block
from divlearn.sharded.shards import Shards
from divlearn.sharded.targets import class_targets, codes_block

__all__ = ["codes_of", "search_among", "search_for"]

_Found = tuple[RealArray, NDArray[np.intp]]  # distances and indices, the nearest first


def codes_of(shards: Shards) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Classes, and the index of that of every matrix; -1 for what has no weight."""
    classes, _ = class_targets(shards, None)
    return classes, np.concatenate(shards.map(_codes_block, classes))


def search_among(shards: Shards, queries: RealArray, divergence: Divergence, k: int) -> _Found:
    """Find the k nearest matrices of all shards: the nearest of those that each shard has."""
    starts = np.concatenate([[0], np.cumsum(shards.lengths)[:-1]])
    distances, neighbors, _ = shards.reduce(
        _candidates_block, queries, divergence, k, starts, merge=_merge
    )
    return distances, neighbors


def search_for(shards: Shards, estimator: Any, k: int) -> _Found:
    """Find the neighbours of matrices in shards among those that an estimator keeps."""
    found = shards.map(_search_block, estimator, k)
    distances, neighbors = map(np.concatenate, zip(*found, strict=True))
    return distances, neighbors


def _codes_block(block: Block, classes: NDArray[Any]) -> NDArray[np.intp]:
    codes, seen = codes_block(block, classes)
    return np.where(seen, codes, -1)


def _candidates_block(
    block: Block, queries: RealArray, divergence: Divergence, k: int, starts: NDArray[np.intp]
) -> tuple[RealArray, NDArray[np.intp], int]:
    seen = np.flatnonzero(block.weights)  # the others are no samples
    matrices = block.data.matrices[seen]
    few = min(k, len(seen))
    distances, rows = find_nearest(queries, matrices, divergence, few, block.engine)
    return distances, seen[rows] + starts[block.number], k


def _merge(
    first: tuple[RealArray, NDArray[np.intp], int], second: tuple[RealArray, NDArray[np.intp], int]
) -> tuple[RealArray, NDArray[np.intp], int]:
    k = first[2]
    distances, neighbors = np.hstack([first[0], second[0]]), np.hstack([first[1], second[1]])
    return *take_nearest(distances, neighbors, k), k


def _search_block(block: Block, estimator: Any, k: int) -> _Found:
    found: _Found = estimator._search_block(block.data.matrices, k, block.engine)
    return found
