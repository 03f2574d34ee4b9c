"""Where outcomes of cells are kept, so that no work is done twice."""

from __future__ import annotations

import json
import os
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

from divlearn.atomic import open_atomic
from divlearn.experiments.cells import Cell, Outcome
from divlearn.report.plain import plain

__all__ = ["Cache", "Stored", "default_folder"]


class Stored(dict[str, Any]):
    """What a file of the cache holds: the outcome, and how long it took."""

    @property
    def outcome(self) -> Outcome:
        """What the cell computed."""
        found: Outcome = self["outcome"]
        return found

    @property
    def seconds(self) -> float:
        """How long that took."""
        return float(self["seconds"])


class Cache:
    """A folder with a small file for every cell that is done.

    Files are whole at any moment: a run that is killed loses the cell it was in, no more. A file
    that is damaged, or that holds something else than its name says, counts as absent.

    Parameters
    ----------
    folder : Path

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from divlearn.experiments.cells import Task
    >>> cell = Cell(Task("sum", 1), "two", "2", "add", 0, {}, lambda: {"sum": 5})
    >>> with TemporaryDirectory() as folder:
    ...     cache = Cache(Path(folder))
    ...     before = cache.read(cell)
    ...     _ = cache.write(cell, cell.compute(), seconds=0.1, cpu_seconds=0.1)
    ...     print(before, cache.read(cell).outcome)
    None {'sum': 5}
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, cell: Cell) -> Path:
        """File of a cell."""
        return self.folder / cell.key[:2] / f"{cell.key}.json"

    def read(self, cell: Cell) -> Stored | None:
        """Return what is stored, or None."""
        return _read(self.path(cell), cell.key)

    def write(self, cell: Cell, outcome: Outcome, *, seconds: float, cpu_seconds: float) -> Stored:
        """Keep an outcome; returns it as it will be read."""
        import divlearn

        content = {
            "key": cell.key, "about": cell.about, "version": divlearn.__version__,
            "seconds": round(seconds, 4), "cpu_seconds": round(cpu_seconds, 4),
            "outcome": outcome,
        }  # fmt: skip
        return _write(self.path(cell), content)

    def note(self, name: str, key: str) -> dict[str, Any] | None:
        """Return a note that was kept by `keep`, or None."""
        stored = _read(self.folder / "notes" / f"{name}.json", key)
        return None if stored is None else stored.outcome

    def keep(self, name: str, key: str, content: dict[str, Any]) -> None:
        """Keep a note for as long as its key is the same."""
        _write(
            self.folder / "notes" / f"{name}.json", {"key": key, "seconds": 0.0, "outcome": content}
        )


def default_folder() -> Path:
    """Return the folder for caches of programs on this platform.

    Examples
    --------
    >>> default_folder().name
    'divlearn'
    """
    home = Path.home()
    if sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    elif sys.platform == "darwin":
        root = home / "Library" / "Caches"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return root / "divlearn"


def _write(path: Path, content: dict[str, Any]) -> Stored:
    content = plain(content, digits=None)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_atomic(path) as file:
        sealed = content | {"seal": _seal(content)}
        file.write(json.dumps(sealed, indent=1, allow_nan=False).encode())
    return Stored(content)


def _read(path: Path, key: str) -> Stored | None:
    try:
        content = json.loads(path.read_bytes())
        seal = content.pop("seal")
        if content["key"] == key and seal == _seal(content):
            return Stored(content)
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        pass  # absent or damaged: to be computed again in either case
    return None


def _seal(content: dict[str, Any]) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
