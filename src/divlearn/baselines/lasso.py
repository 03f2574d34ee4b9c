"""Many lassos that share one dictionary, which only its kernels need to be known of."""

from __future__ import annotations

import numpy as np

from divlearn.arrays import RealArray

__all__ = ["lasso_values", "sparse_codes"]

_MAX_ITER = 5_000
_EVERY = 20  # iterations between looks at the gaps
_RELAXATION = 1.6


def lasso_values(
    gram: RealArray, similarities: RealArray, penalty: float, codes: RealArray
) -> RealArray:
    """Objectives of `sparse_codes`, shape (n_samples,).

    Examples
    --------
    >>> lasso_values(np.eye(2), np.array([[0.5, 0.0]]), 0.1, np.array([[0.5, 0.0]]))
    array([0.8])
    """
    fits = 1 + ((codes @ gram - 2 * similarities) * codes).sum(axis=1)
    values: RealArray = fits + penalty * np.abs(codes).sum(axis=1)
    return values


def sparse_codes(
    gram: RealArray, similarities: RealArray, penalty: float, *, start: RealArray | None = None,
    tol: float = 1e-5,
) -> RealArray:  # fmt: skip
    r"""Code samples of unit length in the feature space of a kernel.

    .. math:: \min_a \|\phi(x) - \sum_j a_j \phi(d_j)\|^2 + \lambda \|a\|_1
              = 1 - 2 a^T k + a^T K a + \lambda \|a\|_1

    All samples go together, by the alternating direction method of multipliers: the matrix to
    invert is the same for all and in all iterations, each of which is one product of matrices.
    Kernels of similar atoms are nearly singular, and coordinate descent would take thousands of
    rounds. Samples leave when their duality gap is small.

    Parameters
    ----------
    gram : ndarray, shape (n_atoms, n_atoms)
        K, positive semi-definite.
    similarities : ndarray, shape (n_samples, n_atoms)
        Kernels k of samples and atoms.
    penalty : float
        :math:`\lambda > 0`.
    start : ndarray, shape (n_samples, n_atoms), optional
        Codes to begin with. No code gets worse than these.
    tol : float, default=1e-5
        Largest duality gap allowed, relative to the objective at a = 0, which is one.

    Returns
    -------
    ndarray, shape (n_samples, n_atoms)

    Examples
    --------
    >>> sparse_codes(np.eye(2), np.array([[0.5, -0.02]]), 0.1).round(4)
    array([[0.45, 0.  ]])
    """
    # Samples are columns here, so that a row holds one atom of all of them.
    n = len(gram)
    half = 0.5 * penalty
    weight = np.sqrt(penalty)  # of the quadratic term: what suits large and small penalties
    inverse = np.linalg.inv(gram + weight * np.eye(n))
    targets = np.ascontiguousarray(similarities.T)
    codes = np.zeros_like(targets) if start is None else np.ascontiguousarray(start.T)
    dual = np.clip(targets - gram @ codes, -half, half) / weight
    result, rows = codes.copy(), np.arange(len(similarities))
    for _ in range(0, _MAX_ITER, _EVERY):
        for _ in range(_EVERY):
            moved = inverse @ (targets + weight * (codes - dual))
            moved = _RELAXATION * moved + (1 - _RELAXATION) * codes + dual
            dual = np.clip(moved, -half / weight, half / weight)
            codes = moved - dual
        result[:, rows] = codes
        left = _gaps(gram, targets, penalty, codes) > tol
        if not left.any():
            break
        rows = rows[left]
        codes, dual, targets = (
            np.ascontiguousarray(array[:, left]) for array in (codes, dual, targets)
        )
    return (
        result.T.copy() if start is None else _better(gram, similarities, penalty, result.T, start)
    )


def _gaps(gram: RealArray, targets: RealArray, penalty: float, codes: RealArray) -> RealArray:
    """Duality gaps, shape (n_samples,): the residual, scaled, is feasible in the dual problem."""
    correlations = targets - gram @ codes
    along = 1 - (codes * targets).sum(axis=0)  # <phi, residual>
    fits = along - (codes * correlations).sum(axis=0)  # ||residual||^2
    steepest = np.abs(correlations).max(axis=0)
    scale = np.minimum(1, 0.5 * penalty / np.maximum(steepest, np.finfo(float).tiny))
    duals = 2 * scale * along - scale**2 * fits
    gaps: RealArray = fits + penalty * np.abs(codes).sum(axis=0) - duals
    return gaps


def _better(
    gram: RealArray, similarities: RealArray, penalty: float, codes: RealArray, start: RealArray
) -> RealArray:
    """Keep the codes at the start where they are better, by as little as the gap allows."""
    new, old = (lasso_values(gram, similarities, penalty, one) for one in (codes, start))
    return np.where((new <= old)[:, None], codes, start)
