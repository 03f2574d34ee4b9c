"""Opening what must be an ordinary file."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import BinaryIO

__all__ = ["open_regular"]


def open_regular(path: Path, name: str) -> BinaryIO:
    """Open a file to read its bytes; refuse folders, pipes, sockets and devices.

    Parameters
    ----------
    path : Path
    name : str
        What messages call it.

    Examples
    --------
    >>> open_regular(Path("/dev/null"), "null")
    Traceback (most recent call last):
    ValueError: null: it is a device, pipe or socket; copy the data to a file
    """
    mode = path.stat().st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(
            f"{name}: it is a folder, must be a file; pass a file, or remove the folder"
        )
    # Opening a pipe would wait for a writer, and a device has no end.
    if not stat.S_ISREG(mode):
        raise ValueError(f"{name}: it is a device, pipe or socket; copy the data to a file")
    return path.open("rb")
