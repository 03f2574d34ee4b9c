"""Slopes of the scalar function f of log-eigenvalues, apart from `divlearn.spectral`.

What bounds the errors of the library must not come from it. These are the closed forms in
s = (alpha + beta) t, with E = e^-|s| so that nothing overflows but what is infinite itself:

    f_t = t psi(-|s|)/D,  f_tt = E/D^2,  f_talpha = -t^2 chi(s) f_tt,  f_tbeta = t^2 chi(-s) f_tt

where psi(x) = (e^x - 1)/x, chi(x) = (e^x - 1 - x)/x^2, and D = (alpha e^s + beta)/(alpha + beta),
times E where s > 0. f and its derivatives by the parameters are integrals of them from 0 to t.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

_NODES, _WEIGHTS = (0.5 * x for x in np.polynomial.legendre.leggauss(16))
_NODES = 0.5 + _NODES  # on the interval from 0 to 1


def slope(name: str, t, alpha, beta) -> np.ndarray:
    """Derivative by t of "f", "f_t", "f_alpha" or "f_beta"; infinite outside of the domain."""
    t, alpha, beta = np.broadcast_arrays(*(np.asarray(x, float) for x in (t, alpha, beta)))
    theta = alpha + beta
    s = theta * t
    r, right = np.abs(s), s > 0
    E = np.exp(-r)
    with np.errstate(all="ignore"):
        psi = np.where(r < 1e-8, 1.0, -np.expm1(-r) / r)
        mixed = (np.where(right, alpha, beta) + np.where(right, beta, alpha) * E) / theta
        D = np.where(right, E, 1.0) + alpha * t * psi
        D = np.where((alpha * beta >= 0) & (theta != 0), mixed, D)  # the other cancels there
        if name == "f":
            return np.where(D > 0, t * psi / D, np.inf * np.sign(t))
        if name == "f_t":
            top = E
        else:
            ahead = right if name == "f_alpha" else ~right
            low = np.where(r < 1e-3, 0.5 - r / 6, (np.expm1(-r) + r) / r**2)
            high = np.where(r < 1e-3, 0.5 - r / 3, (1 - (1 + r) * E) / r**2)
            sign = -1 if name == "f_alpha" else 1
            top = sign * t**2 * np.where(ahead, high, low * E)
        return np.where(D > 0, top / D / D, np.copysign(np.inf, top))


def change(name: str, start, stop, alpha, beta) -> np.ndarray:
    """Integral of a slope between two t, to some percent."""
    start, stop, alpha, beta = np.broadcast_arrays(start, stop, alpha, beta)
    distance = stop - start
    at = start[..., None] + distance[..., None] * _NODES
    with np.errstate(invalid="ignore"):
        return distance * (slope(name, at, alpha[..., None], beta[..., None]) @ _WEIGHTS)


def value(name: str, t, alpha, beta) -> np.ndarray:
    """f, f_alpha or f_beta to some percent.

    Slopes bend where alpha e^s = beta, over some units of s: they are integrated piece by piece.
    """
    t, alpha, beta = np.broadcast_arrays(*(np.asarray(x, float) for x in (t, alpha, beta)))
    with np.errstate(all="ignore"):
        bend = np.nan_to_num(np.log(beta / alpha) / (alpha + beta), posinf=np.inf, neginf=-np.inf)
        width = np.minimum(20 / np.abs(alpha + beta), 1e300)
    low, high = np.minimum(t, 0), np.maximum(t, 0)
    bend = np.clip(bend, low, high)
    ends = [low, *(np.clip(bend + k * width, low, high) for k in (-1, 0, 1)), high]
    pieces = [change(name, *two, alpha, beta) for two in pairwise(ends)]
    return np.sign(t) * np.sum(pieces, axis=0)
