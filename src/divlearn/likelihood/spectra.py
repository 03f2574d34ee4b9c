"""Sums of divergences in any (alpha, beta), from log-eigenvalues that are computed once."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from divlearn.arrays import RealArray
from divlearn.engines import Engine, Prepared

__all__ = ["Cloud", "Spectra", "SpectralSums", "as_numbers", "sum_cloud"]

Cloud = tuple[RealArray, RealArray]  # log-eigenvalues, shape (n_matrices, d), and weights

_RANGE = (-700.0, 700.0)  # of exp


class SpectralSums(ABC):
    """What parameters of densities are learned from, wherever the matrices are.

    Attributes
    ----------
    totals : ndarray, shape (n_components,), weight around each centre.
    """

    totals: RealArray

    def __len__(self) -> int:
        """Count the centres."""
        return len(self.totals)

    @property
    def share(self) -> RealArray:
        """Share of the weight of each centre."""
        share: RealArray = self.totals / self.totals.sum()
        return share

    @property
    @abstractmethod
    def d(self) -> int:
        """Rows of a matrix."""

    @abstractmethod
    def only(self, component: int) -> SpectralSums:
        """Those around one centre."""

    @abstractmethod
    def sums(self, alpha: float, beta: float, shift: RealArray) -> RealArray:
        """Weighted sums of f(t - shift), f_alpha, f_beta and f_t around each centre.

        Returns
        -------
        ndarray, shape (4, n_components), per unit of weight of all together.
        """

    @abstractmethod
    def thinned(self, enough: int) -> list[Cloud]:
        """Every m-th matrix around each centre, at most so many."""


class Spectra(SpectralSums):
    """Log-eigenvalues of matrices relative to their centres.

    As a divergence is a sum over them, sums of divergences are those of the 1 x 1 matrices
    :math:`e^t`, which engines handle at no cost of linear algebra.

    Parameters
    ----------
    engine : Engine
    clouds : sequence of (t, weight), one for each centre
        Arrays of shape (n_matrices, d) and (n_matrices,), with a positive sum of weights.
    """

    def __init__(self, engine: Engine, clouds: Sequence[Cloud]) -> None:
        self.clouds = clouds
        self.totals = np.array([weight.sum() for _, weight in clouds])
        self._engine = engine
        self._numbers = [as_numbers(engine, t) for t, _ in clouds]

    @property
    def d(self) -> int:
        """Rows of a matrix."""
        return int(self.clouds[0][0].shape[1])

    def only(self, component: int) -> Spectra:
        """Those around one centre."""
        return Spectra(self._engine, self.clouds[component : component + 1])

    def sums(self, alpha: float, beta: float, shift: RealArray) -> RealArray:
        """Sum over all; see `SpectralSums.sums`."""
        found = np.empty((4, len(self)))
        for k, ((_, weight), numbers) in enumerate(zip(self.clouds, self._numbers, strict=True)):
            shares = weight / self.totals.sum()
            found[:, k] = sum_cloud(self._engine, numbers, shares, alpha, beta, shift[k])
        return found

    def thinned(self, enough: int) -> list[Cloud]:
        """Take every m-th; see `SpectralSums.thinned`."""
        steps = [math.ceil(len(t) / enough) for t, _ in self.clouds]
        return [(t[::m], weight[::m]) for m, (t, weight) in zip(steps, self.clouds, strict=True)]


def as_numbers(engine: Engine, t: RealArray) -> Prepared:
    """Prepare the numbers e^t, one row of t after the other."""
    # They need no check: e^t is positive if it does not underflow.
    return engine.prepare(Prepared.checked(np.exp(np.clip(t, *_RANGE)).reshape(-1, 1, 1)))


def sum_cloud(
    engine: Engine, numbers: Prepared, weight: RealArray, alpha: float, beta: float, shift: float
) -> RealArray:
    """Weighted sums of f(t - shift), f_alpha, f_beta and f_t over matrices with the numbers e^t."""
    cotangent = np.repeat(weight, numbers.n_matrices // len(weight))[:, None]
    back = engine.pullback(
        numbers, np.exp(shift).reshape(1, 1, 1), alpha, beta, cotangent, values=True
    )
    assert back.values is not None
    assert back.alpha is not None
    assert back.beta is not None
    value = np.vdot(cotangent, back.values)
    return np.array([value, back.alpha[0], back.beta[0], -back.whitened[0, 0, 0]])
