"""What an experiment is: cells to compute, and how to show their outcomes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from paper.cells import Cell, Done
from paper.comparison import Claim, Estimate, Row
from paper.data import SOURCES
from paper.protocol import Limits, Protocol


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A table or figure of the paper. Rows, claims and pictures use the cells that are done."""

    name: str  # on the command line
    title: str
    where: str  # which table or figure of the paper
    unit: str  # of the figures in the table
    cells: Callable[[Protocol], list[Cell]]  # of all data; cheap ones first
    rows: Callable[[Done], list[Row]]
    claims: Callable[[list[Row]], list[Claim]]  # what the paper claims, beside the figures
    effort: Callable[[Protocol], str]  # says what is computed, but for what all experiments share
    draw: Callable[[Any, Done], None] | None = None  # into a figure of Matplotlib
    timed: bool = False  # whether it measures time, which other processes would disturb


def data_cell(
    task: tuple[str, int],
    source: str,
    method: str,
    seed: int,
    settings: Mapping[str, Any],
    limits: Limits,
    compute: Callable[[Any, str], dict[str, Any]],
    resumes: bool = False,
) -> Cell:
    """Make a cell of a part of a data set."""
    told = {**settings, "limits": str(limits)}
    return Cell(task, SOURCES[source].title, source, method, seed, told, compute, resumes)


def plot_means(ax: Any, found: Mapping[int, Estimate | None], label: str) -> None:
    """Draw means against sizes, with bars for their errors, where there are any."""
    known = {size: one for size, one in sorted(found.items()) if one is not None}
    if known:
        values, errors = zip(*known.values(), strict=True)
        bars = [error or 0.0 for error in errors]
        ax.errorbar(list(known), values, bars, label=label, marker="o", capsize=2)
        ax.legend()
