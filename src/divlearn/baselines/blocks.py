"""Matrices to predict, checked block by block."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import RealArray
from divlearn.spd import check_spd

__all__ = ["checked_blocks"]

_TABLE_ENTRIES = 1 << 22  # of a table held at a time
_LEAST_ROWS = 1024  # of a block, so that vector lanes are full


def checked_blocks(X: ArrayLike, n_columns: int) -> Iterator[tuple[slice, RealArray]]:
    """Check matrices block by block, however many there are.

    Parameters
    ----------
    X : array-like, shape (n_matrices, d, d)
        A memory map will do.
    n_columns : int
        Of the table that is computed for a block.

    Yields
    ------
    rows : slice
    matrices : ndarray, shape (n_rows, d, d), checked SPD matrices in float64.
    """
    array = X if isinstance(X, np.ndarray) and X.ndim == 3 else check_spd(X, ndim=3)
    step = max(_LEAST_ROWS, _TABLE_ENTRIES // n_columns)
    if len(array) <= step:
        yield slice(0, len(array)), check_spd(array, ndim=3, dtype=np.float64)
        return
    for start in range(0, len(array), step):
        rows = slice(start, min(start + step, len(array)))
        name = f"X[{rows.start}:{rows.stop}]"
        yield rows, check_spd(array[rows], ndim=3, dtype=np.float64, name=name)
