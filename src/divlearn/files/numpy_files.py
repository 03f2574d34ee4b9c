"""Arrays of .npy files and .npz archives: NumPy reads them, and nothing is unpickled or extracted.

NumPy allocates what a header claims, so every claim is first compared with the bytes that follow.
"""

import io
import math
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import IO, BinaryIO

import numpy as np

from divlearn.files.variables import DEFLATE_RATIO, Damage, Variable, quote

NPY_MAGIC = b"\x93NUMPY"
# The second one is that of an archive without members.
ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
# Longer headers are refused by NumPy, too.
_HEADER_LENGTH = 10_000

_Open = Callable[[], AbstractContextManager[IO[bytes]]]


@contextmanager
def open_npy(file: BinaryIO, size: int) -> Iterator[list[Variable]]:
    """List the one array of a .npy file; it can be read inside the context."""
    yield [_describe("matrices", partial(_rewound, file), size)]


@contextmanager
def open_npz(file: BinaryIO, size: int) -> Iterator[list[Variable]]:
    """List the arrays of a .npz archive; they can be read inside the context."""
    with zipfile.ZipFile(file) as archive:
        members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        yield [_describe_member(archive, info, size) for info in members]


@contextmanager
def _rewound(file: BinaryIO) -> Iterator[BinaryIO]:
    file.seek(0)
    yield file


def _describe_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, size: int) -> Variable:
    name = info.filename.removesuffix(".npy")
    if info.flag_bits & 1:
        return Variable.refused(name, "is encrypted; write the file without a password")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return Variable.refused(
            name,
            f"is compressed by method {info.compress_type}, must be stored or deflated; write the "
            "file with numpy.savez or numpy.savez_compressed",
        )
    # Both sizes are claims of the archive's directory; the size of the file is not.
    if info.file_size > DEFLATE_RATIO * min(info.compress_size, size):
        raise Damage(
            f"{quote(name)} claims {info.file_size} bytes, more than {info.compress_size} "
            "compressed ones can give"
        )
    return _describe(name, partial(archive.open, info), info.file_size)


def _describe(name: str, open_stream: _Open, n_bytes: int) -> Variable:
    """Describe the array of a stream that has, or claims to have, that many bytes."""
    with open_stream() as stream:
        shape, dtype, n_header = _read_header(stream.read(_HEADER_LENGTH + 12))
    if dtype.kind not in "biufcSU":
        return Variable.refused(
            name,
            f"has dtype {dtype.str!r:.80}: objects are never unpickled and records are not read; "
            "save plain arrays of numbers or text",
        )
    claimed, available = math.prod(shape) * dtype.itemsize, n_bytes - n_header
    if claimed != available or min(shape, default=0) < 0:
        raise Damage(
            f"the header claims shape {shape!r:.80} of {dtype}, {claimed} bytes, but {available} "
            "follow it"
        )

    def read(limit: int) -> np.ndarray:
        with open_stream() as stream:
            array: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False)
            # Reading past the end makes zipfile compare the checksum.
            stream.read(1)
        return array

    return Variable(name, shape, dtype, read)


def _read_header(start: bytes) -> tuple[tuple[int, ...], np.dtype, int]:
    """Return shape, type and the length of the header itself."""
    stream = io.BytesIO(start)
    try:
        with warnings.catch_warnings():
            # A damaged header may look like one of Python 2.
            warnings.simplefilter("ignore")
            if np.lib.format.read_magic(stream) == (1, 0):
                shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
            else:
                # Version 3 differs from 2 in the names of fields, and those are refused.
                shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
    # Not only ValueError: a deep literal exhausts the parser's stack, which is a MemoryError.
    except Exception as error:
        raise Damage(
            f"the header of an array cannot be read ({type(error).__name__}: {error!s:.200})"
        ) from error
    return shape, dtype, stream.tell()
