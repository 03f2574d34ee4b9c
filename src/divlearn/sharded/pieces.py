"""Pieces of arrays that are read when they are needed, on whatever machine needs them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Piece(ABC):
    """Rows of an array, and what to call them in a message."""

    where: str

    @abstractmethod
    def load(self) -> Array:
        """Read the rows."""


@dataclass(frozen=True, eq=False)
class MemoryPiece(Piece):
    """Rows that are in memory."""

    array: Array

    def load(self) -> Array:
        return self.array


@dataclass(frozen=True, eq=False)
class MapPiece(Piece):
    """Rows of a memory map: what travels is where they lie in the file."""

    file: str
    dtype: np.dtype[Any]
    offset: int
    shape: tuple[int, ...]

    def load(self) -> Array:
        return np.array(np.memmap(self.file, self.dtype, "r", self.offset, self.shape))


@dataclass(frozen=True, eq=False)
class FilePiece(Piece):
    """Rows of a .npy, .npz or zarr file."""

    file: str
    key: str
    start: int
    stop: int

    def load(self) -> Array:
        return np.asarray(open_file(self.file, self.key)[self.start : self.stop])


@dataclass(eq=False)
class _Iterated:
    """An iterator that starts again for items before the last, which is kept."""

    factory: Callable[[], Iterator[Any]]
    position: int = 0
    iterator: Iterator[Any] | None = None
    last: Any = None

    def take(self, number: int) -> Any:
        if self.iterator is not None and number == self.position - 1:
            return self.last
        if self.iterator is None or number < self.position:
            self.iterator, self.position = iter(self.factory()), 0
        self.last = next(islice(self.iterator, number - self.position, None))
        self.position = number + 1
        return self.last

    def __getstate__(self) -> dict[str, Any]:
        return {"factory": self.factory, "position": 0, "iterator": None, "last": None}


@dataclass(frozen=True, eq=False)
class IteratorPiece(Piece):
    """What an iterator yields at some place: matrices, or a tuple (X, y) or (X, y, weights)."""

    source: _Iterated = field(repr=False)
    number: int
    column: int

    def load(self) -> Array:
        found = self.source.take(self.number)
        return np.asarray(found[self.column] if isinstance(found, tuple) else found)


def split(array: Any, key: str, rows: int) -> list[Piece]:
    """Cut an array, a memory map, a zarr array or a file into pieces of at most so many rows."""
    if is_path(array):
        file, opened = str(array), open_file(array, key)
        length = opened.shape[0]
        ends = [(start, min(start + rows, length)) for start in range(0, length, rows)]
        return [
            FilePiece(file if length <= rows else f"{file}[{i}:{j}]", file, key, i, j)
            for i, j in ends
        ]
    store = getattr(array, "store", None)
    if hasattr(array, "read_only") and store is not None and hasattr(store, "root"):
        path = Path(str(store.root)) / array.path if array.path else Path(str(store.root))
        return split(path, key, rows)
    pieces: list[Piece] = []
    for start in range(0, array.shape[0], rows):
        part = array[start : start + rows]
        where = f"rows {start} to {start + len(part) - 1}"
        if _lies_in_file(part):
            offset = _offset(part)
            pieces.append(MapPiece(where, str(part.filename), part.dtype, offset, part.shape))
        else:
            pieces.append(MemoryPiece(where, part))
    return pieces


def _lies_in_file(part: Any) -> bool:
    """Whether rows can be read from a file, where they lie together."""
    # Of a map in mode "c", copy-on-write, what was changed is not in the file.
    mapped = isinstance(part, np.memmap) and part.filename and part.mode != "c"
    return bool(mapped and part.flags.c_contiguous)


def _offset(part: np.memmap[Any, Any]) -> int:
    """Where a view of a memory map begins in the file."""
    root = part
    while isinstance(root.base, np.memmap):
        root = root.base
    return int(root.offset) + int(part.ctypes.data - root.ctypes.data)


def from_iterator(factory: Callable[[], Iterator[Any]]) -> list[list[Piece]]:
    """Pieces of what an iterator yields: matrices, and what stands beside in its tuples."""
    source = _Iterated(factory)
    widths = [len(found) if isinstance(found, tuple) else 1 for found in factory()]
    if not widths:
        raise ValueError("the iterator yields nothing; it must yield arrays of matrices")
    return [
        [IteratorPiece(f"item {i} of the iterator", source, i, column) for i in range(len(widths))]
        for column in range(min(widths))
    ]


def is_path(value: Any) -> bool:
    return isinstance(value, str | Path)


def open_file(file: str | Path, key: str) -> Any:
    """Open a .npy file as a memory map, an array of a .npz file by its key, or a zarr array."""
    path = Path(file)
    if path.suffix == ".npy":
        return np.load(path, mmap_mode="r", allow_pickle=False)
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            return archive[_choose(key, list(archive), path)]
    if path.suffix == ".zarr" or path.is_dir():
        try:
            import zarr
        except ImportError as error:
            raise ImportError(f"{path} needs zarr; install divlearn[dask]") from error
        opened = zarr.open(str(path), mode="r")
        return opened if hasattr(opened, "shape") else opened[_choose(key, list(opened), path)]
    raise ValueError(f"{path} is not a shard; pass files that end in .npy, .npz or .zarr")


def _choose(key: str, names: list[str], path: Path) -> str:
    if key in names:
        return key
    if len(names) == 1:
        return names[0]
    raise ValueError(f"{path} holds {', '.join(names)}, but must hold {key}, or one array alone")
