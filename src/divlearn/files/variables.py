"""Variables: the arrays of a file as described by their headers; readers of NumPy's files.

Files may be hostile. Every reader first lists `Variable` objects, for which it reads headers only.
Sizes in headers are checked before memory is allocated. NumPy itself reads the arrays of .npy files
and .npz archives, and nothing is unpickled or extracted.
"""

import io
import math
import stat
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO, Self

import numpy as np

# Deflate expands two bits to at most 258 bytes, so no stream grows by more than this factor.
DEFLATE_RATIO = 1032
_NAME_LENGTH = 60  # of names from files in messages


class Refusal(Exception):
    """A problem of a file and its fix; `explaining` adds the name of the file."""


class Damage(Refusal):
    """A statement in a file that cannot be true."""

    def __str__(self) -> str:
        return f"{super().__str__()}; the file is truncated or damaged, copy or write it again"


def open_regular(path: Path, name: str) -> BinaryIO:
    """Open a file for reading bytes; refuse folders, pipes, sockets and devices."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{path}: it is a folder, must be a file; pass a file in it")
    # Opening a pipe would wait for a writer, and reading a device may not end.
    if not stat.S_ISREG(mode):
        raise ValueError(f"{name}: it is a device, pipe or socket; copy the data to a file")
    return path.open("rb")


@contextmanager
def explaining(name: str, limit: int | None = None) -> Iterator[None]:
    """Turn errors of parsers of damaged files into a ValueError that names the file."""
    try:
        yield
    except Refusal as refusal:
        raise ValueError(f"{name}: {refusal}") from refusal
    except ImportError:
        raise
    except MemoryError as error:
        fix = "" if limit is None else f", else lower limit={limit}"
        raise ValueError(
            f"{name}: there is not enough memory for it; if its size is right, free some "
            f"memory{fix}"
        ) from error
    # Parsers of hostile bytes raise errors of any type.
    except Exception as error:
        raise ValueError(
            f"{name}: the file is damaged ({type(error).__name__}: {error!s:.200}); copy or write "
            "it again"
        ) from error


@dataclass(frozen=True, eq=False)
class Variable:
    """A named array of a file, before it is read."""

    name: str
    shape: tuple[int, ...]  # of text, one entry per string
    dtype: np.dtype  # of text without a length if it is unknown before reading
    read: Callable[[int], np.ndarray]  # takes the largest number of bytes in memory
    refusal: str = ""  # why the array cannot be read, and what to do

    @classmethod
    def refused(cls, name: str, reason: str) -> Self:
        return cls(name, (), np.dtype(object), lambda limit: np.empty(0), reason)

    def require(self) -> None:
        if self.refusal:
            raise Refusal(f"{quote(self.name)} {self.refusal}")

    @property
    def n_bytes(self) -> int:
        """Bytes in memory; numbers become float32 or float64."""
        itemsize = self.dtype.itemsize
        if self.dtype.kind in "biu" or self.dtype == np.float16:
            itemsize = 8
        return math.prod(self.shape) * itemsize

    def __str__(self) -> str:
        dtype = "text" if self.dtype.kind in "SU" else self.dtype
        content = "(unreadable)" if self.refusal else f"{self.shape} {dtype}"
        return f"{quote(self.name)} {content}"


def quote(name: str) -> str:
    """Format a name from a file: truncate it, and escape it unless it is an ASCII identifier."""
    if len(name) > _NAME_LENGTH:
        name = name[:_NAME_LENGTH] + "..."
    return name if name.isidentifier() and name.isascii() else ascii(name)


def check_limit(n_bytes: int, limit: int, content: str) -> None:
    if n_bytes > limit:
        raise Refusal(
            f"{content} would take {n_bytes} bytes, more than the {limit} that limit= leaves; "
            "raise it if you trust the file"
        )


def text_array(strings: Sequence[str], limit: int) -> np.ndarray:
    """Make an array of strings; refuse strings of which the longest makes it too large."""
    longest = max(map(len, strings), default=0)
    n_bytes = len(strings) * longest * np.dtype("U1").itemsize
    check_limit(n_bytes, limit, f"{len(strings)} strings of up to {longest} characters")
    return np.array(strings, dtype=np.str_)


NPY_MAGIC = b"\x93NUMPY"
# The second one is that of an archive without members.
ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")
# Longer headers are refused by NumPy, too.
_HEADER_LENGTH = 10_000

_Open = Callable[[], AbstractContextManager[IO[bytes]]]


@contextmanager
def open_npy(file: BinaryIO, size: int) -> Iterator[list[Variable]]:
    """List the single array of a .npy file; it can be read inside the context."""
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
    # Both sizes come from the archive's directory, and may be wrong; the size of the file is right.
    if info.file_size > DEFLATE_RATIO * min(info.compress_size, size):
        raise Damage(
            f"{quote(name)} claims {info.file_size} bytes, more than {info.compress_size} "
            "compressed ones can give"
        )
    return _describe(name, partial(archive.open, info), info.file_size)


def _describe(name: str, open_stream: _Open, n_bytes: int) -> Variable:
    """Describe the array of a stream of so many bytes, which may be a claim of the archive."""
    with open_stream() as stream:
        shape, dtype, n_header = _read_header(stream.read(_HEADER_LENGTH + 12))
    if dtype.kind in "mM":
        text = "holds times, must hold numbers or text; save them with .astype(str)"
        return Variable.refused(name, text)
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
            # zipfile compares the checksum when a read reaches the end.
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
                # Version 3 differs from 2 only in the names of fields, and records are refused.
                shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
    # A deeply nested literal exhausts the parser's stack and raises a MemoryError.
    except Exception as error:
        raise Damage(
            f"the header of an array cannot be read ({type(error).__name__}: {error!s:.200})"
        ) from error
    return shape, dtype, stream.tell()
