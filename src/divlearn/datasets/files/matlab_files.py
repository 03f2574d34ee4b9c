"""Arrays of MATLAB level 5 files (``save -v6`` and ``-v7``): numbers, text and cells of text.

SciPy's reader is not used: one changed byte in the tag of an element makes it read outside of its
tables and takes the interpreter down, and it allocates what a header claims. To rule that out
every tag has to be parsed beforehand, and then the array is there already.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from divlearn.datasets.files.variables import (
    DEFLATE_RATIO,
    Refusal,
    Stream,
    Variable,
    quote,
    read_bytes,
    shape_size,
    text_array,
)

__all__ = ["is_matlab", "open_matlab"]

_HEADER_BYTES = 128
# Types of elements.
_INT8, _UINT8, _UINT16, _INT32, _UINT32, _MATRIX, _COMPRESSED = 1, 2, 4, 5, 6, 14, 15
_UTF8, _UTF16 = 16, 17
_NUMBERS = {
    1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"
}  # fmt: skip
# Classes of arrays, and what those that are not read are called.
_CELL, _CHAR, _OPAQUE = 1, 4, 17
_CLASSES = {
    6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"
}  # fmt: skip
_UNREADABLE = {
    2: "a struct", 3: "an object", 5: "a sparse matrix", 16: "a function handle",
    _OPAQUE: "a table, string, categorical or other object",
}  # fmt: skip
_COMPLEX_FLAG = 0x0800
_NAME_BYTES = 1024


@dataclass(frozen=True)
class _Header:
    name: str
    shape: tuple[int, ...]
    kind: int
    is_complex: bool


class _Section:
    """A stretch of a file."""

    def __init__(self, file: BinaryIO, start: int, n_bytes: int) -> None:
        self._file = file
        self._position = start
        self._stop = start + n_bytes

    def read(self, n_bytes: int, /) -> bytes:
        self._file.seek(self._position)
        content = self._file.read(min(n_bytes, self._stop - self._position))
        self._position += len(content)
        return content

    def finish(self) -> None:
        """Nothing vouches for bytes that are not compressed."""


class _Inflated:
    """What a zlib stream holds, never inflated further than was asked for."""

    def __init__(self, section: _Section) -> None:
        self._section = section
        self._inflater = zlib.decompressobj()

    def read(self, n_bytes: int, /) -> bytes:
        while not self._inflater.eof:
            stored = self._inflater.unconsumed_tail or self._section.read(2**16)
            content = self._inflater.decompress(stored, n_bytes)
            if content or not stored:
                return content
        return b""

    def finish(self) -> None:
        """Compare the checksum, which zlib does at the end of its stream."""
        if self.read(1) or not self._inflater.eof:
            raise Refusal("a compressed variable does not end where it says; write the file again")


class _Elements:
    """Walks the elements inside one array, never past its end."""

    def __init__(self, stream: Stream, order: str, n_bytes: int) -> None:
        self._stream = stream
        self.order = order
        self.n_bytes_left = n_bytes

    def take(self, n_bytes: int) -> NDArray[np.uint8]:
        if n_bytes > self.n_bytes_left:
            raise Refusal(
                f"an element claims {n_bytes} bytes where {self.n_bytes_left} are left; the file "
                "is damaged, write it again"
            )
        self.n_bytes_left -= n_bytes
        return read_bytes(self._stream, n_bytes)

    def tag(self) -> tuple[int, int]:
        kind, n_bytes = self.take(8).view(f"{self.order}u4")
        return int(kind), int(n_bytes)

    def element(self, kinds: dict[int, str], largest: int) -> tuple[int, NDArray[Any]]:
        """Type and content of the next element, one of these types and no larger than that."""
        tag = self.take(8)
        first, n_bytes = (int(word) for word in tag.view(f"{self.order}u4"))
        # Up to four bytes are packed into the tag, their number in its upper half.
        kind, n_packed = first & 0xFFFF, first >> 16
        n_bytes = n_packed or n_bytes
        if kind not in kinds or n_bytes > (4 if n_packed else largest):
            raise Refusal(
                f"an element has type {kind} and {n_bytes} bytes, expected type "
                f"{' or '.join(map(str, kinds))} and at most {largest}; the file is damaged or of "
                "an unusual make, write it again with save -v7"
            )
        content = tag[4 : 4 + n_bytes].copy() if n_packed else self.take(n_bytes)
        if not n_packed:
            # The last element of an array may lack its padding.
            self.take(min(-n_bytes % 8, self.n_bytes_left))
        return kind, content.view(self.order + kinds[kind])


def is_matlab(start: bytes) -> bool:
    r"""Whether these are the first 128 bytes of a MATLAB file of level 5.

    Examples
    --------
    >>> is_matlab(b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM")
    True
    """
    return start[124:128] in (b"\x00\x01IM", b"\x01\x00MI")


@contextmanager
def open_matlab(file: BinaryIO, size: int) -> Iterator[list[Variable]]:
    """List the arrays of a level 5 file; they can be read inside the context.

    Examples
    --------
    >>> import io, scipy.io
    >>> file = io.BytesIO()
    >>> scipy.io.savemat(file, {"X": np.zeros((2, 2, 4)), "y": ["one", "two"]})
    >>> with open_matlab(file, len(file.getvalue())) as variables:
    ...     print(*variables, sep="; ")
    X (2, 2, 4) float64; y (2,) text
    """
    file.seek(126)
    order = "<" if file.read(2) == b"IM" else ">"
    variables = []
    position = _HEADER_BYTES
    while position < size:
        tag = _Elements(_Section(file, position, 8), order, 8)
        kind, n_bytes = tag.tag()
        position += 8
        if kind not in (_MATRIX, _COMPRESSED) or n_bytes > size - position:
            raise Refusal(
                f"a variable at byte {position - 8} has type {kind} and claims {n_bytes} bytes, "
                f"expected type 14 or 15 and at most {size - position}; the file is truncated or "
                "damaged, copy or write it again"
            )
        place = _Place(file, order, position, n_bytes, compressed=kind == _COMPRESSED)
        variables.append(place.describe())
        position += n_bytes
    # The unnamed one is MATLAB's own, and says how objects are stored.
    yield [variable for variable in variables if variable.name]


@dataclass(frozen=True)
class _Place:
    """Where a variable lies in the file."""

    file: BinaryIO
    order: str
    start: int
    n_bytes: int
    compressed: bool

    def open(self) -> tuple[_Elements, _Section | _Inflated]:
        section = _Section(self.file, self.start, self.n_bytes)
        if not self.compressed:
            return _Elements(section, self.order, self.n_bytes), section
        stream = _Inflated(section)
        kind, n_bytes = _Elements(stream, self.order, 8).tag()
        if kind != _MATRIX or n_bytes > DEFLATE_RATIO * self.n_bytes:
            raise Refusal(
                f"a compressed variable has type {kind} and claims {n_bytes} bytes in "
                f"{self.n_bytes} compressed ones; the file is damaged, write it again"
            )
        return _Elements(stream, self.order, n_bytes), stream

    def describe(self) -> Variable:
        header = _read_header(self.open()[0])
        kind = header.kind
        refusal = ""
        if kind in _UNREADABLE:
            what = _UNREADABLE[kind]
            refusal = f"is {what} of MATLAB; save an array of numbers, a char array or a cellstr"
        elif header.is_complex:
            refusal = "is complex, must be real; save its real part"
        # The rows of a char array are its strings.
        shape = header.shape[:1] if kind == _CHAR else header.shape
        dtype = np.dtype("U" if kind in (_CHAR, _CELL) else _CLASSES.get(kind, "O"))
        return Variable(header.name, shape, dtype, self.read, refusal)

    def read(self, limit: int) -> NDArray[Any]:
        elements, stream = self.open()
        header = _read_header(elements)
        array: NDArray[Any]
        if header.kind == _CELL:
            array = text_array(_read_cells(elements, header, limit), limit)
        elif header.kind == _CHAR:
            array = text_array(_read_strings(elements, header, limit), limit)
        else:
            array = _read_numbers(elements, header)
        if elements.n_bytes_left:
            raise Refusal(
                f"{quote(header.name)} goes on for {elements.n_bytes_left} bytes after its data; "
                "the file is damaged, write it again"
            )
        stream.finish()
        return array


def _read_header(elements: _Elements) -> _Header:
    flags = int(elements.element({_UINT32: "u4"}, 8)[1][0])
    kind = flags & 0xFF
    if kind not in {*_CLASSES, *_UNREADABLE, _CELL, _CHAR}:
        raise Refusal(f"a variable has class {kind}, unknown to MATLAB; the file is damaged")
    shape: tuple[int, ...] = ()
    if kind != _OPAQUE:
        sides = elements.element({_INT32: "i4", _UINT32: "u4"}, 4 * 32)[1]
        shape = tuple(int(side) for side in sides)
        shape_size(shape)
    name = elements.element({_INT8: "u1", _UTF8: "u1"}, _NAME_BYTES)[1].tobytes().decode("utf8")
    return _Header(name, shape, kind, bool(flags & _COMPLEX_FLAG))


def _read_numbers(elements: _Elements, header: _Header) -> NDArray[Any]:
    """Numbers, which may be stored in a smaller type than that of their class."""
    size = math.prod(header.shape)
    stored = elements.element(_NUMBERS, 8 * size)[1]
    if stored.size != size:
        raise Refusal(
            f"{quote(header.name)} stores {stored.size} entries for its shape {header.shape}; the "
            "file is damaged, write it again"
        )
    # A damaged type may make integers of floats, hence the kind of number is held on to.
    array: NDArray[Any] = stored.astype(_CLASSES[header.kind], casting="same_kind", copy=False)
    return array.reshape(header.shape, order="F")


def _read_cells(elements: _Elements, header: _Header, limit: int) -> list[str]:
    """Texts of a cell array; cells in cells are refused, so nothing recurs."""
    if elements.n_bytes_left > limit:
        raise Refusal(
            f"{quote(header.name)} takes {elements.n_bytes_left} bytes, more than the {limit} that "
            "limit= leaves; raise it if you trust the file"
        )
    strings = []
    for _ in range(math.prod(header.shape)):
        kind, n_bytes = elements.tag()
        before = elements.n_bytes_left
        cell = _read_header(elements)
        if kind != _MATRIX or cell.kind != _CHAR or cell.shape[0] > 1:
            raise Refusal(
                f"{quote(header.name)} is a cell array with other cells than text; save numbers or "
                "a cell array of strings"
            )
        strings += _read_strings(elements, cell, limit) or [""]
        if before - elements.n_bytes_left != n_bytes:
            raise Refusal(f"a cell of {quote(header.name)} has a wrong size; write the file again")
    return strings


def _read_strings(elements: _Elements, header: _Header, limit: int) -> list[str]:
    """Rows of a char array without the blanks that pad them."""
    size = math.prod(header.shape)
    codes = {_INT8: "u1", _UINT8: "u1", _UTF8: "u1", _UINT16: "u2", _UTF16: "u2"}
    kind, stored = elements.element(codes, min(4 * size, limit))
    if stored.dtype.itemsize == 1:
        text = stored.tobytes().decode("utf8" if kind == _UTF8 else "latin1")
        stored = np.frombuffer(text.encode("utf-16-le"), "<u2")
    # MATLAB counts units of UTF-16.
    if stored.size != size:
        raise Refusal(
            f"{quote(header.name)} stores {stored.size} characters for its shape {header.shape}; "
            "the file is damaged, write it again"
        )
    if not size:
        return [""] * header.shape[0]
    rows = stored.astype("<u2").reshape(header.shape[0], -1, order="F")
    return [row.tobytes().decode("utf-16-le").rstrip(" ") for row in rows]
