"""Engines on covariances as they often are: of low rank plus a ridge, ill-conditioned, degenerate.

Eigenvalues of such pencils span up to 1e14, and many of them may be equal.
"""

from __future__ import annotations

from functools import cache

import mpmath
import numpy as np
import pytest
from conftest import (
    assert_within,
    engine_names,
    frobenius,
    gradient_error,
    in_frame_of,
    log_eigenvalue_error,
    native_names,
    rotated,
    wishart,
)
from engine_problems import value_error
from oracle.high_precision import to_matrix

from divlearn.engines.pencil import decompose, factorize, whiteners
from divlearn.spectral import abld_scalar

POINT = (0.7, 1.2)
WIDE = ("half rank", "quarter rank", "frames", "mixed", "one-sided")
every_other = pytest.mark.parametrize(
    "engine_name", [name for name in (*engine_names(), *native_names()[1:]) if name != "reference"]
)


def low_rank(rng, n: int, d: int, rank: int, ridge: float) -> np.ndarray:
    samples = rng.standard_normal((n, d, rank))
    return samples @ samples.mT / rank + ridge * np.eye(d)


def pencils(kind: str, d: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(d)
    if kind == "half rank":
        return low_rank(rng, 3, d, d // 2, 1e-3), low_rank(rng, 1, d, d // 2, 1e-3)
    if kind == "quarter rank":
        return low_rank(rng, 3, d, d // 4, 1e-6), low_rank(rng, 1, d, d // 4, 1e-6)
    if kind == "frames":
        return rotated(rng, 3, d, 1e4), rotated(rng, 1, d, 1e4)
    if kind == "one-sided":
        return low_rank(rng, 3, d, d // 4, 1e-6), wishart(rng, 1, d)
    parts = [low_rank(rng, 1, d, d // 3, 1e-5), wishart(rng, 1, d), low_rank(rng, 1, d, 2, 1e-4)]
    return np.concatenate(parts), low_rank(rng, 1, d, d // 4, 1e-6)


@cache
def exact(kind: str, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Log-eigenvalues (3, 1, d), and gradients of each pair in the frame of the atom."""
    X, B = pencils(kind, d)
    if d > 9:  # high precision would take a minute
        (factor, exponent), (atom, unit) = factorize(X), factorize(B)
        t, basis = decompose(whiteners(atom) @ factor, exponent - unit, 0.0, vectors=True)
    else:
        t, basis = map(np.stack, zip(*(high_precision(x, B[0]) for x in X), strict=True))
    return t[:, None], -(basis * abld_scalar(t, *POINT).f_t[:, None]) @ basis.mT


def high_precision(X: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-eigenvalues and eigenvectors of X in the frame of B."""
    with mpmath.workdps(40):
        whitener = mpmath.inverse(mpmath.cholesky(to_matrix(B)))
        whitened = whitener * to_matrix(X) * whitener.T
        values, vectors = mpmath.eigsy((whitened + whitened.T) / 2)
        t = [float(mpmath.log(value)) for value in values]
    return np.array(t), np.array(vectors.tolist(), dtype=float)


@every_other
@pytest.mark.parametrize("d", [9, 17])
@pytest.mark.parametrize("kind", WIDE)
def test_values_and_gradients_of_wide_spectra(engine, kind, d):
    X, B = pencils(kind, d)
    t, gradients = exact(kind, d)
    t_error = log_eigenvalue_error(X, B, t) * (1 if d == 9 else 2)  # the reference errs too
    assert_within(np.abs(engine.spectra(X, B) - t), t_error)
    points = np.array([POINT])
    right = abld_scalar(t, *POINT)
    values = engine.encode(X, B, *POINT)
    assert_within(np.abs(values - right.f.sum(axis=-1)), value_error(X, B, t, t_error, points))
    weight = np.array([[0.8], [-1.3], [0.6]])
    back = engine.pullback(X, B, *POINT, weight, values=True)
    assert_within(np.abs(back.values - right.f.sum(axis=-1)), value_error(X, B, t, t_error, points))
    allowed = (np.abs(weight) * gradient_error(t, *POINT, t_error)).sum(axis=0)
    expected = (weight[:, :, None] * gradients).sum(axis=0)
    assert_within(frobenius(back.whitened[0] - expected), allowed)
    assert_within(frobenius(in_frame_of(B, back.atoms)[0] - expected), 2 * allowed)
    for name in ("alpha", "beta"):
        slope = (weight * getattr(right, f"f_{name}").sum(axis=-1)).sum(axis=0)
        error = np.abs(weight) * value_error(X, B, t, t_error, points, f"f_{name}")
        assert_within(np.abs(getattr(back, name) - slope), error.sum(axis=0))


MULTIPLE = {  # distinct eigenvalues, each as often as the others
    "two": (1.0, 4.0),
    "five": (0.25, 0.5, 1.0, 3.0, 16.0),
    "wide": (1e-4, 1.0, 1e4),
    "close": (1.0, 1 + 1e-12, 1 + 1e-9, 1 + 1e-6, 1 + 1e-3),
    "alone": (3.0,),
}


@every_other
@pytest.mark.parametrize("d", [24, 40])
@pytest.mark.parametrize("frame", ["blocks", "diagonal", "rotated"])
@pytest.mark.parametrize("name", MULTIPLE)
def test_multiple_eigenvalues(engine, name, frame, d):
    """X is B times a scalar on invariant subspaces: spectrum and gradient are known."""
    rng = np.random.default_rng(d)
    scale = np.repeat(MULTIPLE[name], -(-d // len(MULTIPLE[name])))[:d]
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0] if frame == "rotated" else np.eye(d)
    B = wishart(rng, 1, d)
    if frame == "blocks":
        B *= scale[:, None] == scale
    factor = np.linalg.cholesky(B) @ basis
    X = B * scale if frame == "blocks" else (factor * scale) @ factor.mT
    X = np.repeat(0.5 * (X + X.mT), 3, axis=0)
    t = np.sort(np.log(np.broadcast_to(scale, (3, 1, d))))
    t_error = log_eigenvalue_error(X, B, t)
    assert_within(np.abs(engine.spectra(X, B) - t), t_error)
    weight = np.array([[0.8], [-0.3], [0.6]])
    back = engine.pullback(X, B, *POINT, weight)
    expected = -(basis * abld_scalar(np.log(scale), *POINT).f_t) @ basis.T * weight.sum()
    allowed = (np.abs(weight) * gradient_error(t, *POINT, t_error)).sum(axis=0)
    assert_within(frobenius(back.whitened[0] - expected), allowed)
