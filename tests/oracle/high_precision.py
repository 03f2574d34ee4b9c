"""The divergence of two matrices at 60 digits: definitions and differences, no derived formulas."""

from __future__ import annotations

from functools import cached_property

import mpmath
import numpy as np
from mpmath import mpf

DIGITS = 60
SCALAR_DIGITS = 400  # the definition cancels twice near the axes, and differences once more
MATRIX_STEP = mpf(10) ** -20
PARAMETER_STEP = mpf(10) ** -80  # small against e^-|alpha t|, the scale on which f bends


def to_matrix(X: np.ndarray) -> mpmath.matrix:
    return mpmath.matrix(np.asarray(X, dtype=np.float64).tolist())


def generalized_eigenvalues(X: mpmath.matrix, Y: mpmath.matrix) -> list[mpf]:
    """Eigenvalues of X Y^-1, ascending."""
    # mpmath's decompositions compare with an absolute epsilon: give them matrices of order one.
    x_unit, y_unit = (max(M[i, i] for i in range(M.rows)) for M in (X, Y))
    whitener = mpmath.inverse(mpmath.cholesky(Y / y_unit))
    whitened = whitener * (X / x_unit) * whitener.T
    eigenvalues = mpmath.eigsy((whitened + whitened.T) / 2, eigvals_only=True)
    return sorted(value * x_unit / y_unit for value in eigenvalues)


def scalar(t: mpf, alpha: mpf, beta: mpf) -> mpf:
    """f(t; alpha, beta) by its definition, or by the definition's limit on the boundary."""
    # Differences raise the precision themselves; 160 digits cover the cancellation of values.
    with mpmath.workdps(max(mpmath.mp.dps, 160)):
        t, alpha, beta = mpf(t), mpf(alpha), mpf(beta)
        if alpha == beta == 0:
            return t**2 / 2
        if beta == 0:
            return (mpmath.exp(-alpha * t) - 1 + alpha * t) / alpha**2
        if alpha == 0:
            return (mpmath.exp(beta * t) - 1 - beta * t) / beta**2
        if alpha == -beta:
            return (alpha * t - mpmath.log(1 + alpha * t)) / alpha**2
        mixture = (alpha * mpmath.exp(beta * t) + beta * mpmath.exp(-alpha * t)) / (alpha + beta)
        return mpmath.log(mixture) / (alpha * beta)


class Pair:
    """Two SPD matrices, taken for exact; spectra are found once, parameters come after."""

    def __init__(self, X: np.ndarray, Y: np.ndarray, digits: int = DIGITS) -> None:
        self.X, self.Y, self.digits, self.d = X, Y, digits, len(X)
        self._known: dict = {}

    @cached_property
    def eigenvalues(self) -> list[mpf]:
        with mpmath.workdps(self.digits):
            return generalized_eigenvalues(to_matrix(self.X), to_matrix(self.Y))

    @cached_property
    def t(self) -> list[mpf]:
        with mpmath.workdps(self.digits):
            return [mpmath.log(value) for value in self.eigenvalues]

    def divergence(self, alpha: float, beta: float) -> mpf:
        key = alpha, beta
        if key not in self._known:
            with mpmath.workdps(self.digits):
                self._known[key] = self._sum(self.t, alpha, beta)
        return self._known[key]

    @staticmethod
    def _sum(t: list[mpf], alpha: mpf, beta: mpf) -> mpf:
        return sum((scalar(value, alpha, beta) for value in t), mpf(0))

    def alpha_derivative(self, alpha: float, beta: float) -> mpf:
        return self._parameter_derivative(alpha, beta, 1, 0)

    def beta_derivative(self, alpha: float, beta: float) -> mpf:
        return self._parameter_derivative(alpha, beta, 0, 1)

    def _parameter_derivative(self, alpha: float, beta: float, first: int, second: int) -> mpf:
        key = alpha, beta, first
        if key not in self._known:
            with mpmath.workdps(SCALAR_DIGITS):
                h = PARAMETER_STEP
                above = self._sum(self.t, mpf(alpha) + first * h, mpf(beta) + second * h)
                below = self._sum(self.t, mpf(alpha) - first * h, mpf(beta) - second * h)
                self._known[key] = (above - below) / (2 * h)
        return self._known[key]

    def X_gradient(self, alpha: float, beta: float) -> np.ndarray:
        return self._matrix_gradient("_moved_in_X", alpha, beta)

    def Y_gradient(self, alpha: float, beta: float) -> np.ndarray:
        return self._matrix_gradient("_moved_in_Y", alpha, beta)

    @cached_property
    def _moved_in_X(self) -> list:
        return self._moved(self.X, lambda X: generalized_eigenvalues(X, to_matrix(self.Y)))

    @cached_property
    def _moved_in_Y(self) -> list:
        return self._moved(self.Y, lambda Y: generalized_eigenvalues(to_matrix(self.X), Y))

    def _moved(self, M: np.ndarray, eigenvalues) -> list:
        """Log-spectra on both sides of each symmetric direction, with the length of the step."""
        moved = []
        with mpmath.workdps(self.digits):
            for i, j in zip(*np.tril_indices(self.d), strict=True):
                h = MATRIX_STEP * mpmath.sqrt(mpf(float(M[i, i])) * mpf(float(M[j, j])))
                sides = []
                for sign in (1, -1):
                    shifted = to_matrix(M)
                    shifted[int(i), int(j)] += sign * h / 2
                    shifted[int(j), int(i)] += sign * h / 2
                    sides.append([mpmath.log(value) for value in eigenvalues(shifted)])
                moved.append((i, j, h, *sides))
        return moved

    def _matrix_gradient(self, moved: str, alpha: float, beta: float) -> np.ndarray:
        key = moved, alpha, beta
        if key not in self._known:
            gradient = np.empty((self.d, self.d))
            with mpmath.workdps(self.digits):
                for i, j, h, above, below in getattr(self, moved):
                    rise = self._sum(above, alpha, beta) - self._sum(below, alpha, beta)
                    gradient[i, j] = gradient[j, i] = float(rise / (2 * h))
            self._known[key] = gradient
        return self._known[key]
