"""Sections that show the (alpha, beta) plane."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import RealArray
from divlearn.judge.maps import PlaneMap, Point
from divlearn.nearest.plane import NAMED
from divlearn.report.sections import Section

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
_LISTED = 3  # texts of learned points at one place
_DECIMALS = 3  # learned points that agree to so many are drawn as one
_ROOM = 0.06  # margin beyond the outermost point, as a share of the whole


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
    """Draw a map of the plane, if there is one, with named divergences and learned points."""
    # ``learned`` are (alpha, beta, text), which ``mark`` names; those that agree to three decimals
    # are drawn as one. NaN among the values leaves a hole; those below ``floor`` share its colour.
    named = {TITLES[name]: (known.alpha, known.beta) for name, known in NAMED.items()}
    rows, columns, table = (np.asarray(one, dtype=float) for one in (alphas, betas, values))

    def describe(name: str, alpha: float, beta: float) -> dict[str, Any]:
        row, column = _locate(rows, alpha), _locate(columns, beta)
        inside = row is not None and column is not None and np.isfinite(table[row, column])
        value = format(table[row, column], value_format) if inside else ""
        return {"name": name, "alpha": float(alpha), "beta": float(beta), "value": value}

    points = [*named.values(), *((alpha, beta) for alpha, beta, _ in learned)]
    places = np.reshape(np.array(points, dtype=np.float64), (-1, 2)).T
    content = {
        "alphas": rows,
        "betas": columns,
        "label": label,
        "mark": mark,
        "format": value_format,
        "values": table.T,  # figures have one row per height
        "range": _colour_range(table, floor),
        "extent": [_extent(*both) for both in zip((rows, columns), places, strict=True)],
        "named": [describe(name, *point) for name, point in named.items()],
        "learned": [describe(text, *point) for point, text in _merge(learned)],
        "cells": [  # where a name appears with the value
            [_locate(rows, alpha), _locate(columns, beta), name]
            for name, (alpha, beta) in named.items()
        ],
    }
    return Section("plane", title, content, note)


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


def _colour_range(values: RealArray, floor: float | None) -> list[float] | None:
    finite = values[np.isfinite(values)]
    if floor is None or not finite.size or floor >= finite.max():
        return None
    return [max(floor, finite.min()), finite.max()]


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
