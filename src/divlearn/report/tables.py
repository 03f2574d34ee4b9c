"""Sections that show tables, which a click on a heading sorts."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from divlearn.report.sections import Section

__all__ = ["disagreement_section", "table_section"]

_SHOWN = 50  # rows shown at once; the others are shown on request
_MISSING = "\N{EN DASH}"


class Cell(NamedTuple):
    """Text, the number to sort by if it differs from the text, and a class of style."""

    text: str
    value: str
    style: str


def table_section(
    title: str, headings: Sequence[str], rows: Sequence[Sequence[Any]], note: str = "", *,
    bold: Collection[int] = (), formats: Mapping[str, str] | None = None,
) -> Section:  # fmt: skip
    """Make a table.

    Parameters
    ----------
    title : str
    headings : sequence of str
    rows : sequence of sequences of str, number or None
        One cell per heading. None and NaN are shown as missing and sorted last.
    note : str
    bold : collection of int
        Indices of highlighted rows.
    formats : mapping of str to str, optional
        Formats of numbers by heading, such as ".1%". By default integers are written as they are
        and other numbers with four digits.

    Examples
    --------
    >>> section = table_section(
    ...     "Scores", ["name", "accuracy"], [["AIRM", 0.9012], ["Stein", None]],
    ...     formats={"accuracy": ".1%"},
    ... )
    >>> [[cell.text for cell in row] for row in section.content["shown"]]
    [['AIRM', '90.1%'], ['Stein', '–']]
    """
    formats = formats or {}
    for index, row in enumerate(rows):
        if len(row) != len(headings):
            raise ValueError(
                f"rows[{index}] has {len(row)} cells, but there are {len(headings)} headings"
            )
    if unknown := set(formats) - set(headings):
        raise ValueError(f"formats name {sorted(unknown)}, which are not among the headings")
    numeric = [_is_numeric([row[column] for row in rows]) for column in range(len(headings))]
    specs, marked = [formats.get(heading, "") for heading in headings], set(bold)
    cells = [
        [
            _cell(value, spec, "n" * is_numeric + " b" * (index in marked))
            for value, spec, is_numeric in zip(row, specs, numeric, strict=True)
        ]
        for index, row in enumerate(rows)
    ]
    return _table(title, headings, numeric, cells, note)


def disagreement_section(
    title: str, truth: Sequence[Any], predictions: Mapping[str, Sequence[Any]],
    names: Sequence[Any] | None = None, note: str = "",
) -> Section:  # fmt: skip
    """Make a table of the matrices on which predictors disagree, with right and wrong marked.

    Parameters
    ----------
    title : str
    truth : sequence, of length n_matrices
        True classes.
    predictions : mapping of str to sequence, of length n_matrices
        Predicted classes by predictor.
    names : sequence, of length n_matrices, optional
        Names of the matrices; 0, 1, ... by default.
    note : str
        By default, how many there are and who is right on them.

    Examples
    --------
    >>> section = disagreement_section(
    ...     "Disagreement", ["a", "b", "b"], {"IDDL": ["a", "b", "a"], "1-NN": ["b", "b", "b"]},
    ... )
    >>> [[cell.text for cell in row] for row in section.content["shown"]]
    [['0', 'a', 'a', 'b'], ['2', 'b', 'a', 'b']]
    """
    if not predictions:
        raise ValueError("predictions is empty, must hold >= 1 predictor; pass some by name")
    names = range(len(truth)) if names is None else names
    for name, said in {**predictions, "names": names}.items():
        if len(said) != len(truth):
            raise ValueError(f"{name} has length {len(said)}, truth {len(truth)}: must agree")
    table = zip(names, truth, *predictions.values(), strict=True)
    rows = [row for row in table if len({str(said) for said in row[2:]}) > 1]
    numeric = [_is_numeric([row[0] for row in rows])] + [False] * (1 + len(predictions))
    cells = [
        [_cell(row[0], "", "n" * numeric[0]), _cell(row[1], "", "")]
        + [_cell(said, "", "right" if str(said) == str(row[1]) else "wrong") for said in row[2:]]
        for row in rows
    ]
    if not note:
        right = [
            f"{name} {sum(row[column].style == 'right' for row in cells):,}"
            for column, name in enumerate(predictions, start=2)
        ]
        note = (
            f"They disagree on {len(rows):,} of {len(truth):,} matrices. Right predictions for "
            f"these: {', '.join(right)}."
        )
    return _table(title, ["matrix", "truth", *predictions], numeric, cells, note)


def _table(
    title: str, headings: Sequence[str], numeric: Sequence[bool], cells: list[list[Cell]], note: str
) -> Section:
    content = {
        "headings": list(zip(headings, numeric, strict=True)),
        "shown": cells[:_SHOWN],
        "rest": cells[_SHOWN:],
        "n_rows": len(cells),
    }
    return Section("table", title, content, note)


def _is_numeric(column: Sequence[Any]) -> bool:
    """Whether a column holds numbers only, apart from missing ones."""
    known = [value for value in column if value is not None]
    return bool(known) and all(map(_is_number, known))


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
