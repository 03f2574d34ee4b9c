"""Cells: the unit of work of experiments, known by what its outcome depends on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

__all__ = ["Cell", "Outcome", "Outcomes", "Task"]

Outcome = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A kind of work. Raise the revision when it computes something else than before."""

    name: str
    revision: int


@dataclass(frozen=True, eq=False)
class Cell:
    """One thing to compute, such as the accuracy of a method on a split.

    Experiments that ask for the same thing share it, for the key does not name them.

    Attributes
    ----------
    task : Task
    data : str
        What the data is called.
    digest : str
        Of its content; of synthetic data, what it is made from.
    method : str
    seed : int
        Of the split and of the fit.
    settings : mapping of str to plain values, all else that the outcome depends on.
    compute : callable, returns the outcome: a dict of plain values.

    Examples
    --------
    >>> task = Task("sum", 1)
    >>> cell = Cell(task, "two", "2", "add", 0, {"to": 3}, lambda: {"sum": 5})
    >>> same = Cell(task, "zwei", "2", "add", 0, {"to": 3}, lambda: {"sum": 5})
    >>> cell.key == same.key, cell.compute()
    (True, {'sum': 5})
    """

    task: Task
    data: str
    digest: str
    method: str
    seed: int
    settings: Mapping[str, Any]
    compute: Callable[[], Outcome] = field(repr=False)

    @property
    def key(self) -> str:
        """Hash of everything the outcome depends on."""
        told = [
            self.task.name, self.task.revision, self.digest, self.method, self.seed,
            dict(self.settings),
        ]  # fmt: skip
        text = json.dumps(told, sort_keys=True, allow_nan=False)
        return sha256(text.encode()).hexdigest()

    @property
    def about(self) -> dict[str, Any]:
        """What it is, for people who look into a cache."""
        return {
            "task": self.task.name, "revision": self.task.revision, "data": self.data,
            "digest": self.digest, "method": self.method, "seed": self.seed,
            "settings": dict(self.settings),
        }  # fmt: skip

    def __str__(self) -> str:
        return f"{self.data}, {self.method}, {self.seed}"


class Outcomes:
    """Cells that are done, with their outcomes.

    Parameters
    ----------
    pairs : sequence of (Cell, Outcome)
    """

    def __init__(self, pairs: Sequence[tuple[Cell, Outcome]]) -> None:
        self._pairs = tuple(pairs)

    def __iter__(self) -> Iterator[tuple[Cell, Outcome]]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def where(
        self, *, data: str | None = None, method: str | None = None, **settings: Any
    ) -> Outcomes:
        """Those of some data, of some method, or with some settings."""
        return Outcomes([
            (cell, outcome) for cell, outcome in self
            if data in (None, cell.data) and method in (None, cell.method)
            and all(cell.settings.get(name) == value for name, value in settings.items())
        ])  # fmt: skip

    def values(self, name: str) -> list[Any]:
        """One entry of every outcome."""
        return [outcome[name] for _, outcome in self]

    def settings(self, name: str) -> list[Any]:
        """List the different values of a setting, in the order of the cells."""
        return list(dict.fromkeys(cell.settings[name] for cell, _ in self))

    @property
    def data(self) -> list[str]:
        """The data there is something of."""
        return list(dict.fromkeys(cell.data for cell, _ in self))
