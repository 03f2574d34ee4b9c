"""What an experiment found, beside what the paper reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from divlearn.experiments.estimates import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Result", "Row", "pivot"]


@dataclass(frozen=True)
class Row:
    """One figure.

    Attributes
    ----------
    row, column : str
        Where it stands in the table; the row is most often a data set, the column a method.
    value : float or None
        Ours; None where it is still to be computed.
    error : float or None
        Its standard error.
    paper : float or None
        What the paper reports.
    decimals : int
    """

    row: str
    column: str
    value: float | None
    error: float | None = None
    paper: float | None = None
    decimals: int = 1

    @classmethod
    def of(
        cls, row: str, column: str, found: Estimate | None, paper: float | None = None,
        decimals: int = 1,
    ) -> Row:  # fmt: skip
        """Make a row of an estimate."""
        value, error = found if found is not None else (None, None)
        return cls(row, column, value, error, paper, decimals)

    @property
    def differs(self) -> bool:
        """Whether ours is further from the paper's than two standard errors."""
        if self.value is None or self.paper is None or self.error is None:
            return False
        return abs(self.value - self.paper) > 2 * self.error

    def __str__(self) -> str:
        text = "-" if self.value is None else f"{self.value:.{self.decimals}f}"
        if self.error is not None:
            text += f" +- {self.error:.{self.decimals}f}"
        return text if self.paper is None else f"{text} ({self.paper:g})"


@dataclass(frozen=True, eq=False)
class Result:
    """What an experiment found.

    Attributes
    ----------
    name, title : str
    where : str
        Which table or figure of the paper it is.
    effort : str
        What was done, in words: splits, atoms, iterations.
    unit : str
        Of the figures in the table.
    used, missing : sequence of str
        Data sets it ran on, and those of the paper it could not.
    rows : sequence of Row
    text : sequence of str
        Sentences that compare with the paper.
    seconds : float
        That the work took, when it was done.
    n_cells, n_done : int
        Cells there are, and those of them that are done.
    failures : sequence of str
        Cells that went wrong, and how.
    draw : callable or None
        Draws the figure.
    """

    name: str
    title: str
    where: str
    effort: str
    unit: str
    used: Sequence[str]
    missing: Sequence[str]
    rows: Sequence[Row]
    text: Sequence[str]
    seconds: float
    n_cells: int
    n_done: int
    failures: Sequence[str] = ()
    draw: Callable[[Figure], None] | None = field(default=None, repr=False)

    def plain(self) -> dict[str, Any]:
        """Everything but the figure as plain values."""
        told = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "draw"}
        return told | {"rows": [vars(row) for row in self.rows]}


def pivot(rows: Sequence[Row], corner: str = "") -> tuple[list[str], list[list[str]]]:
    """Make a table of rows: headings, and lines of text.

    Examples
    --------
    >>> rows = [Row("Virus", "LE", 66.0, 1.0, 66.67, 1), Row("Virus", "AIRM", None)]
    >>> pivot(rows)
    (['', 'LE', 'AIRM'], [['Virus', '66.0 +- 1.0 (66.67)', '-']])
    """
    columns = list(dict.fromkeys(row.column for row in rows))
    cells = {(row.row, row.column): str(row) for row in rows}
    names = dict.fromkeys(row.row for row in rows)
    return [corner, *columns], [
        [name, *(cells.get((name, column), "") for column in columns)] for name in names
    ]
