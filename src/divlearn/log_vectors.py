"""Logarithms of SPD matrices as vectors, whose Euclidean distances are log-Euclidean ones."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from joblib import effective_n_jobs

from divlearn.arrays import RealArray
from divlearn.geometry import expm, logm, vectorize
from divlearn.threads import limit_blas

_BLOCK_ENTRIES = 1 << 15  # of matrices whose logarithms are taken at a time: they stay in cache


def log_vectors(matrices: RealArray, whitener: RealArray | None = None) -> RealArray:
    """Upper triangles of log X, or log W X W^T, with off-diagonal entries times sqrt(2)."""
    d = matrices.shape[-1]
    vectors = np.empty((len(matrices), d * (d + 1) // 2))

    def fill(part: slice) -> None:
        some = matrices[part]
        if whitener is not None:
            some = whitener @ some @ whitener.T
        vectors[part] = vectorize(logm(some))

    step = max(1, _BLOCK_ENTRIES // d**2)
    parts = [slice(start, start + step) for start in range(0, len(matrices), step)]
    # LAPACK lets other threads run; more threads inside it gain nothing.
    with limit_blas(1):
        if len(parts) == 1:  # a thread would take longer to start
            fill(parts[0])
        else:
            with ThreadPoolExecutor(effective_n_jobs(-1)) as pool:
                list(pool.map(fill, parts))
    return vectors


def from_log_vectors(vectors: RealArray) -> RealArray:
    """SPD matrices, shape (n, d, d), of which `log_vectors` are given."""
    d = int(np.sqrt(2 * vectors.shape[1]))
    rows, columns = np.triu_indices(d)
    logarithms = np.empty((len(vectors), d, d))
    logarithms[:, rows, columns] = vectors * np.where(rows == columns, 1, np.sqrt(0.5))
    logarithms[:, columns, rows] = logarithms[:, rows, columns]
    return expm(logarithms)
