"""Picture of a map of the (alpha, beta) plane."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from divlearn.arrays import RealArray
from divlearn.maps import NAMED, PlaneMap
from divlearn.report.axes import LABEL, make_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["TITLES", "edges", "plot_plane"]

TITLES = {
    "airm": "AIRM",
    "stein": "Stein",
    "burg": "Burg",
    "reverse-burg": "reverse Burg",
    "log-cosh": "log-cosh",
}
_INK, _STAR = "#1a1a1a", "#d55e00"  # vermilion, which no eye takes for blue or yellow


def plot_plane(
    plane: PlaneMap,
    path: str | os.PathLike[str] | None = None,
    ax: Axes | None = None,
    *,
    title: str | None = None,
) -> Axes:
    """Heat map of the accuracy, with the named divergences and the best point marked.

    Parameters
    ----------
    plane : PlaneMap
    path : path-like, optional
        Where to save the picture; its ending chooses the format. It needs no display then, and
        leaves no trace in pyplot.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    title : str, optional
        Name of the data, written first in the title.

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> from divlearn import maps
    >>> X = [[[scale, 0], [0, shape]] for shape in (1, 9) for scale in (1, 2)]
    >>> ax = plot_plane(maps.plane_map(X, [0, 0, 1, 1]), title="four matrices")
    """
    ax = make_axes(ax, (7.5, 7.0), shown=path is None)
    figure = ax.figure.canvas.figure  # the whole one, also from inside a subfigure
    percent = 100 * plane.accuracy
    image = ax.pcolormesh(edges(plane.alphas), edges(plane.betas), percent.T, cmap="cividis")
    # An inset keeps the bar as high as the map, whatever the layout does to it.
    beside = ax.inset_axes((1.025, 0, 0.045, 1))
    bar = figure.colorbar(image, cax=beside, format="%.1f%%")
    bar.set_label("leave-one-out 1-NN accuracy", fontsize=12, labelpad=8)
    bar.outline.set_visible(False)
    _mark(ax, plane)
    ax.set_box_aspect(1)
    ax.set_xlabel(r"$\alpha$", fontsize=15)
    ax.set_ylabel(r"$\beta$", fontsize=15)
    ax.spines[:].set_visible(False)
    noise = 100 * plane.standard_error.max()
    note = f"{plane.n_matrices} matrices; standard error at most {noise:.1f} percentage points"
    ax.set_title(title or "", loc="left", fontweight="bold", fontsize=14, pad=26)
    ax.annotate(note, (0, 1), (0, 8), xycoords="axes fraction", textcoords="offset points")
    if path is not None:
        figure.savefig(path)
    return ax


def _mark(ax: Axes, plane: PlaneMap) -> None:
    """Mark the best point and the named ones, each label on the side where there is room."""
    both = edges(plane.alphas), edges(plane.betas)
    lower, upper = (np.array([axis[end] for axis in both]) for end in (0, -1))
    best = plane.best
    star = (best - lower) / (upper - lower)
    for name, accuracy in plane.named.items():
        point = NAMED[name].alpha, NAMED[name].beta
        place = (point - lower) / (upper - lower)
        leftward = place[0] > 0.65
        reach = (place[0] - star[0]) if leftward else (star[0] - place[0])
        below = place[1] > 0.85 or (-0.06 < reach < 0.35 and 0 < star[1] - place[1] < 0.12)
        ax.plot(*point, "o", color="white", markeredgecolor=_INK, markersize=8)
        ax.annotate(
            f"{TITLES[name]}  {accuracy:.1%}",
            point,
            (-4 if leftward else 4, -12 if below else 12),
            textcoords="offset points",
            ha="right" if leftward else "left",
            va="top" if below else "bottom",
            color=_INK,
            fontsize=11,
            bbox=LABEL,
        )
    n_ties = len(plane.best_points) - 1
    ties = f"  ({n_ties} other{'s' * (n_ties > 1)} tie)" if n_ties else ""
    ax.plot(
        *best, "*", color=_STAR, markeredgecolor="white", markersize=20, linestyle="none",
        label=f"best point ({best[0]:g}, {best[1]:g})  {plane.at(*best):.1%}{ties}",
    )  # fmt: skip
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.09), frameon=False, fontsize=12)


def edges(grid: RealArray) -> RealArray:
    """Edges of cells around the values; matplotlib finds none around a single value."""
    if len(grid) == 1:
        return np.array([grid[0] - 0.5, grid[0] + 0.5])
    middles = (grid[1:] + grid[:-1]) / 2
    return np.concatenate([[2 * grid[0] - middles[0]], middles, [2 * grid[-1] - middles[-1]]])
