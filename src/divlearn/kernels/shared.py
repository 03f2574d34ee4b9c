"""Tables of divergences that estimators of the same training data share."""

from collections.abc import Sequence

import numpy as np

from divlearn.arrays import Indices, RealArray
from divlearn.divergence import ABDivergence, Divergence
from divlearn.engines import Engine
from divlearn.fitting.held_out import Folded
from divlearn.fitting.training import Training
from divlearn.kernels import tables
from divlearn.kernels.landmarks import LARGE, pick_landmarks
from divlearn.kernels.tables import Point

_LARGEST_TABLE = 2**31  # bytes


def shared_columns(training: Training) -> Indices:
    """Rows of the matrices that tables have columns for: all, or landmarks where there are many."""
    codes = training.data.codes
    return np.arange(len(codes)) if len(codes) <= LARGE else pick_landmarks(codes)


def shared_tables(
    training: Folded, points: Sequence[Point], columns: Indices | None = None
) -> dict[Point, RealArray]:
    """Compute tables of divergences to matrices, all by default, once for all estimators."""
    matrices = training.data.matrices
    whole = columns is None or len(columns) == len(matrices)
    landmarks = None if whole else matrices[columns]
    key = "tables", tuple(points), whole
    return training.once(key, lambda: make_tables(training.engine, matrices, points, landmarks))


def shared_table(training: Folded, divergence: Divergence, together: Sequence[Point]) -> RealArray:
    """Symmetrised table of one divergence, computed once; those of some points in one pass."""
    if isinstance(divergence, ABDivergence):
        point = tables.symmetric_point(divergence.alpha, divergence.beta)
        known = shared_tables(training, together if point in together else [point])
        return divergence.scale * known[point]
    return training.once(
        divergence.name,
        lambda: tables.symmetric_table(divergence, training.engine, training.data.matrices),
    )


def make_tables(
    engine: Engine, matrices: RealArray, points: Sequence[Point], landmarks: RealArray | None = None
) -> dict[Point, RealArray]:
    """Compute symmetrised divergences of all matrices, to each other or to landmarks, by point."""
    n_matrices, n_points = len(matrices), len(points)
    needed = 8 * n_matrices * (n_matrices if landmarks is None else len(landmarks)) * n_points
    if needed > _LARGEST_TABLE:
        share = _LARGEST_TABLE / needed
        most = int(n_matrices * (share if landmarks is not None else np.sqrt(share)))
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
