"""Tables as sections of a page."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

__all__ = ["DisagreementSection", "TableSection"]

_SHOWN = 50  # rows that are there at once; the others appear when asked for
_MISSING = "\N{EN DASH}"


class Cell(NamedTuple):
    """What is shown, the number it is sorted by where that is another, and a class of style."""

    text: str
    value: str
    style: str


@dataclass(frozen=True, eq=False)
class TableSection:
    """Table that is sorted by a click on a heading.

    Attributes
    ----------
    title : str
    headings : sequence of str
    rows : sequence of sequences of str, number or None
        As many cells as headings each. None and NaN are shown as missing, and sorted last.
    note : str
        What one sees, in plain words.
    bold : collection of int
        Rows that stand out, by their index.
    formats : mapping of str to str
        How numbers are written, by heading, as formats of Python: ".1%". Whole numbers are written
        as they are and others with four digits by default.

    Examples
    --------
    >>> section = TableSection(
    ...     "Scores", ["name", "accuracy"], [["AIRM", 0.9012], ["Stein", None]],
    ...     formats={"accuracy": ".1%"},
    ... )
    >>> [[cell.text for cell in row] for row in section.content()["shown"]]
    [['AIRM', '90.1%'], ['Stein', '–']]
    """

    template: ClassVar[str] = "table.html"
    kind: ClassVar[str] = "table"

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    bold: Collection[int] = ()
    formats: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_rows(self.headings, self.rows)
        unknown = set(self.formats) - set(self.headings)
        if unknown:
            raise ValueError(f"formats name {sorted(unknown)}, which are not among the headings")

    def content(self) -> dict[str, Any]:
        """Return what the template and the script need, as plain values."""
        numeric = _numeric(self.headings, self.rows)
        specs = [self.formats.get(heading, "") for heading in self.headings]
        bold = set(self.bold)
        return _table(
            self.headings, numeric, self.rows,
            lambda row, column, value: _cell(
                value, specs[column], "n" * numeric[column] + " b" * (row in bold)
            ),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class DisagreementSection:
    """Where several predictors say different things about the same matrices.

    Attributes
    ----------
    title : str
    headings : sequence of str
        Of the matrix, of its true class, and of every predictor.
    rows : sequence of sequences
        Name or number of the matrix, its true class, and what each predictor says. Right and wrong
        answers are marked.
    note : str
        What one sees, in plain words.

    Examples
    --------
    >>> section = DisagreementSection.of(
    ...     "Disagreement", ["a", "b", "b"], {"IDDL": ["a", "b", "a"], "1-NN": ["b", "b", "b"]},
    ... )
    >>> section.rows
    [(0, 'a', 'a', 'b'), (2, 'b', 'a', 'b')]
    """

    template: ClassVar[str] = "table.html"
    kind: ClassVar[str] = "table"

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""

    def __post_init__(self) -> None:
        if len(self.headings) < 3:
            raise ValueError(
                f"headings={list(self.headings)} must be >= 3: the matrix, its true class, and "
                "every predictor"
            )
        _check_rows(self.headings, self.rows)

    @classmethod
    def of(
        cls, title: str, truth: Sequence[Any], predictions: Mapping[str, Sequence[Any]],
        names: Sequence[Any] | None = None, note: str = "",
    ) -> Self:  # fmt: skip
        """Find where predictors disagree.

        Parameters
        ----------
        title : str
        truth : sequence, of length n_matrices
            True classes.
        predictions : mapping of str to sequence, of length n_matrices
            What every predictor says.
        names : sequence, of length n_matrices, optional
            Of the matrices; 0, 1, ... by default.
        note : str
            How many there are, and who is right on them, by default.

        Returns
        -------
        DisagreementSection
        """
        names = range(len(truth)) if names is None else names
        for name, says in {**predictions, "names": names}.items():
            if len(says) != len(truth):
                raise ValueError(f"{name} has length {len(says)}, truth {len(truth)}: must agree")
        table = zip(names, truth, *predictions.values(), strict=True)
        rows = [row for row in table if len({str(said) for said in row[2:]}) > 1]
        note = note or _say_who(rows, list(predictions), len(truth))
        return cls(title, ["matrix", "truth", *predictions], rows, note)

    def content(self) -> dict[str, Any]:
        """Return what the template and the script need, as plain values."""

        def cell(row: int, column: int, value: Any) -> Cell:
            if column < 2:
                return _cell(value, "", "n" * numeric[column])
            right = str(value) == str(self.rows[row][1])
            return _cell(value, "", "right" if right else "wrong")

        first = _numeric(self.headings[:1], self.rows)[0]
        numeric = [first] + [False] * (len(self.headings) - 1)
        return _table(self.headings, numeric, self.rows, cell)


def _check_rows(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    for index, row in enumerate(rows):
        if len(row) != len(headings):
            raise ValueError(
                f"rows[{index}] has {len(row)} cells, but there are {len(headings)} headings"
            )


def _table(
    headings: Sequence[str], numeric: Sequence[bool], rows: Sequence[Sequence[Any]],
    cell: Callable[[int, int, Any], Cell],
) -> dict[str, Any]:  # fmt: skip
    cells = [[cell(i, j, value) for j, value in enumerate(row)] for i, row in enumerate(rows)]
    return {
        "headings": list(zip(headings, numeric, strict=True)),
        "shown": cells[:_SHOWN],
        "rest": cells[_SHOWN:],
        "n_rows": len(cells),
    }


def _numeric(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[bool]:
    """Which columns hold numbers only, besides what is missing."""
    return [
        any(row[column] is not None for row in rows)
        and all(row[column] is None or _is_number(row[column]) for row in rows)
        for column in range(len(headings))
    ]


def _cell(value: Any, spec: str, style: str) -> Cell:
    style = style.strip()
    if value is None or (_is_number(value) and math.isnan(value)):
        return Cell(_MISSING, "NaN" if style.startswith("n") else "", style)
    if not _is_number(value):
        return Cell(str(value), "", style)
    number = value.item() if isinstance(value, np.generic) else value
    text = format(number, spec or ("d" if isinstance(number, int) else ".4g"))
    exact = repr(number).replace("inf", "Infinity")  # as the script reads it
    return Cell(text.replace("inf", "∞"), "" if text == exact else exact, style)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _say_who(rows: Sequence[Sequence[Any]], predictors: Sequence[str], n_matrices: int) -> str:
    right = [
        f"{name} on {sum(str(row[column]) == str(row[1]) for row in rows):,}"
        for column, name in enumerate(predictors, start=2)
    ]
    return (
        f"They disagree on {len(rows):,} of {n_matrices:,} matrices. Of these are right: "
        f"{', '.join(right)}."
    )
