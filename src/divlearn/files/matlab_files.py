"""Arrays of MATLAB level 5 files (``save -v6`` and ``-v7``): numbers, text and cells of text.

SciPy reads them, but it trusts the tags of a file: it looks up the type of an element in a table
without checking the index, which crashes the interpreter, and it allocates what a tag claims. So
the tags of a variable are checked first, and SciPy gets one checked variable at a time, inflated.
"""

import io
import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from divlearn.files.variables import (
    DEFLATE_RATIO,
    Damage,
    Refusal,
    Variable,
    check_limit,
    quote,
    text_array,
)

# Types of elements; SciPy's table has an entry for each of those of data.
_MATRIX, _COMPRESSED = 14, 15
_FLAGS, _SIDES, _NAME = frozenset({6}), frozenset({5, 6}), frozenset({1, 16})
_DATA = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 16, 17, 18})
# Classes of arrays by their codes; numbers are named as NumPy names them.
_CLASSES = (
    "unknown", "cell", "struct", "object", "char", "sparse", "f8", "f4", "i1", "u1", "i2", "u2",
    "i4", "u4", "i8", "u8", "function", "opaque",
)  # fmt: skip
_UNREADABLE = {"unknown", "struct", "object", "sparse", "function", "opaque"}
_COMPLEX_FLAG = 0x0800
# Room for the flags, the dimensions and the name of a variable.
_HEADER_BYTES = 2048


class _Stored:
    def __init__(
        self, file: BinaryIO, order: str, start: int, n_stored: int, compressed: bool
    ) -> None:
        self._file, self.order, self._start = file, order, start
        self._n_stored, self._compressed = n_stored, compressed

    def read_start(self) -> tuple[memoryview, int]:
        """Read the first bytes of an array, and the number of bytes that it claims."""
        self._file.seek(self._start)
        stored = self._file.read(min(self._n_stored, 2 * _HEADER_BYTES))
        if not self._compressed:
            return memoryview(stored), self._n_stored
        start = zlib.decompressobj().decompress(stored, _HEADER_BYTES)
        kind, n_bytes = struct.unpack_from(f"{self.order}II", start)
        if kind != _MATRIX or n_bytes > DEFLATE_RATIO * self._n_stored:
            raise Damage(
                f"a compressed variable has type {kind} and claims {n_bytes} bytes in "
                f"{self._n_stored} compressed ones"
            )
        return memoryview(start)[8:], n_bytes

    def read_all(self, n_bytes: int) -> bytes:
        self._file.seek(self._start)
        stored = self._file.read(self._n_stored)
        if not self._compressed:
            return stored
        inflater = zlib.decompressobj()
        # Room for one byte more makes zlib reach the end of its stream and compare the checksum.
        content = inflater.decompress(stored, 8 + n_bytes + 1)
        if not inflater.eof or len(content) != 8 + n_bytes:
            raise Damage("a compressed variable does not end where it says")
        return content[8:]


class _Tags:
    """Walks the elements of an array, of which the first bytes may be all there is."""

    def __init__(self, content: memoryview, n_bytes: int, order: str) -> None:
        self._content, self._order = content, order
        self.n_bytes_left = n_bytes

    def take(self, types: frozenset[int], largest: int) -> memoryview:
        """Content of the next element, which must be of one of these types and no larger."""
        kind, n_bytes = struct.unpack_from(f"{self._order}II", self._content)
        start, room = 8, min(largest, self.n_bytes_left - 8)
        if kind >> 16:  # up to four bytes are packed into the tag, their number in its upper half
            kind, n_bytes, start, room = kind & 0xFFFF, kind >> 16, 4, min(largest, 4)
        if kind not in types or n_bytes > room:
            raise Damage(
                f"an element has type {kind} and {n_bytes} bytes, must have a type in "
                f"{sorted(types)} and at most {room} bytes"
            )
        content = self._content[start : start + n_bytes]
        # The last element may lack its padding.
        step = min(8 if start == 4 else 8 + n_bytes + -n_bytes % 8, self.n_bytes_left)
        self._content, self.n_bytes_left = self._content[step:], self.n_bytes_left - step
        return content

    def take_header(self) -> tuple[str, tuple[int, ...], str, bool]:
        """Name, shape, class, and whether it is complex."""
        flags, _ = struct.unpack(f"{self._order}II", self.take(_FLAGS, 8))
        kind = _CLASSES[flags & 0xFF] if flags & 0xFF < len(_CLASSES) else "unknown"
        shape: tuple[int, ...] = ()
        if kind != "opaque":
            sides = self.take(_SIDES, 4 * 32)
            shape = struct.unpack(f"{self._order}{len(sides) // 4}i", sides)
        # SciPy looks for the last axis of text without asking whether there is one.
        if kind != "opaque" and (len(shape) < 2 or min(shape) < 0):
            raise Damage(f"the header claims the shape {shape}")
        name = bytes(self.take(_NAME, 1024)).decode("latin1")
        return name, shape, kind, bool(flags & _COMPLEX_FLAG)


def is_matlab(start: bytes) -> bool:
    return start[124:128] in (b"\x00\x01IM", b"\x01\x00MI")


@contextmanager
def open_matlab(file: BinaryIO, size: int) -> Iterator[list[Variable]]:
    """List the arrays of a level 5 file; they can be read inside the context."""
    file.seek(126)
    order = "<" if file.read(2) == b"IM" else ">"
    variables = []
    position = 128
    while position < size:
        file.seek(position)
        kind, n_bytes = struct.unpack(f"{order}II", file.read(8))
        position += 8
        if kind not in (_MATRIX, _COMPRESSED) or n_bytes > size - position:
            raise Damage(
                f"a variable at byte {position - 8} has type {kind} and claims {n_bytes} bytes, "
                f"expected type 14 or 15 and at most {size - position}"
            )
        variables.append(_describe(_Stored(file, order, position, n_bytes, kind == _COMPRESSED)))
        position += n_bytes
    # The unnamed one is MATLAB's own, and says how objects are stored.
    yield [variable for variable in variables if variable.name]


def _describe(stored: _Stored) -> Variable:
    start, n_bytes = stored.read_start()
    name, shape, kind, is_complex = _Tags(start, n_bytes, stored.order).take_header()
    if kind in _UNREADABLE:
        return Variable.refused(
            name,
            f"has MATLAB's class {kind!r}; save an array of numbers, a char array or a cell array "
            "of strings",
        )
    if is_complex:
        return Variable.refused(name, "is complex, must be real; save its real part")
    if kind == "char":
        shape = shape[:1]  # its rows are strings
    dtype = np.dtype("U" if kind in ("char", "cell") else kind)
    return Variable(name, shape, dtype, partial(_read, stored, name, dtype))


def _read(stored: _Stored, name: str, dtype: np.dtype[Any], limit: int) -> NDArray[Any]:
    import scipy.io

    n_bytes = stored.read_start()[1]
    check_limit(n_bytes - _HEADER_BYTES, limit, f"the entries of {quote(name)}")
    content = stored.read_all(n_bytes)
    _check_array(memoryview(content), stored.order)
    header = b"MATLAB 5.0 MAT-file".ljust(116) + bytes(8)
    header += struct.pack(f"{stored.order}HHII", 0x0100, 0x4D49, _MATRIX, n_bytes)
    content = header + content
    codec = "utf-16-le" if stored.order == "<" else "utf-16-be"
    array: NDArray[Any] = scipy.io.loadmat(io.BytesIO(content), uint16_codec=codec)[name]
    if dtype.kind != "U":
        # Doubles may be stored as small integers, but integers are never stored as floats.
        return array.astype(dtype, casting="same_kind", copy=False)
    # A cell is an array of one string, or of none if it is empty.
    strings = ["".join(np.ravel(text)).rstrip(" ") for text in array.ravel()]
    return text_array(strings, limit)


def _check_array(content: memoryview, order: str) -> None:
    """Check all tags of an array, which may be a cell array of texts."""
    tags = _Tags(content, len(content), order)
    name, shape, kind, _ = tags.take_header()
    size = math.prod(shape)
    if size > tags.n_bytes_left:
        raise Damage(f"{quote(name)} claims the shape {shape} in {tags.n_bytes_left} bytes")
    if kind != "cell":
        tags.take(_DATA, tags.n_bytes_left)
    for _ in range(size if kind == "cell" else 0):
        cell = tags.take(frozenset({_MATRIX}), tags.n_bytes_left)
        inside = _Tags(cell, len(cell), order).take_header() if cell else None
        if inside is None or inside[2] != "char" or inside[1][0] > 1:
            raise Refusal(
                f"{quote(name)} is a cell array with other cells than text; save numbers or a cell "
                "array of strings"
            )
        _check_array(cell, order)
    if tags.n_bytes_left:
        raise Damage(f"{quote(name)} goes on for {tags.n_bytes_left} bytes after its data")
