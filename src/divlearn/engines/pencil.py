"""The pencil (X, B) in NumPy: whitening, log-eigenvalues, eigenvectors, and their domain."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from divlearn.arrays import IntArray, RealArray
from divlearn.engines.jacobi import left_singular
from divlearn.spectral import log_generalized_domain

__all__ = ["Eigen", "check_domain", "decompose", "factorize", "whiteners"]


def factorize(matrices: RealArray) -> tuple[RealArray, IntArray]:
    """Cholesky factors of ``matrices * 2**-exponent``.

    The exponent lies halfway between those of the largest and the smallest diagonal entry, which
    keeps factors and their squares in range.
    """
    matrices = matrices.astype(np.float64, copy=False)
    exponents = np.frexp(np.diagonal(matrices, axis1=1, axis2=2))[1]
    exponent = (exponents.max(axis=1) + exponents.min(axis=1)) // 2
    return np.linalg.cholesky(np.ldexp(matrices, -exponent[:, None, None])), exponent


def whiteners(factor: RealArray) -> RealArray:
    """Inverse Cholesky factors K, solved from K L = I.

    The small residual is then on the side that multiplies the data.
    """
    d = factor.shape[-1]
    inverse = np.zeros_like(factor)
    identity = np.eye(d)
    for j in range(d - 1, -1, -1):
        known = np.einsum("nik,nk->ni", inverse[:, :, j + 1 :], factor[:, j + 1 :, j])
        inverse[:, :, j] = (identity[:, j] - known) / factor[:, j, j, None]
    return np.tril(inverse)


@dataclass(frozen=True, eq=False)
class Eigen:
    """Log-eigenvalues t (n, d), ascending, and eigenvectors (n, d, d) of whitened data."""

    t: RealArray
    vectors: RealArray | None


def decompose(
    whitened: RealArray, exponent: IntArray, condition_limit: float, vectors: bool
) -> Eigen:
    """Decompose ``G G^T 2^exponent`` for whitened data G, shape (n, d, d).

    Where the eigenvalues span more than ``condition_limit``, one-sided Jacobi works on G itself.
    """
    largest = np.frexp(np.abs(whitened).max(axis=(1, 2)))[1]
    whitened = np.ldexp(whitened, -largest[:, None, None])
    gram = whitened @ whitened.mT
    if vectors:
        values, basis = np.linalg.eigh(gram)
    else:
        values, basis = np.linalg.eigvalsh(gram), None
    redo = values[:, -1] > condition_limit * values[:, 0]
    if redo.any():
        values[redo], accurate = left_singular(whitened[redo])
        if basis is not None:
            basis[redo] = accurate
    exponent = exponent + 2 * largest
    # A power of two inside the logarithm is exact; outside it rounds, but cannot overflow.
    inside = np.where(np.abs(exponent) < 900, exponent, 0)
    outside = (exponent - inside) * np.log(2.0)
    return Eigen(np.log(np.ldexp(values, inside[:, None])) + outside[:, None], basis)


def check_domain(t: RealArray, alpha: float, beta: float, *, names: Callable[[int], str]) -> None:
    """Raise where a log-eigenvalue leaves the domain of f; ``names(row)`` says whose it is."""
    if alpha * beta >= 0:
        return
    lower, upper = log_generalized_domain(alpha, beta)
    outside = (t <= lower) | (t >= upper)
    if outside.any():
        row, column = np.argwhere(outside)[0]
        raise ValueError(
            f"the pencil of {names(int(row))} has the eigenvalue "
            f"{np.exp(t[row, column]):.6g}, but (alpha, beta) = ({alpha:g}, {beta:g}) needs "
            f"every eigenvalue inside ({np.exp(lower):.6g}, {np.exp(upper):.6g}); choose "
            "parameters of the same sign"
        )
