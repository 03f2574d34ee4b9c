r"""Atoms of rank p: divergences :math:`D(V^T X V \,\|\, I)` of projected matrices.

An atom is a whitening: with :math:`B = (V V^T)^{-1}`, :math:`D(X \| B) = D(V^T X V \| I)`. A filter
V of shape (d, p), p < d, compares the part of X that it lets through.

There are many projected matrices, and they are small. Their entries come first, shape (p, p, n), so
that each operation of a factorization is one on long vectors, on the host or on a device.
"""

from collections.abc import Callable, Iterator
from functools import cached_property

import numpy as np

from divlearn.arrays import RealArray, on_device, to_device_of, to_host
from divlearn.engines.data import Gradients
from divlearn.spectral import abld_scalar

# Entries of a block of products of filters and matrices: a cache of the host holds it, or it fills
# a device.
_CHUNK, _DEVICE_CHUNK = 1 << 18, 1 << 27
_SMALLEST = 1e-290  # pivot: nearly singular matrices have a large, finite divergence


def encode_filters(
    X: RealArray, filters: RealArray, alpha: RealArray, beta: RealArray
) -> RealArray:
    """Compute values of all matrices and filters, shape (n_matrices, n_filters, n_pairs + 1).

    Values are the divergences for every pair (alpha, beta), shape (n_filters, n_pairs), and last
    the determinant of the projected matrix to the power 1/p, which tells large from small.
    """
    blocks = []
    for matrices, products in _products(X, filters):
        functions = _Functions(_small(products, filters), alpha, beta)
        values = np.stack([*functions.divergences(), functions.size], axis=-1)
        blocks.append(values.reshape(len(matrices), len(filters), -1))
    return np.concatenate(blocks)


def pull_filters(
    X: RealArray,
    filters: RealArray,
    alpha: RealArray,
    beta: RealArray,
    cotangent: RealArray,
    *,
    parameters: bool,
) -> Gradients:
    """Gradients of ``(cotangent * encode_filters(X, filters, alpha, beta)).sum()``."""
    n_filters, d, p = filters.shape
    gradient = np.zeros_like(filters)
    slopes = np.zeros((2, *alpha.shape)) if parameters else None
    start = 0
    for matrices, products in _products(X, filters):
        weights = cotangent[start : start + len(matrices)].reshape(-1, cotangent.shape[-1]).T
        start += len(matrices)
        functions = _Functions(_small(products, filters), alpha, beta)
        total = functions.pull(weights[:-1])
        total += weights[-1] / p * functions.size * functions.inverse
        if slopes is not None:
            slopes += functions.parameter_slopes(weights[:-1])
        left = np.moveaxis(products.reshape(len(matrices), n_filters, p, d), 0, 1)
        right = np.moveaxis(total.reshape(p, p, len(matrices), n_filters), (3, 2), (0, 1))
        gradient += 2 * left.reshape(n_filters, -1, d).mT @ right.reshape(n_filters, -1, p)
    return (gradient, None, None) if slopes is None else (gradient, slopes[0], slopes[1])


def line_of(alpha: RealArray, beta: RealArray) -> tuple[RealArray, RealArray] | None:
    """Return the pairs if all filters share them and alpha + beta = 1, else None."""
    shared = (alpha == alpha[:1]).all() and (beta == beta[:1]).all()
    on_line = (alpha + beta == 1).all() and min(alpha.min(initial=0), beta.min(initial=0)) >= 0
    return (alpha[0].copy(), beta[0].copy()) if shared and on_line else None


def _products(X: RealArray, filters: RealArray) -> Iterator[tuple[RealArray, RealArray]]:
    """Yield blocks of matrices, and products of all filters with them, (n, n_filters * p, d)."""
    rows = filters.mT.reshape(-1, filters.shape[1])
    size = max(1, (_DEVICE_CHUNK if on_device(X) else _CHUNK) // rows.size)
    for start in range(0, len(X), size):
        block = X[start : start + size]
        yield block, rows @ block


def _small(products: RealArray, filters: RealArray) -> RealArray:
    """Projected matrices, shape (p, p, n * n_filters)."""
    n_filters, d, p = filters.shape
    Y = products.reshape(-1, n_filters, p, d) @ filters
    return np.moveaxis(Y, (2, 3), (0, 1)).reshape(p, p, -1).copy()


class _Functions:
    """Divergences of small matrices Y to the identity, for the pairs of every filter.

    Pairs with alpha + beta = 1 for all filters need log-determinants only, others eigenvalues.
    """

    def __init__(self, Y: RealArray, alpha: RealArray, beta: RealArray) -> None:
        self.Y, self.alpha, self.beta = Y, alpha, beta
        self.factor = _factor(Y)
        self.logdet = _logdet(self.factor)

    def _line(self, pair: int) -> tuple[float, float] | None:
        line = line_of(self.alpha[:, pair, None], self.beta[:, pair, None])
        return None if line is None else (float(line[0][0]), float(line[1][0]))

    @cached_property
    def inverse(self) -> RealArray:
        return _inverse(self.factor)

    @property
    def size(self) -> RealArray:
        """The determinant to the power 1/p."""
        return np.exp(self.logdet / len(self.Y))

    def divergences(self) -> list[RealArray]:
        """Divergences, an array of shape (n * n_filters,) for each pair."""
        p, logdet, divergences = len(self.Y), self.logdet, []
        for pair in range(self.alpha.shape[1]):
            line = self._line(pair)
            if line is None:
                divergences.append(self._of_spectra(pair, "f")[0])
            elif line == (0.0, 1.0):
                divergences.append(_trace(self.Y) - logdet - p)
            elif line == (1.0, 0.0):
                divergences.append(_trace(self.inverse) + logdet - p)
            else:
                a, b = line
                mixed = _logdet(_factor(_mixed(self.Y, a, b)))
                divergences.append((mixed - a * logdet) / (a * b))
        return divergences

    def pull(self, weights: RealArray) -> RealArray:
        """Gradient in Y of the weighted sum of divergences, one row of weights for each pair."""
        total, inverse = np.zeros_like(self.Y), self.inverse
        for pair, weight in enumerate(weights):
            line = self._line(pair)
            if line is None:
                total += weight * self._spectral_slope(pair)
            elif line == (0.0, 1.0):
                _add_diagonal(total, weight)
                total -= weight * inverse
            elif line == (1.0, 0.0):
                square = _fill(lambda i, j: (inverse[i] * inverse[j]).sum(axis=0), inverse)
                total += weight * (inverse - square)
            else:
                a, b = line
                total += weight / b * (_inverse(_factor(_mixed(self.Y, a, b))) - inverse)
        return total

    def parameter_slopes(self, weights: RealArray) -> RealArray:
        """Gradients in alpha and beta, shape (2, n_filters, n_pairs)."""
        slopes = np.zeros((2, *self.alpha.shape))
        for pair, weight in enumerate(weights):
            for index, derivative in enumerate(self._of_spectra(pair, "f_alpha", "f_beta")):
                sums = to_host(weight * derivative).reshape(-1, len(self.alpha)).sum(axis=0)
                slopes[index, :, pair] = sums
        return slopes

    @cached_property
    def spectra(self) -> tuple[RealArray, RealArray]:
        """Logarithms of eigenvalues, (n, p), and eigenvectors, (n, p, p), on the host."""
        values, vectors = np.linalg.eigh(np.moveaxis(to_host(self.Y), 2, 0))
        return np.log(np.maximum(values, _SMALLEST)), vectors

    def _of_spectra(self, pair: int, *names: str) -> list[RealArray]:
        """Sum functions of `abld_scalar` over the eigenvalues."""
        derivatives = self._scalars(pair, *names)
        return [to_device_of(array.sum(axis=1), self.Y) for array in derivatives]

    def _scalars(self, pair: int, *names: str) -> list[RealArray]:
        t = self.spectra[0]
        repeats = len(t) // len(self.alpha)
        a, b = (np.tile(p[:, pair], repeats)[:, None] for p in (self.alpha, self.beta))
        scalars = abld_scalar(t, a, b, derivatives=[name for name in names if name != "f"])
        return [getattr(scalars, name) for name in names]

    def _spectral_slope(self, pair: int) -> RealArray:
        t, vectors = self.spectra
        (slopes,) = self._scalars(pair, "f_t")
        full = (vectors * (slopes * np.exp(-t))[:, None, :]) @ vectors.mT
        return to_device_of(np.moveaxis(full, 0, 2), self.Y)


# --- small matrices, entries first ----------------------------------------------------------------


def _factor(Y: RealArray) -> RealArray:
    """Cholesky factors, lower triangular."""
    L = np.zeros_like(Y)
    for j in range(len(Y)):
        pivot = Y[j, j] - (L[j, :j] ** 2).sum(axis=0)
        L[j, j] = np.sqrt(np.maximum(pivot, _SMALLEST))
        for i in range(j + 1, len(Y)):
            L[i, j] = (Y[i, j] - (L[i, :j] * L[j, :j]).sum(axis=0)) / L[j, j]
    return L


def _inverse(L: RealArray) -> RealArray:
    """Inverses of matrices, from their Cholesky factors."""
    p, R = len(L), np.zeros_like(L)
    for j in range(p):
        R[j, j] = 1 / L[j, j]
        for i in range(j + 1, p):
            R[i, j] = -(L[i, j:i] * R[j:i, j]).sum(axis=0) / L[i, i]
    return _fill(lambda i, j: (R[j:, i] * R[j:, j]).sum(axis=0), L)


def _fill(entry: Callable[[int, int], RealArray], like: RealArray) -> RealArray:
    """Symmetric matrices from their entries with i <= j."""
    filled = np.empty_like(like)
    for j in range(len(like)):
        for i in range(j + 1):
            filled[i, j] = filled[j, i] = entry(i, j)
    return filled


def _mixed(Y: RealArray, a: float, b: float) -> RealArray:
    mixed = a * Y
    _add_diagonal(mixed, b)
    return mixed


def _add_diagonal(Y: RealArray, value: RealArray | float) -> None:
    for j in range(len(Y)):
        Y[j, j] += value


def _trace(Y: RealArray) -> RealArray:
    return sum(Y[j, j] for j in range(len(Y)))


def _logdet(L: RealArray) -> RealArray:
    return 2 * sum(np.log(L[j, j]) for j in range(len(L)))
