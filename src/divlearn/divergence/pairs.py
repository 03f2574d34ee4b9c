"""A divergence that is asked for one pair of matrices after the other, as pyRiemann does."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from divlearn.arrays import RealArray
from divlearn.divergence.base import Divergence

_FIRST_PRODUCTS = 2**24  # of about d^3 for a pair; every further time four times as many rows
_MOST_MATRICES = 10_000

Stack = NDArray[Any]


class PairByPair:
    """A divergence for callers that ask for X[i] and Y[j], one pair after the other.

    If a pair shares an entry of X or Y with the one before, the caller goes through a table: rows
    of it are computed at once, and later pairs are looked up by the contents of both matrices.
    Values are those of the divergence, up to rounding.
    """

    def __init__(self, divergence: Divergence) -> None:
        self.divergence = divergence
        self._rows: _Rows | None = None

    def __call__(self, X: ArrayLike, Y: ArrayLike, squared: bool | None = None) -> RealArray:
        rows = self._rows
        if rows is not None and rows.squared is squared:
            value = rows.look_up(X, Y)
            if value is not None:
                return value
        self._rows = rows = self._compute_rows(X, Y, squared)
        value = None if rows is None else rows.look_up(X, Y)
        return self.divergence(X, Y, squared=squared) if value is None else value

    def __reduce__(self) -> tuple[type[PairByPair], tuple[Divergence]]:
        return PairByPair, (self.divergence,)  # a copy computes its own rows

    def _compute_rows(self, X: ArrayLike, Y: ArrayLike, squared: bool | None) -> _Rows | None:
        """Compute the rows from that of X on, or only note a pair that may be one of few."""
        first, second = _find_stack(X), _find_stack(Y)
        if first is None or second is None:
            return None
        pair = start, column = _find_position(X, first), _find_position(Y, second)
        last = self._rows
        if last is None or not last.are_of(first, second, squared):
            last = None
        continues = last is not None and last.values.size and start == last.stop
        if last is None or not (continues or last.shares_entry(pair)):
            return _Rows(first, second, squared, pair, 0, np.empty((0, len(second))))
        count = max(1, _FIRST_PRODUCTS // second.size // second.shape[-1])
        if continues:  # the caller goes through all rows
            count = 4 * len(last.values)
        part = first[start : start + count]
        triangle = first is second and column > start
        skipped = start if triangle else 0
        try:
            if triangle:
                values = self._compute_upper_rows(part, second[start + len(part) :], squared)
            else:
                values = self.divergence.pairwise(part, second, squared=squared)
        except ValueError:  # not all of these matrices are positive definite
            return None
        return _Rows(first, second, squared, pair, skipped, values)

    def _compute_upper_rows(self, X: Stack, others: Stack, squared: bool | None) -> RealArray:
        own = self.divergence.pairwise(X, squared=squared)  # symmetric ones in half the time
        if not len(others):
            return own
        return np.hstack([own, self.divergence.pairwise(X, others, squared=squared)])


class _Rows:
    """Divergences of X[pair[0]:stop] to Y[skipped:]."""

    def __init__(
        self,
        X: Stack,
        Y: Stack,
        squared: bool | None,
        pair: tuple[int, int],
        skipped: int,
        values: RealArray,
    ) -> None:
        self.squared, self.values, self.stop = squared, values, pair[0] + len(values)
        self._stacks, self._pair = (weakref.ref(X), weakref.ref(Y)), pair
        self._dtypes = X.dtype, Y.dtype
        self._rows = [matrix.tobytes() for matrix in X[pair[0] : self.stop]]
        self._columns = [matrix.tobytes() for matrix in Y[skipped:]] if self._rows else []
        self._row_of = {contents: i for i, contents in enumerate(self._rows)}
        self._column_of = {contents: j for j, contents in enumerate(self._columns)}
        self._next = 0, 0

    def look_up(self, X: Any, Y: Any) -> RealArray | None:
        """Return the value of a pair with the contents of a row and a column, if there is one."""
        (i, j), (of_x, of_y) = self._next, self._dtypes
        try:
            if X.dtype is not of_x or Y.dtype is not of_y or not X.ndim == Y.ndim == 2:
                return None
            x, y = X.tobytes(), Y.tobytes()
            if x != self._rows[i]:  # hashes take longer than a comparison with what is expected
                i = self._row_of[x]
            if y != self._columns[j]:
                j = self._column_of[y]
        except (AttributeError, LookupError):  # no array, or no such matrix
            return None
        self._next = i, (j + 1) % len(self._columns)
        return self.values[i, j]

    def shares_entry(self, pair: tuple[int, int]) -> bool:
        """Whether the pair that these were computed for has the same entry of X or Y."""
        return self._pair[0] == pair[0] or self._pair[1] == pair[1]

    def are_of(self, X: Stack, Y: Stack, squared: bool | None) -> bool:
        return self._stacks[0]() is X and self._stacks[1]() is Y and self.squared is squared


def _find_stack(matrix: Any) -> Stack | None:
    """Return the array, shape (n, d, d), of which a matrix is an entry."""
    stack = getattr(matrix, "base", None)
    is_entry = (
        isinstance(stack, np.ndarray)
        and matrix.ndim == 2
        and matrix.shape == stack.shape[1:]
        and matrix.strides == stack.strides[1:]
        and matrix.dtype == stack.dtype
        and len(stack) <= _MOST_MATRICES
    )
    return stack if is_entry else None


def _find_position(matrix: Any, stack: Stack) -> int:
    address, start = (array.__array_interface__["data"][0] for array in (matrix, stack))
    return int(address - start) // stack.strides[0]
