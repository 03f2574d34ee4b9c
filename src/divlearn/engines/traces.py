"""Burg's divergence and its reverse without eigenvalues: one matrix product for all pairs.

D at (0, 1) is tr(X B^-1) - logdet(X B^-1) - d, at (1, 0) tr(B X^-1) + logdet(X B^-1) - d. A trace
of a product is a scalar product of triangles, so that a whole table is one call of BLAS.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.engines.base import Pullback
from divlearn.engines.blas import limit_blas
from divlearn.engines.packing import NativeAtoms, NativeData

__all__ = ["trace_gradient", "trace_values", "usable"]

_LOG_2 = float(np.log(2.0))
# Differences of traces and log-determinants have absolute errors, about eps times the condition
# number; they serve where that is small against the result.
_LARGEST_SPREAD = 1e6
_SMALLEST_RESULT = 0.005
_LARGEST_EXPONENT = 16


def usable(data: NativeData, atoms: NativeAtoms) -> bool:
    """Whether sizes and conditioning allow these formulas for all pairs."""
    exponents = np.concatenate([data.exponent, atoms.exponent])
    alike = bool(np.ptp(exponents) <= _LARGEST_EXPONENT)
    return alike and bool(data.spread.max() <= _LARGEST_SPREAD / atoms.spread.max())


def trace_values(
    data: NativeData, atoms: NativeAtoms, *, inverse: bool, n_threads: int
) -> tuple[RealArray, NDArray[np.bool_] | None]:
    """Divergences (n_matrices, n_atoms) at (0, 1), or (1, 0) if ``inverse``.

    Returns also where results are too small to be trusted, None if nowhere.
    """
    n, d = data.n_matrices, data.d
    sign = -1.0 if inverse else 1.0
    middle = float(np.median(data.exponent))
    of_data = sign * (data.logdet[:n] + (data.exponent[:n] - middle) * (d * _LOG_2))
    of_atoms = sign * (atoms.logdet + (atoms.exponent - middle) * (d * _LOG_2))
    rows, columns = atoms.lower
    other = atoms.original if inverse else atoms.inverse()
    weights = np.where(rows == columns, 1.0, 2.0) * other[:, rows, columns]
    # The log-determinants ride along as two more columns.
    left = np.column_stack([data.triangles(inverse=inverse), -of_data, np.ones(n)])
    right = np.column_stack([weights, np.ones(len(weights)), of_atoms - d])
    with limit_blas(n_threads):
        values = left @ right.T
    if values.min() >= _SMALLEST_RESULT * d:
        return values, None
    return values, values < _SMALLEST_RESULT * d


def trace_gradient(
    data: NativeData, atoms: NativeAtoms, cotangent: RealArray, *, inverse: bool, n_threads: int
) -> Pullback:
    """At (0, 1) sum_i w_i (B^-1 - B^-1 X_i B^-1), at (1, 0) sum_i w_i (X_i^-1 - B^-1)."""
    precision = atoms.inverse()
    with limit_blas(n_threads):
        summed = atoms.unpack(cotangent.T @ data.triangles(inverse=inverse))
        own = cotangent.sum(axis=0)[:, None, None] * precision
        if inverse:
            return atoms.gradient(summed - own)
        product = precision @ summed @ precision
        return atoms.gradient(own - 0.5 * (product + product.mT))
