"""Whether nearest neighbours share a class, for many divergences and held-out folds at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from divlearn.arrays import RealArray, to_host
from divlearn.engines import Engine
from divlearn.fitting.folds import check_groups
from divlearn.fitting.progress import tell, track
from divlearn.fitting.targets import check_labels, keep_classes

__all__ = ["check_codes", "check_group_codes", "judge_neighbors"]

Flags = NDArray[np.bool_]
Codes = NDArray[np.intp]

_BLOCK_ENTRIES = 1 << 23  # divergences held at a time: 64 MB
_MOST_ROWS = 512  # per block: large enough for an engine, small enough to report progress


def check_codes(y: ArrayLike, n_matrices: int) -> Codes:
    """Check labels, and return their classes as numbers from 0."""
    classes, codes, counts = np.unique(
        check_labels(y, n_matrices), return_inverse=True, return_counts=True
    )
    keep_classes(classes, counts, counts)
    if counts.min() < 2:
        raise ValueError(
            f"class {classes[counts.argmin()]!s} has 1 matrix, but every class must have >= 2: "
            "the only matrix of a class has no neighbour of its class; drop the class or pass "
            "more matrices of it"
        )
    return codes


def check_group_codes(groups: ArrayLike | None, n_matrices: int) -> Codes | None:
    """Check groups, and return them as numbers from 0."""
    known = check_groups(groups, n_matrices)
    return None if known is None else np.unique(known, return_inverse=True)[1]


def judge_neighbors(
    matrices: RealArray, codes: Codes, folds: Codes, groups: Codes | None, points: RealArray,
    engine: Engine,
) -> tuple[Flags, Codes]:  # fmt: skip
    """Tell whether the nearest neighbour has the same class, leaving out each fold in turn.

    Neighbours are searched among the matrices of other groups outside the left-out fold.

    Parameters
    ----------
    matrices : ndarray, shape (n_matrices, d, d)
    codes, folds : ndarray of int, shape (n_matrices,)
    groups : ndarray of int, shape (n_matrices,), or None
        Without groups only the matrix itself is no neighbour.
    points : ndarray, shape (n_points, 2), of alpha and beta.
    engine : Engine

    Returns
    -------
    ndarray of bool, shape (n_folds + 1, n_points, n_judged)
        The last leaves out no fold.
    ndarray of int, shape (n_judged,)
        The matrices that were judged: all, or those of the blocks completed before an interrupt.

    Examples
    --------
    >>> from divlearn.engines import get_engine
    >>> X = np.array([scale * np.eye(2) for scale in (1, 2, 20, 30)])
    >>> flags, judged = judge_neighbors(
    ...     X, np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), None, np.zeros((1, 2)),
    ...     get_engine(),
    ... )
    >>> flags[-1].tolist(), judged.tolist()
    ([[True, True, True, True]], [0, 1, 2, 3])
    """
    n, n_points, n_folds = len(matrices), len(points), int(folds.max()) + 1
    apart = np.arange(n) if groups is None else groups
    n_rows = min(_MOST_ROWS, max(1, _BLOCK_ENTRIES // (2 * n_folds * n_points)))
    # In random order, so that the matrices judged before an interrupt represent all.
    order = np.random.RandomState(0).permutation(n)
    blocks = [order[start : start + n_rows] for start in range(0, n, n_rows)]
    found: list[Flags] = []
    try:
        for queries in track(blocks, "blocks"):
            found.append(_judge_block(matrices, codes, folds, apart, points, engine, queries))
    except KeyboardInterrupt:
        if not found:
            raise
    judged = np.concatenate(blocks[: len(found)])
    back = np.argsort(judged)
    return np.concatenate(found, axis=2)[:, :, back], judged[back]


def _judge_block(
    matrices: RealArray, codes: Codes, folds: Codes, groups: Codes, points: RealArray,
    engine: Engine, queries: Codes,
) -> Flags:  # fmt: skip
    n_points, n_folds = len(points), int(folds.max()) + 1
    n_columns = max(1, _BLOCK_ENTRIES // (len(queries) * n_points))
    data = engine.keep(matrices[queries])
    # Of every fold only the nearest of the same and of any other class matters.
    same, other = np.full((2, n_folds, len(queries), n_points), np.inf)
    n_done = 0
    for code, fold in np.ndindex(int(codes.max()) + 1, n_folds):
        members = np.flatnonzero((codes == code) & (folds == fold))
        own = codes[queries] == code
        for first in range(0, len(members), n_columns):
            references = members[first : first + n_columns]
            alpha, beta = np.broadcast_to(points.T[:, None], (2, len(references), n_points))
            table = engine.encode(data, matrices[references], alpha, beta)
            table[np.nonzero(groups[queries, None] == groups[references])] = np.inf
            nearest = to_host(table.min(axis=1))
            same[fold, own] = np.minimum(same[fold, own], nearest[own])
            other[fold, ~own] = np.minimum(other[fold, ~own], nearest[~own])
            n_done += len(references)
            tell("neighbours", n_done, len(matrices))
    correct = np.empty((n_folds + 1, n_points, len(queries)), dtype=np.bool_)
    for left_out in range(n_folds + 1):
        kept = np.arange(n_folds) != left_out
        correct[left_out] = np.less(
            same[kept].min(axis=0, initial=np.inf), other[kept].min(axis=0, initial=np.inf)
        ).T
    return correct
