"""Cells, the units of work, and the folder that keeps their outcomes."""

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

Done = Sequence[dict[str, Any]]  # records of cells; see `record`


@dataclass(frozen=True, eq=False)
class Cell:
    """One thing to compute, such as the accuracy of a method on a split.

    Neither the name of the experiment nor that of the data is part of the key, so that experiments
    share cells.
    """

    task: tuple[str, int]  # name and revision; raise the latter when outcomes change
    data: str  # name of the data in tables
    digest: str  # of the content of the data
    method: str
    seed: int  # of the split and of the fit
    settings: Mapping[str, Any]  # all else that the outcome depends on
    compute: Callable[[], dict[str, Any]]  # a function that can be pickled

    @property
    def key(self) -> str:
        """Digest of everything that determines the outcome."""
        parts = [*self.task, self.digest, self.method, self.seed, self.settings]
        return sha256(json.dumps(parts, sort_keys=True, allow_nan=False).encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.data}, {self.method}, {self.seed}"


def _path(folder: Path, key: str) -> Path:
    return folder / key[:2] / f"{key}.json"


def read(folder: Path, cell: Cell) -> dict[str, Any] | None:
    """Return the content of a cell's file, or None where it is absent or damaged."""
    key = cell.key
    try:
        content = json.loads(_path(folder, key).read_bytes())
        return content if content["key"] == key and "outcome" in content else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def write(folder: Path, cell: Cell, outcome: dict[str, Any], seconds: float) -> None:
    """Keep an outcome. The file appears whole or not at all, whoever else writes it."""
    about = {
        "task": cell.task, "data": cell.data, "digest": cell.digest, "method": cell.method,
        "seed": cell.seed, "settings": cell.settings,
    }  # fmt: skip
    content = {"key": cell.key, "about": about, "seconds": seconds, "outcome": outcome}
    text = json.dumps(content, indent=1, allow_nan=False, default=lambda array: array.tolist())
    path = _path(folder, cell.key)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    with os.fdopen(handle, "w") as file:
        file.write(text)
    os.replace(name, path)


def record(folder: Path, cell: Cell) -> dict[str, Any] | None:
    """Return what is known of a cell that is done, in one flat dict; None where it is not."""
    content = read(folder, cell)
    if content is None:
        return None
    about = {"data": cell.data, "method": cell.method, "seed": cell.seed}
    return {**about, **cell.settings, **content["outcome"], "took": content["seconds"]}


def where(done: Done, **wanted: Any) -> list[dict[str, Any]]:
    """Select records by their entries; None is an entry that is absent.

    Examples
    --------
    >>> where([{"data": "Virus", "atoms": 5}, {"data": "Virus"}], data="Virus", atoms=None)
    [{'data': 'Virus'}]
    """
    return [one for one in done if all(one.get(name) == value for name, value in wanted.items())]


def distinct(done: Done, name: str) -> list[Any]:
    """List the distinct values of an entry, in the order of the cells."""
    return list(dict.fromkeys(one[name] for one in done))
