"""Sections of a page: text, curves, matrices, tables, and how to reproduce the work."""

import math
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import Indices, RealArray
from divlearn.checks import is_number

_FIGURES = ("plane", "curves")  # drawn by the script alone
_CELLS = 64  # along a side of a picture; more would be too small to see and too large to send
_LEVELS = 127  # of either sign
_MISTAKES = 5  # listed below a confusion matrix
_ROWS = 50  # of a table shown at once; the others are shown on request
_MISSING = "\N{EN DASH}"


@dataclass(frozen=True, eq=False)
class Section:
    """A part of a `Page`; its content is what the template and the script of its kind need."""

    kind: str
    title: str
    content: dict[str, Any]
    note: str = ""

    @property
    def template(self) -> str:
        return "figure.html" if self.kind in _FIGURES else f"{self.kind}.html"


def text_section(title: str, text: str) -> Section:
    """Make paragraphs of plain text, which empty lines separate."""
    parts = text.replace("\r\n", "\n").split("\n\n")
    return Section("text", title, {"paragraphs": [part.strip() for part in parts if part.strip()]})


def curves_section(
    title: str,
    curves: Mapping[str, ArrayLike],
    x_label: str = "",
    y_label: str = "",
    note: str = "",
    *,
    second: Mapping[str, ArrayLike] | None = None,
    second_label: str = "",
) -> Section:
    """Draw curves, heights over 0, 1, ... or (places, heights); ``second`` on the right axis."""
    drawn = []
    for flag, group in ((False, curves), (True, second or {})):
        for name, values in group.items():
            y = np.asarray(values, dtype=np.float64)
            x, y = y if y.ndim == 2 else (np.arange(len(y)), y)
            drawn.append({"name": name, "x": x, "y": y, "second": flag})
    content = {
        "curves": drawn,
        "x_label": x_label,
        "y_label": y_label,
        "second_label": second_label,
    }
    return Section("curves", title, content, note)


def atoms_section(
    title: str, atoms: ArrayLike, uses: ArrayLike, texts: Sequence[str], note: str = ""
) -> Section:
    """Draw SPD matrices as small pictures of their correlations, the most used first."""
    # The standard deviations appear under the pointer. Of more than 64 rows, averages over blocks
    # are drawn. ``uses``, >= 0, are in any unit; ``texts`` stand below the pictures.
    matrices, used = np.asarray(atoms, dtype=np.float64), np.asarray(uses, dtype=np.float64)
    diagonals, size = np.diagonal(matrices, axis1=1, axis2=2), matrices.shape[-1]
    order = np.argsort(-used, kind="stable")
    starts = np.arange(0, size, -(-size // _CELLS))
    rows = _group_means(correlations(matrices[order]), starts).swapaxes(1, 2)
    scales = _group_means(np.sqrt(diagonals[order]), starts)
    digits = 10.0 ** (2 - np.floor(np.log10(scales)))  # three significant ones
    content = {
        "size": size,
        "starts": starts,
        "pixels": _pack(_group_means(rows, starts)),
        "scales": np.round(scales * digits) / digits,
        "uses": used[order] / (used.sum() or 1.0),
        "texts": [str(texts[index]) for index in order],
        "numbers": order,
    }
    return Section("atoms", title, content, note)


def correlations(matrices: RealArray) -> RealArray:
    scales = np.sqrt(np.diagonal(matrices, axis1=-2, axis2=-1))
    return matrices / (scales[..., :, None] * scales[..., None, :])


def _group_means(values: RealArray, starts: Indices) -> RealArray:
    """Means along the last axis of the groups that begin at the given places."""
    counts = np.diff([*starts, values.shape[-1]])
    return np.add.reduceat(values, starts, axis=-1) / counts


def _pack(values: RealArray) -> str:
    """Upper triangles row by row, from -1 to 1 in bytes from 0 to 254."""
    rows, columns = np.triu_indices(values.shape[-1])
    levels = np.rint(_LEVELS * np.clip(values[:, rows, columns], -1, 1)) + _LEVELS
    return b64encode(levels.astype(np.uint8).tobytes()).decode("ascii")


def confusion_section(
    title: str, classes: Sequence[Any], matrix: ArrayLike, note: str = ""
) -> Section:
    counts = np.asarray(matrix, dtype=np.float64)
    names = [str(name) for name in classes]
    total, right = counts.sum(), counts.trace()
    share = f" ({right / total:.1%})" if total else ""
    content = {
        "classes": names,
        "counts": counts.astype(np.int64),
        "mistakes": _mistakes(names, counts),
        "right": f"{right:,.0f} of {total:,.0f} are right{share}",
    }
    return Section("confusion", title, content, note)


def _mistakes(names: Sequence[str], counts: RealArray) -> list[str]:
    wrong = counts - np.diag(counts.diagonal())
    order = np.argsort(-wrong, axis=None, kind="stable")[:_MISTAKES]
    places = [divmod(int(place), len(names)) for place in order]
    return [
        f"{names[row]} predicted as {names[column]}: {wrong[row, column]:,.0f} of "
        f"{counts[row].sum():,.0f}"
        for row, column in places
        if wrong[row, column]
    ]


class Cell(NamedTuple):
    """Text, the number to sort by if it differs from the text, and a class of style."""

    text: str
    value: str
    style: str


def table_section(
    title: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[Any]],
    note: str = "",
    *,
    bold: Collection[int] = (),
    formats: Mapping[str, str] | None = None,
) -> Section:
    """Make a table; None and NaN are shown as missing and sorted last, pairs with their error."""
    # ``bold`` are indices of rows, ``formats`` those of numbers by heading, such as ".1%".
    numeric = [_is_numeric([row[column] for row in rows]) for column in range(len(headings))]
    specs, marked = [(formats or {}).get(heading, "") for heading in headings], set(bold)
    cells = [
        [
            _cell(value, spec, "n" * is_numeric + " b" * (index in marked))
            for value, spec, is_numeric in zip(row, specs, numeric, strict=True)
        ]
        for index, row in enumerate(rows)
    ]
    return _table(title, headings, numeric, cells, note)


def disagreement_section(
    title: str,
    truth: Sequence[Any],
    predictions: Mapping[str, Sequence[Any]],
    names: Sequence[Any] | None = None,
    note: str = "",
) -> Section:
    """Make a table of the matrices on which predictors disagree, right and wrong marked."""
    names = range(len(truth)) if names is None else names
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
        "n_rows": len(cells),
        "shown": cells[:_ROWS],
        "rest": cells[_ROWS:],
    }
    return Section("table", title, content, note)


def _is_numeric(column: Sequence[Any]) -> bool:
    """Whether a column holds numbers only, apart from missing ones."""
    known = [value for value in column if value is not None]
    return bool(known) and all(is_number(one) or isinstance(one, tuple) for one in known)


def _cell(value: Any, spec: str, style: str) -> Cell:
    style = style.strip()
    if isinstance(value, tuple):
        text = " ±\N{NO-BREAK SPACE}".join(format(one, spec) for one in value)
        return Cell(text, repr(float(value[0])), f"{style} pair")
    if value is None or (is_number(value) and math.isnan(value)):
        return Cell(_MISSING, "NaN" if style.startswith("n") else "", style)
    if not is_number(value):
        return Cell(str(value), "", style)
    number = value.item() if isinstance(value, np.generic) else value
    text = format(number, spec or ("d" if isinstance(number, int) else ".4g"))
    exact = repr(number).replace("inf", "Infinity")  # as the script reads it
    return Cell(text.replace("inf", "∞"), "" if text == exact else exact, style)


def repeat_section(
    command: str, data_digest: str, versions: Mapping[str, str], seconds: Mapping[str, float]
) -> Section:
    """Show what is needed to reproduce the work, and how long every stage took."""
    longest = max(seconds.values(), default=0) or 1
    content = {
        "command": command,
        "digest": data_digest,
        "versions": list(versions.items()),
        "stages": [
            (name, _time(spent), f"{100 * spent / longest:.1f}%") for name, spent in seconds.items()
        ],
        "total": _time(sum(seconds.values())),
    }
    note = "The same command on the same data with the same versions gives the same answer."
    return Section("repeat", "Reproduce", content, note)


def _time(seconds: float) -> str:
    if seconds < 0.1:
        return f"{1000 * seconds:.2g} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def as_sentence(message: str) -> str:
    return f"{message[0].upper()}{message[1:]}."
