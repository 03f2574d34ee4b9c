"""One-sided Jacobi for a batch of matrices: small singular values to full relative accuracy."""

from __future__ import annotations

import numpy as np

from divlearn.arrays import RealArray

__all__ = ["left_singular"]

_MAX_SWEEPS = 40


def left_singular(G: RealArray) -> tuple[RealArray, RealArray]:
    r"""Eigen-decomposition of :math:`G G^T` without forming it.

    The columns of G are rotated in pairs until they are orthogonal; the squares of their norms
    are the eigenvalues, and normalized they are the eigenvectors.

    Parameters
    ----------
    G : ndarray, shape (n, d, d)

    Returns
    -------
    eigenvalues : ndarray, shape (n, d), ascending
    vectors : ndarray, shape (n, d, d)

    Examples
    --------
    >>> values, vectors = left_singular(np.array([[[3.0, 0.0], [4.0, 1e-12]]]))
    >>> bool(np.isclose(values[0, 0], (3e-12 / 5) ** 2, rtol=1e-12, atol=0))
    True
    """
    d = G.shape[-1]
    columns = np.ascontiguousarray(G.mT)  # columns[:, j] is column j
    tolerance = np.finfo(np.float64).eps * np.sqrt(d)
    for _ in range(_MAX_SWEEPS):
        rotated = False
        for p in range(d - 1):
            for q in range(p + 1, d):
                rotated |= _rotate(columns, p, q, tolerance)
        if not rotated:
            break
    else:
        raise np.linalg.LinAlgError(f"one-sided Jacobi: not converged in {_MAX_SWEEPS} sweeps")
    norms = np.sqrt(np.einsum("njk,njk->nj", columns, columns))
    order = np.argsort(norms, axis=1)
    norms = np.take_along_axis(norms, order, axis=1)
    columns = np.take_along_axis(columns, order[:, :, None], axis=1)
    return norms**2, np.ascontiguousarray((columns / norms[:, :, None]).mT)


def _rotate(columns: RealArray, p: int, q: int, tolerance: float) -> bool:
    """Make columns p and q orthogonal, in place; say whether any matrix needed it."""
    x, y = columns[:, p], columns[:, q]
    a, b, c = (np.einsum("nk,nk->n", u, v) for u, v in ((x, x), (y, y), (x, y)))
    active = np.abs(c) > tolerance * np.sqrt(a) * np.sqrt(b)
    if not active.any():
        return False
    half_gap = 0.5 * (b - a)
    root = half_gap + np.copysign(np.hypot(half_gap, c), half_gap)
    tangent = np.divide(c, root, out=np.zeros_like(c), where=active)
    cosine = 1 / np.sqrt(1 + tangent**2)
    sine = tangent * cosine
    columns[:, p], columns[:, q] = (
        cosine[:, None] * x - sine[:, None] * y,
        sine[:, None] * x + cosine[:, None] * y,
    )
    return True
