"""Every engine on degenerate, extreme, ill-conditioned and graded pencils."""

from __future__ import annotations

import pickle
from functools import cache

import numpy as np
import pytest
from conftest import (
    EPS,
    assert_within,
    every_instruction_set,
    frobenius,
    gradient_error,
    in_frame_of,
    log_eigenvalue_error,
    propagated,
    rotated,
    scaled_condition,
    wishart,
)
from engine_problems import POINTS, problem, truth, value_error
from oracle.high_precision import Pair

from divlearn.engines import ReferenceEngine
from divlearn.spectral import abld_scalar

# --- degenerate and extreme pencils ---------------------------------------------------------------


def degenerate(kind: str, d: int):
    """Matrices, an atom and the log-eigenvalues they have by construction."""
    rng = np.random.default_rng(d)
    B = wishart(rng, 1, d)
    if kind == "equal":
        return B.repeat(9, axis=0), B, np.zeros((9, d))
    if kind == "multiple":
        scale = np.exp2(np.arange(-4, 5))
        return scale[:, None, None] * B, B, np.log(scale)[:, None].repeat(d, axis=1)
    if kind == "diagonal":
        X, B = rng.uniform(0.5, 2, (9, d)), rng.uniform(0.5, 2, (1, d))
        return X[:, :, None] * np.eye(d), B[:, :, None] * np.eye(d), np.sort(np.log(X / B))
    values = np.ones((9, d))
    if kind == "repeated":
        values[:, : d // 2] = 4.0
    else:  # a cluster
        values *= 1 + 1e-12 * np.arange(d)
    factor = np.linalg.cholesky(B[0])
    X = (factor * values[:, None, :]) @ factor.T
    return 0.5 * (X + X.mT), B, np.sort(np.log(values))


@cache
def degenerate_errors(kind: str, d: int, point: tuple[float, float]) -> tuple[float, ...]:
    """What the trace of the gradient and the derivatives in the parameters may be off by."""
    X, B, t = degenerate(kind, d)
    t, points = t[:, None], np.array([point])
    t_error = log_eigenvalue_error(X, B, t)
    trace = gradient_error(t, *point, t_error).sum() * np.sqrt(d)
    both = (value_error(X, B, t, t_error, points, f"f_{name}").sum() for name in ("alpha", "beta"))
    return (trace, *both)


@every_instruction_set
@pytest.mark.parametrize("d", [1, 3, 8, 17])
@pytest.mark.parametrize("kind", ["equal", "multiple", "diagonal", "repeated", "cluster"])
def test_degenerate_spectra(engine, kind, d):
    X, B, t = degenerate(kind, d)
    computed = engine.spectra(X, B)
    assert_within(np.abs(computed[:, 0] - t), log_eigenvalue_error(X, B, t[:, None])[:, 0])
    cotangent = np.ones((len(X), 1))
    for point in ((0.0, 0.0), (0.5, 0.5), (0.7, 1.1), (0.0, 1.0)):
        right, errors = abld_scalar(t, *point), degenerate_errors(kind, d, point)
        for with_parameters in (True, False):
            back = engine.pullback(X, B, *point, cotangent, parameters=with_parameters)
            # The trace of the whitened gradient is -sum f_t: no eigenvector enters.
            allowed = errors[0]
            if not with_parameters and sum(point) == 1:
                allowed += len(X) * d**2 * EPS * 2 * scaled_condition(B)[0] * 4
            assert abs(np.trace(back.whitened[0]) + right.f_t.sum()) <= allowed
            assert np.isfinite(back.atoms).all()
            if with_parameters:
                assert abs(back.alpha[0] - right.f_alpha.sum()) <= errors[1]
                assert abs(back.beta[0] - right.f_beta.sum()) <= errors[2]


@every_instruction_set
@pytest.mark.parametrize("x_scale", [1e-150, 1.0, 1e150])
@pytest.mark.parametrize("b_scale", [1e-150, 1.0, 1e150])
def test_scales_only_shift_the_spectrum(engine, x_scale, b_scale):
    X, B, _ = problem(5)
    t, t_error, _ = truth(5)
    shift = np.log(x_scale) - np.log(b_scale)
    computed = engine.spectra(X * x_scale, B * b_scale)
    # Scaling rounds every entry (one eps each side), and t is larger.
    allowed = 2 * t_error + 4 * EPS * abs(shift)
    assert_within(np.abs(computed - shift - t), allowed)


@pytest.mark.parametrize("scale", [1e-150, 1e-100, 1e100, 1e150])
def test_common_scale_changes_no_divergence(engine, scale):
    X, B, cotangent = problem(5)
    t, t_error, right = truth(5)
    back = engine.pullback(X * scale, B * scale, *POINTS.T, cotangent, values=True)
    allowed = 2 * value_error(X, B, t, t_error, POINTS)
    assert_within(np.abs(engine.encode(X * scale, B * scale, *POINTS.T) - right.values), allowed)
    assert_within(np.abs(back.values - right.values), allowed)
    first, second = (p[None, :, None] for p in POINTS.T)
    errors = np.abs(cotangent) * gradient_error(t, first, second, 2 * t_error)
    assert_within(frobenius(back.whitened - right.whitened), errors.sum(axis=0))
    gap = in_frame_of(B, back.atoms * scale - right.atoms)
    assert_within(frobenius(gap), errors.sum(axis=0))


def test_gradients_are_finite_where_inverses_of_atoms_are_not(engine):
    ratios, tiny = 1 + np.exp2([-9.0, -10.0, -11.0]), 2.0**-1030
    X, B = tiny * np.diag(ratios)[None], tiny * np.eye(3)[None]
    back = engine.pullback(X, B, 0, 0, np.ones((1, 1)))
    np.testing.assert_allclose(
        np.ldexp(back.atoms[0], -1030), -np.diag(np.log(ratios)), atol=8 * EPS
    )


EXTREMES = {
    "wide": (np.diag([1e-150, 1e150]), np.eye(2)),
    "wide-atom": (np.eye(2), np.diag([1e-150, 1e150])),
    "crossed": (np.diag([1e-150, 1e150]), np.diag([1e150, 1e-150])),
    "far": (1e150 * np.eye(2), 1e-150 * np.eye(2)),
    "far-back": (1e-150 * np.eye(2), 1e150 * np.eye(2)),
    "tiny": (1e-300 * np.eye(2), 1e-300 * np.diag([1.0, 2.0])),
    "huge": (1e300 * np.eye(2), 1e300 * np.diag([1.0, 2.0])),
}


EXTREME_POINTS = [*POINTS.tolist(), [20, 20], [1e-8, 1e-8], [5, 0], [0, 5]]


@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_spectra_and_divergences(engine, name):
    X, B = (matrix[None] for matrix in EXTREMES[name])
    right = np.sort(np.log(np.diag(X[0]) / np.diag(B[0])))
    assert_within(np.abs(engine.spectra(X, B)[0, 0] - right), 4 * EPS * np.abs(right).max())
    for alpha, beta in EXTREME_POINTS:
        value = engine.encode(X, B, alpha, beta)[0, 0]
        exact = abld_scalar(right, alpha, beta).f.sum()
        rounding = propagated("f", right, alpha, beta, 4 * EPS * np.abs(right).max())
        overflow = np.isinf(exact) and np.isinf(value)
        assert overflow or abs(value - exact) <= 2 * rounding, (alpha, beta, value, exact)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("with_parameters", [True, False])
@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_gradients_are_never_nan(engine, name, with_parameters):
    """What exceeds the range of floating-point numbers is infinite."""
    X, B = (matrix[None] for matrix in EXTREMES[name])
    found = []
    for alpha, beta in EXTREME_POINTS:
        back = engine.pullback(X, B, alpha, beta, [[1.0]], parameters=with_parameters, values=True)
        results = vars(back).items()
        found += [
            f"{which} at ({alpha:g}, {beta:g})"
            for which, array in results
            if array is not None and np.isnan(array).any()
        ]
    assert found == []


@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_gradients_at_the_origin(engine, name):
    """f_t = t, so nothing overflows: -diag(t) in the frame of the atom, in the order of B."""
    X, B = (matrix[None] for matrix in EXTREMES[name])
    t = np.log(np.diag(X[0]) / np.diag(B[0]))
    back = engine.pullback(X, B, 0, 0, [[1.0]])
    np.testing.assert_allclose(back.whitened[0], -np.diag(t), rtol=8 * EPS, atol=4 * EPS)
    unit = np.diag(B[0])
    np.testing.assert_allclose(np.diag(back.atoms[0]) * unit, -t, rtol=8 * EPS, atol=4 * EPS)
    allowed = 16 * EPS * np.abs(t).max() * (t**2).sum() + EPS**3  # cubes may cancel
    assert_within(abs(back.beta[0] - (t**3).sum() / 6), allowed)


def test_rotated_matrices_of_high_condition(engine):
    """Condition 1e8 without grading: eps times the condition is all that can be asked."""
    rng = np.random.default_rng(8)
    X, B = rotated(rng, 5, 8, 1e8), wishart(rng, 2, 8)
    t = ReferenceEngine(1, "accurate").spectra(X, B)
    allowed = 2 * log_eigenvalue_error(X, B, t)
    assert_within(np.abs(engine.spectra(X, B) - t), allowed)


# --- variables of very different size, in any order -----------------------------------------------


@pytest.mark.parametrize("graded", ["data", "atoms", "both"])
def test_graded_variables_in_any_order(engine, graded):
    """Condition 1e10 from units alone: eigenvalues to 1e-12, however the variables are ordered."""
    rng = np.random.default_rng(11)
    d = 6
    scales = np.geomspace(1.0, 1e5, d)[rng.permutation(d)]
    X, B = wishart(rng, 3, d, 3 * d), wishart(rng, 2, d, 3 * d)
    units = scales[:, None] * scales
    X = X * units if graded != "atoms" else X
    B = B * units if graded != "data" else B
    found = engine.spectra(X, B)
    for i, x in enumerate(X):
        for k, atom in enumerate(B):
            exact = np.array([float(t) for t in Pair(x, atom).t])
            assert_within(np.abs(found[i, k] - np.sort(exact)), 1e-12)


def test_gradients_follow_a_permutation_of_the_variables(engine):
    """Sorting the variables inside must not show outside: atoms and their frames come back."""
    rng = np.random.default_rng(12)
    d, scales = 5, np.array([1.0, 1e4, 1e-3, 30.0, 1e2])
    X, B = wishart(rng, 7, d) * np.outer(scales, scales), wishart(rng, 3, d)
    weight = rng.standard_normal((7, 3))
    given = engine.pullback(X, B, 0.7, 1.2, weight)
    order = np.argsort(-scales)
    ordered = engine.pullback(
        X[:, order[:, None], order], B[:, order[:, None], order], 0.7, 1.2, weight
    )
    size = np.abs(ordered.atoms).max()
    difference = np.abs(given.atoms[:, order[:, None], order] - ordered.atoms).max()
    assert difference <= 1e-10 * size
    L = np.linalg.cholesky(B)
    in_frame = L.mT @ given.atoms @ L
    np.testing.assert_allclose(given.whitened, in_frame, rtol=0, atol=1e-9 * np.abs(in_frame).max())
    np.testing.assert_allclose(given.alpha, ordered.alpha, rtol=1e-10)
    prepared = engine.prepare(X)
    assert np.array_equal(prepared.matrices, X)
    assert np.array_equal(pickle.loads(pickle.dumps(prepared)).matrices, X)
