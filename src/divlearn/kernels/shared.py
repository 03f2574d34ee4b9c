"""Tables of divergences that estimators of the same training data share."""

from collections.abc import Hashable, Sequence
from math import isqrt

import numpy as np

from divlearn.arrays import Indices, RealArray, to_host
from divlearn.divergence import ABDivergence, Divergence
from divlearn.engines import Engine
from divlearn.fitting.held_out import Folded, Memo
from divlearn.kernels import tables
from divlearn.kernels.landmarks import LARGE, Landmarks, make_definite, pick_landmarks
from divlearn.kernels.tables import Point, decay

_LARGEST_TABLE = 2**32  # bytes, of all divergences
_DIVERGENCES = 6  # that landmarks leave room for: those that are tried by default
_KERNELS = 4  # kept at a time: folds of some candidates are fitted side by side


def are_many(training: Folded, most: int | None = None) -> bool:
    """Whether there are more matrices than tables of all pairs, or other work, allow."""
    return len(training.data.matrices) > (LARGE if most is None else most)


def shared_columns(training: Folded, most: int | None = None) -> Indices:
    """Rows of the matrices that tables have columns for: all, or landmarks where there are many."""
    strata = training.data.strata
    if not are_many(training, most):
        return np.arange(len(strata))
    room = _LARGEST_TABLE // (8 * len(strata) * _DIVERGENCES)
    return training.once("landmarks", lambda: pick_landmarks(strata, max(1, room)))


def shared_tables(
    training: Folded, points: Sequence[Point], columns: Indices | None = None
) -> dict[Point, RealArray]:
    """Compute tables of divergences to matrices, all by default, once for all estimators."""
    matrices = training.data.matrices
    whole = columns is None or len(columns) == len(matrices)

    def compute() -> dict[Point, RealArray]:
        landmarks = None if whole else matrices[columns]
        return make_tables(training.engine, matrices, points, landmarks)

    return training.once(("tables", tuple(points), whole), compute)


def shared_table(
    training: Folded,
    divergence: Divergence,
    together: Sequence[Point],
    columns: Indices | None = None,
) -> RealArray:
    """Symmetrised table of one divergence, computed once; those of some points in one pass."""
    if isinstance(divergence, ABDivergence):
        point = tables.symmetric_point(divergence.alpha, divergence.beta)
        known = shared_tables(training, together if point in together else [point], columns)
        return known[point] if divergence.scale == 1 else divergence.scale * known[point]
    matrices = training.data.matrices
    whole = columns is None or len(columns) == len(matrices)

    def compute() -> RealArray:
        landmarks = None if whole else matrices[columns]
        return tables.symmetric_table(divergence, training.engine, matrices, landmarks)

    return training.once((divergence.name, whole), compute)


def shared_kernel(training: Folded, table: RealArray, scale: float, name: Hashable) -> RealArray:
    """Return exp(-scale D), for all folds and penalties from one pass."""
    recent = training.once("kernels", lambda: Memo(_KERNELS))
    return recent.once((name, scale), lambda: decay(table, scale))


def on_landmarks(
    training: Folded,
    number: int,
    columns: Indices,
    table: RealArray,
    targets: RealArray,
    name: Hashable,
) -> Landmarks:
    """Least squares on a part of the data, by a table of divergences to landmarks."""
    rows = training.parts[number][0]

    def inner(scale: float) -> RealArray:
        find = lambda: make_definite(decay(to_host(table[columns]), scale))  # noqa: E731
        return training.once(("landmarks", name, scale), find)

    weights = training.data.weights[rows]
    return Landmarks(lambda some: table[rows[some]], inner, targets[rows], weights)


def make_tables(
    engine: Engine, matrices: RealArray, points: Sequence[Point], landmarks: RealArray | None = None
) -> dict[Point, RealArray]:
    """Compute symmetrised divergences of all matrices, to each other or to landmarks, by point."""
    n_matrices, n_points = len(matrices), len(points)
    needed = 8 * n_matrices * (n_matrices if landmarks is None else len(landmarks)) * n_points
    if needed > _LARGEST_TABLE:
        most = _LARGEST_TABLE * n_matrices // needed  # with as many landmarks
        if landmarks is None or most <= LARGE:
            most = isqrt(_LARGEST_TABLE // (8 * n_points))
        raise ValueError(
            f"n_matrices={n_matrices} with {n_points} divergences (alpha, beta) need "
            f"{needed / 2**30:.1f} GiB for tables of pairs, but must need <= "
            f"{_LARGEST_TABLE / 2**30:g} GiB; fit to a random subset of at most {most} matrices"
        )
    if landmarks is None:
        found = tables.square_tables(engine, matrices, points)
    else:
        found = tables.cross_tables(engine, matrices, landmarks, points)
    return dict(zip(points, found, strict=True))
