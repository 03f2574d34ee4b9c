"""Divergences at many points (alpha, beta) from the same spectra."""

import math
from collections.abc import Iterator

import numpy as np

from divlearn.arrays import RealArray
from divlearn.engines.compiled import is_compiled, plane_values
from divlearn.spectral import abld_scalar

_NEAR = 0.03  # largest log-eigenvalue, below which divergences are subject to cancellation
_LARGEST_LOGARITHM = 600.0  # of a product
_LEAST_PRODUCT, _LEAST_RATIO = 1e-3, 1e-3  # of alpha and beta, for the fast formula


def evaluate_plane(t: RealArray, points: RealArray) -> RealArray:
    """Divergences (n_pairs, n_points) of log-eigenvalues t, (n_pairs, d), at points >= 0."""
    return plane_values(t, points) if is_compiled() else _evaluate(t.T.copy(), points).T


def _evaluate(t: RealArray, points: RealArray) -> RealArray:
    """Do the same in NumPy, for t of shape (d, n_pairs); the result is (n_points, n_pairs)."""
    # With u = e^{theta t}, which all points of the same theta = alpha + beta share, alpha beta D =
    # log prod_k (alpha u_k + beta)/theta - alpha sum_k t_k: one logarithm per pair.
    values = np.empty((len(points), t.shape[1]))
    total, extent = t.sum(axis=0), np.abs(t).max(axis=0)
    alpha, beta = points.T
    sums = np.round(alpha + beta, 14)  # multiples of 0.1 do not add up exactly
    # Errors are about eps/(alpha beta): points close to the axes, but not on them, are excluded.
    least, most = points.min(axis=1), points.max(axis=1)
    product = np.where(least > 0, least * most, most**2)
    fast = (product >= _LEAST_PRODUCT) & ((least == 0) | (least >= _LEAST_RATIO * most))
    fast &= sums * extent.max() < _LARGEST_LOGARITHM
    for place in np.flatnonzero(~fast):
        point = alpha[place], beta[place]
        exact = abld_scalar(t, *point, derivatives=()).f if any(point) else 0.5 * t * t
        values[place] = exact.sum(axis=0)
    near, work = bool(extent.min() < _NEAR), np.empty_like(t)
    for theta, power in _powers(t, np.unique(sums[fast]), near):
        top = theta * float(t.max())
        for place in np.flatnonzero(fast & (sums == theta)):
            a, b = float(alpha[place]), float(beta[place])
            if a > 0 and b > 0:
                _log_product(power, a / theta, b / theta, top, near, work, values[place])
                values[place] -= a * total
                values[place] *= 1 / (a * b)
            elif a == 0:
                excess = power.sum(axis=0) - (0 if near else len(t))
                values[place] = (excess - b * total) / b**2
            else:
                np.divide(-power if near else 1.0, 1 + power if near else power, out=work)
                excess = work.sum(axis=0) - (0 if near else len(t))
                values[place] = (excess + a * total) / a**2
    return np.maximum(values, 0.0, out=values)


def _powers(t: RealArray, thetas: RealArray, near: bool) -> Iterator[tuple[float, RealArray]]:
    """Yield e^{theta t} for ascending thetas, minus 1 if `near`: t may be close to zero."""
    # Equal steps need one exponential in total, and one product each.
    previous, step, factor = 0.0, 0.0, t
    power = np.full(t.shape, 0.0 if near else 1.0)
    for theta in thetas.tolist():
        if abs(theta - previous - step) > 1e-12 * theta:
            step = theta - previous
            factor = np.expm1(step * t) if near else np.exp(step * t)
        power *= 1 + factor if near else factor
        if near:
            power += factor
        previous = theta
        yield theta, power


def _log_product(
    power: RealArray, a: float, b: float, top: float, near: bool, work: RealArray, out: RealArray
) -> None:
    """Write the logarithm of prod_k (a u_k + b), a + b = 1, where log u <= top."""
    d, ratio = len(power), b / a
    largest = max(top, 0.0) - math.log(min(a, b))
    most = int(min(d, max(1.0, _LARGEST_LOGARITHM // largest)))  # factors of a product
    if near:
        # A tree of products of factors 1 + w keeps the digits of small w.
        w = np.multiply(power, a, out=work)
        for _ in range(most.bit_length() - 1 + (most == d)):
            half = len(w) // 2
            first, second = w[:half], w[half : 2 * half]
            second += first * (1 + second)
            w = w[half:]
        np.log1p(w).sum(axis=0, out=out)
        return
    np.add(power, ratio, out=work)
    np.log(np.multiply.reduce(work[:most], axis=0, out=out), out=out)
    for start in range(most, d, most):
        out += np.log(np.multiply.reduce(work[start : start + most], axis=0))
    out += d * math.log(a)
