"""Where data sets are on this machine."""

import os
import re
from pathlib import Path

PathLike = str | os.PathLike[str]
NOT_STATED = "not stated by the source"  # terms


def find_folder(path: PathLike | None, name: str) -> Path:
    """Return a folder that exists; without a path, the sub-folder `name` of DIVLEARN_DATA."""
    root = os.environ.get("DIVLEARN_DATA", "")
    folder = (Path(root) / name if path is None else Path(path)).expanduser()
    if not folder.is_dir() or not (path or root):
        raise FileNotFoundError(
            f"{folder} must be the folder of {name}; pass path= or set DIVLEARN_DATA. Nothing is "
            "downloaded: docs/data.md has the layout of its files"
        )
    return folder


def need(files: list[Path], folder: Path, layout: str) -> list[Path]:
    """Return the files if there are any, and all exist."""
    absent = [str(file.relative_to(folder)) for file in files if not file.is_file()]
    if absent or not files:
        lacking = f"lacks {', '.join(absent[:5])}" if absent else "has none of its files"
        raise FileNotFoundError(f"{folder} {lacking}; it must hold {layout}")
    return files


def _natural_key(path: Path) -> list[str | int]:
    """Sort 2.png before 10.png; every second part is a number."""
    return [int(part) if i % 2 else part for i, part in enumerate(re.split("([0-9]+)", path.name))]


def subfolders(folder: Path) -> list[Path]:
    """List the sub-folders in natural order, but hidden ones."""
    found = (entry for entry in folder.iterdir() if entry.is_dir() and entry.name[0] != ".")
    return sorted(found, key=_natural_key)


def list_files(folder: Path, suffix: str) -> list[Path]:
    """List the files with a suffix in natural order, but hidden ones."""
    return sorted(folder.glob(f"[!.]*{suffix}"), key=_natural_key)
