"""Sums of divergences in any (alpha, beta), from log-eigenvalues that are computed once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from divlearn.arrays import RealArray
from divlearn.engines import Engine, Prepared

__all__ = ["Spectra"]

_RANGE = (-700.0, 700.0)  # of exp


class Spectra:
    """Log-eigenvalues of matrices relative to their centres.

    As a divergence is a sum over them, sums of divergences are those of the 1 x 1 matrices
    :math:`e^t`, which engines handle at no cost of linear algebra.

    Parameters
    ----------
    engine : Engine
    clouds : sequence of (t, weight), one for each centre
        Arrays of shape (n_matrices, d) and (n_matrices,), with a positive sum of weights.
    """

    def __init__(self, engine: Engine, clouds: Sequence[tuple[RealArray, RealArray]]) -> None:
        self.clouds = clouds
        self.totals = np.array([weight.sum() for _, weight in clouds])
        self._engine = engine
        # They need no check: e^t is positive if it does not underflow.
        self._numbers = [
            engine.prepare(Prepared.checked(np.exp(np.clip(t, *_RANGE)).reshape(-1, 1, 1)))
            for t, _ in clouds
        ]

    @property
    def d(self) -> int:
        """Rows of a matrix."""
        return int(self.clouds[0][0].shape[1])

    @property
    def share(self) -> RealArray:
        """Share of the weight of each centre."""
        share: RealArray = self.totals / self.totals.sum()
        return share

    def only(self, component: int) -> Spectra:
        """Those around one centre."""
        return Spectra(self._engine, self.clouds[component : component + 1])

    def sums(self, alpha: float, beta: float, shift: RealArray) -> RealArray:
        """Weighted sums of f(t - shift), f_alpha, f_beta and f_t around each centre.

        Returns
        -------
        ndarray, shape (4, n_components), per unit of weight of all together.
        """
        found = np.empty((4, len(self.clouds)))
        for k, ((t, weight), numbers) in enumerate(zip(self.clouds, self._numbers, strict=True)):
            cotangent = np.repeat(weight / self.totals.sum(), t.shape[1])[:, None]
            back = self._engine.pullback(
                numbers, np.exp(shift[k]).reshape(1, 1, 1), alpha, beta, cotangent, values=True
            )
            assert back.values is not None
            assert back.alpha is not None
            assert back.beta is not None
            sums = np.vdot(cotangent, back.values), back.alpha[0], back.beta[0]
            found[:, k] = (*sums, -back.whitened[0, 0, 0])
        return found

    def divergences(self, alpha: float, beta: float) -> RealArray:
        """Divergence of every matrix to its centre, around one centre after the other."""
        one = np.ones((1, 1, 1))
        parts = [self._engine.encode(numbers, one, alpha, beta) for numbers in self._numbers]
        sums: RealArray = np.concatenate(parts).reshape(-1, self.d).sum(axis=1)
        return sums
