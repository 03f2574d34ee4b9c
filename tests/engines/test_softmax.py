"""Compiled sums and Newton steps of softmax heads against SciPy and an explicit Hessian."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from divlearn.engines.compiled import newton_step, softmax_sums
from divlearn.engines.cpu import available_engines

if "native" not in available_engines():
    pytest.skip("needs the compiled engine", allow_module_level=True)
from divlearn.engines import _native

SETS = _native.instruction_sets()


each_set = pytest.mark.parametrize("instruction_set", SETS, indirect=True)


def problem(n, n_columns, n_outputs, seed=0):
    rng = np.random.default_rng(seed)
    design = rng.standard_normal((n, n_columns))
    targets = np.eye(n_outputs)[rng.integers(n_outputs, size=n)]
    weights = rng.random(n)
    head = rng.standard_normal((n_outputs, n_columns))
    return design, targets, weights / weights.sum(), head


@pytest.mark.parametrize(("n", "n_columns", "n_outputs"), [(5, 3, 2), (2100, 7, 9), (300, 20, 35)])
@each_set
@pytest.mark.usefixtures("instruction_set")
def test_sums_are_those_of_scipy(n, n_columns, n_outputs):
    design, targets, weights, head = problem(n, n_columns, n_outputs)
    loss, gradient, size, shares = softmax_sums(design, targets, weights, head)
    logarithms = log_softmax(design @ head.T, axis=1)
    p = np.exp(logarithms)
    np.testing.assert_allclose(shares, p, rtol=1e-12)
    np.testing.assert_allclose(loss, -weights @ (targets * logarithms).sum(axis=1), rtol=1e-13)
    expected = (weights[:, None] * (p - targets)).T @ design
    np.testing.assert_allclose(gradient, expected, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(size, weights @ (p * (1 - p)).mean(axis=1), rtol=1e-12)


@each_set
@pytest.mark.usefixtures("instruction_set")
def test_scores_that_differ_much_keep_small_losses():
    design, head = np.array([[1.0], [-1.0]]), np.array([[800.0], [0.0], [20.0]])
    targets, weights = np.array([[1.0, 0, 0], [0, 1.0, 0]]), np.array([0.5, 0.5])
    loss, gradient, _, shares = softmax_sums(design, targets, weights, head)
    np.testing.assert_allclose(loss, 0.5 * np.exp(-20.0), rtol=1e-8)  # of e^-780 and e^-20
    np.testing.assert_allclose(shares, softmax(design @ head.T, axis=1), rtol=1e-12, atol=1e-300)
    assert np.isfinite(gradient).all()


def explicit_hessian(design, shares, weights):
    """The Hessian of losses in a head of (n_outputs, n_columns), outputs first."""
    n_outputs, n_columns = shares.shape[1], design.shape[1]
    hessian = np.zeros((n_outputs, n_columns, n_outputs, n_columns))
    for x, p, w in zip(design, shares, weights, strict=True):
        hessian += w * np.einsum("ab,i,j->aibj", np.diag(p) - np.outer(p, p), x, x)
    return hessian.reshape(n_outputs * n_columns, -1)


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-9), (np.float32, 1e-4)])
@pytest.mark.parametrize(("n", "n_columns", "n_outputs"), [(37, 4, 2), (1100, 5, 9), (60, 3, 18)])
@each_set
@pytest.mark.usefixtures("instruction_set")
def test_a_step_solves_newtons_equation(n, n_columns, n_outputs, dtype, rtol):
    design, _, weights, head = problem(n, n_columns, n_outputs)
    shares = softmax(0.3 * design @ head.T, axis=1)
    bias = np.linalg.qr(design[:n_columns].T)[0][0]
    step = newton_step(
        design.astype(dtype),
        shares,
        weights,
        head,
        1 + head**2,
        bias,
        penalty=0.1,
        damping=0.05,
        enough=1e-12 if dtype == np.float64 else 1e-5,
        least_gain=0.0,
        most_products=500,
    )
    penalty = 0.2 * (np.eye(n_columns) - np.outer(bias, bias)) + 0.05 * np.eye(n_columns)
    hessian = explicit_hessian(design, shares, weights) + np.kron(np.eye(n_outputs), penalty)
    expected = np.linalg.solve(hessian, -head.ravel()).reshape(head.shape)
    np.testing.assert_allclose(step, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


def test_neither_depends_on_the_number_of_threads():
    design, targets, weights, head = problem(5000, 40, 30)
    results = []
    for threads in (1, 2):
        shares, gradient, totals = np.empty((5000, 30)), np.empty((40, 30)), np.empty(2)
        known = design, targets, weights, head.T.copy()
        _native.softmax_sums(SETS[0], *known, shares, gradient, totals, threads)
        step, ones = np.empty((40, 30)), np.ones((40, 30))
        known = design, shares, weights, ones, np.zeros(40), gradient
        _native.softmax_step(SETS[0], *known, step, 1e-2, 0.0, 1e-9, 0.0, 20, threads)
        results.append((gradient, totals, step))
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("change", ["weights", "head", "targets"])
def test_sizes_that_do_not_match_are_refused(change):
    design, targets, weights, head = problem(20, 3, 2)
    given = {"targets": targets, "weights": weights, "head": head}
    given[change] = given[change][:-1] if change != "head" else head[:, :-1]
    with pytest.raises(ValueError, match=f"wrong size of {change}"):
        softmax_sums(design, **given)
