"""Whether nearest neighbours are of the same class, under many divergences and for many folds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray, to_host
from divlearn.engines import Engine
from divlearn.progress import tell, track

__all__ = ["judge_neighbors"]

Flags = NDArray[np.bool_]

_BLOCK_ENTRIES = 1 << 23  # divergences held at a time: 64 MB
_MOST_ROWS = 512  # in a block: enough for an engine, and progress is seen


def judge_neighbors(
    matrices: RealArray, codes: NDArray[np.intp], folds: NDArray[np.intp],
    groups: NDArray[np.intp], points: RealArray, engine: Engine,
) -> tuple[Flags, NDArray[np.intp]]:  # fmt: skip
    """Whether the nearest matrix of another group, outside a fold, has the same code.

    Parameters
    ----------
    matrices : ndarray, shape (n_matrices, d, d)
    codes, folds, groups : ndarray of int, shape (n_matrices,)
        Groups all differ where a matrix is to be left out only for itself.
    points : ndarray, shape (n_points, 2), of alpha and beta.
    engine : Engine

    Returns
    -------
    ndarray of bool, shape (n_folds + 1, n_points, n_judged)
        The last leaves out no fold.
    ndarray of int, shape (n_judged,)
        The matrices that were judged: all, or those of whole blocks before an interrupt.

    Examples
    --------
    >>> from divlearn.engines import get_engine
    >>> X = np.array([scale * np.eye(2) for scale in (1, 2, 20, 30)])
    >>> flags, judged = judge_neighbors(
    ...     X, np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.arange(4), np.zeros((1, 2)),
    ...     get_engine(),
    ... )
    >>> flags[-1].tolist(), judged.tolist()
    ([[True, True, True, True]], [0, 1, 2, 3])
    """
    n, n_points, n_folds = len(matrices), len(points), int(folds.max()) + 1
    n_rows = min(_MOST_ROWS, max(1, _BLOCK_ENTRIES // (2 * n_folds * n_points)))
    # In an order of chance, so that those judged before an interrupt stand for all.
    order = np.random.RandomState(0).permutation(n)
    blocks = [order[start : start + n_rows] for start in range(0, n, n_rows)]
    found: list[Flags] = []
    try:
        for queries in track(blocks, "blocks"):
            found.append(_judge_block(matrices, codes, folds, groups, points, engine, queries))
    except KeyboardInterrupt:
        if not found:
            raise
    judged = np.concatenate(blocks[: len(found)])
    back = np.argsort(judged)
    return np.concatenate(found, axis=2)[:, :, back], judged[back]


def _judge_block(
    matrices: RealArray, codes: NDArray[np.intp], folds: NDArray[np.intp],
    groups: NDArray[np.intp], points: RealArray, engine: Engine, queries: NDArray[np.intp],
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
