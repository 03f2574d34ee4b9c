"""Matrices to be clustered, their weights, and what is asked of them at every turn."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from divlearn.arrays import RealArray, beside, to_host
from divlearn.engines import Engine, Prepared
from divlearn.spd import check_spd

__all__ = ["Assignment", "Labels", "Samples", "checked_blocks"]

Labels = NDArray[np.intp]

_TABLE_ENTRIES = 1 << 22  # divergences to all centroids held at a time
_LEAST_ROWS = 1024  # of a block, so that vector lanes are full
_THREAD_OPERATIONS = 1e8  # some milliseconds


class Assignment(NamedTuple):
    """The nearest centre of every matrix, and the divergence to it."""

    labels: Labels
    divergences: RealArray


@dataclass(frozen=True, eq=False)
class Samples:
    """Checked matrices with weights, prepared in blocks; on a device, if the engine has one.

    Attributes
    ----------
    engine : Engine
    matrices : ndarray, shape (n_matrices, d, d), checked SPD matrices in float64.
    weights : ndarray, shape (n_matrices,), positive.
    blocks : list of Prepared, the matrices in their order.
    """

    engine: Engine
    matrices: RealArray
    weights: RealArray
    blocks: list[Prepared]

    @classmethod
    def prepare(
        cls, engine: Engine, matrices: RealArray, weights: RealArray, n_clusters: int
    ) -> Samples:
        """Prepare blocks such that a table of divergences to all centroids fits in memory."""
        step = max(_LEAST_ROWS, engine.table_entries // n_clusters)
        blocks = [
            engine.keep(Prepared.checked(matrices[start : start + step]))
            for start in range(0, len(matrices), step)
        ]
        return cls(engine, matrices, weights, blocks)

    @property
    def d(self) -> int:
        """Rows of a matrix."""
        return int(self.matrices.shape[-1])

    @property
    def total_weight(self) -> float:
        """Sum of the weights."""
        return float(self.weights.sum())

    def take(self, rows: Labels) -> Prepared:
        """Prepare some of the matrices, without another check."""
        if len(self.blocks) == 1:
            return self.engine.take(self.blocks[0], rows)
        return self.engine.keep(Prepared.checked(self.matrices[rows]))

    def engine_for(self, n_matrices: int) -> Engine:
        """Return the engine, with one thread for few matrices: it is done before others wake up."""
        operations = n_matrices * self.d**2 * (10.0 * self.d + 300.0)
        return self._single if operations < _THREAD_OPERATIONS else self.engine

    @cached_property
    def _single(self) -> Engine:
        single = copy(self.engine)
        single.given_threads = 1
        return single

    def encode(self, centers: RealArray, alpha: float, beta: float) -> RealArray:
        """Divergences of all matrices to a few centres, shape (n_matrices, n_centers)."""
        parts = [to_host(self.engine.encode(block, centers, alpha, beta)) for block in self.blocks]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def assign(self, centers: RealArray, alpha: float, beta: float) -> Assignment:
        """Find the nearest centre of every matrix, the first of several."""
        parts = []
        for block in self.blocks:
            table = self.engine.encode(block, centers, alpha, beta)
            parts.append(_nearest(table))
        return Assignment(*map(np.concatenate, zip(*parts, strict=True)))

    def reassign(
        self, centers: RealArray, alpha: float, beta: float, labels: Labels
    ) -> tuple[RealArray, Assignment]:
        """Divergences to centres that are given by labels, and the nearest ones."""
        own, parts, start = np.empty(len(labels)), [], 0
        for block in self.blocks:
            table = self.engine.encode(block, centers, alpha, beta)
            rows = slice(start, start + len(table))
            own[rows] = to_host(_pick(table, beside(labels[rows], table)))
            parts.append(_nearest(table))
            start = rows.stop
        return own, Assignment(*map(np.concatenate, zip(*parts, strict=True)))


def checked_blocks(X: ArrayLike, n_clusters: int) -> Iterator[tuple[slice, RealArray]]:
    """Check matrices block by block, however many there are.

    Parameters
    ----------
    X : array-like, shape (n_matrices, d, d)
        A memory map will do.
    n_clusters : int
        Columns of a table that one block leads to.

    Yields
    ------
    rows : slice
    matrices : ndarray, shape (n_rows, d, d), checked SPD matrices in float64.
    """
    array = X if isinstance(X, np.ndarray) and X.ndim == 3 else check_spd(X, ndim=3)
    step = _rows_per_block(n_clusters)
    if len(array) <= step:
        yield slice(0, len(array)), check_spd(array, ndim=3, dtype=np.float64)
        return
    for start in range(0, len(array), step):
        rows = slice(start, min(start + step, len(array)))
        name = f"X[{rows.start}:{rows.stop}]"
        yield rows, check_spd(array[rows], ndim=3, dtype=np.float64, name=name)


def _rows_per_block(n_clusters: int) -> int:
    return max(_LEAST_ROWS, _TABLE_ENTRIES // n_clusters)


def _nearest(table: RealArray) -> Assignment:
    """Find the nearest centres where the table is; what is found goes to the host."""
    labels = table.argmin(axis=1)
    divergences = to_host(_pick(table, labels))
    return Assignment(to_host(labels).astype(np.intp, copy=False), divergences)


def _pick(table: RealArray, columns: Any) -> RealArray:
    picked: RealArray = np.take_along_axis(table, columns[:, None], axis=1)[:, 0]
    return picked
