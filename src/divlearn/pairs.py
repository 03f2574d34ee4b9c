"""Pencils (X, Y) pair by pair: what the element-wise divergence and its gradients stand on."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import IntArray, RealArray
from divlearn.engines.pencil import Eigen, check_domain, decompose, factorize, whiteners
from divlearn.spd import check_spd
from divlearn.tolerances import condition_limit

__all__ = ["Pairs", "check_pair", "congruence"]


def check_pair(X: ArrayLike, Y: ArrayLike) -> tuple[RealArray, RealArray]:
    """Validate two batches of SPD matrices of one dimension."""
    first, second = check_spd(X, name="X"), check_spd(Y, name="Y")
    if first.shape[-1] != second.shape[-1]:
        raise ValueError(
            f"X is {first.shape[-1]} by {first.shape[-1]}, but Y is {second.shape[-1]} by "
            f"{second.shape[-1]}; both must have the same dimension"
        )
    return first, second


def congruence(
    whitener: RealArray, vectors: RealArray, values: RealArray, exponent: IntArray
) -> RealArray:
    """``L^-T Q diag(values) Q^T L^-1`` for matrices that were scaled by 2^-exponent."""
    basis = whitener.mT @ vectors
    product = (basis * values[:, None, :]) @ basis.mT
    return np.ldexp(0.5 * (product + product.mT), -exponent[:, None, None])


class Pairs:
    """Matrices of X and Y pair by pair, flattened over the broadcast leading dimensions."""

    def __init__(self, X: ArrayLike, Y: ArrayLike, alpha: ArrayLike, beta: ArrayLike) -> None:
        X, Y = check_pair(X, Y)
        a, b = (_check_parameter(p, n) for p, n in ((alpha, "alpha"), (beta, "beta")))
        shapes = X.shape[:-2], Y.shape[:-2], a.shape, b.shape
        try:
            self.leading = np.broadcast_shapes(*shapes)
        except ValueError:
            raise ValueError(
                f"the leading dimensions of X {shapes[0]}, Y {shapes[1]}, alpha {shapes[2]} and "
                f"beta {shapes[3]} do not broadcast; for all pairs use pairwise_abld"
            ) from None
        self.dtype = np.result_type(X, Y)
        d = X.shape[-1]
        # Factor before broadcasting: each matrix once, however many partners it has.
        x_factor, x_exponent = factorize(X.reshape(-1, d, d))
        y_factor, y_exponent = factorize(Y.reshape(-1, d, d))
        self.x_factor = self._spread(x_factor.reshape(X.shape), d)
        self.x_whitener = self._spread(whiteners(x_factor).reshape(X.shape), d)
        self.y_whitener = self._spread(whiteners(y_factor).reshape(Y.shape), d)
        self.x_exponent = np.broadcast_to(x_exponent.reshape(shapes[0]), self.leading).ravel()
        self.y_exponent = np.broadcast_to(y_exponent.reshape(shapes[1]), self.leading).ravel()
        self.alpha = np.broadcast_to(a, self.leading).reshape(-1, 1)
        self.beta = np.broadcast_to(b, self.leading).reshape(-1, 1)

    def _spread(self, matrices: RealArray, d: int) -> RealArray:
        return np.broadcast_to(matrices, (*self.leading, d, d)).reshape(-1, d, d)

    def decompose(self, *, vectors: bool) -> tuple[Eigen, RealArray]:
        """Log-eigenvalues (and vectors) of every pencil, and the whitened data L_Y^-1 L_X."""
        whitened = self.y_whitener @ self.x_factor
        exponent = self.x_exponent - self.y_exponent
        return decompose(whitened, exponent, condition_limit(), vectors), whitened

    def check_domain(self, eigen: Eigen) -> None:
        """Raise if parameters of opposite signs meet an eigenvalue outside their domain."""
        opposite = np.flatnonzero(np.sign(self.alpha) * np.sign(self.beta) < 0)
        for row in opposite:
            index = np.unravel_index(row, self.leading) if self.leading else ()
            where = f"[{', '.join(str(i) for i in index)}]" if index else ""
            check_domain(
                eigen.t[row : row + 1], float(self.alpha[row, 0]), float(self.beta[row, 0]),
                names=lambda _, where=where: f"X and Y{where}",  # type: ignore[misc]
            )  # fmt: skip

    def finish(self, values: RealArray) -> RealArray:
        """Restore the leading dimensions and the type; a single pair gives a scalar."""
        shaped = values.reshape((*self.leading, *values.shape[1:])).astype(self.dtype, copy=False)
        return shaped if shaped.ndim else shaped[()]


def _check_parameter(value: ArrayLike, name: str) -> RealArray:
    array = np.asarray(value)
    if array.dtype.kind not in "buif":
        raise TypeError(f"{name} has dtype {array.dtype}, but parameters must be real numbers")
    return array.astype(np.float64)
