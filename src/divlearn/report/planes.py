"""The (alpha, beta) plane: points that estimators learned, and sections that show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from divlearn.arrays import RealArray
from divlearn.divergence import ABDivergence
from divlearn.iddl import IDDLClassifier
from divlearn.judge.maps import PlaneMap
from divlearn.likelihood.members import Point
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
LEVELS = 0.5  # log-likelihood per matrix below the best that has colours of its own
_ALPHA, _BETA = "\N{GREEK SMALL LETTER ALPHA}", "\N{GREEK SMALL LETTER BETA}"
_CIRCLE = {"size": 13, "color": "white", "line": {"color": "#1d2329", "width": 1.5}}
_STAR = {"symbol": "star", "size": 18, "color": "#d55e00", "line": {"color": "white", "width": 1}}
_DOTS = {"size": 7, "color": "#d55e00", "line": {"color": "white", "width": 1}}
_LISTED = 3  # texts of learned points at one place
_DECIMALS = 3  # learned points that agree to so many are drawn as one
_IN_TEXT = 20  # learned points in the alternative text
_LOW = 0.15  # share of the axis at its lower end
_ROOM = 0.06  # margin beyond the outermost point, as a share of the whole


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
    rows, columns, table = (np.asarray(one, dtype=float) for one in (alphas, betas, values))

    def describe(name: str, alpha: float, beta: float) -> PlanePoint:
        row, column = _locate(rows, alpha), _locate(columns, beta)
        inside = row is not None and column is not None and np.isfinite(table[row, column])
        value = format(table[row, column], value_format) if inside else ""
        return PlanePoint(name, float(alpha), float(beta), value)

    named = [describe(TITLES[name], one.alpha, one.beta) for name, one in NAMED.items()]
    marked = [describe(text, *point) for point, text in _merge(learned)]
    traces = [_points(named, "named divergence", label, _CIRCLE)]
    if marked:
        star = _STAR if len(marked) == 1 else _DOTS
        traces.append(_points(marked, mark, label, star))
    if len(rows):
        traces.insert(0, _map(rows, columns, table, label, value_format, floor))
    figure = _plane(traces, rows, columns, named, marked)
    cells = [
        (alpha, beta, table[i, j], "")
        for i, alpha in enumerate(rows)
        for j, beta in enumerate(columns)
    ]
    points = [(one.alpha, one.beta, one.value, one.name) for one in (*named, *marked)]
    data = [("alpha", "beta", label, "point"), *cells, *points]
    listed = "; ".join(f"{one.name} {one.value}".strip() for one in (*named, *marked[:_IN_TEXT]))
    text = f"{label} over alpha and beta. {listed}."
    return Section("plane", title, note=note, charts=[Chart(figure, text)], data=data)


def _map(
    alphas: RealArray,
    betas: RealArray,
    values: RealArray,
    label: str,
    value_format: str,
    floor: float | None,
) -> BaseTraceType:
    """Draw the values as a heat map; figures have one row per height."""
    low, high = _colour_range(values, floor)
    place, name = f"{_ALPHA} = %{{x}}, {_BETA} = %{{y}}", literal(label)
    # At the lower end of the figure, whatever its size: the axis has its title above.
    lower = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"}
    bar = {**lower, "thickness": 12, "outlinewidth": 0}
    ticks = {"tickangle": 0, "nticks": 4}  # as many as fit side by side on a phone
    return plotly().Heatmap(
        x=alphas,
        y=betas,
        z=values.T,
        zmin=low,
        zmax=high,
        colorscale="Cividis",
        colorbar={**bar, "title": {"text": name}, "tickformat": value_format, **ticks},
        hoverongaps=False,
        hovertemplate=f"{place}<br>{name} %{{z:{value_format}}}<extra></extra>",
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
    places = np.array([(one.alpha, one.beta) for one in (*named, *marked)]).T
    across, up = _extent(alphas, places[0]), _extent(betas, places[1])
    lower, sizes = (np.array([f(axis) for axis in (across, up)]) for f in (min, np.ptp))
    star = (places[:, -1] - lower) / sizes if len(marked) == 1 else None
    annotations = []
    for one in named:
        place = ([one.alpha, one.beta] - lower) / sizes
        leftward, below = label_side(place, star)
        above_star = below and place[1] < _LOW  # below it stand the numbers of the axis
        annotations.append(
            {
                "x": one.alpha,
                "y": marked[0].beta if above_star else one.beta,
                "text": one.name,
                "showarrow": False,
                "xanchor": "right" if leftward else "left",
                "yshift": 22 if above_star else -18 if below else 18,
            }
        )
    axis = {"constrain": "domain", "showgrid": not len(alphas)}
    titles = [{"text": letter, "font": {"size": 17}} for letter in (_ALPHA, _BETA)]
    return draw(
        traces,
        xaxis={**axis, "title": titles[0], "range": across},
        yaxis={**axis, "title": titles[1], "range": up, "scaleanchor": "x"},
        annotations=annotations,
        hovermode="closest",
        showlegend=bool(marked),
        margin={"b": 110 if len(alphas) else 50},
    )


def label_side(place: ArrayLike, star: RealArray | None = None) -> tuple[bool, bool]:
    """Find where the label of a point has room: to its left, and below it.

    Places are shares of the axes; a label on the side of the star would cover it.
    """
    across, up = np.asarray(place, dtype=float)
    leftward = bool(across > 0.65)
    if star is None:
        return leftward, bool(up > 0.85)
    reach = (across - star[0]) if leftward else (star[0] - across)
    covers = -0.06 < reach < 0.35 and 0 < star[1] - up < 0.12
    return leftward, bool(up > 0.85 or covers)


def map_section(
    plane: PlaneMap, learned: Sequence[tuple[float, float, str]], mark: str, note: str
) -> Section:
    """Draw the accuracies of a map with learned points; the note says what these are."""
    whose = "" if plane.groups is None else " of another group"
    return plane_section(
        "Map of the plane",
        plane.alphas,
        plane.betas,
        plane.accuracy,
        "accuracy",
        learned=learned,
        mark=mark,
        note=f"{LEGEND} {note} Values are leave-one-out accuracies of the nearest neighbour{whose} "
        f"on {plane.n_matrices} matrices.",
    )


def find_iddl(model: BaseEstimator) -> IDDLClassifier | None:
    """Return the model itself, or the member of the highest weight that learned its atoms."""
    if isinstance(model, IDDLClassifier):
        return model
    learners = [
        name
        for name, member in getattr(model, "members_", {}).items()
        if isinstance(member, IDDLClassifier) and name.startswith("iddl")
    ]
    return model.members_[max(learners, key=model.weights_.__getitem__)] if learners else None


def learned_points(model: BaseEstimator) -> list[tuple[float, float, str]]:
    """Return alpha, beta and the owner of each divergence that an estimator learned or chose."""
    learner = find_iddl(model) or model
    if hasattr(learner, "alpha_"):
        both = [np.ravel(some).tolist() for some in (learner.alpha_, learner.beta_)]
        if not hasattr(learner, "atoms_"):
            return [(a, b, "of the clusters") for a, b in sorted(set(zip(*both, strict=True)))]
        each = len(both[0]) // len(learner.atoms_)
        return [(a, b, f"atom {i // each}") for i, (a, b) in enumerate(zip(*both, strict=True))]
    learned = getattr(model, "divergence_", None)
    divergences = learned if isinstance(learned, list) else [learned]
    if known := [one for one in divergences if isinstance(one, ABDivergence)]:
        return [(one.alpha, one.beta, "chosen") for one in known]
    best = getattr(model, "best_params_", {})
    return [(best["alpha"], best["beta"], "chosen")] if {"alpha", "beta"} <= {*best} else []


def edges(grid: RealArray) -> RealArray:
    """Edges of the cells around the values of a grid, also around a single one."""
    if len(grid) == 1:
        return np.array([grid[0] - 0.5, grid[0] + 0.5])
    middles = (grid[1:] + grid[:-1]) / 2
    return np.concatenate([[2 * grid[0] - middles[0]], middles, [2 * grid[-1] - middles[-1]]])


def _merge(learned: Sequence[tuple[float, float, str]]) -> list[tuple[Point, str]]:
    """Join points at the same place, of which only the last could be pointed at."""
    texts: dict[Point, list[str]] = {}
    for alpha, beta, text in learned:
        place = round(float(alpha), _DECIMALS), round(float(beta), _DECIMALS)
        texts.setdefault(place, []).append(text)
    return [
        (place, ", ".join(same[:_LISTED]) + f" and {n_more} more" * (n_more > 0))
        for place, same in texts.items()
        for n_more in [len(same) - _LISTED]
    ]


def _colour_range(values: RealArray, floor: float | None) -> tuple[float | None, float | None]:
    finite = values[np.isfinite(values)]
    if floor is None or not finite.size or floor >= finite.max():
        return None, None
    return max(floor, finite.min()), finite.max()


def _locate(axis: RealArray, value: float) -> int | None:
    """Index of the cell around a value of the axis, if there is one."""
    if not len(axis):
        return None
    place = int(np.searchsorted(edges(axis), value, side="right")) - 1
    return place if 0 <= place < len(axis) else None


def _extent(axis: RealArray, places: RealArray) -> list[float]:
    """Find the ends of an axis: those of the map, or beyond points that lie outside it."""
    cells = edges(axis) if len(axis) else axis
    known = np.concatenate([cells, places[np.isfinite(places)]])
    low, high = (known.min(), known.max()) if len(known) else (0.0, 1.0)
    room = _ROOM * (high - low or 1.0)
    return [
        low if len(cells) and low == cells[0] else low - room,
        high if len(cells) and high == cells[-1] else high + room,
    ]
