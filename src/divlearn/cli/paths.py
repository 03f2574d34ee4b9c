"""Files that a command reads and writes, checked before any work."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from divlearn.atomic import check_replaceable

__all__ = ["check_paths", "shell_name"]

Named = tuple[str, Path | None]  # an option or argument, and its value


def check_paths(inputs: Sequence[Named], outputs: Sequence[Named]) -> None:
    """Refuse outputs that would overwrite an input or each other, or that cannot be written.

    The folders of outputs are created. Nothing is written into an input that is a folder.

    Parameters
    ----------
    inputs, outputs : sequence of (option, path)
        The path is None where the option is not given.
    """
    read, written = ([(name, path) for name, path in part if path] for part in (inputs, outputs))
    for option, path in written:
        with _told_of(option, path):
            check_replaceable(path, f"{option} {path}")
    for number, (option, path) in enumerate(written):
        for other, other_path in (*read, *written[:number]):
            this, that = f"{option} {path}", f"{other} {other_path}"
            if _are_same(path, other_path):
                raise ValueError(f"{this} and {that} are the same file; choose another {option}")
            if _lies_in(path, other_path):
                raise ValueError(f"{this} lies in {that}; choose another {option}")
            if _lies_in(other_path, path):
                raise ValueError(f"{that} lies in {this}; choose another {option}")
    for option, path in written:
        with _told_of(option, path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=path.parent):
                pass


def shell_name(path: Path) -> str:
    """Quote a name such that a shell passes it on as the name of a file.

    Examples
    --------
    >>> print(shell_name(Path("my model")), shell_name(Path("-m")), shell_name(Path("m")))
    'my model' ./-m m
    """
    name = str(path)
    return shlex.quote(f"./{name}" if name.startswith("-") else name)


def _are_same(first: Path, second: Path) -> bool:
    """Whether two names lead to one file, which need not exist yet."""
    if os.path.realpath(first) == os.path.realpath(second):
        return True
    try:
        return first.samefile(second)  # two hard links
    except OSError:
        return False


def _lies_in(path: Path, folder: Path) -> bool:
    """Whether a file lies in a folder, or in what would have to become one."""
    inside = Path(os.path.realpath(folder)) in Path(os.path.realpath(path)).parents
    return inside and not folder.is_file()


@contextmanager
def _told_of(option: str, path: Path) -> Iterator[None]:
    """Let errors of the operating system name the option."""
    try:
        yield
    except OSError as error:
        if error.strerror is None:  # it is a sentence already
            raise
        raise ValueError(
            f"{option} {path} cannot be written: {path.parent}: {error.strerror}; choose another "
            "folder"
        ) from error
