"""Where data sets are kept on this machine; nothing is ever downloaded."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ENVIRONMENT", "PathLike", "Source", "natural_key", "subfolders"]

# The environment variable that names the folder with one sub-folder for each data set.
ENVIRONMENT = "DIVLEARN_DATA"

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Source:
    """A data set that one has to obtain: how its files are laid out, and who gives them away.

    Attributes
    ----------
    name : what messages call the data set.
    folder : its sub-folder of the folder that DIVLEARN_DATA names.
    layout : the files that its folder must hold, in words.
    origin : where one obtains them, in words.

    Examples
    --------
    >>> Source("Leaves", "leaves", "<tree>/*.png", "the authors").find("/nowhere")
    Traceback (most recent call last):
    FileNotFoundError: Leaves: path=/nowhere does not exist. Expected files: <tree>/*.png. ...
    """

    name: str
    folder: str
    layout: str
    origin: str

    def find(self, path: PathLike | None = None) -> Path:
        """Return the path if it exists; without one, the sub-folder of DIVLEARN_DATA.

        Parameters
        ----------
        path : str or path-like, optional
        """
        if path is not None:
            given, called = Path(path).expanduser(), f"path={os.fspath(path)}"
        elif root := os.environ.get(ENVIRONMENT):
            given = Path(root).expanduser() / self.folder
            called = f"{given}, the sub-folder {self.folder} of {ENVIRONMENT}={root},"
        else:
            raise self.missing(
                f"path= is not given and the environment variable {ENVIRONMENT} is not set; pass "
                f"path=, or set {ENVIRONMENT} to the folder that holds {self.folder}"
            )
        if not given.exists():
            raise self.missing(f"{called} does not exist")
        return given

    def find_folder(self, path: PathLike | None = None) -> Path:
        """Return as `find` does what must be a folder.

        Parameters
        ----------
        path : str or path-like, optional
        """
        folder = self.find(path)
        if not folder.is_dir():
            raise NotADirectoryError(
                f"{self.name}: {folder} is a file, must be a folder. {self._help()}"
            )
        return folder

    def missing(self, what: str) -> FileNotFoundError:
        """Error to raise: what was looked for and where, the layout, and where to obtain the data.

        Parameters
        ----------
        what : str
        """
        return FileNotFoundError(f"{self.name}: {what}. {self._help()}")

    def _help(self) -> str:
        return (
            f"Expected files: {self.layout}. The data is not downloaded: obtain it from "
            f"{self.origin}"
        )


def natural_key(path: Path) -> tuple[list[str | int], str]:
    """Key that sorts paths as people do, 2.png before 10.png.

    Examples
    --------
    >>> [path.name for path in sorted(map(Path, ["10.png", "2.png"]), key=natural_key)]
    ['2.png', '10.png']
    """
    # Split at a group, every second part is a number: text is never compared with a number.
    parts = re.split("([0-9]+)", path.name)
    return [int(part) if i % 2 else part for i, part in enumerate(parts)], path.name


def subfolders(folder: Path) -> list[Path]:
    """Sub-folders in natural order, but hidden ones.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("b10", "b9", ".git"):
    ...         (Path(folder) / name).mkdir()
    ...     print([found.name for found in subfolders(Path(folder))])
    ['b9', 'b10']
    """
    found = [entry for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != "."]
    return sorted(found, key=natural_key)
