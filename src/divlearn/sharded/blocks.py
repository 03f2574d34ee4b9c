"""A block of matrices, ready for an engine, and how it is made from pieces of arrays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from divlearn.arrays import IntArray, RealArray
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.fitting.targets import check_rows, locate_errors, require_targets
from divlearn.models.storage import fingerprint
from divlearn.sharded.pieces import Piece
from divlearn.spd import Shrinkage, check_spd, shrink
from divlearn.weights import Unit, as_weights, divide_weights

_COPIES = 3  # of the matrices: what an engine keeps of them, packed, beside them
_THREAD_OPERATIONS = 1e8  # some milliseconds


@dataclass(frozen=True)
class EngineChoice:
    """How to get an engine on any machine, and how to regularize matrices before it sees them."""

    name: str | Engine = "auto"  # the engine itself stays on this machine
    n_threads: int | None = None
    accuracy: str | float = "auto"
    shrinkage: Shrinkage | None = None

    def get(self) -> Engine:
        return get_engine(self.name, self.n_threads, self.accuracy)


@dataclass(frozen=True, eq=False)
class Block:
    """Matrices that lie together, with targets and weights of as many rows."""

    number: int
    data: Prepared
    choice: EngineChoice
    y: NDArray[Any] | None
    weights: RealArray  # one each where none were given; their mean over all blocks is one
    host: RealArray | None = None  # checked matrices, where the engine keeps its own on a device
    # Of matrices in memory: where parts stay prepared from one call of `take` to the next.
    taken: dict[int, tuple[IntArray, Prepared]] | None = field(default=None, repr=False)

    @property
    def engine(self) -> Engine:
        return self.choice.get()

    @property
    def matrices(self) -> RealArray:
        """The checked matrices, on the host."""
        return self.data.matrices if self.host is None else self.host

    def take(self, key: int, rows: IntArray) -> Prepared:
        """Prepare the rows of a part, such as a cluster, which is known by its number."""
        if len(rows) == len(self):
            return self.data
        if self.taken is None:
            return self.engine.take(self.data, rows)
        known = self.taken.pop(key, None)
        if known is None or not np.array_equal(known[0], rows):
            del known  # before the next one comes: together they are as large as the block
            known = rows, self.engine.take(self.data, rows)
        self.taken[key] = known
        return known[1]

    def only(self, rows: IntArray) -> Block:
        """Make a block of some of the rows; the same where they are all, in order."""
        if np.array_equal(rows, np.arange(len(self))):
            return self
        y = None if self.y is None else self.y[rows]
        data = self.engine.take(self.data, rows)
        return Block(self.number, data, self.choice, y, self.weights[rows], self.matrices[rows])

    def reweighted(self, unit: Unit) -> Block:
        """Make a block of the same matrices with weights in another unit."""
        return replace(self, weights=divide_weights(self.weights, unit))

    def __len__(self) -> int:
        return self.data.n_matrices

    def __sizeof__(self) -> int:
        """Bytes: by these Dask decides what to write to disk, and that blocks stay."""
        return sum(map(bytes_of, (self.data, self.y, self.weights)))


@dataclass(frozen=True, eq=False)
class BlockSource:
    number: int
    X: Piece
    y: Piece | None
    weights: Piece | None
    choice: EngineChoice

    def load(self, *, check: bool = True) -> Block:
        """Read, check and prepare; what was checked before need not be again."""
        y, weights = (None if part is None else part.load() for part in (self.y, self.weights))
        where = self.X.where
        return make_block(self.number, where, self.choice, self.X.load(), y, weights, check=check)


def make_block(
    number: int,
    where: str,
    choice: EngineChoice,
    X: NDArray[Any],
    y: NDArray[Any] | None = None,
    weights: NDArray[Any] | None = None,
    *,
    check: bool = True,
) -> Block:
    """Check matrices and what belongs to them; messages name the shard and the index."""
    name = f"shard {number} ({where})"
    if check:
        regularize = choice.shrinkage or "raise"
        matrices = check_spd(X, regularize=regularize, ndim=3, dtype=np.float64, name=f"{name}, X")
        with locate_errors(name):
            weights = as_weights(weights, len(matrices))
            if y is not None:
                check_rows(y, len(matrices), "y")
    else:
        matrices = np.asarray(X, dtype=np.float64)
        matrices = 0.5 * (matrices + matrices.mT)
        shrink(matrices, choice.shrinkage)
        weights = as_weights(weights, len(matrices))
    data = choice.get().prepare(Prepared.checked(matrices))
    return Block(number, data, choice, y, weights)


def block_in_memory(
    engine: Engine, matrices: RealArray, y: NDArray[Any] | None, weights: RealArray
) -> Block:
    """Make one block of checked matrices, so that the engine sees all of them at once."""
    data = engine.keep(Prepared.checked(matrices))
    return Block(0, data, EngineChoice(engine), y, weights, matrices, {})


@contextmanager
def locate_block(block: Block) -> Iterator[None]:
    """Name the shard that an error about y is about; data in memory is none."""
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


def targets_block(block: Block) -> NDArray[Any]:
    with locate_block(block):
        return np.asarray(require_targets(block.y))


def encode_block(block: Block, atoms: RealArray, alpha: ArrayLike, beta: ArrayLike) -> RealArray:
    return block.engine.encode(block.data, atoms, alpha, beta)


def fingerprint_block(block: Block) -> str:
    """SHA-256 of the matrices of a block, of what they are to predict and of their weights."""
    return fingerprint((block.data.matrices, block.y, block.weights))


def engine_for(engine: Engine, n_matrices: int, d: int) -> Engine:
    """Return the engine, with one thread for few matrices: it is done before others wake up."""
    if n_matrices * d**2 * (10.0 * d + 300.0) >= _THREAD_OPERATIONS:
        return engine
    single = copy(engine)
    single.given_threads = 1
    return single


def bytes_of(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    if isinstance(value, Prepared):
        return bytes_of(value.working) * _COPIES
    if isinstance(value, list | tuple):
        return sum(map(bytes_of, value))
    return 0
