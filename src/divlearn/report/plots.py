"""Pictures of results and fitted estimators, drawn with matplotlib."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import RealArray
from divlearn.atomic import open_atomic
from divlearn.drawing import BEST, COLOUR, INK, LABEL, make_axes
from divlearn.judge.answer import WhichDivergence
from divlearn.judge.evaluation import Evaluation
from divlearn.judge.maps import PlaneMap, Point, format_point, plane_map
from divlearn.nearest.plane import NAMED
from divlearn.report.fitted import learned_points
from divlearn.report.planes import LEVELS, TITLES, edges
from divlearn.report.sections import correlations

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = 7.5, 7.0


def plot_plane(
    plane: PlaneMap | WhichDivergence,
    ax: Axes | None = None,
    *,
    title: str | None = None,
    path: str | os.PathLike[str] | None = None,
) -> Axes:
    """Draw a heat map of the plane with the named divergences and the best point marked.

    By default in a new figure. With ``path`` the picture is saved to that file, whose suffix
    chooses the format; this needs no display, and pyplot does not keep the figure.

    Examples
    --------
    >>> from divlearn import plane_map
    >>> X = [[[scale, 0], [0, shape]] for shape in (1, 9) for scale in (1, 2)]
    >>> ax = plot_plane(plane_map(X, [0, 0, 1, 1]), title="four matrices")
    """
    ax = make_axes(ax, _SIZE, shown=path is None)
    about = f"{plane.n_matrices} matrices"
    if isinstance(plane, PlaneMap):
        n_ties = len(plane.best_points) - 1
        ties = f"  ({n_ties} other{'s' * (n_ties > 1)} tie)" if n_ties else ""
        noise = 100 * plane.standard_error.max()
        texts = {name: f"{accuracy:.1%}" for name, accuracy in plane.named.items()}
        star = f"best point {format_point(plane.best)}  {plane.at(*plane.best):.1%}{ties}"
        about += f"; standard error at most {noise:.1f} percentage points"
        _draw(ax, plane, 100 * plane.accuracy, "leave-one-out 1-NN accuracy", texts, star, about)
    elif plane.criterion == "accuracy":
        texts = {name: f"{row.score:.1%}" for name, row in plane.named.items()}
        star = f"learned point {format_point(plane.best)}  {plane.score:.1%}"
        _draw(ax, plane, 100 * plane.map, f"held-out 1-NN {plane.measure}", texts, star, about)
    else:
        lost = plane.map - plane.score
        texts = {name: f"{-row.difference:.3f}" for name, row in plane.named.items()}
        star = "maximum ({:.3g}, {:.3g})".format(*plane.best)
        about += "; values are relative to the maximum"
        floor = max(np.nanmin(lost), -LEVELS)
        _draw(ax, plane, lost, "log-likelihood per matrix", texts, star, about, floor)
    ax.set_title(title or "", loc="left", fontweight="bold", fontsize=14, pad=26)
    if path is not None:
        target = Path(path)
        with open_atomic(target) as file:
            ax.figure.canvas.figure.savefig(file, format=target.suffix[1:] or "png")
    return ax


def _draw(
    ax: Axes,
    plane: PlaneMap | WhichDivergence,
    values: RealArray,
    label: str,
    texts: dict[str, str],
    star: str,
    note: str,
    floor: float | None = None,
) -> None:
    """Draw values, in percent unless there is a floor, with texts of named points."""
    image = ax.pcolormesh(
        edges(plane.alphas),
        edges(plane.betas),
        values.T,
        cmap="cividis",
        vmin=floor,
        vmax=None if floor is None else 0,
    )
    # An inset keeps the bar as high as the map in every layout.
    bar = ax.figure.canvas.figure.colorbar(  # of the whole figure, also from inside a subfigure
        image,
        cax=ax.inset_axes((1.025, 0, 0.045, 1)),
        format="%.1f%%" if floor is None else None,
        extend="neither" if floor is None else "min",
    )
    bar.set_label(label, fontsize=12, labelpad=8)
    bar.outline.set_visible(False)
    _mark(ax, plane, texts, star)
    ax.set_box_aspect(1)
    ax.set_xlabel(r"$\alpha$", fontsize=15)
    ax.set_ylabel(r"$\beta$", fontsize=15)
    ax.spines[:].set_visible(False)
    ax.annotate(note, (0, 1), (0, 8), xycoords="axes fraction", textcoords="offset points")


def _mark(ax: Axes, plane: PlaneMap | WhichDivergence, texts: dict[str, str], star: str) -> None:
    """Mark the best point and the named ones, each label on the side where there is room."""
    both = edges(plane.alphas), edges(plane.betas)
    lower, upper = (np.array([axis[end] for axis in both]) for end in (0, -1))
    best = plane.best
    peak = (best - lower) / (upper - lower)
    for name, text in texts.items():
        point = NAMED[name].alpha, NAMED[name].beta
        place = (point - lower) / (upper - lower)
        leftward = place[0] > 0.65
        reach = (place[0] - peak[0]) if leftward else (peak[0] - place[0])
        below = place[1] > 0.85 or (-0.06 < reach < 0.35 and 0 < peak[1] - place[1] < 0.12)
        ax.plot(*point, "o", color="white", markeredgecolor=INK, markersize=8)
        ax.annotate(
            f"{TITLES[name]}  {text}",
            point,
            (-4 if leftward else 4, -12 if below else 12),
            textcoords="offset points",
            ha="right" if leftward else "left",
            va="top" if below else "bottom",
            color=INK,
            fontsize=11,
            bbox=LABEL,
        )
    ax.plot(
        *best,
        "*",
        color=BEST,
        markeredgecolor="white",
        markersize=20,
        linestyle="none",
        label=star,
        zorder=5,
    )
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.09), frameon=False, fontsize=12)


class PlaneDisplay:
    """Map of the (alpha, beta) plane, with the divergences that an estimator learned or chose.

    Parameters
    ----------
    plane : PlaneMap or WhichDivergence
    learned : sequence of (alpha, beta), the points to mark.

    Examples
    --------
    >>> from divlearn import DivergenceKernelClassifier
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(2, 20, 3, random_state=0)
    >>> model = DivergenceKernelClassifier(alphas=[0, 1], betas=[0, 1]).fit(X, y)
    >>> display = PlaneDisplay.from_estimator(model, X, y)
    """

    def __init__(self, plane: PlaneMap | WhichDivergence, learned: Sequence[Point] = ()) -> None:
        self.plane, self.learned = plane, learned

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: ArrayLike,
        y: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw `plane_map` of labelled matrices, and what an estimator fitted to them learned."""
        points = [(alpha, beta) for alpha, beta, _ in learned_points(estimator)]
        return cls(plane_map(X, y, groups=groups), points).plot(ax)

    def plot(self, ax: Axes | None = None, *, title: str | None = None) -> Self:
        """Draw the learned points on the map of `plot_plane`, in ``ax_``."""
        self.ax_ = make_axes(ax, _SIZE)
        points = np.reshape(self.learned, (-1, 2)).T
        self.ax_.plot(*points, "o", color=BEST, markeredgecolor="white", label="learned")
        plot_plane(self.plane, self.ax_, title=title)
        return self


def plot_evaluation(found: Evaluation, ax: Axes | None = None) -> Axes:
    """Draw accuracies of classifiers with standard errors, in a new figure by default."""
    rows = found.table()
    ax = make_axes(ax, (7.0, 1.2 + 0.4 * len(rows)))
    for place, row in enumerate(rows):
        ax.errorbar(
            100 * row.accuracy,
            place,
            xerr=100 * row.standard_error,
            fmt="o",
            capsize=4,
            color=COLOUR if place else BEST,
        )
    ax.set_yticks(range(len(rows)), [row.name for row in rows])
    ax.set(xlabel="accuracy in %, with its standard error", ylim=(len(rows) - 0.5, -0.5))
    ax.set_title(f"{len(found.codes)} matrices, {found.n_folds} folds")
    ax.grid(axis="x", alpha=0.3)
    return ax


def plot_matrix(matrix: ArrayLike, ax: Axes | None = None, *, title: str = "") -> Axes:
    """Draw the correlations of an SPD matrix, (d, d), in a new figure by default.

    Examples
    --------
    >>> ax = plot_matrix([[4.0, 1.0], [1.0, 1.0]], title="two channels")
    """
    ax = make_axes(ax, (5.0, 4.2))
    image = ax.imshow(correlations(np.asarray(matrix)), cmap="RdBu_r", vmin=-1, vmax=1)
    ax.figure.colorbar(image, ax=ax, label="correlation")
    ax.set_title(title)
    return ax
