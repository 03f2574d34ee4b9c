"""One-sided Jacobi for a batch of matrices: small singular values to full relative accuracy."""

from __future__ import annotations

import numpy as np

from divlearn.arrays import RealArray

__all__ = ["left_singular"]

_MAX_SWEEPS = 40


def left_singular(G: RealArray) -> tuple[RealArray, RealArray]:
    r"""Singular values and left singular vectors, without forming :math:`G G^T`.

    The columns of G are rotated in pairs until they are orthogonal; their norms are the singular
    values, and normalized they are the vectors. Everything is computed from normalized columns
    and ratios of norms, so that columns may differ in size by the whole floating-point range.

    Parameters
    ----------
    G : ndarray, shape (n, d, d), nonsingular

    Returns
    -------
    values : ndarray, shape (n, d), ascending; NaN where they leave the floating-point range
    vectors : ndarray, shape (n, d, d)

    Examples
    --------
    >>> values, vectors = left_singular(np.array([[[3.0, 0.0], [4.0, 1e-200]]]))
    >>> bool(np.isclose(values[0, 0], 3e-200 / 5, rtol=1e-12, atol=0))
    True
    """
    d = G.shape[-1]
    columns = np.ascontiguousarray(G.mT)  # columns[:, j] is column j
    tolerance = float(np.finfo(np.float64).eps * np.sqrt(d))
    with np.errstate(all="ignore"):  # a column that underflows to zero ends as NaN
        for _ in range(_MAX_SWEEPS):
            pairs = ((p, q) for p in range(d - 1) for q in range(p + 1, d))
            if not sum(_rotate(columns, p, q, tolerance) for p, q in pairs):
                break
        else:  # subnormal columns have no digits left to make orthogonal
            columns.fill(np.nan)
        norms = _norm(columns)
        order = np.argsort(norms, axis=1)
        norms = np.take_along_axis(norms, order, axis=1)
        columns = np.take_along_axis(columns, order[:, :, None], axis=1)
        return norms, np.ascontiguousarray((columns / norms[:, :, None]).mT)


def _norm(vectors: RealArray) -> RealArray:
    """Norms along the last axis; squares of tiny entries would underflow."""
    largest = np.abs(vectors).max(axis=-1, keepdims=True)
    scaled = vectors / largest
    norms: RealArray = largest[..., 0] * np.sqrt(np.einsum("...k,...k->...", scaled, scaled))
    return norms


def _rotate(columns: RealArray, p: int, q: int, tolerance: float) -> bool:
    """Make columns p and q orthogonal, in place; say whether any matrix needed it."""
    x, y = columns[:, p], columns[:, q]
    x_norm, y_norm = _norm(x), _norm(y)
    overlap = np.einsum("nk,nk->n", x / x_norm[:, None], y / y_norm[:, None])
    active = np.abs(overlap) > tolerance
    if not active.any():
        return False
    # (|y|^2 - |x|^2)/(2 |x| |y|), whose square may overflow where it does not.
    ratio = y_norm / x_norm
    half_gap = 0.5 * (ratio - 1 / ratio)
    root = half_gap + np.copysign(np.hypot(half_gap, overlap), half_gap)
    tangent = np.divide(overlap, root, out=np.zeros_like(root), where=active)
    cosine = 1 / np.hypot(1, tangent)
    sine = tangent * cosine
    columns[:, p], columns[:, q] = (
        cosine[:, None] * x - sine[:, None] * y,
        sine[:, None] * x + cosine[:, None] * y,
    )
    return True
