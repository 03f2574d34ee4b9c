"""Blocks: matrices prepared for an engine, with their targets and weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import IntArray, Labels, RealArray
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.fitting.targets import locate_errors, require_targets
from divlearn.models.storage import fingerprint
from divlearn.sharded.sources import Lazy, Source, load
from divlearn.spd import Shrinkage, check_spd, shrink
from divlearn.weights import Unit, as_weights, divide_weights

COPIES = 3  # memory of a block, in sizes of its matrices: an engine also keeps them packed
_THREAD_OPERATIONS = 1e8  # for which more threads are worth starting


@dataclass(frozen=True, eq=False)
class Block:
    """Prepared matrices, with as many rows of targets and weights."""

    number: int
    data: Prepared
    make_engine: Callable[[], Engine]  # on the machine of the block
    y: Labels | None
    weights: RealArray  # one each where none were given; their mean over all blocks is one
    host: RealArray | None = None  # checked matrices, where the engine keeps its own on a device
    # Parts that `take` prepared, for matrices in memory.
    taken: dict[int, tuple[IntArray, Prepared]] | None = field(default=None, repr=False)

    @property
    def engine(self) -> Engine:
        return self.make_engine()

    @property
    def matrices(self) -> RealArray:
        """The checked matrices, on the host."""
        return self.data.matrices if self.host is None else self.host

    def take(self, key: int, rows: IntArray) -> Prepared:
        """Prepare the rows of a part, such as a cluster; `key` is its number."""
        if len(rows) == len(self):
            return self.data
        if self.taken is None:
            return self.engine.take(self.data, rows)
        known = self.taken.pop(key, None)
        if known is None or not np.array_equal(known[0], rows):
            del known  # frees memory first: all parts together are as large as the block
            known = rows, self.engine.take(self.data, rows)
        self.taken[key] = known
        return known[1]

    def only(self, rows: IntArray) -> Block:
        """Return a block of some rows, or this block if they are all rows in order."""
        if np.array_equal(rows, np.arange(len(self))):
            return self
        y = None if self.y is None else self.y[rows]
        data = self.engine.take(self.data, rows)
        weights, matrices = self.weights[rows], self.matrices[rows]
        return Block(self.number, data, self.make_engine, y, weights, matrices)

    def reweighted(self, unit: Unit) -> Block:
        """Return a block of the same matrices with weights divided by a unit."""
        return replace(self, weights=divide_weights(self.weights, unit))

    def __len__(self) -> int:
        return self.data.n_matrices

    def __sizeof__(self) -> int:
        """Bytes, from which Dask decides what to write to disk and where to compute."""
        y_bytes = 0 if self.y is None else self.y.nbytes
        return COPIES * self.data.working.nbytes + self.weights.nbytes + y_bytes


@dataclass(frozen=True, eq=False)
class LazyBlock(Lazy):
    """A block that is read from its source."""

    number: int
    source: Source
    make_engine: Callable[[], Engine]
    shrinkage: Shrinkage | None = None  # of the matrices
    unit: Unit | None = None  # of the weights; None before all blocks were read and checked

    def load(self) -> Block:
        """Read matrices and prepare them for an engine; messages name the shard and the index."""
        X, y, weights = map(load, (self.source.X, self.source.y, self.source.weights))
        name, shrinkage = f"shard {self.number} ({self.source.name})", self.shrinkage
        if self.unit is None:
            matrices = check_spd(
                X, regularize=shrinkage or "raise", ndim=3, dtype=np.float64, name=f"{name}, X"
            )
        else:
            matrices = np.asarray(X, dtype=np.float64)
            matrices = 0.5 * (matrices + matrices.mT)
            shrink(matrices, shrinkage)
        with locate_errors(name):
            weights = as_weights(weights, len(matrices))
        data = self.make_engine().prepare(Prepared.checked(matrices))
        block = Block(self.number, data, self.make_engine, y, weights)
        return block if self.unit is None else block.reweighted(self.unit)

    def reweighted(self, unit: Unit) -> LazyBlock:
        """Return a block of the same matrices, checked before, with weights divided by a unit."""
        return replace(self, unit=unit)


def block_in_memory(
    engine: Engine, matrices: RealArray, y: Labels | None, weights: RealArray
) -> Block:
    """Make one block of checked matrices in memory."""
    data = engine.keep(Prepared.checked(matrices))
    return Block(0, data, partial(get_engine, engine), y, weights, matrices, {})


@contextmanager
def locate_block(block: Block) -> Iterator[None]:
    """Name the shard in errors about y, unless all data is in memory."""
    if block.taken is not None:
        yield
        return
    where = f"shard {block.number}"
    if block.y is None:
        where += (
            ' has no y (pass an array, files, those of X again where they hold an array "y", or a '
            "callable that yields (X, y))"
        )
    with locate_errors(where):
        yield


def targets_block(block: Block) -> Labels:
    with locate_block(block):
        return np.asarray(require_targets(block.y))


def encode_block(block: Block, atoms: RealArray, alpha: ArrayLike, beta: ArrayLike) -> RealArray:
    return block.engine.encode(block.data, atoms, alpha, beta)


def fingerprint_block(block: Block) -> str:
    """SHA-256 of the matrices, targets and weights of a block."""
    return fingerprint((block.data.matrices, block.y, block.weights))


def engine_for(engine: Engine, n_matrices: int, d: int) -> Engine:
    """Return the engine, with one thread if the work is too short for more threads."""
    if n_matrices * d**2 * (10.0 * d + 300.0) >= _THREAD_OPERATIONS:
        return engine
    single = copy(engine)
    single.given_threads = 1
    return single
