"""Optimisers on problems whose minima are known, flat and curved, with and without limits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import expm
from scipy.optimize import minimize

from divlearn import mean_abld
from divlearn.engines import get_engine
from divlearn.geometry import in_frames, move_frames
from divlearn.optim import (
    Memory,
    Trial,
    minimize_conjugate_gradient,
    minimize_lbfgs,
    minimize_projected_gradient,
)


class Flat:
    """A function on R^n with lower limits."""

    def __init__(self, function, gradient, lower=-np.inf):
        self.function, self._gradient, self.lower = function, gradient, lower
        self.seen = []

    def trial(self, point):
        value = float(self.function(point))
        self.seen.append(value)
        return Trial(point, value)

    def gradient(self, trial):
        return self._gradient(trial.point)

    def move(self, point, step):
        return point + step

    def size(self, step):
        return float(np.abs(step).max())

    def limits(self, point):
        return self.lower - point


class Centroid:
    """The centroid of SPD matrices, in moving frames."""

    def __init__(self, X, alpha, beta):
        self.X, self.alpha, self.beta = X, alpha, beta
        self.engine = get_engine("reference")

    def trial(self, frame):
        values = self.engine.encode(self.X, (frame @ frame.T)[None], self.alpha, self.beta)
        return Trial(frame, float(values.mean()))

    def gradient(self, trial):
        atom = (trial.point @ trial.point.T)[None]
        ones = np.full((len(self.X), 1), 1 / len(self.X))
        back = self.engine.pullback(self.X, atom, self.alpha, self.beta, ones)
        return in_frames(back.whitened, atom, trial.point[None]).ravel()

    def move(self, frame, step):
        return move_frames(frame[None], step.reshape(1, *frame.shape))[0]

    def size(self, step):
        return float(np.linalg.norm(step))

    def limits(self, frame):
        return -np.inf


def quadratic(seed=0, n=12, condition=100.0, lower=-np.inf):
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    H = Q * np.geomspace(1, condition, n) @ Q.T
    b = rng.standard_normal(n)
    return Flat(lambda x: 0.5 * x @ H @ x - b @ x, lambda x: H @ x - b, lower), H, b


def run(method, problem, start, **options):
    values = []
    result = method(
        problem,
        problem.trial(start),
        callback=lambda progress: values.append(progress.trial.value),
        **options,
    )
    assert (np.diff(values) <= 1e-12 * np.abs(values[:-1])).all(), "the objective rose"
    return result


METHODS = [minimize_lbfgs, minimize_conjugate_gradient, minimize_projected_gradient]


@pytest.mark.parametrize("method", METHODS)
def test_quadratics(method):
    problem, H, b = quadratic()
    # Below the square root of epsilon values no longer tell steps apart.
    result = run(method, problem, np.zeros(12), max_iter=2000, tol=1e-6)
    assert "<= tol" in result.message
    np.testing.assert_allclose(result.trial.point, np.linalg.solve(H, b), atol=1e-6)


@pytest.mark.parametrize("method", [minimize_lbfgs, minimize_projected_gradient])
def test_quadratics_with_limits(method):
    problem, _, _ = quadratic(1, lower=0.0)
    result = run(method, problem, np.ones(12), max_iter=2000, tol=1e-9)
    expected = minimize(
        problem.function,
        np.ones(12),
        jac=problem._gradient,
        bounds=[(0, None)] * 12,
        method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-12},
    )
    assert (expected.x == 0).any()
    assert (result.trial.point >= 0).all()
    np.testing.assert_allclose(result.trial.point, expected.x, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_a_curved_valley(method):
    def function(x):
        return 10 * (x[1] - x[0] ** 2) ** 2 + (1 - x[0]) ** 2

    def gradient(x):
        return np.array([-40 * x[0] * (x[1] - x[0] ** 2) - 2 * (1 - x[0]), 20 * (x[1] - x[0] ** 2)])

    result = run(method, Flat(function, gradient), np.array([-1.2, 1.0]), max_iter=20000, tol=1e-6)
    np.testing.assert_allclose(result.trial.point, [1, 1], atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 0.0), (0.5, 0.5), (1.3, 0.2)])
def test_centroids_in_moving_frames(method, alpha, beta):
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((15, 4, 12))
    X = factors @ factors.mT / 12
    result = run(method, Centroid(X, alpha, beta), np.eye(4), max_iter=500, tol=1e-8)
    expected = mean_abld(X, alpha, beta, tol=1e-12).mean
    frame = result.trial.point
    np.testing.assert_allclose(frame @ frame.T, expected, atol=1e-6)


def test_lbfgs_needs_far_fewer_evaluations_than_the_gradient_alone():
    problem, _, _ = quadratic(2, n=30, condition=1e4)
    minimize_lbfgs(problem, problem.trial(np.zeros(30)), max_iter=500, tol=1e-4, memory=30)
    quasi_newton = len(problem.seen)
    problem.seen.clear()
    minimize_lbfgs(problem, problem.trial(np.zeros(30)), max_iter=500, tol=1e-4, memory=1)
    assert quasi_newton < 0.7 * len(problem.seen)


@pytest.mark.parametrize("method", METHODS)
def test_stopping(method):
    problem, _, _ = quadratic()
    result = method(problem, problem.trial(np.zeros(12)), max_iter=3, tol=0.0)
    assert result.n_iter == 3
    assert result.message.startswith("max_iter=3 reached")
    stopped = method(
        problem,
        problem.trial(np.zeros(12)),
        max_iter=9,
        tol=0.0,
        callback=lambda progress: "enough" if progress.n_iter == 2 else None,
    )
    assert (stopped.n_iter, stopped.message) == (2, "enough")


@pytest.mark.parametrize("method", METHODS)
def test_values_that_are_not_finite_shorten_the_step(method):
    problem = Flat(
        lambda x: np.inf if x[0] > 1 else -np.sqrt(max(1.0001 - x[0], 0)) + x[0] ** 2 - x[0],
        lambda x: np.array([0.5 / np.sqrt(max(1.0001 - x[0], 1e-12)) + 2 * x[0] - 1]),
    )
    result = run(method, problem, np.array([-5.0]), max_iter=200, tol=1e-8)
    assert np.isfinite(result.trial.value)
    assert abs(problem.gradient(result.trial)[0]) < 1e-5


@pytest.mark.parametrize("method", METHODS)
def test_where_nothing_is_lower_it_says_so(method):
    """A gradient that lies."""
    problem = Flat(lambda x: float(np.abs(x).sum()), lambda x: -np.ones_like(x))
    result = method(problem, problem.trial(np.zeros(3)), max_iter=9, tol=1e-9)
    assert "no step lowers the objective" in result.message


def test_memory_reproduces_the_inverse_of_a_quadratic():
    _, H, _ = quadratic(3, n=5, condition=10)
    memory = Memory(50)
    for direction in np.linalg.eigh(H)[1].T:  # conjugate directions: then BFGS is exact
        memory.learn(direction, H @ direction)
    vector = np.arange(1.0, 6.0)
    np.testing.assert_allclose(memory.multiply(vector), np.linalg.solve(H, vector), rtol=1e-9)
    memory.learn(np.ones(5), -np.ones(5))
    assert len(memory) == 5  # nothing is learned from negative curvature


def textbook_two_loops(pairs, gradient, free):
    """Nocedal and Wright, algorithm 7.4, on the free coordinates."""
    q, used = gradient * free, []
    for step, change in reversed(pairs):
        s, y = step * free, change * free
        along = s @ q / (s @ y)
        q, used = q - along * y, [*used, (s, y, along)]
    s, y, _ = used[0]
    q = q * (s @ y / (y @ y))
    for s, y, along in reversed(used):
        q = q + (along - y @ q / (s @ y)) * s
    return q


def test_the_memory_is_that_of_the_textbook():
    rng = np.random.default_rng(0)
    memory, pairs = Memory(4), []
    curvature = np.exp(rng.standard_normal(30))
    for _ in range(7):  # more than it holds: the oldest are forgotten
        step = 10 ** rng.uniform(-4, 0) * rng.standard_normal(30)
        memory.learn(step, curvature * step)
        pairs = [*pairs, (step, curvature * step)][-4:]
        for free in (np.ones(30), (rng.random(30) < 0.8).astype(float)):
            gradient = rng.standard_normal(30)
            right = textbook_two_loops(pairs, gradient, free)
            found = memory.multiply(gradient, free)
            np.testing.assert_allclose(found, right, rtol=1e-10, atol=1e-12)
            assert not found[free == 0].any()


@pytest.mark.parametrize("size", [1e-9, 0.01, 0.3, 2.0, 2.3, 30.0])
def test_frames_move_by_exponentials(size):
    rng = np.random.default_rng(0)
    frames, steps = rng.standard_normal((2, 5, 4, 4))
    steps = steps + steps.mT
    steps *= size / np.linalg.norm(steps, axis=(1, 2), keepdims=True)
    right = [frame @ expm(0.5 * step) for frame, step in zip(frames, steps, strict=True)]
    np.testing.assert_allclose(move_frames(frames, steps), right, rtol=1e-12, atol=1e-13 * size)
