"""Confusion matrices of a report: that of one classifier, and those of others folded below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import Indices
from divlearn.report.figures import draw, literal, plotly, shorten
from divlearn.report.sections import Chart, Section

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_WRITTEN = 12  # classes up to which cells hold counts
_TICKS = 16  # labels of classes that fit along an axis on a phone
_MISTAKES = 5  # listed below a matrix


def confusion_section(
    title: str,
    classes: Sequence[object],
    matrices: Mapping[str, ArrayLike],
    note: str = "",
    remarks: Mapping[str, str] | None = None,
) -> Section:
    """Draw counts of predicted classes by classifier, one row for every true class.

    ``remarks`` follow the shares of right predictions of the classifiers they name.
    """
    names = [str(name) for name in classes]
    charts, data = [], [("classifier", "true class", *names)]
    for number, (owner, matrix) in enumerate(matrices.items()):
        counts = np.asarray(matrix, dtype=np.int64)
        total, right = counts.sum(), counts.trace()
        share = f" ({right / total:.1%})" if total else ""
        verdict = f"{owner}: {right:,} of {total:,} are right{share}."
        verdict = " ".join(filter(None, [verdict, (remarks or {}).get(owner)]))
        text, mistakes = f"Confusion matrix. {verdict}", _mistakes(names, counts)
        if mistakes:
            verdict += " Most frequent mistakes:"
        figure, anchor = _confusion(names, counts), confusion_anchor(number)
        charts.append(Chart(figure, text, verdict, mistakes, anchor))
        data += [(owner, name, *row) for name, row in zip(names, counts, strict=True)]
    content = {"count": len(names), "more": f"{len(charts) - 1} more"}
    return Section("confusion", title, content, note, charts, data)


def confusion_anchor(number: int) -> str:
    """Return the place on the page of one of the matrices, for links to it."""
    return f"confusion-{number}"


def _confusion(names: Sequence[str], counts: Indices) -> Figure:
    size, totals = len(names), counts.sum(axis=1)
    shares = counts / np.maximum(totals, 1)[:, None]
    known = [literal(name) for name in names]
    hovers = [
        [
            f"true: <b>{known[i]}</b><br>predicted: <b>{known[j]}</b><br>"
            f"{counts[i, j]} of {totals[i]} ({shares[i, j]:.1%})"
            for j in range(size)
        ]
        for i in range(size)
    ]
    cells = plotly().Heatmap(
        # The root lets single mistakes be seen among hundreds of right answers.
        z=np.sqrt(shares) * (2 * np.eye(size) - 1),
        coloraxis="coloraxis2",
        xgap=2 if size <= 40 else 0,
        ygap=2 if size <= 40 else 0,
        hovertext=hovers,
        hoverinfo="text",
    )
    if size <= _WRITTEN:
        cells.update(text=np.where(counts, counts.astype(str), ""), texttemplate="%{text}")
    places = range(0, size, -(-size // _TICKS) or 1)
    axis = {
        "tickvals": [*places],
        "ticktext": [literal(shorten(names[place], 12)) for place in places],
        "showgrid": False,
        "constrain": "domain",
    }
    return draw(
        [cells],
        coloraxis2={"showscale": False, "cmin": -1, "cmax": 1},
        xaxis={**axis, "title": {"text": "predicted class"}, "autotickangles": [0, -45, -90]},
        yaxis={**axis, "title": {"text": "true class"}, "autorange": "reversed"},
        margin={"t": 10},
    )


def _mistakes(names: Sequence[str], counts: Indices) -> list[str]:
    wrong = counts - np.diag(counts.diagonal())
    order = np.argsort(-wrong, axis=None, kind="stable")[:_MISTAKES]
    places = [divmod(int(place), len(names)) for place in order]
    return [
        f"{names[row]} predicted as {names[column]}: {wrong[row, column]:,} of "
        f"{counts[row].sum():,}"
        for row, column in places
        if wrong[row, column]
    ]
