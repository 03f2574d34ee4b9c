"""Readers of MATLAB files, of level 5 or HDF5, and of other HDF5 files: arrays of numbers or text.

SciPy lists and reads level 5 (``save -v6`` and ``-v7``). It looks up the type of an element in a
table without checking the index, which may crash the interpreter, and allocates arrays of the
shape in the file without checking it. So SciPy gets one variable at a time, inflated and with all
of its tags checked.

h5py reads HDF5 (``save -v7.3``), only the arrays asked for. Data in other files, and arrays larger
than the limit of memory, are refused first. The compiled HDF5 library trusts the rest of a file.
"""

import io
import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np

from divlearn.checks import import_extra
from divlearn.files.variables import Damage, Refusal, Variable, check_limit, quote, text_array

_MATRIX, _COMPRESSED = 14, 15
# Allowed types of elements: flags, shape and name of a matrix; data, as far as in SciPy's table.
_HEADER_TYPES = (frozenset({6}), frozenset({5, 6}), frozenset({1, 16}))
_DATA_TYPES = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 16, 17, 18})
_CELL, _CHAR, _COMPLEX_FLAG = 1, 4, 8  # two classes of matrices, and a bit of their flags
_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
_DTYPES = {"logical": "uint8", "char": "U", "cell": "U"}  # by class; others have the same name
_HEADER_BYTES = 2048  # largest size of the flags, the shape and the name of a variable

Handle = Any  # an object of h5py, which has no types

_MAGIC = b"\x89HDF\r\n\x1a\n"
_MATLAB_GROUPS = ("#refs#", "#subsystem#")  # targets of the references of cells and objects
_STRINGS_PER_READ = 64


# --- level 5


def is_matlab(start: bytes) -> bool:
    return start[124:128] in (b"\x00\x01IM", b"\x01\x00MI")


@contextmanager
def open_matlab(file: BinaryIO, size: int) -> Iterator[list[Variable]]:
    """List the arrays of a level 5 file; they can be read inside the context."""
    file.seek(126)
    order = "<" if file.read(2) == b"IM" else ">"
    variables = [_describe(file, order, *span) for span in _find_variables(file, size, order)]
    # MATLAB itself writes an unnamed variable, on the storage of objects.
    yield [variable for variable in variables if variable.name]


def _find_variables(file: BinaryIO, size: int, order: str) -> Iterator[tuple[int, int]]:
    """Yield the positions of the variables, and their sizes in bytes with the tag."""
    position = 128
    while position < size:
        file.seek(position)
        type_code, n_bytes = struct.unpack(f"{order}II", file.read(8))
        if type_code not in (_MATRIX, _COMPRESSED) or n_bytes > size - position - 8:
            raise Damage(
                f"a variable at byte {position} has type {type_code} and claims {n_bytes} bytes, "
                f"expected type 14 or 15 and at most {size - position - 8}"
            )
        yield position, 8 + n_bytes
        position += 8 + n_bytes


def _describe(file: BinaryIO, order: str, position: int, n_bytes: int) -> Variable:
    from scipy.io import whosmat

    file.seek(position)
    start = file.read(min(n_bytes, _HEADER_BYTES))
    if _is_compressed(start, order):
        start = zlib.decompressobj().decompress(start[8:], _HEADER_BYTES)
        start = start[: 8 + struct.unpack_from(f"{order}II", start)[1]]
    for _ in islice(_elements(memoryview(start)[8:], order), len(_HEADER_TYPES)):
        pass  # check sizes in tags, because SciPy allocates as much
    ((name, shape, class_name),) = whosmat(_as_file(start, order))
    if class_name not in ("double", "single", *_INTEGERS, *_DTYPES):
        return Variable.refused(
            name,
            f"has MATLAB's class {class_name!r}; save an array of numbers, a char array or a cell "
            "array of strings",
        )
    dtype = np.dtype(_DTYPES.get(class_name, class_name))
    return Variable(name, shape, dtype, partial(_read, file, order, name, dtype, position, n_bytes))


def _read(
    file: BinaryIO, order: str, name: str, dtype: np.dtype, position: int, n_bytes: int, limit: int
) -> np.ndarray:
    from scipy.io import loadmat

    check_limit(n_bytes - _HEADER_BYTES, limit, f"the entries of {quote(name)}")
    file.seek(position)
    content = _inflate(file.read(n_bytes), order, limit, quote(name))
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
    """Return a variable with its tag; inflate it if it is compressed."""
    if not _is_compressed(stored, order):
        return stored
    inflater = zlib.decompressobj()
    content = inflater.decompress(stored[8:], limit + _HEADER_BYTES)
    type_code, n_bytes = struct.unpack_from(f"{order}II", content)
    check_limit(n_bytes - _HEADER_BYTES, limit, f"the entries of {name}")
    # With room for one more byte, zlib reads to the end of its stream and compares the checksum.
    content += inflater.decompress(inflater.unconsumed_tail, 1)
    if type_code != _MATRIX or not inflater.eof or len(content) != 8 + n_bytes:
        raise Damage("a compressed variable does not end where its header says")
    return content


def _elements(content: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Yield the types and contents of the elements of a matrix."""
    while content:
        type_code, n_bytes = struct.unpack_from(f"{order}II", content)
        start, available = 8, len(content) - 8
        if type_code >> 16:  # the tag contains up to four bytes, and their number in its upper half
            type_code, n_bytes, start, available = type_code & 0xFFFF, type_code >> 16, 4, 4
        if n_bytes > available:
            raise Damage(f"an element of type {type_code} claims {n_bytes} of {available} bytes")
        yield type_code, content[start : start + n_bytes]
        content = content[8 if start == 4 else 8 + n_bytes + -n_bytes % 8 :]


def _check_matrix(content: memoryview, order: str, name: str, *, in_cell: bool = False) -> None:
    """Check the elements of a matrix; the elements of a cell array must be matrices of text."""
    elements = list(_elements(content, order))
    (_, flags), (_, sides), _, *data = elements
    shape = struct.unpack(f"{order}{len(sides) // 4}i", sides)
    if len(shape) < 2 or min(shape) < 0 or math.prod(shape) > len(content):
        raise Damage(f"{name} claims the shape {shape} in {len(content)} bytes")
    class_code = flags[0 if order == "<" else 3]
    if in_cell and class_code != _CHAR:
        raise _other_cells(name)
    has_cells = class_code == _CELL
    is_complex = bool(flags[1 if order == "<" else 2] & _COMPLEX_FLAG)
    # SciPy reads as many elements without checking that they follow.
    expected = math.prod(shape) if has_cells else 1 + is_complex
    if len(data) != expected:
        raise Damage(f"{name} has {len(data)} elements of data, must have {expected}")
    data_types = frozenset({_MATRIX}) if has_cells else _DATA_TYPES
    allowed = [*_HEADER_TYPES, *len(data) * [data_types]]
    for (type_code, element), types in zip(elements, allowed, strict=True):
        if type_code not in types:
            raise Damage(f"an element has type {type_code}, must have one in {sorted(types)}")
        if type_code == _MATRIX:
            if not element:
                raise _other_cells(name)
            _check_matrix(element, order, name, in_cell=True)


def _as_text(text: np.ndarray | str, name: str) -> str:
    """Return the string of a row of a char array, or of a cell: an array of one string or none."""
    rows = np.ravel(text)
    if len(rows) > 1:
        raise _other_cells(name)
    return "".join(rows).rstrip(" ")


def _other_cells(name: str) -> Refusal:
    return Refusal(
        f"{name} is a cell array with other cells than text; save numbers or a cell array of "
        "strings"
    )


# --- HDF5


def find_hdf5(file: BinaryIO, size: int) -> bool:
    """Whether an HDF5 signature is at byte 0, 512, 1024, 2048, ..., as the format allows."""
    position = 0
    while position < size:
        file.seek(position)
        if file.read(len(_MAGIC)) == _MAGIC:
            return True
        position = max(512, 2 * position)
    return False


@contextmanager
def open_hdf5(file: BinaryIO, size: int) -> Iterator[list[Variable]]:
    """List the arrays of an HDF5 file and its groups; they can be read inside the context."""
    h5py = import_extra("h5py", "reading HDF5 and MATLAB 7.3 files needs h5py", "files")
    with h5py.File(file, "r") as store:
        links: dict[str, Handle] = {}
        store.visititems_links(links.__setitem__)
        names = [name for name in links if not name.startswith(_MATLAB_GROUPS)]
        datasets = (_describe_dataset(h5py, store, name, links[name]) for name in names)
        yield [variable for variable in datasets if variable]


def _describe_dataset(h5py: ModuleType, store: Handle, name: str, link: Handle) -> Variable | None:
    """Describe a dataset; None for groups and named types."""
    if not isinstance(link, h5py.HardLink):
        return Variable.refused(name, "is a link, possibly to another file; store the data itself")
    dataset = store[name]
    if not isinstance(dataset, h5py.Dataset):
        return None
    if reason := _refuse(h5py, dataset):
        return Variable.refused(name, reason)
    shape, dtype = dataset.shape, dataset.dtype
    if dtype.kind == "O":
        return Variable(name, shape, np.dtype("U"), partial(_read_strings, dataset))
    if _is_char(dataset):
        return Variable(name, shape[-1:], np.dtype("U"), partial(_read_chars, dataset))
    return Variable(name, shape, dtype, partial(_read_dataset, dataset))


def _refuse(h5py: ModuleType, dataset: Handle) -> str:
    """Return the reason to refuse a dataset, or "" if it can be read."""
    # Check other files first: HDF5 may look there even for the shape of a virtual dataset.
    properties = dataset.id.get_create_plist()
    if properties.get_layout() == h5py.h5d.VIRTUAL or properties.get_external_count():
        return "keeps its data in other files (virtual or external storage); store the data itself"
    filters = {properties.get_filter(i)[0] for i in range(properties.get_nfilters())}
    if missing := sorted(code for code in filters if not h5py.h5z.filter_avail(code)):
        return (
            f"is stored through the HDF5 filters {missing}, which h5py does not have here; write "
            "the file again with gzip, or import hdf5plugin first"
        )
    if dataset.dtype.kind == "c":
        return "is complex, must be real; save its real part"
    if dataset.dtype.kind not in "biuf" and not h5py.check_string_dtype(dataset.dtype):
        return (
            "holds neither numbers nor text; save cell arrays, structs and records as arrays of "
            "numbers or text"
        )
    if dataset.shape is None:
        return "has no shape; store an array"
    if math.prod(dataset.shape) and not dataset.id.get_storage_size():
        return "has a shape and no entries; write them"
    return ""


def _is_char(dataset: Handle) -> bool:
    if dataset.dtype != np.uint16 or "MATLAB_class" not in dataset.attrs:
        return False
    attribute = dataset.attrs.get_id("MATLAB_class")
    # Attributes of other types, such as strings from a heap, are not read.
    if attribute.dtype != np.dtype("S4") or attribute.shape != ():
        return False
    return bool(dataset.attrs["MATLAB_class"] == b"char")


def _read_dataset(dataset: Handle, limit: int) -> np.ndarray:
    if dataset.chunks:  # HDF5 reads whole chunks, which may be larger than the array
        n_bytes = math.prod(dataset.chunks) * dataset.dtype.itemsize
        check_limit(n_bytes, limit, f"the chunks of {quote(dataset.name[1:])}")
    return dataset[...]


def _read_chars(dataset: Handle, limit: int) -> np.ndarray:
    codes = _read_dataset(dataset, limit)
    # HDF5 transposes MATLAB's arrays: its rows, the strings, are columns here.
    rows = codes.reshape(-1, codes.shape[-1]).T.astype("<u2", order="C")
    return text_array([row.tobytes().decode("utf-16-le").rstrip(" ") for row in rows], limit)


def _read_strings(dataset: Handle, limit: int) -> np.ndarray:
    """Read strings of variable length in parts; many may refer to the same long string."""
    strings: list[str] = []
    n_characters = 0
    for start in range(0, len(dataset), _STRINGS_PER_READ):
        part = dataset.asstr("utf-8")[start : start + _STRINGS_PER_READ].ravel().tolist()
        n_characters += sum(map(len, part))
        check_limit(n_characters, limit, "its strings")
        strings += part
    return text_array(strings, limit)
