"""Means and covariances of rows that lie in many places."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from divlearn.arrays import RealArray

__all__ = ["Moments", "merge_moments"]


@dataclass(frozen=True, eq=False)
class Moments:
    """Weight, mean, and sum of weighted squares around the mean, of some rows.

    Attributes
    ----------
    weight : float
    mean : ndarray, shape (n_columns,)
    scatter : ndarray, shape (n_columns, n_columns)

    Examples
    --------
    >>> rows, ones = np.array([[1.0], [2.0], [6.0]]), np.ones(3)
    >>> both = merge_moments(Moments.of(rows[:1], ones[:1]), Moments.of(rows[1:], ones[1:]))
    >>> both.mean, both.scatter
    (array([3.]), array([[14.]]))
    """

    weight: float
    mean: RealArray
    scatter: RealArray

    @classmethod
    def of(cls, rows: RealArray, weights: RealArray) -> Moments:
        """Moments of rows; of none, where no row has a weight."""
        weight = float(weights.sum())
        if weight == 0:
            size = rows.shape[1]
            return cls(0.0, np.zeros(size), np.zeros((size, size)))
        mean = weights @ rows / weight
        centred = rows - mean
        return cls(weight, mean, centred.T @ (weights[:, None] * centred))

    def second(self) -> RealArray:
        """Mean squares around zero."""
        square: RealArray = self.scatter / self.weight + np.outer(self.mean, self.mean)
        return square


def merge_moments(first: Moments, second: Moments) -> Moments:
    """Moments of both together, without the digits that sums of squares would lose."""
    weight = first.weight + second.weight
    if weight == 0:
        return first
    way = second.mean - first.mean
    share = second.weight / weight
    between = first.weight * share * np.outer(way, way)
    return Moments(weight, first.mean + share * way, first.scatter + second.scatter + between)
