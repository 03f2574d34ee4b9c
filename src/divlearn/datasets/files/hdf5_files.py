"""Arrays of HDF5 files, among them MATLAB 7.3 files: numbers and text.

The HDF5 library parses the headers, and only those on which no damage was found to harm it; the
data are read here. Its own reading paths for compressed chunks and for strings of any length crash
or hang on damaged files, inflate without bound, and follow references into other files.
"""

from __future__ import annotations

import importlib
import itertools
import math
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from divlearn.datasets.files.variables import Refusal, Variable, quote, read_bytes, text_array

__all__ = ["find_hdf5", "open_hdf5"]

_MAGIC = b"\x89HDF\r\n\x1a\n"
# How the newer indices start: B-trees of version 2, fractal heaps, fixed and extensible arrays,
# tables of shared messages, images of the cache. Without these bytes the library parses none.
_NEWER = re.compile(rb"(BTHD|FRHP|FAHD|EAHD|SMTB|MDCI)\x00")
_BLOCK = 2**20
_DEFLATE, _SHUFFLE = 1, 2
# A string of any length is its length, the address of a heap and an index into it.
_REFERENCE = np.dtype([("length", "<u4"), ("address", "<u8"), ("index", "<u4")])


def find_hdf5(file: BinaryIO, size: int) -> bool:
    """Whether an HDF5 file starts at byte 0, 512, 1024, 2048, ..., where its format allows it.

    Examples
    --------
    >>> import io
    >>> find_hdf5(io.BytesIO(512 * b" " + _MAGIC), 520)
    True
    """
    position = 0
    while position < size:
        file.seek(position)
        if file.read(len(_MAGIC)) == _MAGIC:
            return True
        position = max(512, 2 * position)
    return False


def _import_h5py() -> ModuleType:
    try:
        return importlib.import_module("h5py")
    except ImportError as error:
        raise ImportError(
            'reading HDF5 and MATLAB 7.3 files needs h5py: pip install "divlearn[files]"'
        ) from error


@contextmanager
def open_hdf5(file: BinaryIO, size: int) -> Iterator[list[Variable]]:
    """List the arrays at the top of an HDF5 file; they can be read inside the context.

    Examples
    --------
    >>> import h5py, io
    >>> file = io.BytesIO()
    >>> with h5py.File(file, "w") as store:
    ...     store["X"] = np.zeros((4, 2, 2))
    ...     store["y"] = ["a", "b", "a", "b"]
    >>> with open_hdf5(file, len(file.getvalue())) as variables:
    ...     print(*variables, sep="; ")
    X (4, 2, 2) float64; y (4,) text
    """
    h5py = _import_h5py()
    _refuse_newer(file)
    with h5py.File(file, "r") as store:
        yield [variable for name in store if (variable := _describe(h5py, store, name, file, size))]


def _refuse_newer(file: BinaryIO) -> None:
    """Refuse structures that crash the library: with right checksums, one bad size is enough.

    The files that MATLAB and, by default, h5py write have none of them. Data that look like one by
    chance, once in about 2 ** 40 bytes, are refused too.
    """
    file.seek(0)
    tail = b""
    while block := file.read(_BLOCK):
        if _NEWER.search(tail + block):
            raise Refusal(
                "it uses indices of recent HDF5 versions, which the HDF5 library does not read "
                'safely; write it again without libver="latest" and with few arrays per group'
            )
        tail = block[-4:]


def _describe(
    h5py: ModuleType, store: Any, name: str, file: BinaryIO, size: int
) -> Variable | None:
    """One dataset; None for groups and named types."""
    if not isinstance(store.get(name, getlink=True), h5py.HardLink):
        return _refused(name, "is a link, possibly to another file; store the data itself")
    dataset = store[name]
    if not isinstance(dataset, h5py.Dataset):
        return None
    # Even the shape of a virtual dataset may be looked up in the files it points to.
    if reason := _refuse_storage(h5py, dataset) or _refuse_type(h5py, dataset, store):
        return _refused(name, reason)
    if dataset.shape is None:
        return _refused(name, "has no shape; store an array")
    place = _Place(h5py, name, dataset, file, size, store.userblock_size)
    shape = dataset.shape
    if place.is_char:
        shape = shape[-1:]
    dtype = np.dtype("U") if place.is_char or place.is_reference else place.dtype
    return Variable(name, shape, dtype, place.read)


def _refused(name: str, reason: str) -> Variable:
    return Variable(name, (), np.dtype(object), lambda limit: np.empty(0), reason)


def _refuse_storage(h5py: ModuleType, dataset: Any) -> str:
    properties = dataset.id.get_create_plist()
    if properties.get_layout() == h5py.h5d.VIRTUAL:
        return "is a virtual dataset, made of other files; store the data itself"
    if properties.get_layout() == h5py.h5d.COMPACT:
        return "is stored inside its own header; write the file again with h5py's defaults"
    if properties.get_external_count():
        return "keeps its data in another file; store the data itself"
    filters = {properties.get_filter(i)[0] for i in range(properties.get_nfilters())}
    if not filters <= {_DEFLATE, _SHUFFLE}:
        return (
            f"is stored through the HDF5 filters {sorted(filters)}, must be gzip (1) and shuffle "
            "(2) or none; write the file again with these"
        )
    return ""


def _refuse_type(h5py: ModuleType, dataset: Any, store: Any) -> str:
    kind = dataset.id.get_type()
    if kind.get_class() == h5py.h5t.STRING:
        # The heaps of strings are parsed here, in the one layout in use today.
        usual = store.id.get_create_plist().get_sizes() == (8, 8)
        return "" if usual else "has strings in an old layout; write the file again"
    if kind.get_class() in (h5py.h5t.INTEGER, h5py.h5t.FLOAT, h5py.h5t.ENUM):
        if h5py.h5t.py_create(dataset.dtype, logical=True).equal(kind):
            return ""
        return "has a number type that NumPy lacks; write it as float64"
    if dataset.dtype.kind == "c":
        return "is complex, must be real; save its real part"
    return (
        "holds neither numbers nor text; save cell arrays, structs and records as arrays of "
        "numbers or text"
    )


@dataclass(frozen=True, eq=False)
class _Place:
    """A dataset, and the file its bytes are in."""

    h5py: ModuleType
    name: str
    dataset: Any
    file: BinaryIO
    size: int
    base: int

    @property
    def is_reference(self) -> bool:
        """Whether it holds strings of any length, which lie elsewhere in the file."""
        kind = self.dataset.id.get_type()
        return kind.get_class() == self.h5py.h5t.STRING and bool(kind.is_variable_str())

    @property
    def is_char(self) -> bool:
        """Whether its numbers are a char array of MATLAB."""
        if self.dataset.dtype != np.uint16 or "MATLAB_class" not in self.dataset.attrs:
            return False
        attribute = self.h5py.h5a.open(self.dataset.id, b"MATLAB_class")
        kind = attribute.get_type()
        # Anything else than these four letters needs not be read, least of all from a heap.
        if kind.get_class() != self.h5py.h5t.STRING or kind.is_variable_str():
            return False
        if attribute.shape != () or kind.get_size() != 4:
            return False
        word = np.empty((), "S4")
        attribute.read(word)
        return word.tobytes() == b"char"

    @property
    def dtype(self) -> np.dtype[Any]:
        return _REFERENCE if self.is_reference else np.dtype(self.dataset.dtype)

    def read(self, limit: int) -> NDArray[Any]:
        if self.is_reference:
            heaps = _Heaps(self.file, self.size, self.base)
            references = self._read_entries(limit).ravel()
            return text_array(heaps.read(references, limit), limit)
        entries = self._read_entries(limit)
        if not self.is_char:
            return entries
        # MATLAB's columns come as rows, hence its rows, the strings, as columns.
        rows = entries.reshape(-1, entries.shape[-1]).T.astype("<u2", order="C")
        return text_array([row.tobytes().decode("utf-16-le").rstrip(" ") for row in rows], limit)

    def _read_entries(self, limit: int) -> NDArray[Any]:
        shape, dtype = self.dataset.shape, self.dtype
        if self.dataset.chunks is not None:
            n_bytes = math.prod(self.dataset.chunks) * dtype.itemsize
            if n_bytes > limit:
                raise Refusal(
                    f"{quote(self.name)} comes in chunks of {n_bytes} bytes, more than the {limit} "
                    "that limit= leaves; raise it if you trust the file"
                )
            return self._read_chunks(shape, dtype)
        offset = self.dataset.id.get_offset()
        n_bytes = math.prod(shape) * dtype.itemsize
        if offset is None or n_bytes > self.size - offset:
            raise Refusal(
                f"{quote(self.name)} claims {n_bytes} bytes that the file does not hold; "
                "it was never written or is truncated, write the file again"
            )
        self.file.seek(offset)
        content: NDArray[Any] = read_bytes(self.file, n_bytes).view(dtype)
        return content.reshape(shape)

    def _read_chunks(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        chunk: tuple[int, ...] = self.dataset.chunks
        entries = np.empty(shape, dtype)
        corners = (range(0, end, side) for end, side in zip(shape, chunk, strict=True))
        for corner in itertools.product(*corners):
            place = tuple(slice(at, at + side) for at, side in zip(corner, chunk, strict=True))
            part = entries[place]
            # Chunks at the border stick out of the array.
            inside = tuple(slice(side) for side in part.shape)
            entries[place] = self._read_chunk(corner, chunk, dtype)[inside]
        return entries

    def _read_chunk(
        self, corner: tuple[int, ...], chunk: tuple[int, ...], dtype: np.dtype[Any]
    ) -> NDArray[Any]:
        n_stored = self.dataset.id.get_chunk_info_by_coord(corner).size
        if not 0 < n_stored <= self.size:
            raise Refusal(
                f"{quote(self.name)} has {n_stored} bytes for its chunk at {corner}, must "
                f"be > 0 and <= {self.size}; it was never written or is damaged, write it again"
            )
        # Into a buffer, since the size of one of its own is looked up elsewhere in a damaged file.
        skipped, content = self.dataset.id.read_direct_chunk(corner, out=bytearray(n_stored))
        properties = self.dataset.id.get_create_plist()
        n_bytes = math.prod(chunk) * dtype.itemsize
        for i in reversed(range(properties.get_nfilters())):
            if skipped >> i & 1:
                continue
            if properties.get_filter(i)[0] == _DEFLATE:
                inflater = zlib.decompressobj()
                # One byte more than is right shows a chunk that is too long.
                content = inflater.decompress(content, n_bytes + 1)
                if not inflater.eof:
                    content = b""
            else:
                columns = np.frombuffer(content, np.uint8).reshape(dtype.itemsize, -1)
                content = columns.T.tobytes()
        if len(content) != n_bytes:
            raise Refusal(
                f"the chunk of {quote(self.name)} at {corner} has not the {n_bytes} bytes "
                "of its shape; the file is damaged, write it again"
            )
        return np.frombuffer(content, dtype).reshape(chunk)


class _Heaps:
    """The strings of a file, which lie in numbered pieces of heaps at given addresses."""

    def __init__(self, file: BinaryIO, size: int, base: int) -> None:
        self._file = file
        self._size = size
        self._base = base
        self._known: dict[int, dict[int, bytes]] = {}
        # Heaps do not overlap, so that all of them together are no larger than the file.
        self._n_bytes_left = size

    def read(self, references: NDArray[Any], limit: int) -> list[str]:
        strings = []
        for length, address, index in references.tolist():
            # Address 0 is that of the empty string.
            piece = self._pieces(address).get(index, b"") if address else b""
            if length > len(piece):
                raise Refusal(
                    f"a string claims {length} bytes of a piece of {len(piece)}; the file is "
                    "damaged, write it again"
                )
            limit -= length
            if limit < 0:
                raise Refusal(
                    "its strings take more bytes than limit= leaves; raise it if you trust the file"
                )
            strings.append(piece[:length].decode("utf8"))
        return strings

    def _pieces(self, address: int) -> dict[int, bytes]:
        """Pieces of the heap there, by their numbers."""
        if address not in self._known:
            self._known[address] = dict(self._parse(self._base + address))
        return self._known[address]

    def _parse(self, start: int) -> Iterator[tuple[int, bytes]]:
        self._file.seek(min(start, self._size))
        head = read_bytes(self._file, 16).tobytes()
        n_bytes = int.from_bytes(head[8:], "little")
        self._n_bytes_left -= n_bytes
        if head[:5] != b"GCOL\x01" or n_bytes < 16 or self._n_bytes_left < 0:
            raise Refusal(f"there is no heap of strings at byte {start}; write the file again")
        heap = read_bytes(self._file, n_bytes - 16).tobytes()
        at = 0
        while at + 16 <= len(heap):
            index = int.from_bytes(heap[at : at + 2], "little")
            if index == 0:  # what is free, up to the end
                return
            n_piece = int.from_bytes(heap[at + 8 : at + 16], "little")
            yield index, heap[at + 16 : at + 16 + n_piece]
            at += 16 + n_piece + -n_piece % 8
