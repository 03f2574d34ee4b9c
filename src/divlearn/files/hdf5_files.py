"""Arrays of HDF5 files, among them MATLAB 7.3 files: numbers and text, read by h5py.

h5py reads no more than is asked for. What it would follow to other files is refused before, and so
are claims of more memory than there may be. Its compiled library trusts the rest of a file.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np

from divlearn.checks import import_extra
from divlearn.files.variables import Variable, check_limit, quote, text_array

Handle = Any  # what h5py returns, which has no types

_MAGIC = b"\x89HDF\r\n\x1a\n"
_OF_MATLAB = ("#refs#", "#subsystem#")  # groups with what cells and objects of MATLAB refer to
_ROWS = 64  # of text, read at a time


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
    """List the arrays of an HDF5 file and its groups; they can be read inside the context."""
    h5py = import_extra("h5py", "reading HDF5 and MATLAB 7.3 files needs h5py", "files")
    with h5py.File(file, "r") as store:
        links: dict[str, Handle] = {}
        store.visititems_links(links.__setitem__)
        known = [name for name in links if not name.startswith(_OF_MATLAB)]
        yield [one for name in known if (one := _describe(h5py, store, name, links[name]))]


def _describe(h5py: ModuleType, store: Handle, name: str, link: Handle) -> Variable | None:
    """One dataset; None for groups and named types."""
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
    return Variable(name, shape, dtype, partial(_read, dataset))


def _refuse(h5py: ModuleType, dataset: Handle) -> str:
    """Say why a dataset is not read; empty if it may be."""
    # The files first: even the shape of a virtual dataset may be looked up in those it points to.
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
    # An attribute of another type is not read, least of all a string from a heap.
    if attribute.dtype != np.dtype("S4") or attribute.shape != ():
        return False
    return bool(dataset.attrs["MATLAB_class"] == b"char")


def _read(dataset: Handle, limit: int) -> np.ndarray:
    if dataset.chunks:  # read as wholes, which may be larger than the array
        n_bytes = math.prod(dataset.chunks) * dataset.dtype.itemsize
        check_limit(n_bytes, limit, f"the chunks of {quote(dataset.name[1:])}")
    return dataset[...]


def _read_chars(dataset: Handle, limit: int) -> np.ndarray:
    codes = _read(dataset, limit)
    # MATLAB's columns come as rows, hence its rows, the strings, as columns.
    rows = codes.reshape(-1, codes.shape[-1]).T.astype("<u2", order="C")
    return text_array([row.tobytes().decode("utf-16-le").rstrip(" ") for row in rows], limit)


def _read_strings(dataset: Handle, limit: int) -> np.ndarray:
    """Read strings of variable length in parts: many may be one long piece of the file."""
    strings: list[str] = []
    n_characters = 0
    for start in range(0, len(dataset), _ROWS):
        part = dataset.asstr()[start : start + _ROWS].ravel().tolist()
        n_characters += sum(map(len, part))
        check_limit(n_characters, limit, "its strings")
        strings += part
    return text_array(strings, limit)
