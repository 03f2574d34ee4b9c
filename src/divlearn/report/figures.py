"""Figures of reports, made with plotly: curves, confusion matrices and SPD matrices."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from textwrap import wrap
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import Indices, RealArray
from divlearn.checks import import_extra
from divlearn.report.sections import Chart, Section

if TYPE_CHECKING:
    from plotly.basedatatypes import BaseTraceType
    from plotly.graph_objects import Figure

CLEAR = "rgba(0, 0, 0, 0)"
_MAX_MARKERS = 60  # points of a curve with a marker at each
_MAX_STEPS = 10  # points of a curve with a tick at each
_MAX_CELLS = 64  # along a side of a matrix; more would be too small to see and too large to send
_COLUMNS, _TILES = 3, 6  # matrices in a row, and in a figure
_AXIS_SUFFIXES = ["", *map(str, range(2, _TILES + 1))]
_DECIMALS = 3  # of correlations in the data
_MAX_WITH_COUNTS = 12  # classes of a confusion matrix with counts in its cells
_MAX_TICKS = 16  # labels of classes that fit along an axis on a phone
_N_MISTAKES = 5  # listed below a matrix
_HEAD_LENGTH = 16  # of the name of a matrix and its share
_LINE_LENGTH = 18  # of a line above a matrix


def plotly() -> ModuleType:
    """Return `plotly.graph_objects`; an error names the extra to install."""
    return import_extra("plotly.graph_objects", "the report needs plotly", "report")


def draw(traces: Sequence[BaseTraceType], **layout: object) -> Figure:
    """Make a figure; the page adds the template, and with it the colours."""
    return plotly().Figure(traces, {"template": plotly().layout.Template(), **layout})


def literal(text: str) -> str:
    """Escape markup in a text for plotly."""
    return html.escape(text, quote=False)


def shorten(text: str, length: int) -> str:
    """Cut out the middle of a long text, because names often differ in a number at the end."""
    end = length // 3
    return text if len(text) <= length else f"{text[: length - 1 - end]}…{text[-end:]}"


def curves_section(
    title: str, curves: Mapping[str, ArrayLike], x_label: str, y_label: str, note: str = ""
) -> Section:
    """Draw curves: y over 0, 1, ..., or (x, y)."""
    points = {}
    for name, values in curves.items():
        y = np.asarray(values, dtype=np.float64)
        points[name] = y if y.ndim == 2 else np.stack([np.arange(len(y)), y])
    traces = [
        plotly().Scatter(
            mode="lines+markers" if len(x) <= _MAX_MARKERS else "lines",
            name=literal(shorten(name, 40)),
            x=x,
            y=y,
            hovertemplate="%{y:.4g}",
        )
        for name, (x, y) in points.items()
    ]
    steps = max((len(x) for x, _ in points.values()), default=0)
    integer_ticks = {"dtick": 1} if steps <= _MAX_STEPS else {}
    figure = draw(
        traces,
        xaxis={"title": {"text": literal(x_label)}, "showgrid": False, **integer_ticks},
        yaxis={"title": {"text": literal(y_label)}},
        hovermode="x unified",
        showlegend=len(traces) > 1,
    )
    lines = [
        f"{name} from {y[0]:.4g} at {x[0]:g} to {y[-1]:.4g} at {x[-1]:g}"
        for name, (x, y) in points.items()
        if len(x)
    ]
    text = f"{y_label} over {x_label}: {'; '.join(lines)}."
    rows = [(name, *point) for name, curve in points.items() for point in curve.T]
    data = [("curve", x_label, y_label), *rows]
    return Section("curves", title, note=note, charts=[Chart(figure, text)], data=data)


def confusion_section(
    title: str,
    classes: Sequence[object],
    matrices: Mapping[str, ArrayLike],
    note: str = "",
    remarks: Mapping[str, str] | None = None,
) -> Section:
    """Draw counts of predicted classes by classifier, one row for every true class.

    ``remarks``, by classifier, follow the share of right predictions.
    """
    names = [str(name) for name in classes]
    charts, data = [], [("classifier", "true class", *names)]
    for number, (classifier, matrix) in enumerate(matrices.items()):
        counts = np.asarray(matrix, dtype=np.int64)
        total, right = counts.sum(), counts.trace()
        share = f" ({right / total:.1%})" if total else ""
        verdict = f"{classifier}: {right:,} of {total:,} are right{share}."
        verdict = " ".join(filter(None, [verdict, (remarks or {}).get(classifier)]))
        text, mistakes = f"Confusion matrix. {verdict}", _mistakes(names, counts)
        if mistakes:
            verdict += " Most frequent mistakes:"
        figure, anchor = _confusion(names, counts), confusion_anchor(number)
        charts.append(Chart(figure, text, verdict, mistakes, anchor))
        data += [(classifier, name, *row) for name, row in zip(names, counts, strict=True)]
    content = {"count": len(names), "more": f"{len(charts) - 1} more"}
    return Section("confusion", title, content, note, charts, data)


def confusion_anchor(number: int) -> str:
    """Return the id of a confusion matrix on the page, for links."""
    return f"confusion-{number}"


def _confusion(names: Sequence[str], counts: Indices) -> Figure:
    size, totals = len(names), counts.sum(axis=1)
    shares = counts / np.maximum(totals, 1)[:, None]
    escaped = [literal(name) for name in names]
    hovers = [
        [
            f"true: <b>{escaped[i]}</b><br>predicted: <b>{escaped[j]}</b><br>"
            f"{counts[i, j]} of {totals[i]} ({shares[i, j]:.1%})"
            for j in range(size)
        ]
        for i in range(size)
    ]
    cells = plotly().Heatmap(
        # The square root makes a single mistake visible among hundreds of right predictions.
        z=np.sqrt(shares) * (2 * np.eye(size) - 1),
        coloraxis="coloraxis2",
        xgap=2 if size <= 40 else 0,
        ygap=2 if size <= 40 else 0,
        hovertext=hovers,
        hoverinfo="text",
    )
    if size <= _MAX_WITH_COUNTS:
        cells.update(text=np.where(counts, counts.astype(str), ""), texttemplate="%{text}")
    ticks = range(0, size, -(-size // _MAX_TICKS) or 1)
    axis = {
        "tickvals": [*ticks],
        "ticktext": [literal(shorten(names[tick], 12)) for tick in ticks],
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
    order = np.argsort(-wrong, axis=None, kind="stable")[:_N_MISTAKES]
    cells = [divmod(int(index), len(names)) for index in order]
    return [
        f"{names[row]} predicted as {names[column]}: {wrong[row, column]:,} of "
        f"{counts[row].sum():,}"
        for row, column in cells
        if wrong[row, column]
    ]


def matrices_section(
    title: str,
    matrices: ArrayLike,
    uses: ArrayLike,
    names: Sequence[str],
    texts: Sequence[str],
    note: str = "",
) -> Section:
    """Draw SPD matrices as correlations, the six most used first and the others folded.

    ``uses``, >= 0, are in any unit; their shares are shown with names and texts.
    """
    counts = np.asarray(uses, dtype=np.float64)
    order = np.argsort(-counts, kind="stable")
    stack = np.asarray(matrices, dtype=np.float64)[order]
    shares = counts[order] / (counts.sum() or 1.0)
    ends = [f": {share:.1%}" for share in shares]
    heads = [
        shorten(names[k], _HEAD_LENGTH - len(end)) + end for k, end in zip(order, ends, strict=True)
    ]
    captions = [(head, texts[k]) for head, k in zip(heads, order, strict=True)]
    n_rows = min(-(-len(stack) // _COLUMNS), _TILES // _COLUMNS)
    parts = [slice(first, first + _TILES) for first in range(0, len(stack), _TILES)]
    charts = [
        Chart(
            _tiles(stack[part], captions[part], n_rows),
            f"Correlations of {', '.join(heads[part])}.",
        )
        for part in parts
    ]
    i, j = np.triu_indices(stack.shape[-1], 1)
    pairs = [f"correlation {a} {b}" for a, b in zip(i, j, strict=True)]
    heading = ["matrix", "share", *(f"deviation {k}" for k in range(stack.shape[-1])), *pairs]
    deviations = np.sqrt(np.diagonal(stack, axis1=1, axis2=2))
    values = np.round(correlations(stack)[:, i, j], _DECIMALS)
    numbers = np.column_stack([shares, deviations, values]).tolist()
    rows = [(names[k], *row) for k, row in zip(order, numbers, strict=True)]
    content = {"more": f"{len(stack) - _TILES} more", "count": n_rows}
    return Section("matrices", title, content, note, charts, [heading, *rows])


def _tiles(matrices: RealArray, captions: Sequence[tuple[str, str]], n_rows: int) -> Figure:
    """Draw a few matrices as heat maps side by side."""
    size = matrices.shape[-1]
    starts = np.arange(0, size, -(-size // _MAX_CELLS))
    means = _group_means(_group_means(correlations(matrices), starts).swapaxes(1, 2), starts)
    deviations = _group_means(np.sqrt(np.diagonal(matrices, axis1=1, axis2=2)), starts)
    rows = [
        str(first) if first == last else f"{first} to {last}"
        for first, last in zip(starts, [*(starts[1:] - 1), size - 1], strict=True)
    ]
    traces = []
    for suffix, values, scales in zip(_AXIS_SUFFIXES, means, deviations, strict=False):
        labels = [
            f"{row} (standard deviation {scale:.3g})"
            for row, scale in zip(rows, scales, strict=True)
        ]
        tile = plotly().Heatmap(
            z=np.round(values, 2),
            x=labels,
            y=labels,
            xaxis=f"x{suffix}",
            yaxis=f"y{suffix}",
            coloraxis="coloraxis",
            hovertemplate="row %{y}<br>column %{x}<br>correlation %{z:.2f}<extra></extra>",
        )
        traces.append(tile)
    return draw(traces, annotations=_titles(captions), **_tile_layout(n_rows))


def _titles(captions: Sequence[tuple[str, str]]) -> list[dict[str, object]]:
    """Write captions above the tiles of a figure."""
    return [
        {
            "text": "<br>".join([f"<b>{literal(head)}</b>", *map(literal, lines)]),
            "x": 0.5,
            "y": 1,
            "xref": f"x{suffix} domain",
            "yref": f"y{suffix} domain",
            "yanchor": "bottom",
            "showarrow": False,
            "font": {"size": 11},
            "bgcolor": CLEAR,
        }
        for suffix, (head, text) in zip(_AXIS_SUFFIXES, captions, strict=False)
        for lines in [wrap(text, _LINE_LENGTH, max_lines=2)]
    ]


def _tile_layout(n_rows: int) -> dict[str, object]:
    grid = {"rows": n_rows, "columns": _COLUMNS, "pattern": "independent"}
    suffixes = _AXIS_SUFFIXES[: n_rows * _COLUMNS]
    axis = {"visible": False, "type": "category", "constrain": "domain"}
    bar = {"orientation": "h", "thickness": 10, "len": 0.5, "y": -0.05, "yanchor": "top"}
    ticks = {"outlinewidth": 0, "tickvals": [-1, 0, 1], "title": {"text": "correlation"}}
    return {
        **{f"xaxis{suffix}": axis for suffix in suffixes},
        **{f"yaxis{suffix}": {**axis, "autorange": "reversed"} for suffix in suffixes},
        "grid": {**grid, "xgap": 0.2, "ygap": 0.45},
        "coloraxis": {"cmin": -1, "cmax": 1, "colorbar": {**bar, **ticks}},
        "margin": {"l": 10, "t": 50, "b": 60},
    }


def correlations(matrices: RealArray) -> RealArray:
    """Divide covariances by the standard deviations of their rows and columns."""
    scales = np.sqrt(np.diagonal(matrices, axis1=-2, axis2=-1))
    return matrices / (scales[..., :, None] * scales[..., None, :])


def _group_means(values: RealArray, starts: Indices) -> RealArray:
    """Means along the last axis of the groups that begin at the given indices."""
    counts = np.diff([*starts, values.shape[-1]])
    return np.add.reduceat(values, starts, axis=-1) / counts
