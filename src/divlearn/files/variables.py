"""The arrays of a file as their headers describe them, before anything is read.

Files are hostile until parsed. Every reader first lists `Variable` objects, which takes headers
only; the claims in them are checked before anything of that size is allocated.
"""

import math
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np

# Deflate makes at most 258 bytes of two bits, hence no stream grows by more than this factor.
DEFLATE_RATIO = 1032
# Names come from the file: shown escaped, and cut.
_NAME_LENGTH = 60


class Refusal(Exception):
    """What is wrong with a file and what to do, still without the name of the file."""


class Damage(Refusal):
    """What a file claims that cannot be true."""

    def __str__(self) -> str:
        return f"{super().__str__()}; the file is truncated or damaged, copy or write it again"


def open_regular(path: Path, name: str) -> BinaryIO:
    """Open a file to read its bytes; refuse folders, pipes, sockets and devices."""
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(
            f"{name}: it is a folder, must be a file; pass a file, or remove the folder"
        )
    # Opening a pipe would wait for a writer, and a device has no end.
    if not stat.S_ISREG(mode):
        raise ValueError(f"{name}: it is a device, pipe or socket; copy the data to a file")
    return path.open("rb")


@contextmanager
def explaining(name: str, limit: int | None = None) -> Iterator[None]:
    """Turn whatever a parser raises over a damaged file into a ValueError that names the file."""
    try:
        yield
    except Refusal as refusal:
        raise ValueError(f"{name}: {refusal}") from refusal
    except ImportError:
        raise
    except MemoryError as error:
        lower = "" if limit is None else f", else lower limit={limit}"
        raise ValueError(
            f"{name}: there is not enough memory for it; if its size is right, free some "
            f"memory{lower}"
        ) from error
    # Parsers meet bytes nobody thought of: there is no list of what they raise.
    except Exception as error:
        raise ValueError(
            f"{name}: the file is damaged ({type(error).__name__}: {error!s:.200}); copy or write "
            "it again"
        ) from error


@dataclass(frozen=True, eq=False)
class Variable:
    """One named array of a file, before it is read."""

    name: str
    shape: tuple[int, ...]  # of text, one entry per string
    dtype: np.dtype  # of text without a length where only reading tells
    read: Callable[[int], np.ndarray]  # takes the bytes that the array may take in memory
    refusal: str = ""  # why the array cannot be read, and what to do

    @classmethod
    def refused(cls, name: str, reason: str) -> Self:
        return cls(name, (), np.dtype(object), lambda limit: np.empty(0), reason)

    def require(self) -> None:
        if self.refusal:
            raise Refusal(f"{quote(self.name)} {self.refusal}")

    @property
    def n_bytes(self) -> int:
        """Bytes in memory, as float32 or float64 if numbers."""
        itemsize = self.dtype.itemsize
        if self.dtype.kind in "biu" or self.dtype == np.float16:
            itemsize = 8
        return math.prod(self.shape) * itemsize

    def __str__(self) -> str:
        kind = "text" if self.dtype.kind in "SU" else self.dtype
        return f"{quote(self.name)} " + ("(unreadable)" if self.refusal else f"{self.shape} {kind}")


def quote(name: str) -> str:
    """Show a name from a file: as it is if harmless, else escaped and cut."""
    if len(name) > _NAME_LENGTH:
        name = name[:_NAME_LENGTH] + "..."
    return name if name.isidentifier() and name.isascii() else ascii(name)


def check_limit(n_bytes: int, limit: int, what: str) -> None:
    if n_bytes > limit:
        raise Refusal(
            f"{what} would take {n_bytes} bytes, more than the {limit} that limit= leaves; raise "
            "it if you trust the file"
        )


def text_array(strings: Sequence[str], limit: int) -> np.ndarray:
    """Array of strings, unless the longest one blows it up beyond the limit."""
    longest = max(map(len, strings), default=0)
    n_bytes = len(strings) * longest * np.dtype("U1").itemsize
    check_limit(n_bytes, limit, f"{len(strings)} strings of up to {longest} characters")
    return np.array(strings, dtype=np.str_)
