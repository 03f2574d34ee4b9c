"""Files that are replaced as a whole or not at all."""

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_ELSEWHERE = "free disk space or choose another folder"
_FULL = {
    errno.ENOSPC: _ELSEWHERE,
    errno.EDQUOT: _ELSEWHERE,
    errno.EFBIG: "raise the limit on the size of files (ulimit -f) or choose another folder",
}


@contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces ``path`` once it is complete."""
    original = str(path)
    check_replaceable(path, original)
    path = path.resolve()  # so that a link stays one
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with naming_full_disk(original), os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(handle)
        os.chmod(name, _mode(path))
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    _sync_folder(path.parent)


@contextmanager
def naming_full_disk(name: str) -> Iterator[None]:
    """Let errors of a full disk name the file and say what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        raise OSError(error.errno, f"{error.strerror}; {_FULL[error.errno]}", name) from error


def check_replaceable(path: Path, name: str) -> None:
    """Raise if a folder, device, pipe or socket, called `name`, would be replaced by a file."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{name} is a folder, must be a file; add the name of a file")
    if not stat.S_ISREG(mode):
        raise ValueError(f"{name} is a device, pipe or socket, must be a file; choose another name")


def _mode(path: Path) -> int:
    """Permissions of the old file, or the default of new files."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _sync_folder(folder: Path) -> None:
    """Flush the new name to the disk too, where folders can be opened."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
