"""The pencil (X, B) in NumPy: whitening, log-eigenvalues, eigenvectors, and their domain."""

from collections.abc import Callable

import numpy as np

from divlearn.arrays import IntArray, RealArray
from divlearn.spectral import log_generalized_domain

_LOG_2 = float(np.log(2.0))
_MAX_SWEEPS = 40


def factorize(matrices: RealArray) -> tuple[RealArray, IntArray]:
    """Cholesky factors of ``matrices * 2**-exponent``, and this mid-range exponent of diagonals."""
    matrices = matrices.astype(np.float64, copy=False)
    exponents = np.frexp(np.diagonal(matrices, axis1=1, axis2=2))[1]
    exponent = (exponents.max(axis=1) + exponents.min(axis=1)) // 2
    return np.linalg.cholesky(np.ldexp(matrices, -exponent[:, None, None])), exponent


def no_factor(where: str) -> ValueError:
    return ValueError(
        f"{where} has no Cholesky factor in double precision; see check_spd for a diagnosis and "
        "for repair"
    )


def whiteners(factor: RealArray) -> RealArray:
    """Inverse Cholesky factors K from K L = I: residuals are small on the side of the data."""
    d = factor.shape[-1]
    inverse = np.zeros_like(factor)
    identity = np.eye(d)
    for j in range(d - 1, -1, -1):
        sums = np.einsum("nik,nk->ni", inverse[:, :, j + 1 :], factor[:, j + 1 :, j])
        inverse[:, :, j] = (identity[:, j] - sums) / factor[:, j, j, None]
    return np.tril(inverse)


def decompose(
    whitened: RealArray, exponent: IntArray, condition_limit: float, vectors: bool
) -> tuple[RealArray, RealArray | None]:
    """Log-eigenvalues (n, d), ascending, of ``G G^T 2^exponent``, and eigenvectors on request."""
    largest = np.frexp(np.abs(whitened).max(axis=(1, 2)))[1]
    whitened = np.ldexp(whitened, -largest[:, None, None])
    gram = whitened @ whitened.mT
    if vectors:
        values, basis = np.linalg.eigh(gram)
    else:
        values, basis = np.linalg.eigvalsh(gram), None
    redo = values[:, -1] > condition_limit * values[:, 0]
    exponent = exponent + 2 * largest
    t = np.empty_like(values)
    t[~redo] = _log_scaled(values[~redo], exponent[~redo])
    if redo.any():  # one-sided Jacobi works on G itself
        singular, accurate = left_singular(whitened[redo])
        half = exponent[redo] // 2
        t[redo] = 2 * _log_scaled(singular, half) + _LOG_2 * (exponent[redo] - 2 * half)[:, None]
        if basis is not None:
            basis[redo] = accurate
    if not np.isfinite(t).all():
        raise ValueError(
            "the eigenvalues of a pencil span more than double precision can hold; rescale the "
            "variables of all matrices alike: X -> S X S with a diagonal S"
        )
    return t, basis


def congruence(whitener: RealArray, inner: RealArray, unit: IntArray) -> RealArray:
    """``K^T S K 2^-unit`` for symmetric S; overflow gives infinity, never NaN."""
    exponent = np.frexp(np.abs(inner).max(axis=(-2, -1), keepdims=True))[1]
    product = whitener.mT @ np.ldexp(inner, -exponent) @ whitener
    with np.errstate(over="ignore"):
        scaled: RealArray = np.ldexp(0.5 * (product + product.mT), exponent - unit[:, None, None])
    return scaled


def _log_scaled(values: RealArray, exponent: IntArray) -> RealArray:
    """``log(values * 2**exponent)``."""
    # A power of two inside the logarithm is exact; outside it rounds, but cannot overflow.
    inside = np.where(np.abs(exponent) < 300, exponent, 0)
    logarithm: RealArray = np.log(np.ldexp(values, inside[:, None]))
    return logarithm + _LOG_2 * (exponent - inside)[:, None]


def check_domain(t: RealArray, alpha: float, beta: float, *, names: Callable[[int], str]) -> None:
    """Raise where a log-eigenvalue leaves the domain of f; ``names(row)`` names the pair."""
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


def left_singular(G: RealArray) -> tuple[RealArray, RealArray]:
    """One-sided Jacobi: small singular values to full relative accuracy, and left vectors."""
    # Only normalized columns and ratios of norms are used; values beyond the range become NaN.
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
    return largest[..., 0] * np.sqrt(np.einsum("...k,...k->...", scaled, scaled))


def _rotate(columns: RealArray, p: int, q: int, tolerance: float) -> bool:
    """Make columns p and q orthogonal, in place; return whether any matrix changed."""
    x, y = columns[:, p], columns[:, q]
    x_norm, y_norm = _norm(x), _norm(y)
    overlap = np.einsum("nk,nk->n", x / x_norm[:, None], y / y_norm[:, None])
    active = np.abs(overlap) > tolerance
    if not active.any():
        return False
    # half_gap = (|y|^2 - |x|^2)/(2 |x| |y|), without the squares, which may overflow.
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
