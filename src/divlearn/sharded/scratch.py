"""Temporary files of this process, in a folder with a lock that ends with the process.

A process that is killed leaves its folder. The next one removes folders whose lock nobody holds.
"""

from __future__ import annotations

import atexit
import os
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from shutil import rmtree

try:
    import fcntl
except ImportError:  # on Windows, where folders of killed processes stay
    fcntl = None  # type: ignore[assignment]

_PREFIX, _LOCK = "divlearn-", "lock"


def make_file() -> tuple[int, str]:
    """Create an empty file, and return its handle and its path."""
    return tempfile.mkstemp(dir=_make_folder(os.getpid(), tempfile.gettempdir()), suffix=".pickle")


def remove_file(path: str, process: int) -> None:
    """Remove a file of a process, unless this is a fork of it."""
    if os.getpid() == process:
        with suppress(FileNotFoundError):
            os.unlink(path)


@cache
def _make_folder(process: int, place: str) -> Path:
    if fcntl is not None:
        _sweep(place)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
    if fcntl is not None:
        handle = os.open(folder / "new", os.O_RDWR | os.O_CREAT)  # open until the process ends
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.rename(folder / "new", folder / _LOCK)  # only now others try the lock
    atexit.register(_remove, folder, process)
    return folder


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:
        rmtree(folder, ignore_errors=True)


def _sweep(place: str) -> None:
    """Remove folders of processes that have ended."""
    for lock in Path(place).glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError):  # it is locked, or of another user
            handle = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                rmtree(lock.parent)
            finally:
                os.close(handle)
