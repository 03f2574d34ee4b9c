"""Blocks: matrices prepared for an engine, with their targets and weights, and their sources."""

from __future__ import annotations

import os
import pickle
import weakref
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import IntArray, Labels, RealArray
from divlearn.atomic import naming_full_disk
from divlearn.checks import import_extra
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.fitting.targets import check_rows, locate_errors, require_targets
from divlearn.models.storage import fingerprint
from divlearn.sharded.scratch import make_file, remove_file
from divlearn.spd import Shrinkage, check_spd, shrink
from divlearn.text import counted
from divlearn.weights import Unit, as_weights, divide_weights

COPIES = 3  # memory of a block, in sizes of its matrices: an engine also keeps them packed
_THREAD_OPERATIONS = 1e8  # from which on several threads pay
# Input data: arrays, memory maps, Dask arrays, zarr arrays, files, iterators.
Data = Any


# --- sources: arrays, files, Dask arrays or iterators ---------------------------------------------


class Lazy:
    """A value that is read for each use."""

    @abstractmethod
    def load(self) -> Any:
        """Read the value."""


def load(value: Any) -> Any:
    """Return a value; read it first if it is lazy."""
    return value.load() if isinstance(value, Lazy) else value


class Stored(Lazy):
    """A value in a temporary file, which is deleted with this object."""

    def __init__(self, value: object) -> None:
        handle, self._path = make_file()
        weakref.finalize(self, remove_file, self._path, os.getpid())
        with naming_full_disk(self._path), os.fdopen(handle, "wb") as file:
            pickle.dump(value, file, protocol=5)

    def load(self) -> Any:
        with open(self._path, "rb") as file:
            return pickle.load(file)


@dataclass(frozen=True, eq=False)
class LazyArray(Lazy):
    """Rows of an array that is opened on the machine that needs them."""

    open_array: Callable[[], Data]
    shape: tuple[int, ...]
    start: int = 0

    def __getitem__(self, rows: slice) -> LazyArray:
        start, stop, _ = rows.indices(self.shape[0])
        return replace(self, shape=(stop - start, *self.shape[1:]), start=self.start + start)

    def load(self) -> np.ndarray:
        return np.asarray(self.open_array()[self.start : self.start + self.shape[0]])


@dataclass(frozen=True, eq=False)
class Source:
    """Matrices with their targets and weights; each an array, a LazyArray or a Dask array."""

    name: str  # in messages
    X: Data
    y: Data = None
    weights: Data = None

    def cut(self, lengths: Sequence[int]) -> list[Source]:
        """Cut into blocks of these lengths."""
        return [
            Source(
                f"{self.name}[{i}:{j}]",
                *(None if a is None else a[i:j] for a in (self.X, self.y, self.weights)),
            )
            for i, j in pairwise(accumulate(lengths, initial=0))
        ]


def open_sources(X: Data, y: Data, sample_weight: Data, *, in_files: bool) -> list[Source]:
    """Open files and arrays, or read all items of an iterator, if ``in_files`` into files."""
    if callable(X):
        if y is not None or sample_weight is not None:
            raise ValueError("X is a callable: y and sample_weight must come in its tuples, (X, y)")
        sources = _read_items(X, in_files)
    elif isinstance(X, Iterator):
        raise TypeError("X is an iterator, which can be read once; pass a callable that returns it")
    else:
        parts = X if are_paths(X) else [X]
        names = [str(part) if is_path(part) else "X" for part in parts]
        matrices = [_open(part, "X") for part in parts]
        lengths = [array.shape[0] for array in matrices]
        columns = [_align(y, "y", X, lengths), _align(sample_weight, "sample_weight", X, lengths)]
        sources = [Source(*row) for row in zip(names, matrices, *columns, strict=True)]
    for shape in (source.X.shape for source in sources):
        if len(shape) != 3:
            raise ValueError(
                f"X has shape {shape}, but must have three dimensions, (n_matrices, d, d)"
            )
    return sources


def _open(values: Data, key: str) -> Data:
    """Open an array whose slices are read on use, unless it is in memory."""
    if is_path(values):
        return LazyArray(partial(open_file, values, key), open_file(values, key).shape)
    # Changes to a map of mode "c", copy-on-write, are in memory, not in the file.
    mapped = isinstance(values, np.memmap) and values.filename and values.mode != "c"
    if mapped and values.flags.c_contiguous:
        location = str(values.filename), values.dtype, "r", _offset(values), values.shape
        return LazyArray(partial(np.memmap, *location), values.shape)
    if type(values).__module__.startswith("zarr."):
        return LazyArray(lambda: values, values.shape)
    if is_dask_array(values):
        _check_chunks(values, key)
        return values
    return np.asanyarray(values)


def _check_chunks(array: Data, key: str) -> None:
    """Refuse a Dask array that does not know how many rows it has."""
    if np.isnan(array.shape[0]):
        raise ValueError(
            f"{key} has chunks of unknown size; call {key}.compute_chunk_sizes() first"
        )


def _offset(view: np.memmap) -> int:
    """Position in the file of the first entry of a view of a memory map."""
    root = view
    while isinstance(root.base, np.memmap):
        root = root.base
    return int(root.offset) + int(view.ctypes.data - root.ctypes.data)


def _align(values: Data, key: str, X: Data, lengths: Sequence[int]) -> Sequence[Data]:
    """Targets or weights of each source, given the numbers of matrices."""
    if values is None:
        return [None] * len(lengths)
    if are_paths(values) and are_paths(X) and len(values) == len(X):
        opened = [_open(file, key) for file in values]
        for file, array, matrices, length in zip(values, opened, X, lengths, strict=True):
            if array.shape[0] != length:
                raise ValueError(
                    f"{file} has {counted(array.shape[0], 'rows')} of {key}, but {matrices} has "
                    f"{counted(length, 'matrices')}; pass files of as many rows, in the same order"
                )
        return opened
    if is_path(values):
        values = open_file(values, key)
    if is_dask_array(values):
        _check_chunks(values, key)
    else:
        values = as_weights(values, sum(lengths)) if key == "sample_weight" else np.asarray(values)
    check_rows(values, sum(lengths), key)
    return [values[i:j] for i, j in pairwise(accumulate(lengths, initial=0))]


def _read_items(factory: Callable[[], Iterator[Data]], in_files: bool) -> list[Source]:
    """Read all items of an iterator: matrices, or tuples (X, y) or (X, y, sample_weight)."""
    sources: list[Source] = []
    for item in factory():
        X, *others = map(np.asarray, item if isinstance(item, tuple) else (item,))
        name = f"item {len(sources)} of the iterator"
        with locate_errors(name):
            for key, values in zip(("y", "sample_weight"), others, strict=False):
                check_rows(values, len(X), key)
        matrices = LazyArray(Stored(X).load, X.shape) if in_files else X
        sources.append(Source(name, matrices, *others))
    if not sources:
        raise ValueError("the iterator yields nothing; it must yield arrays of matrices")
    return sources


def is_path(value: object) -> bool:
    return isinstance(value, str | Path)


def are_paths(values: object) -> bool:
    return isinstance(values, list | tuple) and len(values) > 0 and all(map(is_path, values))


def is_dask_array(X: object) -> bool:
    return type(X).__module__.startswith("dask.array")


def open_file(file: str | Path, key: str) -> Data:
    """Open a .npy file as a memory map, an array of a .npz file by its key, or a zarr array."""
    path = Path(file)
    if path.suffix == ".npy":
        with locate_errors(str(path)):
            return np.load(path, mmap_mode="r", allow_pickle=False)
    if path.suffix == ".npz":
        with locate_errors(str(path)), np.load(path, allow_pickle=False) as archive:
            return archive[_choose(key, list(archive))]
    if path.suffix == ".zarr" or path.is_dir():
        zarr = import_extra("zarr", f"{path} needs zarr", "dask")
        opened = zarr.open(str(path), mode="r")
        with locate_errors(str(path)):
            return opened if hasattr(opened, "shape") else opened[_choose(key, list(opened))]
    raise ValueError(f"{path} is not a shard; pass files that end in .npy, .npz or .zarr")


def _choose(key: str, names: list[str]) -> str:
    if key in names:
        return key
    if len(names) == 1:
        return names[0]
    raise ValueError(f"it holds {', '.join(names)}, must hold {key}, or one array alone")


# --- blocks ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Block:
    """Prepared matrices, with as many rows of targets and weights."""

    number: int
    data: Prepared
    make_engine: Callable[[], Engine]  # on the machine of the block
    y: Labels | None
    weights: RealArray  # default 1; their mean over all blocks is one
    host: RealArray | None = None  # checked matrices, if the engine keeps its copy on a device
    # Cache of `take`, for matrices in memory.
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
        cached = self.taken.pop(key, None)
        if cached is None or not np.array_equal(cached[0], rows):
            del cached  # free memory first: all parts together are as large as the block
            cached = rows, self.engine.take(self.data, rows)
        self.taken[key] = cached
        return cached[1]

    def only(self, rows: IntArray) -> Block:
        """Return a block of these rows, or the block itself if they are all rows in order."""
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
        """Bytes, from which Dask decides what to spill to disk and where to compute."""
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
        """Return a block of the same matrices, now checked, with weights divided by a unit."""
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
