"""What every section of a page has in common."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import RealArray

__all__ = ["Section", "check_shape"]


class Section(Protocol):
    """A part of a `Page`: a title, a note in plain words, and what is shown.

    Attributes
    ----------
    template : str, name of the template that shows it.
    kind : str, name of the function of the page's script that draws it, and its class of style.
    title, note : str
    """

    template: ClassVar[str]
    kind: ClassVar[str]

    @property
    def title(self) -> str:
        """What is shown."""

    @property
    def note(self) -> str:
        """What one sees, in plain words."""

    def content(self) -> dict[str, Any]:
        """Return what the template and the script need, as plain values."""


def check_shape(values: ArrayLike, name: str, shape: tuple[int | None, ...]) -> RealArray:
    """Array of real numbers of a given shape; None stands for any length.

    Numbers that are not finite are left: a report shows them as missing.

    Examples
    --------
    >>> check_shape([[1, 2]], "matrix", (2, 2))
    Traceback (most recent call last):
    ValueError: matrix has shape (1, 2), but must have shape (2, 2)
    """
    array = np.asarray(values)
    if array.dtype.kind not in "buif":
        raise TypeError(f"{name} has dtype {array.dtype}, but must be real numbers")
    fits = array.ndim == len(shape) and all(
        wanted in (None, got) for got, wanted in zip(array.shape, shape, strict=True)
    )
    if not fits:
        words = ", ".join("n" if length is None else str(length) for length in shape)
        words += "," * (len(shape) == 1)
        raise ValueError(f"{name} has shape {array.shape}, but must have shape ({words})")
    real: RealArray = array.astype(np.float64)
    return real
