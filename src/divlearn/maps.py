"""Maps of the (alpha, beta) plane: the answer to "which divergence should I use?"."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from divlearn.arrays import RealArray, to_host
from divlearn.checks import check_sortable
from divlearn.divergence import Divergence, divergence_plane, get_divergence
from divlearn.engines import Engine, get_engine
from divlearn.paired import PairedComparison, compare_paired, share_error
from divlearn.progress import tell
from divlearn.showing import Shown
from divlearn.spd import check_spd

__all__ = [
    "NAMED", "PlaneMap", "check_axis", "check_labels", "plane_map",
]  # fmt: skip

NAMED: dict[str, Divergence] = {
    name: get_divergence(name) for name in ("airm", "stein", "burg", "reverse-burg", "log-cosh")
}

Point = tuple[float, float]

_DEFAULT_GRID = np.arange(17) / 8  # exact in binary, and every named point lies on it
_BLOCK_ENTRIES = 1 << 23  # divergences held at a time: 64 MB
_SIGNIFICANT = 0.05  # of the paired test in the summary
_ROUNDING = 1e-9  # what sums of steps such as 0.1 may be off by


@dataclass(frozen=True, eq=False)
class PlaneMap(Shown):
    """Leave-one-out 1-NN accuracy over a grid of the plane; what `plane_map` returns.

    Attributes
    ----------
    alphas, betas : ndarray, shape (n_alphas,) and (n_betas,), the grid, ascending.
    correct : ndarray of bool, shape (n_alphas, n_betas, n_matrices), whether the nearest other
        matrix has the right label.
    """

    alphas: RealArray
    betas: RealArray
    correct: NDArray[np.bool_]

    @property
    def n_matrices(self) -> int:
        """Number of matrices."""
        return int(self.correct.shape[-1])

    @property
    def accuracy(self) -> RealArray:
        """Share of matrices classified right, shape (n_alphas, n_betas)."""
        share: RealArray = self.correct.mean(axis=-1)
        return share

    @property
    def standard_error(self) -> RealArray:
        """Binomial standard error of the accuracy, shape (n_alphas, n_betas)."""
        error: RealArray = share_error(self.accuracy, self.n_matrices)
        return error

    @property
    def best_points(self) -> tuple[Point, ...]:
        """All (alpha, beta) of the highest accuracy, the preferred one first.

        Points that tie are ordered by the distance to the nearest named divergence, then by
        alpha + beta, then by alpha: a name that is as good as the rest comes first.
        """
        accuracy = self.accuracy
        rows, columns = np.nonzero(accuracy == accuracy.max())
        points = np.column_stack([self.alphas[rows], self.betas[columns]])
        names = np.array([(known.alpha, known.beta) for known in NAMED.values()])
        distance = np.linalg.norm(points[:, None] - names, axis=-1).min(axis=1)
        order = np.lexsort((points[:, 0], points.sum(axis=1), distance))
        return tuple((float(alpha), float(beta)) for alpha, beta in points[order])

    @property
    def best(self) -> Point:
        """The first of `best_points`."""
        return self.best_points[0]

    @property
    def named(self) -> dict[str, float]:
        """Accuracy of every named divergence whose point lies on the grid."""
        found = {}
        for name, known in NAMED.items():
            row, column = _find(self.alphas, known.alpha), _find(self.betas, known.beta)
            if row is not None and column is not None:
                found[name] = float(self.correct[row, column].mean())
        return found

    def index(self, alpha: float, beta: float) -> tuple[int, int]:
        """Index of a point of the grid; any other point raises ValueError."""
        row, column = _find(self.alphas, alpha), _find(self.betas, beta)
        if row is None or column is None:
            axes = (self.alphas, alpha), (self.betas, beta)
            near = [grid[np.abs(grid - value).argmin()] for grid, value in axes]
            raise ValueError(
                f"(alpha, beta) = {_format((alpha, beta))} must be a point of the grid; nearest is "
                f"{_format(near)}. Pass alphas and betas that contain it to plane_map"
            )
        return row, column

    def at(self, alpha: float, beta: float) -> float:
        """Accuracy at one point of the grid."""
        return float(self.accuracy[self.index(alpha, beta)])

    def compare(self, first: Point, second: Point) -> PairedComparison:
        """Paired comparison of two points (alpha, beta) of the grid."""
        one, other = (self.correct[self.index(*point)] for point in (first, second))
        return compare_paired(one, other)

    def summary(self) -> str:
        """Answer to "which metric should I use?", with the evidence and its limits."""
        accuracy, named, best = self.accuracy, self.named, self.best
        lowest, highest, n_points = accuracy.min(), accuracy.max(), accuracy.size
        if lowest == highest:
            return (
                f"Use any: all points of the grid ({n_points}) have the accuracy {highest:.1%}, so "
                "this data does not tell them apart."
            )
        span = f"The whole grid lies between {lowest:.1%} and {highest:.1%}."
        n_ties = len(self.best_points) - 1
        ties = f" ({n_ties} other{'s' * (n_ties > 1)} tie)" if n_ties else ""
        leader = f"The best of {n_points} points, {_format(best)} with {highest:.1%}{ties},"
        optimistic = "was picked on this very data, so it looks better than it is"
        if not named:
            return f"No named divergence lies on the grid. {leader} {optimistic}. {span}"
        top = max(named.values())
        leaders = [name for name, value in named.items() if value == top]
        names = " or ".join(leaders)
        if top == highest:
            return f"Use {names} ({top:.1%}): no point of the grid is better. {span}"
        known = NAMED[leaders[0]]
        paired = self.compare(best, (known.alpha, known.beta))
        evidence = (
            f"{leader} is right on {paired.first_only} where {known.name} is wrong and wrong on "
            f"{paired.second_only} where {known.name} is right (McNemar p = {paired.p_value:.2g}); "
            f"it {optimistic}"
        )
        if paired.p_value >= _SIGNIFICANT:
            return (
                f"Use {names} ({top:.1%}): no point of the grid is better by more than noise. "
                f"{evidence}. {span}"
            )
        return (
            f"Try {_format(best)}: it beats {names} ({top:.1%}), the best named divergence, by "
            f"more than the noise of one comparison. {evidence}: confirm it on data kept aside. "
            f"{span}"
        )


def plane_map(
    X: ArrayLike, y: ArrayLike, alphas: ArrayLike | None = None, betas: ArrayLike | None = None, *,
    engine: str | Engine = "auto", n_threads: int | None = None,
) -> PlaneMap:  # fmt: skip
    r"""Leave-one-out 1-NN accuracy at every point of a grid of the (alpha, beta) plane.

    .. math:: \operatorname{accuracy}(\alpha, \beta) = \frac{1}{n} \sum_i [\, y_i = y_{k(i)} \,],
              \qquad k(i) = \arg\min_{j \ne i} D^{(\alpha,\beta)}(X_i \,\|\, X_j)

    X_i is the query and stands on the left, X_j the reference; the other direction is the point
    (beta, alpha). One pass of spectra serves the whole grid.

    Parameters
    ----------
    X : array-like, shape (n_matrices, d, d)
        SPD matrices.
    y : array-like, shape (n_matrices,)
        Labels, at least two classes of at least two matrices each.
    alphas, betas : array-like, shape (n_alphas,) and (n_betas,), optional
        The grid, ascending, without pairs of opposite signs; 0 to 2 in steps of 1/8 by default,
        which contains every divergence of `NAMED`.
    engine : str or Engine, default="auto"
    n_threads : int, optional
        Threads to use; all by default. Ignored if ``engine`` is an engine already.

    Returns
    -------
    PlaneMap

    Notes
    -----
    A matrix as near to another class as to its own counts as wrong. Work is done in blocks:
    besides the result, one byte per matrix and point, a few arrays of 64 MB are held at a time.

    Examples
    --------
    >>> wide, narrow = np.diag([1.0, 9.0]), np.diag([1.0, 2.0])
    >>> X = [scale * shape for shape in (wide, narrow) for scale in (1, 2, 3)]
    >>> plane = plane_map(X, ["wide"] * 3 + ["narrow"] * 3)
    >>> plane.accuracy.shape, plane.at(0, 0)
    ((17, 17), 1.0)
    """
    chosen = get_engine(engine, n_threads)
    matrices = check_spd(X, ndim=3)
    codes = check_labels(y, len(matrices))
    grid = check_axis(alphas, "alphas"), check_axis(betas, "betas")
    for first, second in (grid, grid[::-1]):
        if first[0] < 0 < second[-1]:
            raise ValueError(
                f"alphas from {grid[0][0]:g} to {grid[0][-1]:g} and betas from {grid[1][0]:g} to "
                f"{grid[1][-1]:g} must not pair opposite signs, for which D is not defined for "
                "every pair of matrices; map one quadrant at a time"
            )
    return PlaneMap(*grid, _classify(matrices, codes, *grid, chosen))


def _classify(
    matrices: RealArray, codes: NDArray[np.intp], alphas: RealArray, betas: RealArray,
    engine: Engine,
) -> NDArray[np.bool_]:  # fmt: skip
    """Whether the nearest other matrix has the same code, shape (n_alphas, n_betas, n)."""
    n, shape = len(matrices), (len(alphas), len(betas))
    # All queries at once if they fit, for an engine works best on much data and few atoms.
    n_rows = min(n, max(1, _BLOCK_ENTRIES // math.prod(shape)))
    n_columns = max(1, _BLOCK_ENTRIES // (n_rows * math.prod(shape)))
    correct = np.empty((*shape, n), dtype=np.bool_)
    n_done = 0
    for start in range(0, n, n_rows):
        queries = np.arange(start, min(start + n_rows, n))
        data = engine.keep(matrices[queries])
        # Which neighbour is nearest does not matter, only whether one of the same class is.
        same, other = np.full((2, len(queries), *shape), np.inf)
        for code in range(codes.max() + 1):
            members = np.flatnonzero(codes == code)
            own = codes[queries] == code
            for first in range(0, len(members), n_columns):
                references = members[first : first + n_columns]
                table = divergence_plane(data, matrices[references], alphas, betas, engine=engine)
                table[np.nonzero(queries[:, None] == references)] = np.inf
                nearest = to_host(table.min(axis=1))
                same[own] = np.minimum(same[own], nearest[own])
                other[~own] = np.minimum(other[~own], nearest[~own])
                n_done += len(queries) * len(references)
                tell("pairs", n_done, n * n)
        correct[..., queries] = np.moveaxis(same < other, 0, -1)
    return correct


def check_labels(y: ArrayLike, n_matrices: int) -> NDArray[np.intp]:
    """Labels as numbers from 0."""
    labels = np.asarray(y)
    if labels.shape != (n_matrices,):
        raise ValueError(
            f"y has shape {labels.shape}, but must have shape ({n_matrices},): one label per matrix"
        )
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        index = int(np.isnan(labels).argmax())
        raise ValueError(f"y[{index}] is NaN, but every matrix needs a label; drop those without")
    check_sortable(labels, "y")
    classes, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if len(classes) < 2:
        raise ValueError(
            f"y has {len(classes)} class ({classes[0]!s}), but n_classes must be >= 2; pass "
            "matrices of more classes"
        )
    if counts.min() < 2:
        raise ValueError(
            f"class {classes[counts.argmin()]!s} has 1 matrix, but every class must have >= 2: "
            "left out, it has no neighbour of its class; drop it or pass more matrices of it"
        )
    return codes


def check_axis(values: ArrayLike | None, name: str) -> RealArray:
    """One axis of the grid."""
    axis = np.array(_DEFAULT_GRID if values is None else values, dtype=np.float64)
    if axis.ndim != 1 or axis.size == 0:
        raise ValueError(f"{name} has shape {axis.shape}, but must have shape (n,) with n >= 1")
    if not np.isfinite(axis).all() or (np.diff(axis) <= 0).any():
        raise ValueError(f"{name}={axis.tolist()} must be finite and ascending, each value once")
    return axis


def _find(grid: RealArray, value: float) -> int | None:
    """Index of a value up to the rounding that steps such as 0.1 accumulate."""
    found = np.flatnonzero(np.isclose(grid, value, rtol=_ROUNDING, atol=_ROUNDING))
    return int(found[0]) if found.size else None


def _format(point: Sequence[float]) -> str:
    return "({:g}, {:g})".format(*point)
