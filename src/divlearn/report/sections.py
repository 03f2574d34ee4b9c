"""Sections of a page: text, tables, and how to reproduce the work."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from divlearn.checks import is_number

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_N_SHOWN = 50  # first rows of a table; the others are shown on request
_WIDE = 9  # number of columns above which a table is printed in a smaller font
_MISSING = "\N{EN DASH}"


class Chart(NamedTuple):
    """A figure of plotly, and its alternative text.

    ``verdict`` and ``details`` are written below the figure, ``anchor`` is its id for links.
    """

    figure: Figure
    text: str
    verdict: str = ""
    details: Sequence[str] = ()
    anchor: str = ""


@dataclass(frozen=True, eq=False)
class Section:
    """A part of a `Page`: the input of its template, charts, and their data as rows of a table."""

    kind: str
    title: str
    content: Mapping[str, object] = field(default_factory=dict)
    note: str = ""
    charts: Sequence[Chart] = ()
    data: Sequence[Sequence[object]] = ()


def text_section(title: str, text: str) -> Section:
    """Make paragraphs of plain text, which empty lines separate."""
    parts = text.replace("\r\n", "\n").split("\n\n")
    return Section("text", title, {"paragraphs": [part.strip() for part in parts if part.strip()]})


Format = str | Callable[[Any], str]  # such as ".1%", or a function of numbers
Formats = Mapping[str, Format]  # by heading
Cell = dict[str, str]  # text, value to sort by if it differs, class of style, and a link


def table_section(
    title: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[object]],
    note: str = "",
    *,
    bold: Collection[int] = (),
    formats: Formats | None = None,
    anchors: Sequence[str] = (),
) -> Section:
    """Make a table; None and NaN are missing and sorted last, a pair is a value and its error."""
    # ``bold`` are indices of rows, ``formats`` those of numbers by heading, and ``anchors`` the ids
    # that the first cells of rows link to.
    numeric = [_is_numeric([row[column] for row in rows]) for column in range(len(headings))]
    specs, bold_rows = [(formats or {}).get(heading, "") for heading in headings], set(bold)
    cells = [
        [
            _cell(value, spec, "n" * is_numeric + " b" * (index in bold_rows))
            for value, spec, is_numeric in zip(row, specs, numeric, strict=True)
        ]
        for index, row in enumerate(rows)
    ]
    for row, anchor in zip(cells, anchors, strict=False):
        row[0]["anchor"] = anchor
    return _table(title, headings, numeric, cells, note)


def disagreement_section(
    title: str,
    truth: Sequence[object],
    predictions: Mapping[str, Sequence[object]],
    names: Sequence[object] | None = None,
    note: str = "",
) -> Section:
    """Make a table of the matrices on which predictors disagree, with right and wrong marked."""
    names = range(len(truth)) if names is None else names
    table = zip(names, truth, *predictions.values(), strict=True)
    rows = [row for row in table if len({str(label) for label in row[2:]}) > 1]
    numeric = [_is_numeric([row[0] for row in rows])] + [False] * (1 + len(predictions))
    cells = [
        [_cell(row[0], "", "n" * numeric[0]), _cell(row[1], "", "")]
        + [_cell(label, "", "right" if str(label) == str(row[1]) else "wrong") for label in row[2:]]
        for row in rows
    ]
    if not note:
        right = [
            f"{name} {sum(str(row[column]) == str(row[1]) for row in rows):,}"
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
        "n_rows": len(cells),
        "is_wide": len(headings) > _WIDE,
        "shown": cells[:_N_SHOWN],
        "rest": cells[_N_SHOWN:],
    }
    return Section("table", title, content, note)


def _is_numeric(column: Sequence[object]) -> bool:
    """Whether a column holds numbers only, apart from missing ones."""
    values = [value for value in column if value is not None]
    return bool(values) and all(is_number(v) or isinstance(v, tuple) for v in values)


def _cell(value: Any, spec: Format, style: str) -> Cell:
    style = style.strip()
    if isinstance(value, tuple):
        text = " ±\N{NO-BREAK SPACE}".join(_format(number, spec) for number in value)
        exact, style = repr(float(value[0])), f"{style} pair"
    elif value is None or (is_number(value) and math.isnan(value)):
        text, exact = _MISSING, "NaN" if style.startswith("n") else ""
    elif not is_number(value):
        text, exact = str(value), ""
    else:
        number = value.item() if isinstance(value, np.generic) else value
        text = _format(number, spec or ("d" if isinstance(number, int) else ".4g"))
        exact = repr(number).replace("inf", "Infinity")  # as the script reads it
        exact = "" if text == exact else exact
        text = text.replace("inf", "∞")
    return {"text": text, "value": exact, "style": style}


def _format(number: Any, spec: Format) -> str:
    return format(number, spec) if isinstance(spec, str) else spec(number)


def repeat_section(
    command: str, data_digest: str, versions: Mapping[str, str], seconds: Mapping[str, float]
) -> Section:
    """Show how to reproduce the work, and the times of stages, the longest first."""
    longest = max(seconds.values(), default=0) or 1
    stages = sorted(seconds.items(), key=lambda item: -item[1])
    content = {
        "command": command,
        "digest": data_digest,
        "versions": list(versions.items()),
        "stages": [(name, _format_time(t), f"{100 * t / longest:.1f}%") for name, t in stages],
        "total": _format_time(sum(seconds.values())),
    }
    note = "The same command on the same data with the same versions gives the same answer."
    return Section("repeat", "Reproduce", content, note)


def _format_time(seconds: float) -> str:
    if seconds < 0.1:
        return f"{1000 * seconds:.2g} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def as_sentence(message: str) -> str:
    return f"{message[0].upper()}{message[1:]}."
