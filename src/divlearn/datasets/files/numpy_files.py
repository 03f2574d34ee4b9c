"""Arrays of .npy files and .npz archives, with nothing unpickled and nothing extracted."""

from __future__ import annotations

import ast
import math
import re
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple

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
)

__all__ = ["NPY_MAGIC", "ZIP_MAGICS", "open_npy", "open_npz"]

NPY_MAGIC = b"\x93NUMPY"
# The second one is that of an archive without members.
ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
# A header is a line of text; this is also NumPy's own bound for what it would evaluate.
_HEADER_LENGTH = 10_000
_PLAIN_DTYPE = re.compile(r"[<>|=]?[biufcSU][0-9]{1,9}")


class _Header(NamedTuple):
    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]
    n_bytes: int  # of the header itself
    refusal: str

    @property
    def data_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@contextmanager
def open_npy(file: BinaryIO, size: int) -> Iterator[list[Variable]]:
    """List the one array of a .npy file; it can be read inside the context.

    Examples
    --------
    >>> import io
    >>> file = io.BytesIO()
    >>> np.save(file, np.zeros((4, 2, 2)))
    >>> _ = file.seek(0)
    >>> with open_npy(file, len(file.getvalue())) as [variable]:
    ...     print(variable)
    matrices (4, 2, 2) float64
    """
    header = _read_header(file)
    if not header.refusal:
        _check_claim(header, size - header.n_bytes)

    def read(limit: int) -> NDArray[Any]:
        file.seek(header.n_bytes)
        return _read_array(file, header)

    yield [Variable("matrices", header.shape, header.dtype, read, header.refusal)]


@contextmanager
def open_npz(file: BinaryIO, size: int) -> Iterator[list[Variable]]:
    """List the arrays of a .npz archive; they can be read inside the context.

    Examples
    --------
    >>> import io
    >>> file = io.BytesIO()
    >>> np.savez(file, X=np.zeros((4, 2, 2)), y=np.arange(4))
    >>> with open_npz(file, len(file.getvalue())) as variables:
    ...     print(*variables, sep="; ")
    X (4, 2, 2) float64; y (4,) int64
    """
    with zipfile.ZipFile(file) as archive:
        members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        yield [_describe(archive, info, size) for info in members]


def _describe(archive: zipfile.ZipFile, info: zipfile.ZipInfo, size: int) -> Variable:
    name = info.filename.removesuffix(".npy")

    def read(limit: int) -> NDArray[Any]:
        with archive.open(info) as stream:
            # The header was checked when the file was listed: it is not asked again.
            read_bytes(stream, header.n_bytes)
            array = _read_array(stream, header)
            # Reading past the end is what makes zipfile compare the checksum.
            stream.read(1)
        return array

    if reason := _refuse_member(info):
        return Variable(name, (), np.dtype(object), read, reason)
    with archive.open(info) as stream:
        header = _read_header(stream)
    if not header.refusal:
        # Both sizes are claims of the directory; the size of the file is not.
        _check_claim(header, info.file_size - header.n_bytes)
        if info.file_size > DEFLATE_RATIO * min(info.compress_size, size):
            raise Refusal(
                f"{quote(name)} claims {info.file_size} bytes, more than {info.compress_size} "
                "compressed ones can give; the file is damaged, write it again"
            )
    return Variable(name, header.shape, header.dtype, read, header.refusal)


def _refuse_member(info: zipfile.ZipInfo) -> str:
    if info.flag_bits & 1:
        return "is encrypted; write the file without a password"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return (
            f"is compressed by method {info.compress_type}, must be stored or deflated; write the "
            "file with numpy.savez or numpy.savez_compressed"
        )
    return ""


def _read_header(stream: Stream) -> _Header:
    """Header of an array, from the start of its stream, with no trust in what it claims."""
    start = read_bytes(stream, 8).tobytes()
    if start[:6] != NPY_MAGIC or start[6] not in (1, 2, 3):
        raise Refusal(f"an array starts with {start!r}, not as .npy files do; write the file again")
    n_length = 2 if start[6] == 1 else 4
    length = int.from_bytes(read_bytes(stream, n_length).tobytes(), "little")
    if length > _HEADER_LENGTH:
        raise Refusal(
            f"the header of an array claims {length} bytes, must be <= {_HEADER_LENGTH}; the file "
            "is damaged, write it again"
        )
    text = read_bytes(stream, length).tobytes().decode("latin1" if start[6] < 3 else "utf8")
    fields = _evaluate(text)
    shape, fortran_order, description = (
        fields[key] for key in ("shape", "fortran_order", "descr")
    )  # fmt: skip
    if not isinstance(shape, tuple) or not all(type(side) is int for side in shape):
        raise Refusal(f"the header claims the shape {shape!r:.80}; write the file again")
    shape_size(shape)
    n_bytes = len(start) + n_length + length
    if not (isinstance(description, str) and _PLAIN_DTYPE.fullmatch(description)):
        refusal = (
            f"has dtype {description!r:.80}: objects are never unpickled and records are not "
            "read; save plain arrays of numbers or text"
        )
        return _Header(shape, bool(fortran_order), np.dtype(object), n_bytes, refusal)
    return _Header(shape, bool(fortran_order), np.dtype(description), n_bytes, "")


def _evaluate(text: str) -> Any:
    try:
        with warnings.catch_warnings():
            # A damaged literal may look like a deprecated one.
            warnings.simplefilter("ignore")
            return ast.literal_eval(text)
    # A parser that runs out of its stack says MemoryError.
    except Exception as error:
        raise Refusal(
            f"the header of an array is {text!r:.60}, which describes none; the file is damaged, "
            "write it again"
        ) from error


def _check_claim(header: _Header, available: int) -> None:
    if header.data_bytes != available:
        raise Refusal(
            f"the header claims shape {header.shape} of {header.dtype}, {header.data_bytes} bytes, "
            f"but {available} follow it; the file is truncated or damaged, copy or write it again"
        )


def _read_array(stream: Stream, header: _Header) -> NDArray[Any]:
    content = read_bytes(stream, header.data_bytes).view(header.dtype)
    array: NDArray[Any] = content.reshape(header.shape, order="F" if header.fortran_order else "C")
    return array
