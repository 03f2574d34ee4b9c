"""The (alpha, beta) plane: points that estimators learned, and sections that show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from divlearn.alpha_beta import Point
from divlearn.arrays import RealArray
from divlearn.divergence import ABDivergence
from divlearn.iddl import IDDLClassifier
from divlearn.judge.maps import PlaneMap
from divlearn.nearest.plane import NAMED
from divlearn.report.figures import draw, literal, plotly
from divlearn.report.sections import Chart, Section

if TYPE_CHECKING:
    from plotly.basedatatypes import BaseTraceType
    from plotly.graph_objects import Figure

TITLES = {
    "airm": "AIRM",
    "stein": "Stein",
    "burg": "Burg",
    "reverse-burg": "reverse Burg",
    "log-cosh": "log-cosh",
}
LEGEND = (
    "Every cell is a divergence with parameters alpha and beta; brighter is better. Circles are "
    "divergences with a name in the literature."
)
LEVELS = 0.5  # log-likelihood per matrix below the best that the colours span
_ALPHA, _BETA = "\N{GREEK SMALL LETTER ALPHA}", "\N{GREEK SMALL LETTER BETA}"
_CIRCLE = {"size": 13, "color": "white", "line": {"color": "#1d2329", "width": 1.5}}
_STAR = {"symbol": "star", "size": 18, "color": "#d55e00", "line": {"color": "white", "width": 1}}
_DOTS = {"size": 7, "color": "#d55e00", "line": {"color": "white", "width": 1}}
_N_TEXTS = 3  # texts listed for learned points that coincide
_DECIMALS = 3  # learned points that agree to so many decimals are drawn as one
_N_IN_TEXT = 20  # learned points in the alternative text
_LOW = 0.15  # share of the axis at its lower end
_MARGIN = 0.06  # beyond the outermost point, as a share of the axis


class PlanePoint(NamedTuple):
    """A divergence with a name, and the value of its cell as text, empty outside the map."""

    name: str
    alpha: float
    beta: float
    value: str


def plane_section(
    title: str,
    alphas: ArrayLike = (),
    betas: ArrayLike = (),
    values: ArrayLike = (),
    label: str = "value",
    *,
    learned: Sequence[tuple[float, float, str]] = (),
    mark: str = "learned",
    note: str = "",
    value_format: str = ".1%",
    floor: float | None = None,
) -> Section:
    """Draw a map of the plane, if there is one, with named divergences and learned points.

    ``learned`` are (alpha, beta, text), which ``mark`` names; those that agree to three decimals
    are drawn as one. NaN among the values leaves a hole; those below ``floor`` share its colour.
    """
    rows, columns, table = (np.asarray(array, dtype=float) for array in (alphas, betas, values))

    def describe(name: str, alpha: float, beta: float) -> PlanePoint:
        row, column = _locate(rows, alpha), _locate(columns, beta)
        inside = row is not None and column is not None and np.isfinite(table[row, column])
        value = format(table[row, column], value_format) if inside else ""
        return PlanePoint(name, float(alpha), float(beta), value)

    named = [describe(TITLES[name], member.alpha, member.beta) for name, member in NAMED.items()]
    marked = [describe(text, *point) for point, text in _merge(learned)]
    traces = [_points(named, "named divergence", label, _CIRCLE)]
    if marked:
        marker = _STAR if len(marked) == 1 else _DOTS
        traces.append(_points(marked, mark, label, marker))
    if len(rows):
        traces.insert(0, _map(rows, columns, table, label, value_format, floor))
    figure = _plane(traces, rows, columns, named, marked)
    cells = [
        (alpha, beta, table[i, j], "")
        for i, alpha in enumerate(rows)
        for j, beta in enumerate(columns)
    ]
    points = [(point.alpha, point.beta, point.value, point.name) for point in (*named, *marked)]
    data = [("alpha", "beta", label, "point"), *cells, *points]
    listed = (f"{p.name} {p.value}".strip() for p in (*named, *marked[:_N_IN_TEXT]))
    text = f"{label} over alpha and beta. {'; '.join(listed)}."
    return Section("plane", title, note=note, charts=[Chart(figure, text)], data=data)


def _map(
    alphas: RealArray,
    betas: RealArray,
    values: RealArray,
    label: str,
    value_format: str,
    floor: float | None,
) -> BaseTraceType:
    """Draw the values as a heat map."""
    low, high, finite = None, None, values[np.isfinite(values)]
    if floor is not None and finite.size and floor < finite.max():
        low, high = max(floor, finite.min()), finite.max()
    point, name = f"{_ALPHA} = %{{x}}, {_BETA} = %{{y}}", literal(label)
    # The bar is at the lower end of the figure, below the title of the axis.
    position = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"}
    bar = {**position, "thickness": 12, "outlinewidth": 0}
    ticks = {"tickangle": 0, "nticks": 4}  # as many as fit side by side on a phone
    return plotly().Heatmap(
        x=alphas,
        y=betas,
        z=values.T,  # plotly has a row for each y
        zmin=low,
        zmax=high,
        colorscale="Cividis",
        colorbar={**bar, "title": {"text": name}, "tickformat": value_format, **ticks},
        hoverongaps=False,
        hovertemplate=f"{point}<br>{name} %{{z:{value_format}}}<extra></extra>",
    )


def _points(
    points: Sequence[PlanePoint], name: str, label: str, marker: dict[str, object]
) -> BaseTraceType:
    return plotly().Scatter(
        mode="markers",
        name=literal(name),
        x=[point.alpha for point in points],
        y=[point.beta for point in points],
        hovertext=[
            f"<b>{literal(point.name)}</b><br>{_ALPHA} = {point.alpha:g}, {_BETA} = {point.beta:g}"
            + (f"<br>{literal(label)} {point.value}" if point.value else "")
            for point in points
        ],
        hoverinfo="text",
        marker=marker,
        cliponaxis=False,
    )


def _plane(
    traces: Sequence[BaseTraceType],
    alphas: RealArray,
    betas: RealArray,
    named: Sequence[PlanePoint],
    marked: Sequence[PlanePoint],
) -> Figure:
    """Put traces on square axes, with the names of the named points."""
    points = np.array([(point.alpha, point.beta) for point in (*named, *marked)]).T
    x_range, y_range = _extent(alphas, points[0]), _extent(betas, points[1])
    lower, sizes = (np.array([f(axis) for axis in (x_range, y_range)]) for f in (min, np.ptp))
    star = (points[:, -1] - lower) / sizes if len(marked) == 1 else None
    annotations = []
    for point in named:
        position = ([point.alpha, point.beta] - lower) / sizes
        leftward, below = label_side(position, star)
        above_star = below and position[1] < _LOW  # a label below would cover the axis labels
        annotations.append(
            {
                "x": point.alpha,
                "y": marked[0].beta if above_star else point.beta,
                "text": point.name,
                "showarrow": False,
                "xanchor": "right" if leftward else "left",
                "yshift": 22 if above_star else -18 if below else 18,
            }
        )
    axis = {"constrain": "domain", "showgrid": not len(alphas)}
    titles = [{"text": letter, "font": {"size": 17}} for letter in (_ALPHA, _BETA)]
    return draw(
        traces,
        xaxis={**axis, "title": titles[0], "range": x_range},
        yaxis={**axis, "title": titles[1], "range": y_range, "scaleanchor": "x"},
        annotations=annotations,
        hovermode="closest",
        showlegend=bool(marked),
        margin={"b": 110 if len(alphas) else 50},
    )


def label_side(position: ArrayLike, star: RealArray | None = None) -> tuple[bool, bool]:
    """Return whether the label of a point goes to its left, and whether it goes below.

    Positions are shares of the axes. A label goes below if it would cover the star above.
    """
    x, y = np.asarray(position, dtype=float)
    leftward = bool(x > 0.65)
    if star is None:
        return leftward, bool(y > 0.85)
    reach = (x - star[0]) if leftward else (star[0] - x)
    covers = -0.06 < reach < 0.35 and 0 < star[1] - y < 0.12
    return leftward, bool(y > 0.85 or covers)


def map_section(
    plane: PlaneMap, learned: Sequence[tuple[float, float, str]], mark: str, note: str
) -> Section:
    """Draw the accuracies of a map with learned points, which the note explains."""
    restriction = "" if plane.groups is None else " of another group"
    return plane_section(
        "Map of the plane",
        plane.alphas,
        plane.betas,
        plane.accuracy,
        "accuracy",
        learned=learned,
        mark=mark,
        note=f"{LEGEND} {note} Values are leave-one-out accuracies of the nearest neighbour"
        f"{restriction} on {plane.n_matrices} matrices.",
    )


def find_iddl(model: BaseEstimator) -> IDDLClassifier | None:
    """Return the model, or the IDDL member of the highest weight, or None."""
    if isinstance(model, IDDLClassifier):
        return model
    learners = [
        name
        for name, member in getattr(model, "members_", {}).items()
        if isinstance(member, IDDLClassifier) and name.startswith("iddl")
    ]
    return model.members_[max(learners, key=model.weights_.__getitem__)] if learners else None


def learned_points(model: BaseEstimator) -> list[tuple[float, float, str]]:
    """Return (alpha, beta, owner) of each divergence that an estimator learned or chose."""
    learner = find_iddl(model) or model
    if hasattr(learner, "alpha_"):
        alphas, betas = np.ravel(learner.alpha_).tolist(), np.ravel(learner.beta_).tolist()
        points = list(zip(alphas, betas, strict=True))
        if not hasattr(learner, "atoms_"):
            return [(a, b, "of the clusters") for a, b in sorted(set(points))]
        per_atom = len(points) // len(learner.atoms_)
        return [(a, b, f"atom {i // per_atom}") for i, (a, b) in enumerate(points)]
    learned = getattr(model, "divergence_", None)
    divergences = learned if isinstance(learned, list) else [learned]
    if members := [member for member in divergences if isinstance(member, ABDivergence)]:
        return [(member.alpha, member.beta, "chosen") for member in members]
    best = getattr(model, "best_params_", {})
    return [(best["alpha"], best["beta"], "chosen")] if {"alpha", "beta"} <= {*best} else []


def edges(grid: RealArray) -> RealArray:
    """Edges of the cells around the values of a grid, which may be a single value."""
    if len(grid) == 1:
        return np.array([grid[0] - 0.5, grid[0] + 0.5])
    middles = (grid[1:] + grid[:-1]) / 2
    return np.concatenate([[2 * grid[0] - middles[0]], middles, [2 * grid[-1] - middles[-1]]])


def _merge(learned: Sequence[tuple[float, float, str]]) -> list[tuple[Point, str]]:
    """Join points that coincide, of which only the last would show its text."""
    texts_by_point: dict[Point, list[str]] = {}
    for alpha, beta, text in learned:
        point = round(float(alpha), _DECIMALS), round(float(beta), _DECIMALS)
        texts_by_point.setdefault(point, []).append(text)
    return [
        (point, ", ".join(texts[:_N_TEXTS]) + f" and {n_more} more" * (n_more > 0))
        for point, texts in texts_by_point.items()
        for n_more in [len(texts) - _N_TEXTS]
    ]


def _locate(axis: RealArray, value: float) -> int | None:
    """Index of the cell around a value of the axis, or None outside all cells."""
    if not len(axis):
        return None
    index = int(np.searchsorted(edges(axis), value, side="right")) - 1
    return index if 0 <= index < len(axis) else None


def _extent(axis: RealArray, coordinates: RealArray) -> list[float]:
    """Return the ends of an axis: those of the map, or a margin beyond points outside it."""
    cells = edges(axis) if len(axis) else axis
    values = np.concatenate([cells, coordinates[np.isfinite(coordinates)]])
    low, high = values.min(), values.max()
    margin = _MARGIN * (high - low or 1.0)
    return [
        low if len(cells) and low == cells[0] else low - margin,
        high if len(cells) and high == cells[-1] else high + margin,
    ]
