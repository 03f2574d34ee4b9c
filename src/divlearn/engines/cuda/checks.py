"""Checks of arrays on the device. What looks wrong is judged on the host, which finds the words."""

from __future__ import annotations

from typing import Any

import numpy as np

from divlearn import tolerances
from divlearn.arrays import IntArray, RealArray, as_real
from divlearn.engines.base import check_cotangent_shape
from divlearn.engines.cuda.arrays import as_cupy
from divlearn.engines.cuda.kernels import largest_dimension
from divlearn.engines.cuda.lazy import cp
from divlearn.spd import check_spd

__all__ = [
    "as_matrices", "check_cotangent", "check_device_out", "check_on_device", "checkable",
    "permute_on_device", "sizes_on_device",
]  # fmt: skip


def as_matrices(X: Any) -> Any:
    """Return something on the host as an array; ragged lists stay, for `check_spd` to refuse."""
    try:
        return np.asarray(X)
    except ValueError:
        return X


def checkable(X: Any) -> bool:
    """Whether `check_on_device` can judge an array: matrices of floats the kernels take."""
    right = getattr(X, "dtype", None) in (np.float32, np.float64) and X.ndim == 3
    return bool(right and X.shape[1] == X.shape[2] <= largest_dimension() and 0 not in X.shape)


def check_on_device(X: Any, name: str = "X") -> Any:
    """Return SPD matrices (n, d, d) as a new, exactly symmetric array on the device.

    Judged here: that all entries are finite, that matrices are symmetric up to rounding in units
    of their diagonals, and that they have Cholesky factors with a margin, all as in `check_spd`.
    """
    if not checkable(X):
        return cp.asarray(check_spd(cp.asnumpy(X), ndim=3, name=name))
    transposed = X.transpose(0, 2, 1)
    diagonal = cp.diagonal(X, axis1=1, axis2=2)
    units = cp.sqrt(cp.abs(diagonal))
    allowed = tolerances.asymmetry(X.dtype) * units[:, :, None] * units[:, None, :]
    sound = (cp.abs(X - transposed) <= allowed).all() & (diagonal > 0).all() & cp.isfinite(X).all()
    if bool(sound):
        symmetric = 0.5 * X + 0.5 * transposed
        if _all_definite(symmetric):
            return symmetric
    return cp.asarray(check_spd(cp.asnumpy(X), ndim=3, name=name))


def _all_definite(X: Any) -> bool:
    """Whether all matrices less the tolerance have Cholesky factors, diagonals about one."""
    from divlearn.engines.cuda.data import Block

    d = X.shape[-1]
    exponent = cp.frexp(cp.diagonal(X, axis1=1, axis2=2).astype(np.float64))[1] // 2
    units = cp.ldexp(cp.ones(exponent.shape), -exponent)
    scaled = X * units[:, :, None] * units[:, None, :]
    scaled -= tolerances.positive_definite(d, X.dtype) * cp.eye(d)
    try:
        Block.of(0, scaled)
    except ValueError:
        return False
    return True


def permute_on_device(matrices: Any, order: IntArray) -> Any:
    """Rows and columns in another order."""
    index = cp.asarray(order)
    return cp.ascontiguousarray(matrices[:, index[:, None], index])


def sizes_on_device(matrices: Any) -> RealArray:
    """Mean logarithm of each variable's variance, on the host."""
    variances = cp.diagonal(matrices, axis1=1, axis2=2).astype(np.float64)
    sizes: RealArray = cp.asnumpy(cp.log(variances).mean(axis=0))
    return sizes


def check_cotangent(cotangent: Any, shape: tuple[int, ...]) -> Any:
    """Return the cotangent as contiguous doubles, or raise."""
    check_cotangent_shape(tuple(cotangent.shape), shape)
    if cotangent.dtype.kind != "f" or not bool(cp.isfinite(cotangent).all()):
        return cp.asarray(as_real(cp.asnumpy(cotangent), "cotangent"))
    return cp.ascontiguousarray(cotangent, np.float64)


def check_device_out(out: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Return ``out`` as a contiguous array on the device, a new one if it is None."""
    if out is None:
        return cp.empty(shape, dtype)
    target = as_cupy(out)
    if target.shape != shape or target.dtype.kind != "f" or not target.flags.c_contiguous:
        raise ValueError(
            f"out has shape {target.shape} and dtype {target.dtype}, but must be a contiguous "
            f"floating-point array of shape {shape} on the device of the data"
        )
    return target
