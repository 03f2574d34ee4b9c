"""Burg's divergence and its reverse without eigenvalues: one matrix product for all pairs.

D at (0, 1) is tr(X B^-1) - logdet(X B^-1) - d, at (1, 0) tr(B X^-1) + logdet(X B^-1) - d. A trace
of a product is a scalar product of triangles, so that a whole table is one call of BLAS.
"""

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.engines.base import Pullback
from divlearn.engines.packing import NativeAtoms, NativeData
from divlearn.threads import limit_blas
from divlearn.tolerances import SMALLEST_TRACE

_LOG_2 = float(np.log(2.0))


def _columns(data: NativeData, inverse: bool) -> RealArray:
    """Triangles of the matrices or inverses, their log-determinants, and ones; computed once."""
    key = "inverse traces" if inverse else "traces"
    if key not in data.kept:
        rows, columns = np.tril_indices(data.d)
        matrices = data.working.astype(np.float64, copy=False)
        with limit_blas(1):
            source = np.linalg.inv(matrices) if inverse else matrices
        n = data.n_matrices
        left = np.ones((n, len(rows) + 2))
        left[:, :-2] = source[:, rows, columns]
        left[:, -2] = -_logdet(data, data.logdet[:n], data.exponent[:n], inverse)
        data.kept[key] = left
    return data.kept[key]


def _logdet(data: NativeData, scaled: RealArray, exponent: RealArray, inverse: bool) -> RealArray:
    """Log-determinants in the units of the data, with the sign they have in the divergence."""
    units = (exponent - data.unit) * (data.d * _LOG_2)
    return -(scaled + units) if inverse else scaled + units


def trace_values(
    data: NativeData, atoms: NativeAtoms, out: RealArray, *, inverse: bool, n_threads: int
) -> NDArray[np.bool_] | None:
    """Divergences at (0, 1), or (1, 0) if ``inverse``; returns where they are too small."""
    rows, columns = atoms.lower
    other = atoms.original if inverse else atoms.inverse()
    weights = np.where(rows == columns, 1.0, 2.0) * other[:, rows, columns]
    constant = _logdet(data, atoms.logdet, atoms.exponent, inverse) - data.d
    right = np.column_stack([weights, np.ones(len(weights)), constant])
    left = _columns(data, inverse)
    # Inverses of subnormal matrices overflow; what is no number is not to be trusted either.
    with limit_blas(n_threads), np.errstate(over="ignore", invalid="ignore"):
        np.matmul(left, right.T, out=out)
    smallest = SMALLEST_TRACE * data.d
    return None if out.min() >= smallest else ~(out >= smallest)


def trace_gradient(
    data: NativeData, atoms: NativeAtoms, cotangent: RealArray, *, inverse: bool, n_threads: int
) -> Pullback:
    """At (0, 1) sum_i w_i (B^-1 - B^-1 X_i B^-1), at (1, 0) sum_i w_i (X_i^-1 - B^-1)."""
    precision, triangles = atoms.inverse(), _columns(data, inverse)[:, :-2]
    with limit_blas(n_threads):
        summed = atoms.unpack(cotangent.T @ triangles)
        own = cotangent.sum(axis=0)[:, None, None] * precision
        if inverse:
            return atoms.gradient(summed - own)
        product = precision @ summed @ precision
        return atoms.gradient(own - 0.5 * (product + product.mT))
