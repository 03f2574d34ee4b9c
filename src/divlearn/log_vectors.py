"""Logarithms of SPD matrices as vectors, whose Euclidean distances are log-Euclidean ones."""

import numpy as np

from divlearn.arrays import RealArray, on_device
from divlearn.engines.cpu import cpu_engine
from divlearn.geometry import compose, expm, graded_eigh, normalize, unvectorize, vectorize

_ROUNDING = float(np.finfo(float).eps)  # of an eigenvalue on a device, relative to the largest
_BLOCK_ENTRIES = 1 << 23  # of matrices whose logarithms are taken at a time


def log_vectors(matrices: RealArray, whitener: RealArray | None = None) -> RealArray:
    """Upper triangles of log X, or log W X W^T, with off-diagonal entries times sqrt(2)."""
    if on_device(matrices):  # these are checked, and come without W
        normalized, exponent = normalize(matrices.astype(np.float64))
        values, basis = graded_eigh(normalized)
        logarithms = np.log(np.maximum(values, _ROUNDING * values[:, -1:]))
        return vectorize(compose(basis, logarithms + np.log(2) * exponent[:, None]))
    d = matrices.shape[-1]
    vectors = np.empty((len(matrices), d * (d + 1) // 2))
    step = max(1, _BLOCK_ENTRIES // d**2)
    for start in range(0, len(matrices), step):
        some = matrices[start : start + step].astype(np.float64, copy=False)
        if whitener is not None:
            some = whitener @ some @ whitener.T
            some = 0.5 * (some + some.mT)
        vectors[start : start + step] = vectorize(cpu_engine().logarithms(some))
    return vectors


def from_log_vectors(vectors: RealArray) -> RealArray:
    """SPD matrices, shape (n, d, d), of which `log_vectors` are given."""
    logarithms = unvectorize(vectors)
    if on_device(vectors):
        values, basis = np.linalg.eigh(logarithms)
        return compose(basis, np.exp(values))
    return expm(logarithms)
