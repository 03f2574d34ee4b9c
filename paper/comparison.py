"""Figures beside the paper's: means with errors, and sentences that follow rules."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np

from paper.cache import Done

Estimate = tuple[float, float | None]  # a mean, and its standard error where there is one


class Row(NamedTuple):
    """One figure: where it stands in the table, ours, its standard error, and the paper's."""

    row: str
    column: str
    value: float | None  # None where it is still to be computed
    error: float | None = None
    paper: float | None = None
    decimals: int = 1

    @classmethod
    def of(
        cls, row: str, column: str, found: Estimate | None, paper: float | None = None,
        decimals: int = 1,
    ) -> Self:  # fmt: skip
        value, error = found or (None, None)
        return cls(row, column, value, error, paper, decimals)

    @property
    def gap(self) -> float | None:
        """How far ours is from the paper's."""
        return None if self.value is None or self.paper is None else self.value - self.paper

    @property
    def differs(self) -> bool:
        """Whether that is more than two standard errors."""
        if self.gap is None or self.error is None:
            return False
        return abs(self.gap) > 2 * self.error

    def __str__(self) -> str:
        text = "-" if self.value is None else f"{self.value:.{self.decimals}f}"
        if self.error is not None:
            text += f" +- {self.error:.{self.decimals}f}"
        return text if self.paper is None else f"{text} ({self.paper:g})"


def names_of(rows: Iterable[Row]) -> list[str]:
    """List the names of the rows of the table."""
    return list(dict.fromkeys(row.row for row in rows))


def figures_of(rows: Iterable[Row], name: str) -> dict[str, float]:
    """Return the figures of a row of the table that are there, by column."""
    return {row.column: row.value for row in rows if row.row == name and row.value is not None}


def mean_of(values: Sequence[float]) -> Estimate | None:
    """Mean over runs, and its standard error; None where there are none.

    Examples
    --------
    >>> mean_of([0.0, 1.0]), mean_of([2.0]), mean_of([])
    ((0.5, 0.5), (2.0, None), None)
    """
    if not values:
        return None
    error = None if len(values) == 1 else float(np.std(values, ddof=1) / len(values) ** 0.5)
    return float(np.mean(values)), error


def share_error(share: float, count: int) -> float:
    """Binomial standard error of a share of `count` matrices."""
    return float((share * (1 - share) / count) ** 0.5)


def accuracy_of(done: Done) -> Estimate | None:
    """Mean accuracy in percent, and its standard error; None where there is none.

    The error is that over test sets. Where all runs share one test set it is the binomial error of
    a share of its matrices: another test set would have given another accuracy, however many fits
    are averaged.
    """
    found = mean_of([one["accuracy"] for one in done])
    if found is None:
        return None
    mean, error = found
    sizes = {one["test"]: one["n_test"] for one in done}
    if error is None or len(sizes) == 1:
        error = share_error(mean, next(iter(sizes.values())))
    return 100 * mean, 100 * error


def join(names: Iterable[str]) -> str:
    """Join names.

    Examples
    --------
    >>> join(["Virus"]), join(["Virus", "Brodatz", "HMDB"])
    ('Virus', 'Virus, Brodatz and HMDB')
    """
    known = list(names)
    return " and ".join([", ".join(known[:-1]), known[-1]] if len(known) > 1 else known)


def clauses(*parts: str) -> str:
    """Put those clauses together that are not empty."""
    return "; ".join(filter(None, parts))


def differences(rows: Sequence[Row], reasons: Mapping[str, str]) -> list[str]:
    """Say where figures differ from the paper's by more than two standard errors, and why.

    `reasons` has a clause for rows and columns of the table, by their names.
    """
    told = []
    for name in names_of(rows):
        known = [row for row in rows if row.row == name and row.paper is not None]
        off = [row for row in known if row.differs]
        if off:
            parts = [f"{row.column} {row.gap:+.{row.decimals}f}" for row in off]
            found = [reasons[key] for key in (name, *(row.column for row in off)) if key in reasons]
            why = f": {'; '.join(dict.fromkeys(found))}" if found else ", for no reason we know"
            verb = "differ" if len(parts) > 1 else "differs"
            told.append(
                f"{name}: {join(parts)} {verb} from the paper's by more than two standard errors"
                f"{why}."
            )
        elif known and all(row.value is not None and row.error is not None for row in known):
            told.append(f"{name}: within two standard errors of the paper.")
    return told


def judge(claim: str, holds: Mapping[str, bool]) -> list[str]:
    """Say where a claim of the paper holds, by data set; nothing where none is done."""
    if not holds:
        return []
    yes, no = ([name for name, held in holds.items() if held is wanted] for wanted in (True, False))
    if not yes:
        return [f"The paper: {claim}. Here that does not hold on {join(no)}."]
    exception = f", but not on {join(no)}" if no else ""
    return [f"The paper: {claim}. Here that holds on {join(yes)}{exception}."]
