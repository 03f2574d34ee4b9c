"""The (alpha, beta) plane as a section of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import RealArray
from divlearn.maps import NAMED, Point, check_axis
from divlearn.report.plane import TITLES, edges
from divlearn.report.section import check_shape

__all__ = ["PlaneSection"]

_LISTED = 3  # texts of learned points of one place
_DECIMALS = 3  # of places that are told apart
_ROOM = 0.06  # beyond the outermost point, as a share of the whole


def _named() -> dict[str, Point]:
    return {TITLES[name]: (known.alpha, known.beta) for name, known in NAMED.items()}


@dataclass(frozen=True, eq=False)
class PlaneSection:
    """Map of the plane, with the named divergences and the learned points.

    Attributes
    ----------
    title : str
    alphas, betas : array-like, shape (n_alphas,) and (n_betas,)
        The grid, ascending; empty where there is no map.
    values : array-like, shape (n_alphas, n_betas)
        What the colours show; NaN leaves a hole.
    label : str
        What the values are, such as "accuracy".
    named : mapping of str to (alpha, beta)
        Names and their points; those of `divlearn.maps.NAMED` by default.
    learned : sequence of (alpha, beta, text)
        Points that were learned; the text appears where one points at them. Those of one place,
        to three decimals, are shown as one.
    mark : str, default="learned"
        What these points are called.
    note : str
        What one sees, in plain words.
    value_format : str, default=".1%"
        How values are written, as a format of Python: ".1%" or ".3g".
    floor : float, optional
        Values below it share its colour, so that the others can be told apart.

    Examples
    --------
    >>> section = PlaneSection("Map", [0, 1], [0, 1], [[0.8, 0.9], [0.7, 0.6]])
    >>> section.content()["named"][0]
    {'name': 'AIRM', 'alpha': 0.0, 'beta': 0.0, 'value': '80.0%'}
    """

    template: ClassVar[str] = "figure.html"
    kind: ClassVar[str] = "plane"

    title: str
    alphas: ArrayLike = ()
    betas: ArrayLike = ()
    values: ArrayLike = ()
    label: str = "value"
    named: Mapping[str, Point] = field(default_factory=_named)
    learned: Sequence[tuple[float, float, str]] = ()
    mark: str = "learned"
    note: str = ""
    value_format: str = ".1%"
    floor: float | None = None

    def __post_init__(self) -> None:
        self._grid()

    def content(self) -> dict[str, Any]:
        """Return what the template and the script need, as plain values."""
        alphas, betas, values = self._grid()

        def describe(name: str, alpha: float, beta: float) -> dict[str, Any]:
            row, column = _locate(alphas, alpha), _locate(betas, beta)
            inside = row is not None and column is not None and np.isfinite(values[row, column])
            value = format(values[row, column], self.value_format) if inside else ""
            return {"name": name, "alpha": float(alpha), "beta": float(beta), "value": value}

        return {
            "alphas": alphas,
            "betas": betas,
            "values": values.T,  # figures have one row per height
            "label": self.label,
            "format": self.value_format,
            "range": self._range(values),
            "extent": self._extent(alphas, betas),
            "named": [describe(name, *point) for name, point in self.named.items()],
            "learned": [describe(text, *point) for point, text in self._gathered()],
            "mark": self.mark,
            "cells": [  # where a name is to appear with the value
                [_locate(alphas, alpha), _locate(betas, beta), name]
                for name, (alpha, beta) in self.named.items()
            ],
        }

    def _gathered(self) -> list[tuple[Point, str]]:
        """Join learned points of the same place, of which only the last could be pointed at."""
        texts: dict[Point, list[str]] = {}
        for alpha, beta, text in self.learned:
            place = round(float(alpha), _DECIMALS), round(float(beta), _DECIMALS)
            texts.setdefault(place, []).append(text)
        return [(place, _enumerate(same)) for place, same in texts.items()]

    def _range(self, values: RealArray) -> list[float] | None:
        """Return the least and the largest value with a colour of its own."""
        finite = values[np.isfinite(values)]
        if self.floor is None or not finite.size or self.floor >= finite.max():
            return None
        return [max(self.floor, finite.min()), finite.max()]

    def _extent(self, alphas: RealArray, betas: RealArray) -> list[list[float]]:
        """Return the least and the largest alpha and beta to show: the map, and every point."""
        points = [*self.named.values(), *((alpha, beta) for alpha, beta, _ in self.learned)]
        places = np.reshape(np.array(points, dtype=np.float64), (-1, 2)).T
        return [_reach(axis, place) for axis, place in zip((alphas, betas), places, strict=True)]

    def _grid(self) -> tuple[RealArray, RealArray, RealArray]:
        if np.size(self.alphas) == np.size(self.betas) == np.size(self.values) == 0:
            return np.empty(0), np.empty(0), np.empty((0, 0))
        alphas, betas = check_axis(self.alphas, "alphas"), check_axis(self.betas, "betas")
        return alphas, betas, check_shape(self.values, "values", (len(alphas), len(betas)))


def _enumerate(texts: Sequence[str]) -> str:
    """Join the first few texts, and the number of the others."""
    others = len(texts) - _LISTED
    return ", ".join(texts[:_LISTED]) + (f" and {others} more" if others > 0 else "")


def _locate(axis: RealArray, value: float) -> int | None:
    """Index of the cell around a value of the axis, if there is one."""
    if not len(axis):
        return None
    place = int(np.searchsorted(edges(axis), value, side="right")) - 1
    return place if 0 <= place < len(axis) else None


def _reach(axis: RealArray, places: RealArray) -> list[float]:
    """Find the ends of an axis: those of the map, or beyond points that lie outside it."""
    cells = edges(axis) if len(axis) else axis
    known = np.concatenate([cells, places[np.isfinite(places)]])
    low, high = (known.min(), known.max()) if len(known) else (0.0, 1.0)
    room = _ROOM * (high - low or 1.0)
    return [
        low if len(cells) and low == cells[0] else low - room,
        high if len(cells) and high == cells[-1] else high + room,
    ]
