"""Pieces of arrays that are read when they are needed, on whatever machine needs them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divlearn.checks import import_extra

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows of an array: what a message calls them, how to read them, and their number."""

    where: str
    load: Callable[[], Array]
    n_rows: int = 0  # unknown for an item of an iterator


@dataclass(eq=False)
class _Iterated:
    """An iterator that starts again for items before the last, which is kept."""

    factory: Callable[[], Iterator[Any]]
    position: int = 0
    iterator: Iterator[Any] | None = None
    last: Any = None

    def take(self, number: int, column: int) -> Array:
        """Return an item, or one column of it where items are tuples."""
        if self.iterator is None or number < self.position - 1:
            self.iterator, self.position = iter(self.factory()), 0
        if number >= self.position:
            self.last = next(islice(self.iterator, number - self.position, None))
            self.position = number + 1
        return np.asarray(self.last[column] if isinstance(self.last, tuple) else self.last)

    def __getstate__(self) -> dict[str, Any]:
        return {"factory": self.factory, "position": 0, "iterator": None, "last": None}


def split(array: Any, key: str, rows: int) -> list[Piece]:
    """Cut an array, a memory map, a zarr array or a file into pieces of at most so many rows."""
    if is_path(array):
        length = open_file(array, key).shape[0]
        return cut_file(array, key, [min(rows, length - i) for i in range(0, length, rows)])
    store = getattr(array, "store", None)
    if hasattr(array, "read_only") and store is not None and hasattr(store, "root"):
        path = Path(str(store.root)) / array.path if array.path else Path(str(store.root))
        return split(path, key, rows)
    pieces: list[Piece] = []
    for start in range(0, array.shape[0], rows):
        part = array[start : start + rows]
        where = f"rows {start} to {start + len(part) - 1}"
        load = partial(np.asarray, part)
        # Of a map in mode "c", copy-on-write, what was changed is not in the file.
        mapped = isinstance(part, np.memmap) and part.filename and part.mode != "c"
        if mapped and part.flags.c_contiguous:  # what travels is where the rows lie
            load = partial(_read_map, str(part.filename), part.dtype, _offset(part), part.shape)
        pieces.append(Piece(where, load, len(part)))
    return pieces


def cut_file(file: Any, key: str, lengths: Sequence[int]) -> list[Piece]:
    """Cut a .npy, .npz or zarr file into pieces of these lengths."""
    ends = [*accumulate(lengths, initial=0)]
    return [
        Piece(
            str(file) if len(lengths) == 1 else f"{file}[{i}:{j}]",
            partial(_read_rows, str(file), key, i, j),
            j - i,
        )
        for i, j in pairwise(ends)
    ]


def _read_rows(file: str, key: str, start: int, stop: int) -> Array:
    return np.asarray(open_file(file, key)[start:stop])


def _read_map(file: str, dtype: np.dtype[Any], offset: int, shape: tuple[int, ...]) -> Array:
    return np.array(np.memmap(file, dtype, "r", offset, shape))


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
        [
            Piece(f"item {i} of the iterator", partial(source.take, i, column))
            for i in range(len(widths))
        ]
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
        zarr = import_extra("zarr", f"{path} needs zarr", "dask")
        opened = zarr.open(str(path), mode="r")
        return opened if hasattr(opened, "shape") else opened[_choose(key, list(opened), path)]
    raise ValueError(f"{path} is not a shard; pass files that end in .npy, .npz or .zarr")


def _choose(key: str, names: list[str], path: Path) -> str:
    if key in names:
        return key
    if len(names) == 1:
        return names[0]
    raise ValueError(f"{path} holds {', '.join(names)}, but must hold {key}, or one array alone")
