"""Figures beside the paper's: means with errors, and what the paper claims of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np

from paper.cells import Done
from paper.data import paper_name

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
        cls,
        row: str,
        column: str,
        found: Estimate | None,
        paper: float | None = None,
        decimals: int = 1,
    ) -> Self:
        value, error = found or (None, None)
        return cls(row, column, value, error, paper, decimals)

    @property
    def differs(self) -> bool:
        """Whether ours is more than two standard errors from the paper's."""
        if self.value is None or self.paper is None or self.error is None:
            return False
        return abs(self.value - self.paper) > 2 * self.error

    def __str__(self) -> str:
        text = "-" if self.value is None else f"{self.value:.{self.decimals}f}"
        if self.error is not None:
            text += f" +- {self.error:.{self.decimals}f}"
        if self.paper is not None:
            text += f" ({self.paper:g}{'*' * self.differs})"
        return text


class Claim(NamedTuple):
    """What the paper says, where, whether that holds here, and the figures of both."""

    claim: str
    on: str
    holds: bool
    here: str
    paper: str = ""
    clear: bool = True  # whether our figures differ by more than their errors

    @property
    def verdict(self) -> str:
        if not self.clear:
            return f"{'yes' if self.holds else 'no'}, within errors"
        return "yes" if self.holds else "**no**"


def against(
    found: Mapping[str, float], ours: Iterable[str], others: Iterable[str], decimals: int = 1
) -> tuple[bool, str] | None:
    """Compare the best of some columns with the best of others; None where one is missing.

    Examples
    --------
    >>> against({"E": 0.43, "LE": 0.38, "Karcher": 0.4}, ["E"], ["LE", "Karcher"], 2)
    (True, 'E 0.43, Karcher 0.40')
    """
    sides = [*ours], [*others]
    if not {*sides[0], *sides[1]} <= set(found):
        return None
    one, other = (max(names, key=found.__getitem__) for names in sides)
    text = f"{one} {found[one]:.{decimals}f}, {other} {found[other]:.{decimals}f}"
    return found[one] >= found[other], text


def compare(
    rows: Sequence[Row],
    published: Mapping[str, Mapping[str, float]],
    ours: Iterable[str],
    others: Iterable[str],
    claims: tuple[str, str],
    decimals: int = 1,
) -> list[Claim]:
    """Compare best columns on all data that the paper has; `claims` where its ours win, or not."""
    sides, found = ([*ours], [*others]), []
    for data in names_of(rows):
        values = figures_of(rows, data)
        here = against(values, *sides, decimals)
        theirs = against(published.get(paper_name(data), {}), *sides, decimals)
        if here and theirs:
            claim, agrees = claims[0 if theirs[0] else 1], here[0] == theirs[0]
            best = [max(names, key=values.__getitem__) for names in sides]
            errors = [r.error or 0.0 for r in rows if r.row == data and r.column in best]
            clear = abs(values[best[0]] - values[best[1]]) > 2 * float(np.linalg.norm(errors))
            found.append(Claim(claim, data, agrees, here[1], theirs[1], clear))
    return found


def names_of(rows: Iterable[Row]) -> list[str]:
    """List the names of the rows of the table."""
    return list(dict.fromkeys(row.row for row in rows))


def figures_of(rows: Iterable[Row], name: str) -> dict[str, float]:
    """Return the figures of a row of the table that are there, by column."""
    return {row.column: row.value for row in rows if row.row == name and row.value is not None}


def rows_with(rows: Sequence[Row], column: str) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield names and figures of the rows of the table that have a figure in a column."""
    for name in names_of(rows):
        found = figures_of(rows, name)
        if column in found:
            yield name, found


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
