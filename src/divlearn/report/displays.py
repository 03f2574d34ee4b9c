"""Pictures of results, drawn with matplotlib: one class for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA
from sklearn.utils.validation import check_is_fitted

from divlearn.alpha_beta import Point
from divlearn.arrays import RealArray
from divlearn.checks import import_extra
from divlearn.cluster.agreement import centers_of
from divlearn.fitting.labelled import check_new
from divlearn.judge.answer import WhichDivergence, format_point
from divlearn.judge.evaluation import Evaluation
from divlearn.judge.maps import PlaneMap, plane_map
from divlearn.log_vectors import log_vectors
from divlearn.nearest.plane import NAMED
from divlearn.report.figures import correlations
from divlearn.report.planes import LEVELS, TITLES, edges, label_side, learned_points
from divlearn.text import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

COLOUR, BEST, INK = "#4c78a8", "#d55e00", "#1a1a1a"  # colour-blind readers can tell them apart
LABEL = {"boxstyle": "round,pad=0.25", "facecolor": "white", "alpha": 0.85, "linewidth": 0}


class Display:
    """A picture; `plot` draws it in ``ax_`` of ``figure_``, a new figure by default."""

    ax_: Axes
    figure_: Figure | SubFigure

    def _set_axes(self, ax: Axes | None, size: tuple[float, float]) -> Axes:
        """Store the axes, by default those of a new figure, which notebooks show."""
        if ax is None:
            import_extra("matplotlib", "the picture needs matplotlib", "plot")
            from matplotlib import pyplot
            from matplotlib.layout_engine import ConstrainedLayoutEngine

            margins = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
            ax = pyplot.figure(figsize=size, layout=margins).add_subplot()
        self.ax_, self.figure_ = ax, ax.figure
        return ax


def draw_ranking(ax: Axes, rows: Sequence[tuple[str, float, float]], colours: list[str]) -> None:
    """Draw rows of (name, share, standard error) in percent, the first at the top."""
    for y, (_, share, error) in enumerate(rows):
        ax.errorbar(100 * share, y, xerr=100 * error, fmt="o", capsize=4, color=colours[y])
    ax.set_yticks(range(len(rows)), [name for name, *_ in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.grid(axis="x", alpha=0.3)


class EvaluationDisplay(Display):
    """Accuracies of classifiers with standard errors.

    Parameters
    ----------
    evaluation : Evaluation

    Examples
    --------
    >>> from divlearn import evaluate
    >>> from divlearn.nearest import DivergenceMDM
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(2, 10, 3, random_state=0)
    >>> display = EvaluationDisplay(evaluate(X, y, {"mean": DivergenceMDM("airm")}, cv=2)).plot()
    """

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation = evaluation

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw one row for every classifier, the best at the top."""
        table = self.evaluation.table()
        rows = [(row.name, row.accuracy, row.standard_error) for row in table]
        ax = self._set_axes(ax, (7.0, 1.2 + 0.4 * len(rows)))
        draw_ranking(ax, rows, [BEST, *[COLOUR] * (len(rows) - 1)])
        ax.set_xlabel("accuracy in %, with its standard error")
        ax.set_title(
            f"{self.evaluation.n_matrices} matrices, {counted(self.evaluation.n_folds, 'folds')}"
        )
        return self


class MatrixDisplay(Display):
    """Correlations of an SPD matrix.

    Parameters
    ----------
    matrix : array-like, shape (d, d)

    Examples
    --------
    >>> display = MatrixDisplay([[4.0, 1.0], [1.0, 1.0]]).plot(title="two channels")
    """

    def __init__(self, matrix: ArrayLike) -> None:
        self.matrix = np.asarray(matrix)

    def plot(self, ax: Axes | None = None, *, title: str = "") -> Self:
        """Draw the correlations as a heat map."""
        ax = self._set_axes(ax, (5.0, 4.2))
        image = ax.imshow(correlations(self.matrix), cmap="RdBu_r", vmin=-1, vmax=1)
        self.figure_.colorbar(image, ax=ax, label="correlation")
        ax.set_title(title)
        return self


class ClusterDisplay(Display):
    """Matrices and centres of clusters, projected onto two principal components.

    Parameters
    ----------
    points : ndarray, shape (n_matrices, 2)
    labels : ndarray of int, shape (n_matrices,), clusters of the points.
    centers : ndarray, shape (n_clusters, 2)

    Examples
    --------
    >>> from divlearn import ABKMeans
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(2, 10, 3, random_state=0)
    >>> display = ClusterDisplay.from_estimator(ABKMeans(2, random_state=0).fit(X), X)
    """

    def __init__(self, points: RealArray, labels: ArrayLike, centers: RealArray) -> None:
        self.points, self.labels, self.centers = points, labels, centers

    @classmethod
    def from_estimator(
        cls, estimator: BaseEstimator, X: ArrayLike, *, ax: Axes | None = None
    ) -> Self:
        """Draw matrices X, shape (n_matrices, d, d), by the components of their logarithms."""
        matrices, centers = check_new(estimator, X), centers_of(estimator)
        # A column of zeros gives 1 x 1 matrices a second direction.
        vectors = np.pad(log_vectors(matrices), ((0, 0), (0, 1)))
        center_vectors = np.pad(log_vectors(centers), ((0, 0), (0, 1)))
        pca = PCA(2, svd_solver="full").fit(vectors)
        labels = estimator.predict(matrices)
        return cls(pca.transform(vectors), labels, pca.transform(center_vectors)).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw the points in the colours of their clusters, and the numbers of the centres."""
        ax = self._set_axes(ax, (6.5, 5.2))
        ax.scatter(self.points[:, 0], self.points[:, 1], c=self.labels, cmap="tab20", s=18)
        for number, center in enumerate(self.centers):
            ax.annotate(str(number), center, ha="center", va="center", color=INK, bbox=LABEL)
        ax.set(xlabel="first principal component", ylabel="second principal component")
        return self


class BICDisplay(Display):
    """The Bayesian information criterion by number of components.

    Parameters
    ----------
    bics : mapping of int to float

    Examples
    --------
    >>> display = BICDisplay({1: 20.0, 2: 10.0, 3: 12.0}).plot()
    """

    def __init__(self, bics: Mapping[int, float]) -> None:
        self.bics = bics

    @classmethod
    def from_estimator(cls, estimator: BaseEstimator, *, ax: Axes | None = None) -> Self:
        """Draw the ``bics_`` of an `ABMixture` fitted with several ``n_components``."""
        check_is_fitted(estimator)
        return cls(estimator.bics_).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw the curve with the lowest value marked."""
        ax = self._set_axes(ax, (6.5, 5.2))
        best = min(self.bics, key=self.bics.__getitem__)
        ax.plot(list(self.bics), list(self.bics.values()), "o-", color=COLOUR)
        ax.plot(best, self.bics[best], "*", color=BEST, markersize=16)
        ax.set(xlabel="number of components", ylabel="BIC, lower is better", xticks=[*self.bics])
        return self


class WeightsDisplay(Display):
    """Weights and held-out accuracies of the members of a committee.

    Parameters
    ----------
    weights, accuracies : mapping of str to float, by member.

    Examples
    --------
    >>> display = WeightsDisplay({"kernel": 0.7, "iddl": 0.3}, {"kernel": 0.9, "iddl": 0.8}).plot()
    """

    def __init__(self, weights: Mapping[str, float], accuracies: Mapping[str, float]) -> None:
        self.weights, self.accuracies = weights, accuracies

    @classmethod
    def from_estimator(cls, estimator: BaseEstimator, *, ax: Axes | None = None) -> Self:
        """Draw the members of a fitted `SPDClassifier`."""
        check_is_fitted(estimator)
        return cls(estimator.weights_, estimator.oof_accuracy_).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw one bar for every member, the heaviest at the top."""
        ax = self._set_axes(ax, (6.5, 5.2))
        names = sorted(self.weights, key=self.weights.__getitem__)
        bars = ax.barh(names, [self.weights[name] for name in names], color=COLOUR)
        ax.bar_label(bars, [f"{self.accuracies[name]:.1%}" for name in names], padding=4)
        ax.set(xlabel="weight, with the held-out accuracy", xmargin=0.15)
        return self


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
        estimator: BaseEstimator,
        X: ArrayLike,
        y: ArrayLike,
        *,
        groups: ArrayLike | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw `plane_map` of labelled matrices, and the points that a fitted estimator learned."""
        points = [(alpha, beta) for alpha, beta, _ in learned_points(estimator)]
        return cls(plane_map(X, y, groups=groups), points).plot(ax)

    def plot(self, ax: Axes | None = None, *, title: str = "") -> Self:
        """Draw a heat map with the named divergences, the best point and learned points."""
        ax = self._set_axes(ax, (7.5, 7.0))
        content = _describe(self.plane)
        _draw_map(ax, self.plane, content)
        ax.annotate(
            content.note, (0, 1), (0, 8), xycoords="axes fraction", textcoords="offset points"
        )
        _mark_named(ax, self.plane, content.named)
        if len(self.learned):
            points = np.transpose(self.learned)
            ax.plot(*points, "o", color=BEST, markeredgecolor="white", label="learned")
        star = ax.plot(*self.plane.best, "*", color=BEST, markersize=20, zorder=5)[0]
        star.set(linestyle="none", markeredgecolor="white", label=content.best)
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.09), frameon=False, fontsize=12)
        ax.set_title(title, loc="left", fontweight="bold", fontsize=14, pad=26)
        return self


class _MapContent(NamedTuple):
    """Values of a map, in percent unless there is a floor, and texts."""

    values: RealArray
    label: str
    named: dict[str, str]
    best: str
    note: str
    floor: float | None = None


def _describe(plane: PlaneMap | WhichDivergence) -> _MapContent:
    sample = f"{plane.n_matrices} matrices"
    if isinstance(plane, PlaneMap):
        n_ties = len(plane.best_points) - 1
        ties = f"  ({counted(n_ties, 'others')} tie)" if n_ties else ""
        largest_error = 100 * plane.standard_error.max()
        return _MapContent(
            100 * plane.accuracy,
            "leave-one-out 1-NN accuracy",
            {name: f"{accuracy:.1%}" for name, accuracy in plane.named.items()},
            f"best point {format_point(plane.best)}  {plane.at(*plane.best):.1%}{ties}",
            f"{sample}; standard error at most {largest_error:.1f} percentage points",
        )
    if plane.criterion == "accuracy":
        return _MapContent(
            100 * plane.map,
            f"held-out 1-NN {plane.measure}",
            {name: f"{row.score:.1%}" for name, row in plane.named.items()},
            f"learned point {format_point(plane.best)}  {plane.score:.1%}",
            sample,
        )
    relative = plane.map - plane.score
    return _MapContent(
        relative,
        "log-likelihood per matrix",
        {name: f"{-row.difference:.3f}" for name, row in plane.named.items()},
        "maximum ({:.3g}, {:.3g})".format(*plane.best),
        f"{sample}; values are relative to the maximum",
        max(np.nanmin(relative), -LEVELS),
    )


def _draw_map(ax: Axes, plane: PlaneMap | WhichDivergence, content: _MapContent) -> None:
    image = ax.pcolormesh(
        edges(plane.alphas),
        edges(plane.betas),
        content.values.T,
        cmap="cividis",
        vmin=content.floor,
        vmax=None if content.floor is None else 0,
    )
    # An inset gives the bar the height of the map in every layout.
    bar = ax.figure.canvas.figure.colorbar(  # a subfigure has no such method
        image,
        cax=ax.inset_axes((1.025, 0, 0.045, 1)),
        format="%.1f%%" if content.floor is None else None,
        extend="neither" if content.floor is None else "min",
    )
    bar.set_label(content.label, fontsize=12, labelpad=8)
    bar.outline.set_visible(False)
    ax.set_box_aspect(1)
    ax.set_xlabel(r"$\alpha$", fontsize=15)
    ax.set_ylabel(r"$\beta$", fontsize=15)
    ax.spines[:].set_visible(False)


def _mark_named(ax: Axes, plane: PlaneMap | WhichDivergence, texts: dict[str, str]) -> None:
    """Mark named points, each with a label on the side with enough room."""
    limits = edges(plane.alphas), edges(plane.betas)
    lower, upper = (np.array([axis[end] for axis in limits]) for end in (0, -1))
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
