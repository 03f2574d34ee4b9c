"""Named points (alpha, beta), and nearest neighbours at many points from the same spectra."""

import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import Indices, RealArray
from divlearn.divergence import ABDivergence, get_member
from divlearn.engines import Engine, Prepared
from divlearn.engines.plane import evaluate_plane
from divlearn.fitting.progress import notify, stoppable, track

NAMED: dict[str, ABDivergence] = {
    name: get_member(name) for name in ("airm", "stein", "burg", "reverse-burg", "log-cosh")
}
NAMED_POINTS = np.array([(member.alpha, member.beta) for member in NAMED.values()])

# Candidates for class means: fewer than on maps, since each is judged by few matrices.
_BETWEEN = [(0.0, 0.25), (0.25, 0.5), (0.0, 0.5), (0.25, 0.75)]
CANDIDATES = [*NAMED.values(), *map(get_member, _BETWEEN)]

Flags = NDArray[np.bool_]

_MOST_PAIRS, _LEAST_JUDGED = 8_000_000, 1000  # a judged matrix and another; judged matrices
_ROWS = 64  # matrices judged at a time; few, to report progress
_PAIRS = 2048  # evaluated at a time: their spectra stay in the cache
_ROUNDING, _LEAST_ROUNDING = 1e-10, 1e-12  # differences of divergences that count as ties


def rank_best(points: RealArray, score: RealArray) -> Indices:
    """Return the points of the highest score, sorted by distance to a named one, then by size."""
    best = np.flatnonzero(score == score.max())
    tied = points[best]
    distance = np.linalg.norm(tied[:, None] - NAMED_POINTS, axis=-1).min(axis=1)
    return best[np.lexsort((tied[:, 0], tied.sum(axis=1), distance))]


def draw_judged(codes: Indices) -> Indices:
    """Draw matrices to judge: all, or the same share of every class if there are too many pairs.

    The order is random, so that matrices judged before an interrupt represent all.
    """
    n = len(codes)
    share = min(1.0, max(_LEAST_JUDGED, _MOST_PAIRS / n) / n)
    order = np.random.RandomState(0).permutation(n)
    judged = np.zeros(n, dtype=np.bool_)
    for code in np.unique(codes):
        members = order[codes[order] == code]
        judged[members[: math.ceil(share * len(members))]] = True
    return order[judged[order]]


def judge_neighbors(
    matrices: RealArray,
    codes: Indices,
    folds: Indices,
    groups: Indices | None,
    points: RealArray,
    to_judge: Indices,
    engine: Engine,
) -> tuple[Flags, Indices]:
    """Return whether nearest neighbours have the same class, without each fold in turn."""
    # `to_judge` are rows, see `draw_judged`. Returned are flags, (n_folds + 1, n_points, n_judged),
    # and the judged rows. Neighbours are in other groups, and neither in the left-out fold nor in
    # that of the matrix; the last flags leave out no fold.
    n, n_folds = len(codes), int(folds.max()) + 1
    order = np.concatenate([to_judge, np.setdiff1d(np.arange(n), to_judge)])
    matrices = matrices[order].astype(np.float64, copy=False)
    cells = (codes * n_folds + folds)[order]
    units = np.arange(n) if groups is None else groups[order]
    points = np.where((points <= 0).all(axis=1, keepdims=True), -points[:, ::-1], points)
    # D^(a,b)(X || Y) = D^(b,a)(Y || X): a pair is evaluated once, also at the swapped points.
    swapped = points[:, ::-1]
    evaluated, place = np.unique(np.vstack([points, swapped]), axis=0, return_inverse=True)
    forward, backward = place.reshape(2, -1)
    # Least divergences to the same and to any other class, in every fold.
    nearest = np.full((2, n_folds, len(to_judge), len(points)), np.inf)
    n_judged = 0
    with stoppable(lambda: n_judged), ThreadPoolExecutor(engine.n_threads) as pool:
        for start in track(range(0, len(to_judge), _ROWS), "blocks"):
            rows, rest = (
                start + np.argsort(cells[start:stop], kind="stable")
                for stop in (min(start + _ROWS, len(to_judge)), n)
            )
            t = engine.spectra(Prepared.checked(matrices[rows]), Prepared.checked(matrices[rest]))
            step = max(1, _PAIRS // len(rows))
            tiles = [np.arange(k, min(k + step, len(rest))) for k in range(0, len(rest), step)]
            compare = partial(_compare, t, units, cells, evaluated, rows, rest)
            for tile, (to_columns, to_rows) in zip(tiles, pool.map(compare, tiles), strict=True):
                columns = rest[tile]
                _update(nearest, cells, rows, columns, to_columns[..., forward])
                is_judged = columns < len(to_judge)
                to_judged = to_rows[:, is_judged][..., backward]
                _update(nearest, cells, columns[is_judged], rows, to_judged)
                notify("neighbours", int(tile[-1]) + 1, len(rest))
            n_judged = start + len(rows)
    judged = np.sort(order[:n_judged])
    nearest = nearest[:, :, np.argsort(order[:n_judged])]
    return _flag(nearest, folds[judged]), judged


def _flag(nearest: RealArray, folds: Indices) -> Flags:
    """Return flags without the fold of a matrix and each fold in turn, and last with all folds."""
    n_folds, n_judged, n_points = nearest.shape[1:]
    correct = np.empty((n_folds + 1, n_points, n_judged), dtype=np.bool_)
    correct[-1] = _same_class(nearest)
    nearest[:, folds, np.arange(n_judged)] = np.inf
    for left_out in range(n_folds):
        correct[left_out] = _same_class(np.delete(nearest, left_out, axis=1))
    return correct


def _same_class(nearest: RealArray) -> Flags:
    """Whether the least divergence of `nearest`, in any fold, is that to the same class."""
    same, other = nearest.min(axis=1, initial=np.inf)
    return np.less(same * (1 + _ROUNDING) + _LEAST_ROUNDING, other).T


def _compare(
    t: RealArray,
    units: Indices,
    cells: Indices,
    points: RealArray,
    rows: Indices,
    rest: Indices,
    tile: Indices,
) -> tuple[RealArray, RealArray]:
    """Least divergences between rows and a tile of the rest, over each run of equal cells.

    Return those of rows over runs of columns, (n_runs, n_rows, n_points), and of columns over rows.
    """
    columns = rest[tile]
    same_unit = units[rows] == units[columns, None]
    spectra = t[:, tile].swapaxes(0, 1).copy()
    spectra[same_unit] = 1.0  # any number which is not small
    table = evaluate_plane(spectra.reshape(same_unit.size, -1), points)
    table = table.reshape(*same_unit.shape, len(points))
    table[same_unit] = np.inf
    return _run_minima(table, cells[columns]), _run_minima(table.swapaxes(0, 1), cells[rows])


def _run_minima(table: RealArray, cells: Indices) -> RealArray:
    """Minima of rows in each run of cells: `numpy.minimum.reduceat`, in a fraction of its time."""
    starts = _run_starts(cells)
    minima = table[starts]
    for run, (start, stop) in enumerate(pairwise([*starts.tolist(), len(table)])):
        for row in table[start + 1 : stop]:
            np.minimum(minima[run], row, out=minima[run])
    return minima


def _run_starts(cells: Indices) -> Indices:
    return np.flatnonzero(np.diff(cells, prepend=-1))


def _update(
    nearest: RealArray, cells: Indices, rows: Indices, others: Indices, minima: RealArray
) -> None:
    """Update `nearest` by minima (n_runs, n_rows, n_points) of rows over runs of others."""
    n_folds = nearest.shape[1]
    for cell, values in zip(cells[others[_run_starts(cells[others])]], minima, strict=True):
        code, fold = divmod(int(cell), n_folds)
        at = (cells[rows] // n_folds != code).astype(np.intp), fold, rows
        nearest[at] = np.minimum(nearest[at], values)
