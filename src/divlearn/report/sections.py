"""Sections of a page: text, curves, tables, confusion matrices, and how to reproduce the work."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import RealArray, check_real
from divlearn.checks import is_number

_FIGURES = ("plane", "curves")  # drawn by the script alone
_MISTAKES = 5  # listed below a confusion matrix
_ROWS = 50  # of a table shown at once; the others are shown on request
_MISSING = "\N{EN DASH}"


@dataclass(frozen=True, eq=False)
class Section:
    """A part of a `Page`.

    Attributes
    ----------
    kind : {"atoms", "confusion", "curves", "plane", "repeat", "table", "text"}
    title : str
    content : dict, what the template and the script need, as plain values.
    note : str, explanation beside the content.
    """

    kind: str
    title: str
    content: dict[str, Any]
    note: str = ""

    @property
    def template(self) -> str:
        """Name of the template."""
        return "figure.html" if self.kind in _FIGURES else f"{self.kind}.html"


def text_section(title: str, text: str) -> Section:
    """Make paragraphs of plain text; empty lines separate paragraphs."""
    parts = text.replace("\r\n", "\n").split("\n\n")
    return Section("text", title, {"paragraphs": [part.strip() for part in parts if part.strip()]})


def curves_section(
    title: str, curves: Mapping[str, ArrayLike], x_label: str = "", y_label: str = "",
    note: str = "", *, second: Mapping[str, ArrayLike] | None = None, second_label: str = "",
    marks: Mapping[str, float] | None = None,
) -> Section:  # fmt: skip
    """Draw named curves over one axis, such as objective and held-out score over iterations.

    Parameters
    ----------
    title, x_label, y_label, note, second_label : str
    curves : mapping of str to array-like, shape (n,) or (2, n)
        Heights over 0, 1, 2, ..., or places and heights. NaN leaves a gap.
    second : mapping as `curves`, optional, with an axis of their own, on the right.
    marks : mapping of str to float, optional, places of vertical lines by their labels.

    Examples
    --------
    >>> section = curves_section(
    ...     "Learning", {"objective": [3.0, 2.0, 1.5]}, "iteration", "objective",
    ...     second={"held-out accuracy": [[0, 2], [0.8, 0.9]]}, marks={"selected": 2},
    ... )
    >>> section.content["curves"][1]["x"]
    array([0., 2.])
    """
    drawn = []
    for flag, group in ((False, curves), (True, second or {})):
        for name, values in group.items():
            places = (2, None) if np.ndim(values) == 2 else (None,)
            y = check_shape(values, f"curve {name!r}", places)
            x, y = y if y.ndim == 2 else (np.arange(len(y)), y)
            drawn.append({"name": name, "x": x, "y": y, "second": flag})
    content = {
        "curves": drawn, "x_label": x_label, "y_label": y_label, "second_label": second_label,
        "marks": [{"name": name, "x": float(place)} for name, place in (marks or {}).items()],
    }  # fmt: skip
    return Section("curves", title, content, note)


def confusion_section(
    title: str, classes: Sequence[Any], matrix: ArrayLike, note: str = ""
) -> Section:
    """Draw a confusion matrix and list the most frequent mistakes.

    Parameters
    ----------
    title, note : str
    classes : sequence, of length n_classes
    matrix : array-like, shape (n_classes, n_classes)
        Counts by true class (rows) and predicted class (columns), as of
        `sklearn.metrics.confusion_matrix`.

    Examples
    --------
    >>> section = confusion_section("Confusion matrix", ["brick", "grass"], [[9, 1], [0, 5]])
    >>> section.content["right"], section.content["mistakes"]
    ('14 of 15 are right (93.3%)', ['brick predicted as grass: 1 of 10'])
    """
    counts = check_shape(matrix, "matrix", (len(classes), len(classes)))
    bad = np.argwhere(~((counts >= 0) & (counts == np.floor(counts)) & (counts < np.inf)))
    if len(bad):
        row, column = (int(i) for i in bad[0])
        raise ValueError(f"matrix[{row}, {column}] = {counts[row, column]} must be a count")
    names = [str(name) for name in classes]
    total, right = counts.sum(), counts.trace()
    share = f" ({right / total:.1%})" if total else ""
    content = {
        "classes": names, "counts": counts.astype(np.int64), "mistakes": _mistakes(names, counts),
        "right": f"{right:,.0f} of {total:,.0f} are right{share}",
    }  # fmt: skip
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
    title: str, headings: Sequence[str], rows: Sequence[Sequence[Any]], note: str = "", *,
    bold: Collection[int] = (), formats: Mapping[str, str] | None = None,
) -> Section:  # fmt: skip
    """Make a table.

    Parameters
    ----------
    title, note : str
    headings : sequence of str
    rows : sequence of sequences of str, number or None
        One cell per heading. None and NaN are shown as missing and sorted last.
    bold : collection of int, indices of highlighted rows.
    formats : mapping of str to str, optional, formats of numbers by heading, such as ".1%".

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
    truth : sequence, of length n_matrices, true classes.
    predictions : mapping of str to sequence, predicted classes by predictor.
    names : sequence, optional, of the matrices; 0, 1, ... by default.
    note : str, by default how many there are and who is right on them.

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
        "headings": list(zip(headings, numeric, strict=True)), "n_rows": len(cells),
        "shown": cells[:_ROWS], "rest": cells[_ROWS:],
    }  # fmt: skip
    return Section("table", title, content, note)


def _is_numeric(column: Sequence[Any]) -> bool:
    """Whether a column holds numbers only, apart from missing ones."""
    known = [value for value in column if value is not None]
    return bool(known) and all(map(is_number, known))


def _cell(value: Any, spec: str, style: str) -> Cell:
    style = style.strip()
    if value is None or (is_number(value) and math.isnan(value)):
        return Cell(_MISSING, "NaN" if style.startswith("n") else "", style)
    if not is_number(value):
        return Cell(str(value), "", style)
    number = value.item() if isinstance(value, np.generic) else value
    text = format(number, spec or ("d" if isinstance(number, int) else ".4g"))
    exact = repr(number).replace("inf", "Infinity")  # as the script reads it
    return Cell(text.replace("inf", "∞"), "" if text == exact else exact, style)


def repeat_section(
    command: str, data_digest: str = "", versions: Mapping[str, str] | None = None,
    seconds: Mapping[str, float] | None = None, *, title: str = "Reproduce",
    note: str = "The same command on the same data with the same versions gives the same answer.",
) -> Section:  # fmt: skip
    """Show what is needed to reproduce the work, and how long it took.

    Parameters
    ----------
    command, title, note : str
    data_digest : str, SHA-256 of the data, in hexadecimal digits.
    versions : mapping of str to str, optional, versions of libraries by name.
    seconds : mapping of str to float, optional, duration of every stage.

    Examples
    --------
    >>> section = repeat_section("divlearn demo", "9f86d0", {"numpy": "2.4"}, {"fit": 3, "map": 1})
    >>> section.content["total"]
    '4.0 s'
    """
    times = seconds or {}
    longest = max(times.values(), default=0) or 1
    content = {
        "command": command, "digest": data_digest, "versions": list((versions or {}).items()),
        "stages": [
            (name, _time(spent), f"{100 * spent / longest:.1f}%") for name, spent in times.items()
        ],
        "total": _time(sum(times.values())),
    }  # fmt: skip
    return Section("repeat", title, content, note)


def _time(seconds: float) -> str:
    if seconds < 0.1:
        return f"{1000 * seconds:.2g} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def as_sentence(message: str) -> str:
    return f"{message[0].upper()}{message[1:]}."


def check_shape(values: ArrayLike, name: str, shape: tuple[int | None, ...]) -> RealArray:
    """Check an array of real numbers, finite or not; None in its shape stands for any length."""
    array = np.asarray(values)
    check_real(array, name)
    fits = array.ndim == len(shape) and all(
        wanted in (None, got) for got, wanted in zip(array.shape, shape, strict=True)
    )
    if not fits:
        words = ", ".join("n" if length is None else str(length) for length in shape)
        words += "," * (len(shape) == 1)
        raise ValueError(f"{name} has shape {array.shape}, but must have shape ({words})")
    return array.astype(np.float64)
