"""Arrays of MATLAB level 5 files (``save -v6`` and ``-v7``): numbers, text and cells of text.

SciPy lists and reads them. It looks up the type of an element in a table without checking the
index, which crashes the interpreter, and allocates what a shape claims. So SciPy gets one variable
at a time, inflated and with all of its tags checked.
"""

import io
import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import BinaryIO

import numpy as np

from divlearn.files.variables import Damage, Refusal, Variable, check_limit, quote, text_array

_MATRIX, _COMPRESSED = 14, 15
# Types of elements: flags, shape and name of a matrix, and data that SciPy's table has entries for.
_BEFORE = (frozenset({6}), frozenset({5, 6}), frozenset({1, 16}))
_DATA = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 16, 17, 18})
_CELL, _CHAR, _COMPLEX_FLAG = 1, 4, 8  # in the flags of a matrix, its class before the others
_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
_CLASSES = {"logical": "uint8", "char": "U", "cell": "U"}  # and their types; others share the name
_HEADER_BYTES = 2048  # of the flags, the shape and the name of a variable, at most


def is_matlab(start: bytes) -> bool:
    return start[124:128] in (b"\x00\x01IM", b"\x01\x00MI")


@contextmanager
def open_matlab(file: BinaryIO, size: int) -> Iterator[list[Variable]]:
    """List the arrays of a level 5 file; they can be read inside the context."""
    file.seek(126)
    order = "<" if file.read(2) == b"IM" else ">"
    variables = [_describe(file, order, place) for place in _find_variables(file, size, order)]
    # The unnamed one is MATLAB's own, and says how objects are stored.
    yield [variable for variable in variables if variable.name]


def _find_variables(file: BinaryIO, size: int, order: str) -> Iterator[tuple[int, int]]:
    """Positions of the variables, and the bytes that they take with their tags."""
    position = 128
    while position < size:
        file.seek(position)
        kind, n_bytes = struct.unpack(f"{order}II", file.read(8))
        if kind not in (_MATRIX, _COMPRESSED) or n_bytes > size - position - 8:
            raise Damage(
                f"a variable at byte {position} has type {kind} and claims {n_bytes} bytes, "
                f"expected type 14 or 15 and at most {size - position - 8}"
            )
        yield position, 8 + n_bytes
        position += 8 + n_bytes


def _describe(file: BinaryIO, order: str, place: tuple[int, int]) -> Variable:
    from scipy.io import whosmat

    file.seek(place[0])
    start = file.read(min(place[1], _HEADER_BYTES))
    if _is_compressed(start, order):
        start = zlib.decompressobj().decompress(start[8:], _HEADER_BYTES)
        start = start[: 8 + struct.unpack_from(f"{order}II", start)[1]]
    for _ in islice(_elements(memoryview(start)[8:], order), len(_BEFORE)):
        pass  # SciPy allocates what a tag claims
    ((name, shape, kind),) = whosmat(_as_file(start, order))
    if kind not in ("double", "single", *_INTEGERS, *_CLASSES):
        return Variable.refused(
            name,
            f"has MATLAB's class {kind!r}; save an array of numbers, a char array or a cell array "
            "of strings",
        )
    dtype = np.dtype(_CLASSES.get(kind, kind))
    return Variable(name, shape, dtype, partial(_read, file, order, name, dtype, place))


def _read(
    file: BinaryIO, order: str, name: str, dtype: np.dtype, place: tuple[int, int], limit: int
) -> np.ndarray:
    from scipy.io import loadmat

    check_limit(place[1] - _HEADER_BYTES, limit, f"the entries of {quote(name)}")
    file.seek(place[0])
    content = _inflate(file.read(place[1]), order, limit, quote(name))
    _check_matrix(memoryview(content)[8:], order, quote(name))
    codec = "utf-16-le" if order == "<" else "utf-16-be"
    array: np.ndarray = loadmat(_as_file(content, order), uint16_codec=codec)[name]
    if dtype.kind == "U":
        return text_array([_as_text(text, quote(name)) for text in array.ravel()], limit)
    if array.dtype.kind == "c":
        raise Refusal(f"{quote(name)} is complex, must be real; save its real part")
    # Doubles may be stored as small integers, but integers are never stored as floats.
    return array.astype(dtype, casting="same_kind", copy=False)


def _as_file(variable: bytes, order: str) -> BinaryIO:
    header = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack(f"{order}HH", 0x0100, 0x4D49)
    return io.BytesIO(header + variable)


def _is_compressed(stored: bytes, order: str) -> bool:
    return bool(struct.unpack_from(f"{order}I", stored)[0] == _COMPRESSED)


def _inflate(stored: bytes, order: str, limit: int, name: str) -> bytes:
    """Return a variable with its tag, inflated if it is compressed."""
    if not _is_compressed(stored, order):
        return stored
    inflater = zlib.decompressobj()
    content = inflater.decompress(stored[8:], limit + _HEADER_BYTES)
    kind, n_bytes = struct.unpack_from(f"{order}II", content)
    check_limit(n_bytes - _HEADER_BYTES, limit, f"the entries of {name}")
    # Room for one byte more makes zlib reach the end of its stream and compare the checksum.
    content += inflater.decompress(inflater.unconsumed_tail, 1)
    if kind != _MATRIX or not inflater.eof or len(content) != 8 + n_bytes:
        raise Damage("a compressed variable does not end where it says")
    return content


def _elements(content: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Types and contents of the elements of a matrix."""
    while content:
        kind, n_bytes = struct.unpack_from(f"{order}II", content)
        start, room = 8, len(content) - 8
        if kind >> 16:  # up to four bytes are packed into the tag, their number in its upper half
            kind, n_bytes, start, room = kind & 0xFFFF, kind >> 16, 4, 4
        if n_bytes > room:
            raise Damage(f"an element of type {kind} claims {n_bytes} of {room} bytes")
        yield kind, content[start : start + n_bytes]
        content = content[8 if start == 4 else 8 + n_bytes + -n_bytes % 8 :]


def _check_matrix(content: memoryview, order: str, name: str, *, in_cell: bool = False) -> None:
    """Check the elements of a matrix, of which those of a cell array are matrices of text."""
    elements = list(_elements(content, order))
    (_, flags), (_, sides), _, *data = elements
    shape = struct.unpack(f"{order}{len(sides) // 4}i", sides)
    if len(shape) < 2 or min(shape) < 0 or math.prod(shape) > len(content):
        raise Damage(f"{name} claims the shape {shape} in {len(content)} bytes")
    class_code = flags[0 if order == "<" else 3]
    if in_cell and class_code != _CHAR:
        raise _other_cells(name)
    of_cells = class_code == _CELL
    is_complex = bool(flags[1 if order == "<" else 2] & _COMPLEX_FLAG)
    # SciPy reads that many, whatever comes next.
    expected = math.prod(shape) if of_cells else 1 + is_complex
    if len(data) != expected:
        raise Damage(f"{name} has {len(data)} elements of data, must have {expected}")
    wanted = [*_BEFORE, *len(data) * [frozenset({_MATRIX}) if of_cells else _DATA]]
    for (kind, inside), types in zip(elements, wanted, strict=True):
        if kind not in types:
            raise Damage(f"an element has type {kind}, must have one in {sorted(types)}")
        if kind == _MATRIX:
            if not inside:
                raise _other_cells(name)
            _check_matrix(inside, order, name, in_cell=True)


def _as_text(text: np.ndarray | str, name: str) -> str:
    """Return a row of a char array, or a cell: an array of one string, of none if it is empty."""
    rows = np.ravel(text)
    if len(rows) > 1:
        raise _other_cells(name)
    return "".join(rows).rstrip(" ")


def _other_cells(name: str) -> Refusal:
    return Refusal(
        f"{name} is a cell array with other cells than text; save numbers or a cell array of "
        "strings"
    )
