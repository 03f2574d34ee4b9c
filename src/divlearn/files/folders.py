"""Sub-folders and files in the order in which people list them."""

from __future__ import annotations

import os
import re
from pathlib import Path

__all__ = ["PathLike", "natural_key", "subfolders"]

PathLike = str | os.PathLike[str]


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
