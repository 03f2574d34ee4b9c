"""Pictures of results and fitted estimators, drawn with matplotlib."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.decomposition import PCA
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import RealArray
from divlearn.baselines.plane import NAMED
from divlearn.checks import import_extra
from divlearn.committee import SPDClassifier
from divlearn.fitting.labelled import check_new
from divlearn.fitting.targets import check_labels
from divlearn.judge.evaluation import Evaluation, held_out_predictions
from divlearn.judge.maps import PlaneMap, Point, format_point, plane_map
from divlearn.judge.which import WhichDivergence
from divlearn.log_vectors import log_vectors
from divlearn.report.fitted import learned_points
from divlearn.report.planes import LEVELS, TITLES, edges
from divlearn.report.sections import correlations

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOUR, _BEST, _INK = "#4c78a8", "#d55e00", "#1a1a1a"  # colour-blind readers can tell them apart
_LABEL = {"boxstyle": "round,pad=0.25", "facecolor": "white", "alpha": 0.85, "linewidth": 0}
_SIZE = 7.5, 7.0


def plot_plane(
    plane: PlaneMap | WhichDivergence, ax: Axes | None = None, *, title: str | None = None,
    path: str | os.PathLike[str] | None = None,
) -> Axes:  # fmt: skip
    """Draw a heat map of the plane with the named divergences and the best point marked.

    By default in a new figure. With ``path`` the picture is saved to that file, whose suffix
    chooses the format; this needs no display, and pyplot does not keep the figure.

    Examples
    --------
    >>> from divlearn import plane_map
    >>> X = [[[scale, 0], [0, shape]] for shape in (1, 9) for scale in (1, 2)]
    >>> ax = plot_plane(plane_map(X, [0, 0, 1, 1]), title="four matrices")
    """
    ax = _make_axes(ax, _SIZE, shown=path is None)
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
        _draw(ax, plane, 100 * plane.map, "held-out 1-NN accuracy", texts, star, about)
    else:
        lost = plane.map - plane.score
        texts = {name: f"{-row.difference:.3f}" for name, row in plane.named.items()}
        star = "maximum ({:.3g}, {:.3g})".format(*plane.best)
        about += "; values are relative to the maximum"
        floor = max(np.nanmin(lost), -LEVELS)
        _draw(ax, plane, lost, "log-likelihood per matrix", texts, star, about, floor)
    ax.set_title(title or "", loc="left", fontweight="bold", fontsize=14, pad=26)
    if path is not None:
        ax.figure.canvas.figure.savefig(path)
    return ax


def _draw(
    ax: Axes, plane: PlaneMap | WhichDivergence, values: RealArray, label: str,
    texts: dict[str, str], star: str, note: str, floor: float | None = None,
) -> None:  # fmt: skip
    """Draw values, in percent unless there is a floor, with texts of named points."""
    image = ax.pcolormesh(
        edges(plane.alphas), edges(plane.betas), values.T, cmap="cividis", vmin=floor,
        vmax=None if floor is None else 0,
    )  # fmt: skip
    # An inset keeps the bar as high as the map in every layout.
    bar = ax.figure.canvas.figure.colorbar(  # of the whole figure, also from inside a subfigure
        image, cax=ax.inset_axes((1.025, 0, 0.045, 1)),
        format="%.1f%%" if floor is None else None, extend="neither" if floor is None else "min",
    )  # fmt: skip
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
        ax.plot(*point, "o", color="white", markeredgecolor=_INK, markersize=8)
        ax.annotate(
            f"{TITLES[name]}  {text}", point, (-4 if leftward else 4, -12 if below else 12),
            textcoords="offset points", ha="right" if leftward else "left",
            va="top" if below else "bottom", color=_INK, fontsize=11, bbox=_LABEL,
        )  # fmt: skip
    ax.plot(
        *best, "*", color=_BEST, markeredgecolor="white", markersize=20, linestyle="none",
        label=star, zorder=5,
    )  # fmt: skip
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
    >>> display = PlaneDisplay.from_estimator(DivergenceKernelClassifier().fit(X, y), X, y)
    """

    def __init__(self, plane: PlaneMap | WhichDivergence, learned: Sequence[Point] = ()) -> None:
        self.plane, self.learned = plane, learned

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: ArrayLike, y: ArrayLike, *, groups: ArrayLike | None = None,
        ax: Axes | None = None,
    ) -> Self:  # fmt: skip
        """Draw `plane_map` of labelled matrices, and what an estimator fitted to them learned."""
        points = [(alpha, beta) for alpha, beta, _ in learned_points(estimator)]
        return cls(plane_map(X, y, groups=groups), points).plot(ax)

    def plot(self, ax: Axes | None = None, *, title: str | None = None) -> Self:
        """Draw the learned points on the map of `plot_plane`, in ``ax_``."""
        self.ax_ = _make_axes(ax, _SIZE)
        points = np.reshape(self.learned, (-1, 2)).T
        self.ax_.plot(*points, "o", color=_BEST, markeredgecolor="white", label="learned")
        plot_plane(self.plane, self.ax_, title=title)
        return self


def plot_evaluation(found: Evaluation, ax: Axes | None = None) -> Axes:
    """Draw accuracies of classifiers with standard errors, in a new figure by default."""
    rows = found.table()
    ax = _make_axes(ax, (7.0, 1.2 + 0.4 * len(rows)))
    for place, row in enumerate(rows):
        ax.errorbar(
            100 * row.accuracy, place, xerr=100 * row.standard_error, fmt="o", capsize=4,
            color=_COLOUR if place else _BEST,
        )  # fmt: skip
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
    ax = _make_axes(ax, (5.0, 4.2))
    image = ax.imshow(correlations(np.asarray(matrix)), cmap="RdBu_r", vmin=-1, vmax=1)
    ax.figure.colorbar(image, ax=ax, label="correlation")
    ax.set_title(title)
    return ax


def plot_clusters(model: Any, X: ArrayLike, axes: Any = None) -> list[Axes]:
    """Draw matrices, (n_matrices, d, d), in the clusters of an estimator of `divlearn.cluster`.

    They are at the first two principal components of their logarithms. A mixture fitted with
    several ``n_components`` takes two axes: the second has the BIC of each.

    Examples
    --------
    >>> from divlearn.cluster import ABMixture
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, _ = make_wishart_clusters(3, 20, 3, random_state=0)
    >>> clusters, bic = plot_clusters(ABMixture([2, 3], random_state=0).fit(X), X)
    """
    matrices, bics = check_new(model, X), getattr(model, "bics_", {})
    ax, *others = panels = _make_panels(axes, 1 + (len(bics) > 1))
    centers = model.means_ if hasattr(model, "means_") else model.cluster_centers_
    # A column of zeros: 1 x 1 matrices have one direction.
    both = [np.pad(log_vectors(some), ((0, 0), (0, 1))) for some in (matrices, centers)]
    points, places = map(PCA(2, svd_solver="full").fit(both[0]).transform, both)
    ax.scatter(*points.T, c=model.predict(matrices), cmap="tab20", s=18)
    for number, place in enumerate(places):
        ax.annotate(str(number), place, ha="center", va="center", color=_INK, bbox=_LABEL)
    ax.set(xlabel="first principal component", ylabel="second principal component")
    for ax in others:
        ax.plot(list(bics), list(bics.values()), "o-", color=_COLOUR)
        ax.plot(model.n_components_, min(bics.values()), "*", color=_BEST, markersize=16)
        ax.set(xlabel="number of components", ylabel="BIC, lower is better", xticks=list(bics))
    return panels


def plot_committee(model: SPDClassifier, y: ArrayLike, axes: Any = None) -> list[Axes]:
    """Draw the weights of the members of a classifier, and its confusion of held-out matrices.

    ``y``, shape (n_matrices,), are the labels it was fitted to. Two axes are needed, if any.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(2, 20, 3, random_state=0)
    >>> model = SPDClassifier(("tangent lda", "log rbf"), random_state=0).fit(X, y)
    >>> weights, confusion = plot_committee(model, y)
    """
    check_is_fitted(model)
    found = held_out_predictions(model, check_labels(y, len(model.oof_proba_)))
    assert found is not None  # without them there would be no weights
    ax, other = panels = _make_panels(axes, 2)
    names = sorted(model.weights_, key=model.weights_.__getitem__)
    bars = ax.barh(names, [model.weights_[name] for name in names], color=_COLOUR)
    ax.bar_label(bars, [f"{model.oof_accuracy_[name]:.1%}" for name in names], padding=4)
    ax.set(xlabel="weight, with the held-out accuracy", xmargin=0.15)
    pair = (model.classes_[codes] for codes in (found.codes, found.predicted))
    ConfusionMatrixDisplay.from_predictions(*pair, ax=other, colorbar=False, cmap="Blues")
    return panels


def _make_axes(ax: Axes | None, size: tuple[float, float], *, shown: bool = True) -> Axes:
    """Return the given axes, or those of a new figure, which pyplot shows in notebooks."""
    return ax if ax is not None else _make_figure(size, shown=shown).add_subplot()


def _make_figure(size: tuple[float, float], *, shown: bool = True) -> Any:
    import_extra("matplotlib", "the picture needs matplotlib", "plot")
    from matplotlib import pyplot
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    margins = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
    make = pyplot.figure if shown else Figure
    return make(figsize=size, dpi=100 if shown else 150, layout=margins)


def _make_panels(axes: Any, count: int) -> list[Any]:
    if axes is None:
        axes = _make_figure((6.5 * count, 5.2)).subplots(1, count)
    given = np.ravel(np.asarray(axes, dtype=object)).tolist()
    if len(given) != count:
        raise ValueError(f"axes holds {len(given)} Axes, must hold {count}, one for each picture")
    return given
