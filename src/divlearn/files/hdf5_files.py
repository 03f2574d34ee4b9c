"""Arrays of HDF5 files, among them MATLAB 7.3 files: numbers and text.

h5py reads the headers and finds the stored blocks; the blocks are decoded here. The HDF5 library
would inflate a compressed chunk without bound, and one wrong byte in a string of variable length
makes it allocate gigabytes, loop for ever or crash.
"""

import itertools
import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from divlearn.checks import import_extra
from divlearn.files.variables import Damage, Refusal, Variable, check_limit, quote, text_array

_MAGIC = b"\x89HDF\r\n\x1a\n"
# How the newer indices start: B-trees of version 2, fractal heaps, fixed and extensible arrays,
# tables of shared messages, images of the cache. Without these bytes the library parses none.
_NEWER = (b"BTHD\0", b"FRHP\0", b"FAHD\0", b"EAHD\0", b"SMTB\0", b"MDCI\0")
_BLOCK = 2**20
_DEFLATE, _SHUFFLE = 1, 2
# A string of variable length is its length, the address of a heap and an index into it.
_REFERENCE = np.dtype([("length", "<u4"), ("address", "<u8"), ("index", "<u4")])


def find_hdf5(file: BinaryIO, size: int) -> bool:
    """Whether an HDF5 file starts at byte 0, 512, 1024, 2048, ..., where its format allows it."""
    position = 0
    while position < size:
        file.seek(position)
        if file.read(len(_MAGIC)) == _MAGIC:
            return True
        position = max(512, 2 * position)
    return False


@contextmanager
def open_hdf5(file: BinaryIO, size: int) -> Iterator[list[Variable]]:
    """List the arrays at the top of an HDF5 file; they can be read inside the context."""
    h5py = import_extra("h5py", "reading HDF5 and MATLAB 7.3 files needs h5py", "files")
    _refuse_newer(file)
    with h5py.File(file, "r") as store:
        yield [variable for name in store if (variable := _describe(h5py, store, name, file, size))]


def _refuse_newer(file: BinaryIO) -> None:
    """Refuse structures that crash the library: with right checksums, one bad size is enough."""
    # MATLAB and, by default, h5py write none. Data looks like one by chance once in 2**40 bytes.
    file.seek(0)
    tail = b""
    while block := file.read(_BLOCK):
        block = tail + block
        if any(start in block for start in _NEWER):
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
        return Variable.refused(name, "is a link, possibly to another file; store the data itself")
    dataset = store[name]
    if not isinstance(dataset, h5py.Dataset):
        return None
    # Even the shape of a virtual dataset may be looked up in the files it points to.
    if reason := _refuse_storage(h5py, dataset) or _refuse_type(h5py, dataset, store):
        return Variable.refused(name, reason)
    shape, dtype = dataset.shape, dataset.dtype
    if shape is None:
        return Variable.refused(name, "has no shape; store an array")
    if dtype.kind == "O":
        read = partial(_read_strings, dataset, file, size, store.userblock_size)
        return Variable(name, shape, np.dtype("U"), read)
    if _is_char(dataset):
        return Variable(name, shape[-1:], np.dtype("U"), partial(_read_chars, dataset, file, size))
    return Variable(name, shape, dtype, partial(_read_entries, dataset, dtype, file, size))


def _refuse_storage(h5py: ModuleType, dataset: Any) -> str:
    properties = dataset.id.get_create_plist()
    layouts = (h5py.h5d.CONTIGUOUS, h5py.h5d.CHUNKED)
    if properties.get_layout() not in layouts or properties.get_external_count():
        return (
            "keeps its data in other files or in its header (virtual, external or compact "
            "storage); write the file again with h5py's defaults"
        )
    filters = {properties.get_filter(i)[0] for i in range(properties.get_nfilters())}
    if not filters <= {_DEFLATE, _SHUFFLE}:
        return (
            f"is stored through the HDF5 filters {sorted(filters)}, must be gzip (1) and shuffle "
            "(2) or none; write the file again with these"
        )
    return ""


def _refuse_type(h5py: ModuleType, dataset: Any, store: Any) -> str:
    dtype = dataset.dtype
    if text := h5py.check_string_dtype(dtype):
        # The heaps of strings are parsed here, in the one layout in use today.
        if text.length is None and store.id.get_create_plist().get_sizes() != (8, 8):
            return "has strings in an old layout; write the file again"
        return ""
    if dtype.kind in "biuf":
        if h5py.h5t.py_create(dtype, logical=True).equal(dataset.id.get_type()):
            return ""
        return "has a number type that NumPy lacks; write it as float64"
    if dtype.kind == "c":
        return "is complex, must be real; save its real part"
    return (
        "holds neither numbers nor text; save cell arrays, structs and records as arrays of "
        "numbers or text"
    )


def _is_char(dataset: Any) -> bool:
    if dataset.dtype != np.uint16 or "MATLAB_class" not in dataset.attrs:
        return False
    attribute = dataset.attrs.get_id("MATLAB_class")
    # An attribute of another type is not read, least of all a string from a heap.
    if attribute.dtype != np.dtype("S4") or attribute.shape != ():
        return False
    return bool(dataset.attrs["MATLAB_class"] == b"char")


def _read_chars(dataset: Any, file: BinaryIO, size: int, limit: int) -> NDArray[np.str_]:
    codes = _read_entries(dataset, np.dtype(np.uint16), file, size, limit)
    # MATLAB's columns come as rows, hence its rows, the strings, as columns.
    rows = codes.reshape(-1, codes.shape[-1]).T.astype("<u2", order="C")
    return text_array([row.tobytes().decode("utf-16-le").rstrip(" ") for row in rows], limit)


def _read_entries(
    dataset: Any, dtype: np.dtype[Any], file: BinaryIO, size: int, limit: int
) -> NDArray[Any]:
    name, shape, chunk = quote(dataset.name[1:]), dataset.shape, dataset.chunks
    n_bytes = math.prod(chunk or shape) * dtype.itemsize
    if chunk is None:
        offset = dataset.id.get_offset()
        if offset is None or n_bytes > size - offset:
            raise Damage(f"{name} claims {n_bytes} bytes that the file does not hold")
        file.seek(offset)
        return np.fromfile(file, dtype, math.prod(shape)).reshape(shape)
    check_limit(n_bytes, limit, f"the chunks of {name}")
    entries = np.empty(shape, dtype)
    for corner in itertools.product(*map(range, itertools.repeat(0), shape, chunk)):
        part = entries[tuple(map(slice, corner, np.add(corner, chunk)))]
        content = _read_chunk(dataset, corner, size, n_bytes)
        if len(content) != n_bytes:
            raise Damage(f"the chunk of {name} at {corner} does not hold {n_bytes} bytes")
        # Chunks at the border stick out of the array.
        part[...] = np.frombuffer(content, dtype).reshape(chunk)[tuple(map(slice, part.shape))]
    return entries


def _read_chunk(dataset: Any, corner: tuple[int, ...], size: int, n_bytes: int) -> bytes:
    """Read a chunk of that many bytes; what is damaged may be shorter or one byte longer."""
    n_stored = dataset.id.get_chunk_info_by_coord(corner).size
    if not 0 < n_stored <= size:
        return b""
    # Into a buffer, since the size of one of its own is looked up elsewhere in a damaged file.
    skipped, content = dataset.id.read_direct_chunk(corner, out=bytearray(n_stored))
    properties = dataset.id.get_create_plist()
    for i in reversed(range(properties.get_nfilters())):
        if skipped >> i & 1:
            continue
        if properties.get_filter(i)[0] == _DEFLATE:
            inflater = zlib.decompressobj()
            content = inflater.decompress(content, n_bytes + 1)
            if not inflater.eof:
                return b""
        else:
            columns = np.frombuffer(content, np.uint8)
            content = columns.reshape(n_bytes // math.prod(dataset.chunks), -1).T.tobytes()
    return bytes(content)


def _read_strings(
    dataset: Any, file: BinaryIO, size: int, base: int, limit: int
) -> NDArray[np.str_]:
    """Read strings of variable length, which are pieces of heaps elsewhere in the file."""
    heaps: dict[int, dict[int, bytes]] = {0: {}}  # the empty string has address 0
    strings, n_bytes_left, n_characters = [], size, 0
    references = _read_entries(dataset, _REFERENCE, file, size, limit)
    for length, address, index in references.ravel().tolist():
        if address not in heaps:
            # Heaps do not overlap, so that together they are no larger than the file.
            heaps[address], n_bytes = _read_heap(file, base + address, n_bytes_left)
            n_bytes_left -= n_bytes
        piece = heaps[address].get(index, b"")
        if length > len(piece):
            raise Damage(f"a string claims {length} bytes of a piece of {len(piece)}")
        # Many strings may be one piece: small in the file, large in memory.
        n_characters += length
        check_limit(n_characters, limit, "its strings")
        strings.append(piece[:length].decode("utf8"))
    return text_array(strings, limit)


def _read_heap(file: BinaryIO, start: int, largest: int) -> tuple[dict[int, bytes], int]:
    file.seek(min(start, 2**62))
    head = file.read(16)
    n_bytes = int.from_bytes(head[8:], "little")
    if head[:5] != b"GCOL\x01" or not 16 <= n_bytes <= largest:
        raise Damage(f"there is no heap of strings at byte {start}")
    heap = file.read(n_bytes - 16)
    pieces: dict[int, bytes] = {}
    at = 0
    # Number 0 is free space, up to the end.
    while at + 16 <= len(heap) and (index := int.from_bytes(heap[at : at + 2], "little")):
        n_piece = int.from_bytes(heap[at + 8 : at + 16], "little")
        pieces[index] = heap[at + 16 : at + 16 + n_piece]
        at += 16 + n_piece + -n_piece % 8
    return pieces, n_bytes
