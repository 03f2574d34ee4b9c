"""Results of the benchmark of accuracy: means and paired differences with standard errors.

Standard errors are over splits. Where all seeds share one split they are those of its test set: of
a share for an accuracy, of the mean over test matrices for a paired difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from accuracy_data import SOURCES, Column

SECONDS = ("fit_seconds", "predict_seconds")
Cell = dict[str, Any]


@dataclass(frozen=True)
class Estimate:
    """A percentage, or a difference of two, and its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.1f} +- {self.error:.1f}"

    @property
    def signed(self) -> str:
        return f"{self.value:+.1f} +- {self.error:.1f}"

    @property
    def is_behind(self) -> bool:
        """Whether a difference is below zero by more than its standard error."""
        return self.value < -self.error

    @property
    def is_ahead(self) -> bool:
        """Whether a difference is above zero by more than its standard error."""
        return self.value > self.error


def average(estimates: Sequence[Estimate]) -> Estimate:
    values, errors = np.transpose([(one.value, one.error) for one in estimates])
    return Estimate(float(values.mean()), float(np.sqrt((errors**2).sum()) / len(errors)))


def _over(values: np.ndarray) -> Estimate:
    error = values.std(ddof=1) / len(values) ** 0.5
    return Estimate(100 * float(values.mean()), 100 * float(error))


class Results:
    """Cells of some columns and methods, and what follows from them."""

    def __init__(
        self, cells: Sequence[Cell], columns: Mapping[str, Column], methods: Sequence[str]
    ) -> None:
        self._cells = {(cell["data"], cell["method"], cell["seed"]): cell for cell in cells}
        self._columns = columns
        self._measured = {(cell["data"], cell["seed"]) for cell in cells}
        self.data = [name for name in columns if any(self.of(name, method) for method in methods)]
        self.methods = [m for m in methods if any(self.of(name, m) for name in self.data)]

    def of(self, data: str, method: str) -> dict[int, Cell]:
        """Cells of a column, by seed; none if the method lacks a seed that another one has.

        A mean over some of the splits must not stand beside means over all of them.
        """
        column = self._columns[data]
        seeds = [seed for seed in column.seeds if (column.data, seed) in self._measured]
        found = {seed: self._cells.get((column.data, method, seed)) for seed in seeds}
        cells = {seed: cell for seed, cell in found.items() if cell is not None}
        return cells if len(cells) == len(seeds) else {}

    def title(self, data: str) -> str:
        return self._columns[data].title

    def not_in(self, data: Sequence[str]) -> list[str]:
        """Titles of the other columns."""
        return [column.title for name, column in self._columns.items() if name not in data]

    def is_complete(self, data: str, *methods: str) -> bool:
        """Whether methods have results of all seeds that any method has results of."""
        return all(self.of(data, method) for method in methods)

    def common(self, methods: Sequence[str]) -> list[str]:
        """Columns that all these methods have finished."""
        return [data for data in self.data if self.is_complete(data, *methods)]

    def everywhere(self, methods: Sequence[str]) -> list[str]:
        """Methods that have finished all columns there are results of."""
        return [m for m in methods if all(self.is_complete(name, m) for name in self.data)]

    def accuracy(self, data: str, method: str) -> Estimate:
        cells = self.of(data, method).values()
        values = np.array([cell["accuracy"] for cell in cells])
        if len(values) > 1 and not self._is_single(data):
            return _over(values)
        share = float(values.mean())
        n_test = min(len(cell["correct"]) for cell in cells)
        return Estimate(100 * share, 100 * (share * (1 - share) / n_test) ** 0.5)

    def gain(self, data: str, method: str, other: str) -> Estimate:
        """How much better a method is than another one on the same test sets."""
        ours, theirs = self.of(data, method), self.of(data, other)
        seeds = sorted(ours.keys() & theirs.keys())
        tables = [_right(ours[seed]) - _right(theirs[seed]) for seed in seeds]
        if len(seeds) > 1 and not self._is_single(data):
            return _over(np.array([table.mean() for table in tables]))
        return _over(np.mean(tables, axis=0))

    def _is_single(self, data: str) -> bool:
        return SOURCES[self._columns[data].data].single

    def mean(self, method: str, data: Sequence[str]) -> Estimate:
        return average([self.accuracy(name, method) for name in data])

    def mean_gain(self, method: str, other: str, data: Sequence[str]) -> Estimate:
        return average([self.gain(name, method, other) for name in data])

    def numbers(self, keys: Sequence[str], data: str, method: str) -> list[float]:
        """Values of a key, or sums of several, of all cells that have them."""
        cells = self.of(data, method).values()
        return [sum(cell[key] for key in keys) for cell in cells if keys[0] in cell]


def _right(cell: Cell) -> np.ndarray:
    return np.array(list(cell["correct"]), dtype=float)
