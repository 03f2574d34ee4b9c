"""Log-Euclidean metric learning: projections, optimality, invariance, and the estimator."""

from __future__ import annotations

import re
from typing import NamedTuple

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interrupting import stop_at
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from divlearn.baselines import LEML
from divlearn.baselines.leml_metric import (
    Solution,
    distance_percentiles,
    near_pairs,
    project,
    solve_logdet,
)
from divlearn.datasets import make_wishart_clusters
from divlearn.fitting import listen
from divlearn.geometry import logm


def classes(seed: int, n: int = 60, d: int = 3, separation: float = 2.0):
    X, y = make_wishart_clusters(3, n // 3, d, separation=separation, random_state=seed)
    order = np.random.default_rng(seed).permutation(n)
    return X[order], y[order]


class Constraints(NamedTuple):
    differences: np.ndarray
    similar: np.ndarray
    bounds: np.ndarray


def solve(constraints: Constraints, start: np.ndarray, eta: float, **options) -> Solution:
    return solve_logdet(*constraints, start, eta, **options)


def problem(seed: int, n: int = 25, d: int = 3) -> tuple[Constraints, np.ndarray]:
    """Constraints, some of which cannot hold without slack, and a start."""
    rng = np.random.default_rng(seed)
    gaps = rng.standard_normal((n, d, d))
    gaps = gaps + gaps.mT
    bounds = rng.uniform(0.3, 3, n) * d**2
    start = np.eye(d) + 0.3 * rng.standard_normal((d, d))
    return Constraints(gaps, rng.random(n) < 0.5, bounds), start


def distances(constraints: Constraints, Q: np.ndarray) -> np.ndarray:
    return np.einsum("nij,nik,jk->n", constraints.differences, constraints.differences, Q)


# --- one projection


@given(
    st.lists(st.floats(1e-6, 1e4), min_size=1, max_size=6),
    st.floats(1e-4, 1e4),
    st.floats(1e-3, 1e3),
)
def test_a_projection_solves_its_equation(squares, bound, eta):
    ascending = np.sort(squares)
    change = project(ascending, bound, eta)
    assert change * ascending[-1] > -1
    assert change * bound < eta
    with mpmath.workdps(50):
        value = mpmath.mpf(change)
        left = sum(1 / (1 / mpmath.mpf(square) + value) for square in squares)
        right = 1 / (1 / mpmath.mpf(bound) - value / mpmath.mpf(eta))
        slope = left + right / mpmath.mpf(eta)  # per unit of relative error of what they hold
        # Both sides have poles at the ends, near which rounding of the root is all there is.
        rounding = 1e-15 * (abs(value) * slope + 1)
        assert abs(mpmath.log(left / right)) <= 1e-11 + 10 * rounding


def test_a_projection_of_rank_one_without_slack_is_that_of_itml():
    # 1 / (1 / p + mu) = xi
    for square, bound in ((2.0, 0.5), (0.1, 7.0)):
        change = project(np.array([0.0, 0.0, square]), bound, 1e14)
        assert change == pytest.approx(1 / bound - 1 / square, rel=1e-9)


def test_a_projection_makes_its_constraint_hold():
    constraints, start = problem(0, n=1, d=4)
    for bound in (0.1, 500.0):
        one = Constraints(constraints.differences, np.array([bound < 1]), np.array([bound]))
        found = solve(one, start, 2.0, max_iter=1, tol=0.0)
        [distance] = distances(one, found.frame @ found.frame.T)
        assert distance == pytest.approx(found.bounds[0], rel=1e-10)


# --- the whole problem


@pytest.mark.parametrize("eta", [0.1, 1.0])
def test_the_conditions_of_optimality_hold(eta):
    constraints, start = problem(1)
    found = solve(constraints, start, eta, max_iter=3000, tol=1e-11)
    assert "<= tol" in found.message
    Q, mu = found.frame @ found.frame.T, found.multipliers
    np.testing.assert_array_equal(np.sign(mu) * np.where(constraints.similar, 1, -1) >= 0, True)
    squares = constraints.differences.mT @ constraints.differences
    inverse = np.linalg.inv(start @ start.T) + np.tensordot(mu, squares, axes=1)
    np.testing.assert_allclose(Q @ inverse, np.eye(3), atol=1e-8)
    np.testing.assert_allclose(1 / found.bounds, 1 / constraints.bounds - mu / eta, rtol=1e-8)
    gaps = distances(constraints, Q) / found.bounds - 1
    active = mu != 0
    assert 0 < active.sum() < len(mu)
    np.testing.assert_allclose(gaps[active], 0, atol=1e-7)
    assert (np.where(constraints.similar, gaps, -gaps)[~active] <= 1e-9).all()


@pytest.mark.parametrize("eta", [0.3, 3.0])
def test_as_a_general_minimiser(eta):
    """Without multipliers: the best slack is the distance itself, where a bound is not kept."""
    constraints, start = problem(2, n=15)
    prior = np.linalg.inv(start @ start.T)
    lower = np.tril_indices(3)

    def objective(entries):
        L = np.zeros((3, 3))
        L[lower] = entries
        Q = L @ L.T
        ratio = distances(constraints, Q) / constraints.bounds
        broken = np.where(constraints.similar, ratio > 1, ratio < 1)
        slack = (ratio - np.log(ratio) - 1)[broken].sum()
        return np.trace(Q @ prior) - np.linalg.slogdet(Q)[1] + eta * slack

    options = {"maxiter": 5000, "gtol": 1e-9}
    plain = minimize(objective, np.linalg.cholesky(start @ start.T)[lower], options=options)
    L = np.zeros((3, 3))
    L[lower] = plain.x
    found = solve(constraints, start, eta, max_iter=3000, tol=1e-11)
    np.testing.assert_allclose(found.frame @ found.frame.T, L @ L.T, rtol=1e-4, atol=1e-5)


def test_constraints_that_can_hold_do():
    # Similar pairs differ in the first variable, dissimilar ones in the second.
    similar = np.repeat([True, False], 10)
    sizes = np.random.default_rng(3).uniform(1, 2, 20)
    gaps = np.zeros((20, 2, 2))
    gaps[similar, 0, 0], gaps[~similar, 1, 1] = sizes[:10], sizes[10:]
    constraints = Constraints(gaps, similar, np.where(similar, 0.5, 10.0))
    found = solve(constraints, np.eye(2), 1e6, max_iter=500, tol=1e-9)
    held = distances(constraints, found.frame @ found.frame.T)
    assert held[similar].max() <= 0.5 * (1 + 1e-3)
    assert held[~similar].min() >= 10 * (1 - 1e-3)


def test_nothing_to_do():
    constraints, start = problem(4)
    held = distances(constraints, start @ start.T)
    easy = Constraints(constraints.differences, constraints.similar, held)
    found = solve(easy, start, 1.0, max_iter=5, tol=0.0)
    np.testing.assert_allclose(found.frame @ found.frame.T, start @ start.T)
    assert found.n_iter == 1
    assert "<= tol" in found.message


# --- pairs


def test_pairs_are_near_ones():
    rng = np.random.default_rng(5)
    vectors, codes = rng.standard_normal((30, 4)), np.arange(30) % 3
    pairs, similar = near_pairs(vectors, codes, 120, rng)
    assert len(pairs) == 120
    table = cdist(vectors, vectors) + np.where(np.eye(30), np.inf, 0)
    alike = codes[:, None] == codes
    for kind in (True, False):
        ranked = np.argsort(np.where(alike == kind, table, np.inf), axis=1)
        some = pairs[similar == kind]
        np.testing.assert_array_equal(np.sort(some[:30, 0]), np.arange(30))
        np.testing.assert_array_equal(some[:30, 1], ranked[some[:30, 0], 0])
        np.testing.assert_array_equal(some[30:, 1], ranked[some[30:, 0], 1])
    fewer, _ = near_pairs(vectors, codes, 50, np.random.default_rng(0))
    more, _ = near_pairs(vectors, codes, 200, np.random.default_rng(0))
    np.testing.assert_array_equal(more[:50], fewer)


def test_pairs_there_are_not():
    vectors, codes = np.array([[0.0], [0.0], [1.0], [3.0]]), np.array([0, 0, 0, 1])
    pairs, similar = near_pairs(vectors, codes, 1000, None)
    # Copies are no pair, and the lone member of a class has none in it.
    assert {tuple(pair) for pair in pairs[similar]} == {(0, 2), (1, 2), (2, 0), (2, 1)}
    assert {tuple(pair) for pair in pairs[~similar]} == {
        (0, 3),
        (1, 3),
        (2, 3),
        (3, 0),
        (3, 1),
        (3, 2),
    }


def test_percentiles_of_distances():
    vectors = np.random.default_rng(6).standard_normal((300, 2))
    table = cdist(vectors, vectors, "sqeuclidean")[np.triu_indices(300, 1)]
    found = distance_percentiles(vectors, (5, 95), np.random.default_rng(0))
    np.testing.assert_allclose(found, np.percentile(table, (5, 95)), rtol=0.1)


# --- the estimator


def test_distances_are_the_learned_ones():
    X, y = classes(7)
    model = LEML(60, 1.0, random_state=0).fit(X, y)
    vectors, logarithms = model.transform(X), logm(X)
    assert vectors.shape == (60, 9)
    for i, j in ((0, 1), (5, 40)):
        gap = logarithms[i] - logarithms[j]
        learned = np.trace(model.Q_ @ gap @ gap)
        assert ((vectors[i] - vectors[j]) ** 2).sum() == pytest.approx(learned, rel=1e-10)
    np.testing.assert_array_equal(model.predict(X), y)
    table = cdist(vectors[40:], vectors[:40])
    model = LEML(60, 1.0, random_state=0).fit(X[:40], y[:40])
    table = cdist(model.transform(X[40:]), model.transform(X[:40]))
    np.testing.assert_array_equal(model.predict(X[40:]), y[:40][table.argmin(axis=1)])


def test_a_rotation_of_the_data_rotates_the_metric():
    X, y = classes(8)
    R = np.linalg.qr(np.random.default_rng(8).standard_normal((3, 3)))[0]
    settings = {"n_constraints": 60, "eta": 0.3, "max_iter": 300, "tol": 1e-7, "random_state": 0}
    plain, rotated = LEML(**settings).fit(X, y), LEML(**settings).fit(R @ X @ R.T, y)
    np.testing.assert_allclose(rotated.Q_, R @ plain.Q_ @ R.T, rtol=1e-4, atol=1e-6)


def test_noise_in_some_variables_is_learned_away():
    # Classes differ in the variance of the first variable; the last ones only vary.
    rng = np.random.default_rng(9)
    y = np.arange(120) % 2
    heights = rng.standard_normal((120, 5)) * [0.3, 3, 3, 3, 3] + np.outer(2 * y, [1, 0, 0, 0, 0])
    X = np.exp(heights)[:, :, None] * np.eye(5)
    model = LEML(random_state=0).fit(X[:80], y[:80])
    logarithms = np.log(np.diagonal(X, axis1=1, axis2=2))
    plain = (y[:80][cdist(logarithms[80:], logarithms[:80]).argmin(axis=1)] == y[80:]).mean()
    assert model.score(X[80:], y[80:]) > 0.95 > 0.8 > plain
    weights = np.diag(model.Q_)
    assert weights[0] > 20 * weights[1:].max()


def test_constraints_are_added_until_it_does_not_help():
    X, y = classes(10, n=45, separation=1.0)
    model = LEML(random_state=0).fit(X, y)
    counts, accuracy = model.history_["n_constraints"], model.history_["accuracy"]
    assert counts[:3].tolist() == [90, 90, 90]  # ten for each pair of classes
    assert model.history_["eta"][:3].tolist() == [0.1, 0.3, 1.0]
    best = accuracy[:3].max()
    for count, before, reached in zip(counts[3:-1], counts[2:], accuracy[3:-1], strict=False):
        assert count == 2 * before
        best = max(best, reached)
    assert accuracy[-2] <= best  # the last one did not help
    assert np.isnan(accuracy[-1])
    assert model.n_constraints_ == counts[-1]
    assert f"the best of {len(counts) - 1} by held-out accuracy" in model.message_


@pytest.mark.parametrize("at", [1, 4, 100])  # in the search, later in it, after the end
def test_an_interruption_keeps_the_best(at):
    X, y = classes(11, n=30)
    with listen(stop_at("passes", at)):
        model = LEML(random_state=0).fit(X, y)
    assert ("interrupted by the user in pass" in model.message_) == (at < 100)
    assert np.linalg.eigvalsh(model.Q_).min() > 0
    assert model.score(X, y) == 1


def test_verbose(capsys):
    X, y = classes(12)
    LEML(30, 0.5, max_iter=2, random_state=0, verbose=2).fit(X, y)
    told = capsys.readouterr().out.splitlines()
    assert re.match(r"\[LEML\] \d+ s: 1 of 2 passes, multipliers changed by", told[0])
    assert told[-1].startswith("[LEML] 30 constraints, eta=0.5: ")


def test_few_matrices():
    X, _ = classes(13)
    model = LEML(random_state=0).fit(X[:2], ["a", "b"])
    assert model.predict(X[:2]).tolist() == ["a", "b"]
    copies = LEML(random_state=0).fit(np.broadcast_to(X[0], (6, 3, 3)), [0, 0, 0, 1, 1, 1])
    np.testing.assert_allclose(copies.Q_, np.eye(3))


def test_names_of_features():
    model = LEML(20, 0.3, random_state=0).fit(*classes(14))
    assert model.get_feature_names_out().tolist() == [f"leml{k}" for k in range(9)]


@pytest.mark.parametrize(
    ("parameters", "kind", "message"),
    [
        ({"n_constraints": "many"}, ValueError, r"n_constraints='many' must be \"plateau\" or an"),
        ({"n_constraints": 0}, ValueError, r"n_constraints=0 must be >= 1"),
        ({"n_constraints": 2.5}, TypeError, r"n_constraints=2.5 must be an integer"),
        ({"eta": 0.0}, ValueError, r"eta=0.0 must be a finite number > 0"),
        ({"percentiles": (95, 5)}, ValueError, r"percentiles=\(95, 5\) must be two numbers, 0 < u"),
        ({"percentiles": (5,)}, ValueError, r"percentiles=\(5,\) must be two numbers"),
        ({"max_iter": 0}, ValueError, r"max_iter=0 must be >= 1"),
        ({"tol": -1.0}, ValueError, r"tol=-1.0 must be a finite number >= 0"),
    ],
)
def test_wrong_parameters(parameters, kind, message):
    X, y = classes(15)
    with pytest.raises(kind, match=message):
        LEML(**parameters).fit(X, y)
