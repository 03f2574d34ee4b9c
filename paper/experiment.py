"""What an experiment is: cells to compute, and how to show their outcomes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from divlearn.datasets import Dataset
from paper.cache import Cell, Done
from paper.comparison import Estimate, Row
from paper.data import SOURCES, Data
from paper.protocol import Limits, Protocol


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A table or figure of the paper. Rows, claims and pictures use the cells that are done."""

    name: str  # on the command line
    title: str
    where: str  # which table or figure of the paper
    unit: str  # of the figures in the table
    cells: Callable[[Data, Protocol], list[Cell]]  # cheap ones first
    rows: Callable[[Done], list[Row]]
    claims: Callable[[list[Row], Done], list[str]]  # sentences on what the paper claims
    effort: Callable[[Protocol], str]  # says what is computed
    sources: Sequence[str] = ()  # keys of the data that the paper used
    draw: Callable[[Figure, Done], None] | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)  # why rows or columns may differ
    timed: bool = False  # whether it measures time, which other processes would disturb


def data_cell(
    task: tuple[str, int], data: Data, key: str, method: str, seed: int, settings: dict[str, Any],
    limits: Limits, compute: Callable[[], dict[str, Any]],
) -> Cell:  # fmt: skip
    """Make a cell of a part of a data set."""
    told = settings | {"limits": str(limits)}
    return Cell(task, SOURCES[key].title, _digest(data[key]), method, seed, told, compute)


@cache
def _digest(dataset: Dataset) -> str:
    return dataset.digest()


def say_limits(protocol: Protocol, sources: Sequence[str]) -> str:
    """Say how much of the data is used."""
    special = [key for key in sources if key in protocol.limits]
    parts = [f"of {SOURCES[key].title} {protocol.limits[key]}" for key in special]
    rest = protocol.limits[""]
    if rest != Limits():
        parts.append(f"{'of all other data' if parts else 'of all data'} {rest}")
    return "; ".join(parts)


def plot_means(ax: Axes, found: Mapping[int, Estimate | None], label: str) -> None:
    """Draw means against sizes, with bars for their errors, where there are any."""
    known = {size: one for size, one in sorted(found.items()) if one is not None}
    if known:
        values, errors = zip(*known.values(), strict=True)
        bars = [error or 0.0 for error in errors]
        ax.errorbar(list(known), values, bars, label=label, marker="o", capsize=2)
        ax.legend()
