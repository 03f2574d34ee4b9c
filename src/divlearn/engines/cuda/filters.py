"""Atoms of rank p on the device, for pairs with alpha + beta = 1; see ``filters.cuh``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from divlearn.arrays import DeviceArray, RealArray
from divlearn.engines.cuda import Handle, cp
from divlearn.engines.cuda.kernels import source

LARGEST_RANK = 32  # a thread holds two matrices of this size
_THREADS = 128
_CHUNK = 1 << 27  # entries of products of filters and matrices that are held at a time
_SUMMING_THREADS = 1 << 17  # about; memory limits their speed


def encode_filters(
    X: DeviceArray, filters: DeviceArray, alpha: RealArray, beta: RealArray
) -> DeviceArray:
    """Compute the values of `divlearn.engines.projected.encode_filters`; pairs are shared, (m,)."""
    n_filters, _, p = filters.shape
    pairs, out = cp.asarray(np.stack([alpha, beta])), []
    for rows, _, Y in _project(X, filters):
        values = cp.empty((len(rows), n_filters, len(alpha) + 1))
        arguments = Y, *pairs, values, np.int32(len(alpha)), np.int64(Y.shape[1])
        _launch("filter_values", p, Y.shape[1], *arguments)
        out.append(values)
    return out[0] if len(out) == 1 else cp.concatenate(out)


def pull_filters(
    X: DeviceArray,
    filters: DeviceArray,
    alpha: RealArray,
    beta: RealArray,
    cotangent: DeviceArray,
) -> DeviceArray:
    """Compute the gradient in the filters of ``(cotangent * encode_filters(...)).sum()``."""
    n_filters, d, p = filters.shape
    pairs, gradient, start = cp.asarray(np.stack([alpha, beta])), cp.zeros((d, p, n_filters)), 0
    for rows, products, Y in _project(X, filters):
        weights = cp.ascontiguousarray(cp.asarray(cotangent[start : start + len(rows)]))
        start += len(rows)
        slopes, size = cp.empty_like(Y), (np.int32(len(alpha)), np.int64(Y.shape[1]))
        _launch("filter_slopes", p, Y.shape[1], Y, *pairs, weights, slopes, *size)
        gradient += _sum_products(products, slopes, len(rows), gradient.shape)
    return cp.ascontiguousarray(2 * gradient.transpose(2, 0, 1))


def _project(
    X: DeviceArray, filters: DeviceArray
) -> Iterator[tuple[DeviceArray, DeviceArray, DeviceArray]]:
    """Yield blocks of matrices, their products with all filters, and projected matrices."""
    n_filters, d, p = filters.shape
    columns = cp.ascontiguousarray(filters.transpose(1, 2, 0), np.float64).reshape(d, -1)
    step = max(1, _CHUNK // columns.size)
    for start in range(0, len(X), step):
        matrices = cp.ascontiguousarray(X[start : start + step], np.float64)
        products = matrices.reshape(-1, d) @ columns  # one product of two matrices
        Y = cp.empty((p * (p + 1) // 2, len(matrices) * n_filters))
        sizes = np.int32(d), np.int64(len(matrices)), np.int64(n_filters)
        _launch("project", p, len(matrices) * p * n_filters, products, columns, Y, *sizes)
        yield matrices, products, Y


def _sum_products(
    products: DeviceArray, slopes: DeviceArray, n: int, shape: tuple[int, int, int]
) -> DeviceArray:
    """Sum over the matrices of products times slopes, shape (d, p, n_filters)."""
    d, p, n_filters = shape
    threads = n_filters * -(-d // _lines_per_thread(p))  # of a slice of the matrices
    step = -(-n // max(1, min(n, _SUMMING_THREADS // threads)))
    slices = -(-n // step)
    partial = cp.empty((slices, *shape))
    sizes = np.int32(d), np.int64(n), np.int64(n_filters), np.int64(step)
    _launch("sum_products", p, threads * slices, products, slopes, partial, *sizes)
    return partial.sum(axis=0)


def _lines_per_thread(p: int) -> int:
    """Lines of a filter that a thread sums, as many as fit into registers."""
    return 4 if p <= 8 else 2 if p <= 16 else 1


def _launch(kernel: str, p: int, threads: int, *arguments: object) -> None:
    function = _function(kernel, p, cp.cuda.Device().id)
    function((-(-threads // _THREADS),), (_THREADS,), arguments)


@cache
def _function(kernel: str, p: int, device: int) -> Handle:
    return _module(p, device).get_function(kernel)


@cache
def _module(p: int, device: int) -> Handle:
    options = (
        "-std=c++17",
        "--device-as-default-execution-space",
        f"-DRANK={p}",
        f"-DLINES={_lines_per_thread(p)}",
    )
    return cp.RawModule(code=source("filters"), options=options)
