"""Divergences of users: a function, and a divergence with the mean of another."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import RealArray
from divlearn.divergence.base import Divergence, Search, check_weighted
from divlearn.engines import Engine, Prepared
from divlearn.spd import check_spd

Average = Callable[..., ArrayLike]  # of matrices and ``sample_weight``


@dataclass(frozen=True)
class FunctionDivergence(Divergence):
    """A function as a divergence without a mean.

    Attributes
    ----------
    name : str
    function : callable
        Called with matrices of shape (n, d, d) and one of shape (d, d), returns n numbers, as
        pyRiemann's distances do.
    squared_distance, formula, aliases : see `Divergence`

    Examples
    --------
    >>> largest = FunctionDivergence("largest", lambda A, B: np.abs(A - B).max(axis=(1, 2)))
    >>> largest.pairwise([np.eye(2), 3 * np.eye(2)])
    array([[0., 2.],
           [2., 0.]])
    """

    function: Callable[[RealArray, RealArray], ArrayLike]

    def _mean(
        self, X: ArrayLike | Prepared, sample_weight: ArrayLike | None, search: Search
    ) -> RealArray:
        raise ValueError(
            f"divergence={self.name} is a function without a mean; pass "
            f'{{"mean": ..., "distance": {self.name}}}'
        )

    def _compare(self, X: RealArray, Y: RealArray) -> RealArray:
        leading, d = np.broadcast_shapes(X.shape[:-2], Y.shape[:-2]), X.shape[-1]
        if Y.ndim == 2:
            return self._column(X.reshape(-1, d, d), Y).reshape(leading)[()]
        first, second = (np.broadcast_to(some, (*leading, d, d)) for some in (X, Y))
        pairs = zip(first.reshape(-1, 1, d, d), second.reshape(-1, d, d), strict=True)
        return np.array([self._column(*pair)[0] for pair in pairs]).reshape(leading)

    def _column(self, matrices: RealArray, other: RealArray) -> RealArray:
        values = np.asarray(self.function(matrices, other), dtype=np.float64)
        if values.shape != (len(matrices),):
            raise ValueError(
                f"{self.name} returned the shape {values.shape} for matrices of shape "
                f"{matrices.shape} and one of shape {other.shape}, must return ({len(matrices)},); "
                'for a function of two matrices pass np.vectorize(f, signature="(d,d),(d,d)->()")'
            )
        return values


@dataclass(frozen=True)
class PairedDivergence(Divergence):
    """A divergence with another mean, as pyRiemann's ``{"mean": ..., "distance": ...}``.

    Attributes
    ----------
    name : str
    distance : Divergence
    average : callable, a function of matrices and ``sample_weight`` that returns their mean
    squared_distance, formula, aliases : see `Divergence`

    Examples
    --------
    >>> from divlearn import get_divergence
    >>> paired = get_divergence({"mean": "euclid", "distance": "riemann"})
    >>> paired.mean([np.eye(2), 3 * np.eye(2)])
    array([[2., 0.],
           [0., 2.]])
    """

    distance: Divergence
    average: Average

    def pairwise(
        self,
        X: ArrayLike | Prepared,
        Y: ArrayLike | Prepared | None = None,
        *,
        squared: bool | None = None,
        engine: str | Engine = "auto",
    ) -> RealArray:
        """Table of all pairs, shape (n_matrices_X, n_matrices_Y)."""
        return self.distance.pairwise(X, Y, squared=squared, engine=engine)

    def _mean(
        self, X: ArrayLike | Prepared, sample_weight: ArrayLike | None, search: Search
    ) -> RealArray:
        matrices, weights = check_weighted(X, sample_weight)
        return check_spd(self.average(matrices, sample_weight=weights), ndim=2, name="the mean")

    def _compare(self, X: RealArray, Y: RealArray) -> RealArray:
        return self.distance._compare(X, Y)
