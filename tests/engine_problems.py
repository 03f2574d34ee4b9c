"""Problems the engine tests share: data, atoms, parameters, and what is allowed to differ."""

from __future__ import annotations

from functools import cache

import numpy as np
from conftest import (
    EPS,
    log_eigenvalue_error,
    propagated,
    scaled_condition,
    wishart,
)

from divlearn.engines import ReferenceEngine, available_engines

DIMENSIONS = (1, 2, 3, 4, 5, 7, 8, 9, 16, 18, 23, 29, 33, 42, 65, 102)
# One atom per kind of member: every route of an engine in one call.
POINTS = np.array(
    [
        (0.0, 0.0),
        (0.0, 1.0),
        (1.0, 0.0),
        (0.5, 0.5),
        (0.3, 0.7),
        (1.0, 1.0),
        (0.0, 0.7),
        (1.3, 0.0),
        (0.8, 0.4),
        (-0.4, -0.9),
        (-0.5, -0.5),
    ]
)
has_native = "native" in available_engines()


def sizes(d: int) -> tuple[int, int]:
    """Numbers of matrices and of atoms: not multiples of any number of lanes."""
    return (37 if d <= 8 else 9 if d <= 42 else 3), len(POINTS)


@cache
def problem(d: int):
    rng = np.random.default_rng(100 + d)
    n_matrices, n_atoms = sizes(d)
    X, B = wishart(rng, n_matrices, d), wishart(rng, n_atoms, d)
    cotangent = rng.standard_normal((n_matrices, n_atoms))
    return X, B, cotangent


@cache
def truth(d: int):
    """The reference engine's answers and the error any engine may have."""
    X, B, cotangent = problem(d)
    engine = ReferenceEngine(1)
    t = engine.spectra(X, B)
    back = engine.pullback(X, B, *POINTS.T, cotangent, values=True)
    t_error = 2 * log_eigenvalue_error(X, B, t)  # both engines err
    return t, t_error, back


def value_error(X, B, t, t_error, points, name: str = "f"):
    """Rounding and, where an engine may subtract logarithms instead, their absolute error."""
    alpha, beta = (p[None, :, None] for p in points.T)
    product = np.abs(alpha * beta)[..., 0]
    trace = (product == 0) & (np.abs(alpha + beta)[..., 0] == 1)
    line = trace | (np.abs(np.abs(alpha + beta)[..., 0] - 1) <= EPS)
    condition = scaled_condition(X)[:, None] + scaled_condition(B)[None, :]
    absolute = X.shape[-1] * EPS * np.where(line, condition, 1)
    scale = np.where(trace, 1.0, np.where(product > 0, 1 / np.maximum(product, 0.01), 0.0))
    if name != "f":
        least = np.minimum(np.abs(alpha), np.abs(beta))[..., 0]
        scale = np.where(product > 0, scale / np.maximum(least, 0.1), 0.0)
    return propagated(name, t, alpha, beta, t_error) + 2 * absolute * scale
