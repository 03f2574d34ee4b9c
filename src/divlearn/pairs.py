"""Pencils (X, Y) pair by pair: what the element-wise divergence and its gradients stand on."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import IntArray, RealArray, as_real
from divlearn.engines.base import cast_results, is_descending
from divlearn.engines.pencil import check_domain, congruence, decompose, factorize, whiteners
from divlearn.spd import check_spd
from divlearn.tolerances import condition_limit


def check_pair(
    X: ArrayLike, Y: ArrayLike, *, ndim: int | None = None
) -> tuple[RealArray, RealArray]:
    first, second = check_spd(X, ndim=ndim), check_spd(Y, ndim=ndim, name="Y")
    check_sizes(first, second)
    return first, second


def check_sizes(first: RealArray, second: RealArray) -> None:
    if first.shape[-1] != second.shape[-1]:
        raise ValueError(
            f"X is {first.shape[-1]} by {first.shape[-1]}, but Y is {second.shape[-1]} by "
            f"{second.shape[-1]}; both must have the same dimension"
        )


class Pairs:
    """Matrices of `check_pair` pair by pair, flattened over the broadcast leading dimensions."""

    def __init__(self, X: RealArray, Y: RealArray, alpha: ArrayLike, beta: ArrayLike) -> None:
        a, b = as_real(alpha, "alpha"), as_real(beta, "beta")
        shapes = X.shape[:-2], Y.shape[:-2], a.shape, b.shape
        try:
            self.leading = np.broadcast_shapes(*shapes)
        except ValueError:
            raise ValueError(
                f"the leading dimensions of X {shapes[0]}, Y {shapes[1]}, alpha {shapes[2]} and "
                f"beta {shapes[3]} do not broadcast; for all pairs use pairwise_abld"
            ) from None
        self.dtype = np.result_type(X, Y)
        self.alpha = np.broadcast_to(a, self.leading).reshape(-1, 1)
        self.beta = np.broadcast_to(b, self.leading).reshape(-1, 1)
        X, Y, self.order = self._sort(X, Y)
        self._factor, _, exponent = self._factorize(X)
        _, self._whitener, self._unit = self._factorize(Y)
        self._exponent = exponent - self._unit

    def _sort(self, X: RealArray, Y: RealArray) -> tuple[RealArray, RealArray, IntArray | None]:
        """Put the variables of graded pairs in descending order of x_ii/y_ii: factors keep them."""
        d = X.shape[-1]
        first, second = (np.diagonal(Z, axis1=-2, axis2=-1).astype(np.float64) for Z in (X, Y))
        sizes = np.broadcast_to(np.log(first) - np.log(second), (*self.leading, d))
        if is_descending(sizes):
            return X, Y, None
        order = np.argsort(-sizes, axis=-1, kind="stable")
        rows, columns = order[..., :, None], order[..., None, :]
        full = (np.broadcast_to(Z, (*self.leading, d, d)) for Z in (X, Y))
        X, Y = (np.take_along_axis(np.take_along_axis(Z, rows, -2), columns, -1) for Z in full)
        return X, Y, order.reshape(-1, d)

    def _factorize(self, matrices: RealArray) -> tuple[RealArray, RealArray, IntArray]:
        """Cholesky factors of matrices scaled by 2^-exponent, their inverses, and exponents."""
        # Factor before broadcasting: each matrix once, however many partners it has.
        d = matrices.shape[-1]
        factor, exponent = factorize(matrices.reshape(-1, d, d))
        exponents = np.broadcast_to(exponent.reshape(matrices.shape[:-2]), self.leading).ravel()
        inverse = whiteners(factor).reshape(matrices.shape)
        return self._spread(factor.reshape(matrices.shape)), self._spread(inverse), exponents

    def _spread(self, matrices: RealArray) -> RealArray:
        d = matrices.shape[-1]
        return np.broadcast_to(matrices, (*self.leading, d, d)).reshape(-1, d, d)

    def decompose(self, *, vectors: bool) -> tuple[RealArray, Any]:
        """Log-eigenvalues, and vectors or None, in the frame of Y's Cholesky factor."""
        return decompose(self._whitener @ self._factor, self._exponent, condition_limit(), vectors)

    def gradient(self, vectors: RealArray, slope: RealArray) -> RealArray:
        """Gradient in Y: ``-V diag(f_t) V^T`` with ``V = L_Y^-T Z``."""
        inner = (vectors * slope[:, None, :]) @ vectors.mT
        gradient = congruence(self._whitener, -inner, self._unit)
        if self.order is None:
            return gradient
        back = np.argsort(self.order, axis=-1)
        gradient = np.take_along_axis(gradient, back[:, :, None], axis=1)
        return np.take_along_axis(gradient, back[:, None, :], axis=2)

    def check_domain(self, t: RealArray) -> None:
        opposite = np.flatnonzero(np.sign(self.alpha) * np.sign(self.beta) < 0)
        for row in opposite:
            index = np.unravel_index(row, self.leading) if self.leading else ()
            where = f"[{', '.join(str(i) for i in index)}]" if index else ""
            check_domain(
                t[row : row + 1],
                float(self.alpha[row, 0]),
                float(self.beta[row, 0]),
                names=lambda _, where=where: f"X and Y{where}",  # type: ignore[misc]
            )

    def finish(self, values: RealArray) -> RealArray:
        """Restore the leading dimensions and the type; a single pair gives a scalar."""
        shaped = cast_results(values.reshape((*self.leading, *values.shape[1:])), self.dtype)
        return shaped if shaped.ndim else shaped[()]
