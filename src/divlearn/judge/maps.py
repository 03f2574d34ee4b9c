"""Maps of the (alpha, beta) plane: accuracy of the nearest neighbour at every point of a grid."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from divlearn.alpha_beta import Point
from divlearn.arrays import Indices, RealArray, as_axis
from divlearn.engines import Engine, get_engine
from divlearn.fitting.folds import number_units
from divlearn.fitting.labelled import Labelled, label
from divlearn.fitting.progress import print_progress
from divlearn.hermitian import real_form
from divlearn.judge import significance
from divlearn.judge.answer import Summarised, format_point
from divlearn.judge.significance import PairedComparison
from divlearn.nearest.plane import NAMED, Flags, draw_judged, judge_neighbors, rank_best
from divlearn.spd import check_spd
from divlearn.text import counted
from divlearn.tolerances import LEARNING_ACCURACY

_DEFAULT_GRID = np.arange(17) / 8  # exact in binary, and every named point lies on it
_ROUNDING = 1e-9  # of sums of steps such as 0.1


@dataclass(frozen=True, eq=False)
class PlaneMap(Summarised):
    """Leave-one-out 1-NN accuracy over a grid of the plane: the result of `plane_map`.

    Exchanging the arguments of a divergence exchanges alpha and beta.

    Attributes
    ----------
    alphas, betas : ndarray, shape (n_alphas,) and (n_betas,), the grid, ascending.
    correct : ndarray of bool, shape (n_alphas, n_betas, n_matrices)
        Whether the nearest other matrix has the right label. A tie between the right class and
        another, up to rounding, counts as wrong. `plane_map` needs 16 bytes for each.
    groups : ndarray of int, shape (n_matrices,), or None
        Matrices of one group are not neighbours of each other, and not independent.
    """

    alphas: RealArray
    betas: RealArray
    correct: Flags
    groups: Indices | None = None

    @property
    def n_matrices(self) -> int:
        """Number of matrices."""
        return int(self.correct.shape[-1])

    @property
    def accuracy(self) -> RealArray:
        """Share of matrices classified right, shape (n_alphas, n_betas)."""
        return self.correct.mean(axis=-1)

    @property
    def standard_error(self) -> RealArray:
        """Standard error of the accuracy, shape (n_alphas, n_betas)."""
        return np.apply_along_axis(significance.standard_error, -1, self.correct, self.groups)

    @property
    def best_points(self) -> tuple[Point, ...]:
        """All (alpha, beta) of the highest accuracy, those nearest to a named divergence first."""
        grid = make_grid(self.alphas, self.betas)
        best = grid[rank_best(grid, self.accuracy.ravel())]
        return tuple((float(alpha), float(beta)) for alpha, beta in best)

    @property
    def best(self) -> Point:
        """The first of `best_points`."""
        return self.best_points[0]

    @property
    def named(self) -> dict[str, float]:
        """Accuracy of every named divergence whose point lies on the grid."""
        indices = {name: self._find(member.alpha, member.beta) for name, member in NAMED.items()}
        accuracy = self.accuracy
        return {name: float(accuracy[at]) for name, at in indices.items() if at is not None}

    def index(self, alpha: float, beta: float) -> tuple[int, int]:
        """Index of a point of the grid; any other point raises ValueError."""
        index = self._find(alpha, beta)
        if index is None:
            axes = (self.alphas, alpha), (self.betas, beta)
            near = [axis[np.abs(axis - value).argmin()] for axis, value in axes]
            raise ValueError(
                f"(alpha, beta) = {format_point((alpha, beta))} must be a point of the grid; the "
                f"nearest is {format_point(near)}. Pass alphas and betas that contain it"
            )
        return index

    def at(self, alpha: float, beta: float) -> float:
        """Accuracy at one point of the grid."""
        return float(self.accuracy[self.index(alpha, beta)])

    def compare(self, first: Point, second: Point) -> PairedComparison:
        """Paired comparison of two points (alpha, beta) of the grid, chosen in advance."""
        at_first, at_second = self.correct[self.index(*first)], self.correct[self.index(*second)]
        return significance.compare_paired(at_first, at_second, self.groups)

    def summary(self) -> str:
        """Say which points have the highest accuracy; `which_divergence` says how sure that is."""
        accuracy, named = self.accuracy, self.named
        lowest, highest = accuracy.min(), accuracy.max()
        if lowest == highest:
            return f"All {accuracy.size} points of the grid have the accuracy {highest:.1%}."
        n_ties = len(self.best_points) - 1
        ties = f" ({counted(n_ties, 'others')} tie)" if n_ties else ""
        text = (
            f"Leave-one-out accuracy over {accuracy.size} points is from {lowest:.1%} to "
            f"{highest:.1%}, the highest at {format_point(self.best)}{ties}."
        )
        if named:
            top = max(named.values())
            names = ", ".join(name for name, score in named.items() if score == top)
            text += f" The highest of the named divergences is {top:.1%} ({names})."
        return (
            f"{text} These points were selected on the same matrices, so their accuracies are "
            "optimistic; which_divergence judges a choice on held-out matrices."
        )

    def _find(self, alpha: float, beta: float) -> tuple[int, int] | None:
        """Index of a point, up to the rounding errors of sums of steps such as 0.1."""
        matches = [
            np.flatnonzero(np.isclose(axis, value, rtol=_ROUNDING, atol=_ROUNDING))
            for axis, value in ((self.alphas, alpha), (self.betas, beta))
        ]
        return (int(matches[0][0]), int(matches[1][0])) if all(map(len, matches)) else None


def plane_map(
    X: ArrayLike,
    y: ArrayLike,
    alphas: ArrayLike | None = None,
    betas: ArrayLike | None = None,
    *,
    groups: ArrayLike | None = None,
    engine: str | Engine = "auto",
    regularize: str | float = "raise",
    verbose: int = 0,
) -> PlaneMap:
    r"""Leave-one-out 1-NN accuracy at every point of a grid of the (alpha, beta) plane.

    .. math:: \operatorname{accuracy}(\alpha, \beta) = \frac{1}{n} \sum_i [\, y_i = y_{k(i)} \,],
              \qquad k(i) = \arg\min_{j \ne i} D^{(\alpha,\beta)}(X_i \,\|\, X_j)

    Parameters
    ----------
    X : array-like, shape (n_matrices, d, d)
    y : array-like, shape (n_matrices,), labels of >= 2 classes, each of >= 2 matrices.
    alphas, betas : array-like, shape (n_alphas,) and (n_betas,), optional
        The grid, ascending, without pairs of opposite signs; 0 to 2 in steps of 1/8 by default,
        which contains every divergence of `NAMED`.
    groups : array-like, shape (n_matrices,), optional
        Matrices of one group (patches of an image) are not neighbours of each other.
    engine : str or Engine, default="auto"
    regularize : {"raise", "shrink"} or float, default="raise", as in `divlearn.check_spd`
    verbose : int, default=0, 1 prints progress.

    Returns
    -------
    PlaneMap, after an interrupt of the matrices judged so far, a random sample of all.

    Examples
    --------
    >>> X = [scale * np.diag([1.0, shape]) for shape in (9, 2) for scale in (1, 2, 3)]
    >>> plane_map(X, ["wide"] * 3 + ["narrow"] * 3).at(0, 0)
    1.0
    """
    engine = get_engine(engine, accuracy=LEARNING_ACCURACY)
    matrices = check_spd(real_form(X), regularize=regularize, ndim=3)
    data, units = label_units(matrices, y, groups)
    # Neighbours are matrices: a class may be one group.
    replace(data, groups=None).require_two("drop the class, or pass more of it")
    grid = _check_signs(check_axis(alphas, "alphas"), check_axis(betas, "betas"))
    with print_progress("plane_map", verbose):
        one_fold, drawn = np.zeros_like(data.codes), draw_judged(data.codes)
        correct, judged = judge_neighbors(
            matrices, data.codes, one_fold, units, make_grid(*grid), drawn, engine
        )
    flags = correct[-1].reshape(*map(len, grid), -1)
    return PlaneMap(*grid, flags, None if units is None else units[judged])


def _check_signs(alphas: RealArray, betas: RealArray) -> tuple[RealArray, RealArray]:
    if alphas[0] < 0 < betas[-1] or betas[0] < 0 < alphas[-1]:
        raise ValueError(
            f"alphas from {alphas[0]:g} to {alphas[-1]:g} and betas from {betas[0]:g} to "
            f"{betas[-1]:g} must not pair opposite signs, for which D is not defined for every "
            "pair of matrices; map one quadrant at a time"
        )
    return alphas, betas


def check_axis(values: ArrayLike | None, name: str) -> RealArray:
    axis = as_axis(_DEFAULT_GRID if values is None else values, name)
    if (np.diff(axis) <= 0).any():
        raise ValueError(f"{name}={axis.tolist()} must be finite and ascending, each value once")
    return axis


def make_grid(alphas: RealArray, betas: RealArray) -> RealArray:
    """All points (alpha, beta), shape (n_alphas * n_betas, 2), beta fastest."""
    return np.column_stack([np.repeat(alphas, len(betas)), np.tile(betas, len(alphas))])


def label_units(
    matrices: RealArray, y: ArrayLike, groups: ArrayLike | None
) -> tuple[Labelled, Indices | None]:
    """Label checked matrices; return also the numbers of their groups, or None."""
    data = label(matrices, y, np.ones(len(matrices)), None, groups)
    return data, None if data.groups is None else number_units(data.positions, data.groups)
