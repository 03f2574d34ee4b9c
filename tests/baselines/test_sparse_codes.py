"""Codes of kernel sparse coding and of kLLC against generic solvers."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import wishart
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import Lasso

from divlearn.baselines import KernelSparseCoding
from divlearn.baselines.coded import AtomsProblem, learn_dictionary
from divlearn.baselines.kernel_codes import (
    bandwidths,
    check_bandwidth,
    lasso_values,
    local_codes,
    sparse_codes,
    view_by,
)

NAMES = ["log-euclidean", "stein"]


def problem(seed, n_samples=20, n_atoms=8, noise=0.3):
    """Kernels of unit vectors: samples near combinations of atoms."""
    rng = np.random.default_rng(seed)
    atoms = rng.standard_normal((n_atoms, n_atoms + 2))
    atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
    samples = rng.standard_normal((n_samples, n_atoms)) @ atoms
    samples += noise * rng.standard_normal(samples.shape)
    samples /= np.linalg.norm(samples, axis=1, keepdims=True)
    return atoms @ atoms.T, samples @ atoms.T


def view_of(name, seed=0, n_matrices=25, n_atoms=6, d=3):
    rng = np.random.default_rng(seed)
    X, atoms = wishart(rng, n_matrices, d), wishart(rng, n_atoms, d)
    return X, atoms, view_by(name, X, atoms)


@pytest.mark.parametrize("penalty", [1e-3, 0.03, 0.3])
def test_the_same_as_scikit_learn(penalty):
    gram, similarities = problem(0)
    codes = sparse_codes(similarities, gram, penalty, tol=1e-12)
    root = np.linalg.cholesky(gram)
    n = len(gram)
    targets = np.linalg.solve(root, similarities.T).T  # ||target - root^T a||^2 up to a constant
    lasso = Lasso(penalty / (2 * n), fit_intercept=False, tol=1e-14, max_iter=100_000)
    expected = np.stack([lasso.fit(root.T, target).coef_ for target in targets])
    np.testing.assert_allclose(codes, expected, atol=1e-5)
    np.testing.assert_array_equal(codes != 0, expected != 0)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_as_a_generic_solver_of_the_split_problem(name):
    _, _, view = view_of(name)
    similarities, gram = view.kernels(0.5)
    penalty, n = 0.05, len(gram)
    codes = sparse_codes(similarities, gram, penalty, tol=1e-12)
    for k, code in zip(similarities[:5], codes[:5], strict=True):
        found = minimize(
            lambda z, k=k: (
                (z[:n] - z[n:]) @ gram @ (z[:n] - z[n:])
                - 2 * k @ (z[:n] - z[n:])
                + penalty * z.sum()
            ),
            np.zeros(2 * n),
            bounds=[(0, None)] * (2 * n),
            method="L-BFGS-B",
            options={"ftol": 1e-15, "gtol": 1e-10},
        )
        value = lasso_values(k[None], gram, penalty, code[None])[0]
        assert value <= 1 + found.fun + 1e-10
        assert value == pytest.approx(1 + found.fun, abs=1e-7)


@given(seed=st.integers(0, 10**6), penalty=st.floats(1e-3, 1.0))
@settings(max_examples=25, deadline=None)
def test_optimality_conditions(seed, penalty):
    gram, similarities = problem(seed)
    codes = sparse_codes(similarities, gram, penalty, tol=1e-11)
    slopes = 2 * (codes @ gram - similarities)
    active = codes != 0
    assert (np.abs(slopes) <= penalty + 1e-4).all()
    np.testing.assert_allclose(slopes[active], -penalty * np.sign(codes[active]), atol=1e-4)


def test_equal_atoms_and_large_penalties():
    gram, similarities = problem(1)
    gram = np.block([[gram, gram], [gram, gram]])  # singular
    twice = np.concatenate([similarities, similarities], axis=1)
    codes = sparse_codes(twice, gram, 0.1, tol=1e-10)
    plain = sparse_codes(similarities, gram[:8, :8], 0.1, tol=1e-10)
    values = lasso_values(twice, gram, 0.1, codes)
    np.testing.assert_allclose(values, lasso_values(similarities, gram[:8, :8], 0.1, plain))
    assert not sparse_codes(twice, gram, 2.0).any()


def test_no_code_gets_worse_than_its_start():
    gram, similarities = problem(2)
    best = sparse_codes(similarities, gram, 0.05, tol=1e-13)
    again = sparse_codes(similarities, gram, 0.05, start=best, tol=1e-2)
    before, after = (lasso_values(similarities, gram, 0.05, one) for one in (best, again))
    assert (after <= before).all()


def test_few_atoms_are_recovered():
    gram, _ = problem(3)
    truth = np.zeros((4, 8))
    truth[range(4), [0, 2, 4, 6]] = 1.0
    truth[range(4), [1, 3, 5, 7]] = -0.5
    lengths = np.sqrt(((truth @ gram) * truth).sum(axis=1, keepdims=True))
    codes = sparse_codes((truth / lengths) @ gram, gram, 1e-3, tol=1e-10)
    np.testing.assert_allclose(codes, truth / lengths, atol=0.02)
    np.testing.assert_array_equal(np.abs(codes) > 0.02, truth != 0)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_atoms_are_those_of_differences(name):
    _, atoms, view = view_of(name)
    codes = sparse_codes(*view.kernels(0.5), 0.02)
    problem = AtomsProblem(view, codes, {"bandwidth": 0.5, "penalty": 0.02})
    trial = problem.trial(view.to_point(atoms))
    gradient = problem.gradient(trial)
    rng = np.random.default_rng(0)
    for _ in range(4):
        step = rng.standard_normal(trial.point.shape)
        step = (step + step.mT if name == "stein" else step).ravel()
        h = 1e-5
        ends = [problem.trial(problem.move(trial.point, sign * h * step)).value for sign in (1, -1)]
        assert (ends[0] - ends[1]) / (2 * h) == pytest.approx(gradient @ step, rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_the_objective_never_rises(name):
    _, _, view = view_of(name, n_matrices=40)
    parameters, code = {"bandwidth": 0.5, "penalty": 0.02}, KernelSparseCoding()._codes
    history = learn_dictionary(view, code, parameters, max_iter=6, tol=0.0).history
    assert list(history["block"][:4]) == ["start", "atoms", "codes", "atoms"]
    values = history["objective"]
    assert (np.diff(values) <= 0).all()
    assert values[-1] < 0.9 * values[0]


def test_codes_in_the_stein_kernel_do_not_depend_on_coordinates():
    X, atoms, view = view_of("stein")
    A = np.random.default_rng(5).standard_normal((3, 3)) + 2 * np.eye(3)
    moved = view_by("stein", A @ X @ A.T, A @ atoms @ A.T)
    sparse = [sparse_codes(*one.kernels(0.5), 0.05) for one in (view, moved)]
    np.testing.assert_allclose(*sparse, atol=1e-7)
    np.testing.assert_allclose(local_codes(moved, 0.5, 3), local_codes(view, 0.5, 3), atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [1, 3, 6])
def test_local_codes_are_those_of_a_constrained_solver(name, k):
    _, _, view = view_of(name)
    similarities, gram = view.kernels(0.5)
    codes = local_codes(view, 0.5, k)
    np.testing.assert_allclose(codes.sum(axis=1), 1)
    for code, near, row in zip(codes, similarities, view.to_atoms, strict=True):
        chosen = np.sort(np.argsort(row)[:k])
        np.testing.assert_array_equal(np.flatnonzero(code), chosen)
        inner, k_near = gram[np.ix_(chosen, chosen)], near[chosen]
        trace = np.trace(inner) - 2 * k_near.sum() + k  # of the Gram matrix around the sample
        quadratic = 2 * (inner + 1e-4 * trace * np.eye(k))
        system = np.block([[quadratic, np.ones((k, 1))], [np.ones((1, k)), np.zeros((1, 1))]])
        solution = np.linalg.solve(system, np.append(2 * k_near, 1))[:k]
        np.testing.assert_allclose(code[chosen], solution, atol=1e-8)


def test_local_codes_of_an_atom():
    _, atoms, _ = view_of("log-euclidean")
    view = view_by("log-euclidean", atoms, atoms)
    np.testing.assert_allclose(local_codes(view, 0.5, 1), np.eye(6), atol=1e-9)
    np.testing.assert_allclose(local_codes(view, 0.5, 4), np.eye(6), atol=1e-2)


def test_bandwidths_to_choose_from():
    _, _, view = view_of("log-euclidean")
    median = np.median(view.to_atoms)
    np.testing.assert_allclose(bandwidths(view, "auto"), np.array([0.25, 1, 4]) / median)
    _, _, view = view_of("stein", d=9)
    for bandwidth in bandwidths(view, "auto"):
        check_bandwidth(bandwidth, view.divergence, 9)
    assert bandwidths(view, 1.5) == [1.5]
    with pytest.raises(ValueError, match=r"bandwidth=0\.7 "):
        bandwidths(view, 0.7)


def test_similarities_that_are_no_numbers_have_no_codes():
    gram, similarities = problem(4)
    similarities[2, 1] = np.nan
    with pytest.raises(FloatingPointError, match="a duality gap is nan of sparse codes"):
        sparse_codes(similarities, gram, 0.1)
