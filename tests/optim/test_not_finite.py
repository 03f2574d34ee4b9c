"""Numbers that are none: no search takes them for its end."""

from __future__ import annotations

import numpy as np
import pytest
from test_optim import METHODS, quadratic

ITERATIONS = {"max_iter": 50, "tol": 1e-9}


class Spoiled:
    """A quadratic whose gradient, or whose objective, is spoiled from some point on."""

    def __init__(self, *, gradients=np.inf, trials=np.inf, value=np.nan, lower=-np.inf):
        self.sound, _, _ = quadratic(lower=lower)
        self.left = {"gradient": gradients, "trial": trials}
        self.value = value

    def _spoil(self, kind):
        self.left[kind] -= 1
        return self.left[kind] < 0

    def trial(self, point):
        trial = self.sound.trial(point)
        return type(trial)(point, self.value) if self._spoil("trial") else trial

    def gradient(self, trial):
        gradient = self.sound.gradient(trial)
        if self._spoil("gradient"):
            gradient[0] = self.value
        return gradient

    def __getattr__(self, name):
        return getattr(self.sound, name)


@pytest.mark.parametrize("iteration", [0, 1, 4])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("method", METHODS)
def test_a_gradient_that_is_not_finite(method, value, iteration):
    problem = Spoiled(gradients=iteration, value=value)
    message = rf"^the size of the gradient is (nan|inf) in iteration {iteration}, must be finite;"
    with pytest.raises(FloatingPointError, match=message):
        method(problem, problem.trial(np.zeros(12)), **ITERATIONS)


@pytest.mark.parametrize("method", METHODS)
def test_an_infinite_gradient_at_a_limit_is_not_projected_away(method):
    problem = Spoiled(gradients=0, value=np.inf, lower=0.0)
    with pytest.raises(FloatingPointError, match="gradient is inf in iteration 0"):
        method(problem, problem.trial(np.zeros(12)), **ITERATIONS)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("method", METHODS)
def test_a_start_that_is_not_finite(method, value):
    problem = Spoiled(trials=0, value=value)
    message = rf"^the objective is {value} in iteration 0, must be finite; .*engine="
    with pytest.raises(FloatingPointError, match=message):
        method(problem, problem.trial(np.zeros(12)), **ITERATIONS)


@pytest.mark.parametrize("method", METHODS)
def test_an_objective_of_minus_infinity_is_no_descent(method):
    problem = Spoiled(trials=4, value=-np.inf)
    with pytest.raises(FloatingPointError, match=r"the objective is -inf in iteration \d"):
        method(problem, problem.trial(np.zeros(12)), **ITERATIONS)


@pytest.mark.parametrize("method", METHODS)
def test_an_objective_that_is_no_number_however_short_the_step(method):
    problem = Spoiled(trials=4)
    with pytest.raises(FloatingPointError, match=r"the objective is nan after a step of size \de-"):
        method(problem, problem.trial(np.zeros(12)), **ITERATIONS)


@pytest.mark.parametrize("method", METHODS)
def test_an_objective_that_is_infinite_beyond_is_a_limit(method):
    """The domain of a function may end at the point where a search stands."""
    problem = Spoiled(trials=4, value=np.inf)
    found = method(problem, problem.trial(np.zeros(12)), **ITERATIONS)
    assert found.message.startswith("no step lowers the objective; size of the gradient")
    assert np.isfinite(found.gradient_norm)
