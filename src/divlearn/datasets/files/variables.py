"""The arrays of a file as their headers describe them, and bytes read within bounds.

Files are hostile until parsed. Every reader first lists `Variable` objects, which takes headers
only; the claims in them are checked before anything of that size is allocated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "DEFLATE_RATIO", "Refusal", "Stream", "Variable", "explaining", "quote", "read_bytes",
    "shape_size", "text_array",
]  # fmt: skip

# Deflate makes at most 258 bytes of two bits, hence no stream grows by more than this factor.
DEFLATE_RATIO = 1032
# What is read in one go, so that a file that ends early was not paid for in full.
_BLOCK = 2**20
# Names come from the file: shown escaped, and cut.
_NAME_LENGTH = 60


class Refusal(Exception):
    """What is wrong with a file and what to do, still without the name of the file.

    Examples
    --------
    >>> print(Refusal("it is empty; write it again"))
    it is empty; write it again
    """


@contextmanager
def explaining(name: str, limit: int) -> Iterator[None]:
    """Turn whatever a parser raises over a damaged file into a ValueError that names the file."""
    try:
        yield
    except Refusal as refusal:
        raise ValueError(f"{name}: {refusal}") from refusal
    except ImportError:
        raise
    except MemoryError as error:
        raise ValueError(
            f"{name}: there is not enough memory for it; if it is no larger than it should be, "
            f"free some, else lower limit={limit}"
        ) from error
    # Parsers meet bytes nobody thought of: there is no list of what they raise.
    except Exception as error:
        raise ValueError(
            f"{name}: the file is damaged ({type(error).__name__}: {error!s:.200}); copy or write "
            "it again"
        ) from error


class Stream(Protocol):
    """What bytes are read from."""

    def read(self, n_bytes: int, /) -> bytes:
        """Read up to that many bytes, and none only at the end."""


@dataclass(frozen=True, eq=False)
class Variable:
    """One named array of a file, before it is read.

    Attributes
    ----------
    name : what it is called in the file.
    shape : its shape. Text is one entry per string.
    dtype : of its entries in memory; ``str`` without a length where only reading tells it.
    read : reads it, given the largest number of bytes it may take in memory.
    refusal : why it cannot be read and what to do, empty if it can.

    Examples
    --------
    >>> variable = Variable("X", (2, 3, 3), np.dtype("f4"), lambda limit: np.zeros((2, 3, 3), "f4"))
    >>> print(variable)
    X (2, 3, 3) float32
    >>> variable.n_bytes
    72
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[int], NDArray[Any]]
    refusal: str = ""

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
    r"""Show a name from a file: as it is if harmless, else escaped and cut.

    Examples
    --------
    >>> print(quote("X_train"), quote("a b\n"))
    X_train 'a b\n'
    """
    if len(name) > _NAME_LENGTH:
        name = name[:_NAME_LENGTH] + "..."
    return name if name.isidentifier() and name.isascii() else ascii(name)


def shape_size(shape: Sequence[int]) -> int:
    """Return the number of entries; refuse what no array can have.

    Examples
    --------
    >>> shape_size((2, 3))
    6
    >>> shape_size((2, -3))
    Traceback (most recent call last):
    divlearn.datasets.files.variables.Refusal: the header claims the shape (2, -3); ...
    """
    # Python integers: a product that overflows must not pass for a small one.
    if len(shape) > 32 or not all(0 <= side < 2**62 for side in shape):
        raise Refusal(f"the header claims the shape {shape}; the file is damaged, write it again")
    return math.prod(shape)


def read_bytes(stream: Stream, n_bytes: int) -> NDArray[np.uint8]:
    """Read exactly that many bytes.

    Examples
    --------
    >>> import io
    >>> read_bytes(io.BytesIO(b"abc"), 2)
    array([97, 98], dtype=uint8)
    >>> read_bytes(io.BytesIO(b"abc"), 4)
    Traceback (most recent call last):
    divlearn.datasets.files.variables.Refusal: it ends 1 bytes before its data does; ...
    """
    content = np.empty(n_bytes, np.uint8)
    filled = 0
    while filled < n_bytes:
        got = stream.read(min(_BLOCK, n_bytes - filled))
        if not got:
            raise Refusal(
                f"it ends {n_bytes - filled} bytes before its data does; the file is truncated or "
                "damaged, copy or write it again"
            )
        content[filled : filled + len(got)] = np.frombuffer(got, np.uint8)
        filled += len(got)
    return content


def text_array(strings: Sequence[str], limit: int) -> NDArray[np.str_]:
    """Array of strings, unless the longest one blows it up beyond the limit.

    Examples
    --------
    >>> text_array(["a", "bc"], 100)
    array(['a', 'bc'], dtype='<U2')
    >>> text_array(["a", 100 * "b"], 100)
    Traceback (most recent call last):
    divlearn.datasets.files.variables.Refusal: 2 strings of up to 100 characters take 800 bytes, ...
    """
    longest = max(map(len, strings), default=0)
    n_bytes = len(strings) * longest * np.dtype("U1").itemsize
    if n_bytes > limit:
        raise Refusal(
            f"{len(strings)} strings of up to {longest} characters take {n_bytes} bytes, more than "
            f"the {limit} that limit= leaves; shorten them or raise limit="
        )
    return np.array(strings, dtype=np.str_)
