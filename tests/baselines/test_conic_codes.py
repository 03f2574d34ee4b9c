"""RSPDL's codes and atoms: gradients, a generic solver, invariance, recovery, descent."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import wishart
from scipy.linalg import eigvalsh
from scipy.optimize import minimize

from divlearn.baselines.coded import AtomsProblem, learn_dictionary
from divlearn.baselines.rspdl import RSPDL, Cone, conic_codes, to_unit_trace


def make(seed=0, n_matrices=12, n_atoms=6, d=4):
    rng = np.random.default_rng(seed)
    X, atoms = wishart(rng, n_matrices, d), wishart(rng, n_atoms, d)
    amid = np.linalg.inv(np.linalg.cholesky(X.mean(axis=0)))
    return X, to_unit_trace(atoms, amid), amid


def objective(code, X, atoms, penalty):
    """From generalized eigenvalues by scipy."""
    logs = np.log(np.maximum(eigvalsh(np.tensordot(code, atoms, 1), X), 1e-12))
    return 0.5 * (logs**2).sum() + penalty * code.sum()


def test_values_and_gradients_of_codes():
    X, atoms, amid = make()
    codes = np.random.default_rng(1).uniform(0.05, 1, (12, 6))
    values, gradients = Cone(X, atoms, amid).evaluate(codes, 0.3)
    for x, code, value, gradient in zip(X, codes, values, gradients, strict=True):
        assert value == pytest.approx(objective(code, x, atoms, 0.3))
        h = 1e-6
        differences = [
            objective(code + h * e, x, atoms, 0.3) - objective(code - h * e, x, atoms, 0.3)
            for e in np.eye(6)
        ]
        np.testing.assert_allclose(gradient, np.array(differences) / (2 * h), rtol=1e-5, atol=1e-7)


def test_combinations_that_are_not_definite_are_infinite():
    X, atoms, amid = make()
    assert np.isinf(Cone(X, atoms, amid).misfit(np.zeros((12, 6)))[0]).all()


@pytest.mark.parametrize("penalty", [0.01, 1.0])
def test_codes_are_those_of_a_generic_solver(penalty):
    X, atoms, amid = make(n_matrices=5)
    cone = Cone(X, atoms, amid)
    codes = conic_codes(cone, penalty, tol=1e-7, max_iter=200)
    assert (codes >= 0).all()
    for x, code in zip(X, codes, strict=True):
        found = minimize(
            objective,
            np.full(6, 0.2),
            (x, atoms, penalty),
            method="L-BFGS-B",
            bounds=[(0, None)] * 6,
            options={"ftol": 1e-14, "gtol": 1e-9},
        )
        assert objective(code, x, atoms, penalty) == pytest.approx(found.fun, rel=1e-6)
        np.testing.assert_allclose(code, found.x, atol=1e-3)


def test_optimality_conditions():
    X, atoms, amid = make(3, n_matrices=10, n_atoms=10)
    cone = Cone(X, atoms, amid)
    codes = conic_codes(cone, 0.1, tol=1e-6, max_iter=300)
    _, gradients = cone.evaluate(codes, 0.1)
    assert (gradients > -1e-3).all()
    assert np.abs(codes * gradients).max() < 1e-3
    assert 1 < (codes > 0).sum(axis=1).mean() < 8


def test_codes_do_not_depend_on_coordinates():
    X, atoms, amid = make()
    A = np.random.default_rng(5).standard_normal((4, 4)) + 2 * np.eye(4)
    codes = conic_codes(Cone(X, atoms, amid), 0.1, tol=1e-6, max_iter=100)
    moved = Cone(A @ X @ A.T, A @ atoms @ A.T, amid @ np.linalg.inv(A))
    np.testing.assert_allclose(conic_codes(moved, 0.1, tol=1e-6, max_iter=100), codes, atol=1e-4)


def test_few_atoms_are_recovered():
    _, atoms, amid = make(2, n_atoms=8)
    truth = np.zeros((4, 8))
    truth[range(4), [0, 2, 4, 6]] = 1.0
    truth[range(4), [1, 3, 5, 7]] = 0.4
    X = np.tensordot(truth, atoms, 1)
    codes = conic_codes(Cone(X, atoms, amid), 0.0, tol=1e-10, max_iter=2_000)
    np.testing.assert_allclose(codes, truth, atol=1e-3)


def test_no_code_gets_worse_than_its_start():
    X, atoms, amid = make()
    cone = Cone(X, atoms, amid)
    start = np.random.default_rng(0).uniform(0, 1, (12, 6))
    before = cone.evaluate(start, 0.1)[0]
    for max_iter in (1, 2, 3, 5):
        found = conic_codes(cone, 0.1, start=start, max_iter=max_iter)
        assert (cone.evaluate(found, 0.1)[0] <= before).all()


def test_gradients_of_atoms_are_those_of_differences():
    X, atoms, amid = make()
    cone = Cone(X, atoms, amid)
    codes = np.random.default_rng(1).uniform(0.05, 1, (12, 6))
    problem = AtomsProblem(cone, codes, {"penalty": 0.3})
    trial = problem.trial(np.linalg.cholesky(atoms))
    expected = np.mean([objective(c, x, atoms, 0.3) for c, x in zip(codes, X, strict=True)])
    assert trial.value == pytest.approx(expected)
    gradient = problem.gradient(trial)
    rng = np.random.default_rng(2)
    for _ in range(5):
        step = rng.standard_normal((6, 4, 4))
        step = (step + step.mT).ravel()
        h = 1e-5
        ends = [problem.trial(problem.move(trial.point, sign * h * step)).value for sign in (1, -1)]
        assert (ends[0] - ends[1]) / (2 * h) == pytest.approx(gradient @ step, rel=1e-5)


def test_the_objective_never_rises_and_traces_stay():
    X, atoms, amid = make(n_matrices=20)
    start = Cone(X, atoms, amid)
    run = learn_dictionary(start, RSPDL()._codes, {"penalty": 0.3}, max_iter=5, tol=0)
    (atoms, codes), values = run.result, run.history["objective"]
    assert (np.diff(values) <= 1e-12).all()
    assert values[-1] < 0.8 * values[0]
    np.testing.assert_allclose(np.trace(amid @ atoms @ amid.T, axis1=1, axis2=2), 4)
    recomputed = [objective(code, x, atoms, 0.3) for code, x in zip(codes, X, strict=True)]
    assert np.mean(recomputed) == pytest.approx(values[-1])


def test_matrices_without_a_finite_distance_are_refused():
    """No search leads away from there, and codes of the start would mean nothing."""
    X, atoms, amid = make()
    X[2] *= np.multiply.outer(*2 * [np.logspace(-80, 80, 4)])
    with pytest.raises(ValueError, match=r"X\[2\] has the distance inf to a combination of the at"):
        conic_codes(Cone(X, atoms, amid), 0.1)
