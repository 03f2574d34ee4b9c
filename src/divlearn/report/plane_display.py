"""Picture of the (alpha, beta) plane, drawn with matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import RealArray
from divlearn.judge.answer import WhichDivergence
from divlearn.judge.maps import PlaneMap, Point, format_point, plane_map
from divlearn.nearest.plane import NAMED
from divlearn.report.displays import BEST, INK, LABEL, Display
from divlearn.report.fitted import learned_points
from divlearn.report.planes import LEVELS, TITLES, edges, label_side

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class PlaneDisplay(Display):
    """Map of the (alpha, beta) plane, with the divergences that an estimator learned or chose.

    Parameters
    ----------
    plane : PlaneMap or WhichDivergence
    learned : sequence of (alpha, beta), points to mark besides the best one.

    Examples
    --------
    >>> from divlearn import plane_map
    >>> X = [[[scale, 0], [0, shape]] for shape in (1, 9) for scale in (1, 2)]
    >>> display = PlaneDisplay(plane_map(X, [0, 0, 1, 1])).plot(title="four matrices")
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

    def plot(self, ax: Axes | None = None, *, title: str = "") -> Self:
        """Draw a heat map with the named divergences, the best point and learned points."""
        ax, shown = self._take(ax, (7.5, 7.0)), _describe(self.plane)
        _draw_map(ax, self.plane, shown)
        _mark_named(ax, self.plane, shown.named)
        if len(self.learned):
            points = np.transpose(self.learned)
            ax.plot(*points, "o", color=BEST, markeredgecolor="white", label="learned")
        star: dict[str, Any] = {
            "color": BEST,
            "markeredgecolor": "white",
            "markersize": 20,
            "zorder": 5,
        }
        ax.plot(*self.plane.best, "*", linestyle="none", label=shown.best, **star)
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.09), frameon=False, fontsize=12)
        ax.set_title(title, loc="left", fontweight="bold", fontsize=14, pad=26)
        return self


class _Shown(NamedTuple):
    """What a map shows: values, in percent unless there is a floor, and texts."""

    values: RealArray
    label: str
    named: dict[str, str]
    best: str
    note: str
    floor: float | None = None


def _describe(plane: PlaneMap | WhichDivergence) -> _Shown:
    about = f"{plane.n_matrices} matrices"
    if isinstance(plane, PlaneMap):
        n_ties = len(plane.best_points) - 1
        ties = f"  ({n_ties} other{'s' * (n_ties > 1)} tie)" if n_ties else ""
        noise = 100 * plane.standard_error.max()
        return _Shown(
            100 * plane.accuracy,
            "leave-one-out 1-NN accuracy",
            {name: f"{accuracy:.1%}" for name, accuracy in plane.named.items()},
            f"best point {format_point(plane.best)}  {plane.at(*plane.best):.1%}{ties}",
            f"{about}; standard error at most {noise:.1f} percentage points",
        )
    if plane.criterion == "accuracy":
        return _Shown(
            100 * plane.map,
            f"held-out 1-NN {plane.measure}",
            {name: f"{row.score:.1%}" for name, row in plane.named.items()},
            f"learned point {format_point(plane.best)}  {plane.score:.1%}",
            about,
        )
    lost = plane.map - plane.score
    return _Shown(
        lost,
        "log-likelihood per matrix",
        {name: f"{-row.difference:.3f}" for name, row in plane.named.items()},
        "maximum ({:.3g}, {:.3g})".format(*plane.best),
        f"{about}; values are relative to the maximum",
        max(np.nanmin(lost), -LEVELS),
    )


def _draw_map(ax: Axes, plane: PlaneMap | WhichDivergence, shown: _Shown) -> None:
    image = ax.pcolormesh(
        edges(plane.alphas),
        edges(plane.betas),
        shown.values.T,
        cmap="cividis",
        vmin=shown.floor,
        vmax=None if shown.floor is None else 0,
    )
    # An inset keeps the bar as high as the map in every layout.
    bar = ax.figure.canvas.figure.colorbar(  # of the whole figure, also from inside a subfigure
        image,
        cax=ax.inset_axes((1.025, 0, 0.045, 1)),
        format="%.1f%%" if shown.floor is None else None,
        extend="neither" if shown.floor is None else "min",
    )
    bar.set_label(shown.label, fontsize=12, labelpad=8)
    bar.outline.set_visible(False)
    ax.set_box_aspect(1)
    ax.set_xlabel(r"$\alpha$", fontsize=15)
    ax.set_ylabel(r"$\beta$", fontsize=15)
    ax.spines[:].set_visible(False)
    ax.annotate(shown.note, (0, 1), (0, 8), xycoords="axes fraction", textcoords="offset points")


def _mark_named(ax: Axes, plane: PlaneMap | WhichDivergence, texts: dict[str, str]) -> None:
    """Mark named points, each label on the side where there is room."""
    both = edges(plane.alphas), edges(plane.betas)
    lower, upper = (np.array([axis[end] for axis in both]) for end in (0, -1))
    star = (plane.best - lower) / (upper - lower)
    for name, text in texts.items():
        point = NAMED[name].alpha, NAMED[name].beta
        leftward, below = label_side((point - lower) / (upper - lower), star)
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
