"""Temperatures of scores against a search for the least log-loss."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from divlearn.fitting.calibration import fit_temperature


def problem(n_classes, scale, gap, *, seed=0, n=200):
    """Scores of a scale, with those of the true classes higher by a gap."""
    rng = np.random.default_rng(seed)
    codes, weights = rng.integers(n_classes, size=n), rng.uniform(size=n)
    scores = scale * rng.standard_normal((n, n_classes))
    scores[np.arange(n), codes] += scale * gap
    return scores, codes, weights / weights.sum()


@pytest.mark.parametrize("n_classes", [2, 7])
@pytest.mark.parametrize(
    ("scale", "gap"),
    [
        (1, 0.5),
        (1, 3),
        (20, 2),  # the first step leaves the range
        (0.01, 1),
        (10, 1000),  # probabilities of one at a temperature of one, where nothing has a slope
    ],
)
def test_the_temperature_is_that_of_the_least_loss(n_classes, scale, gap):
    scores, codes, weights = problem(n_classes, scale, gap)
    doubt = 1 / (len(codes) + 2)
    targets = np.full(scores.shape, doubt / (n_classes - 1))
    targets[np.arange(len(codes)), codes] = 1 - doubt

    def loss(t):
        return -weights @ (targets * log_softmax(scores * np.exp(-t), axis=1)).sum(axis=1)

    right = minimize_scalar(loss, bounds=(-8, 8), method="bounded", options={"xatol": 1e-7})
    temperature, found = fit_temperature(scores, codes, weights)
    assert np.log(temperature) == pytest.approx(right.x, abs=1e-5)
    logarithms = log_softmax(scores / temperature, axis=1)[np.arange(len(codes)), codes]
    assert found == pytest.approx(-weights @ logarithms, rel=1e-12)


def test_wrong_scores_are_made_as_flat_as_may_be():
    scores, codes, weights = problem(4, 1, 3)
    temperature, _ = fit_temperature(-scores, codes, weights)
    assert np.log(temperature) == pytest.approx(8)


@pytest.mark.parametrize("unit", [1e-20, 1e-6, 1e4, 1e20])
def test_scores_may_have_any_unit(unit):
    """As those of a perceptron, which have the unit of its input."""
    scores, codes, weights = problem(4, 1, 1)
    temperature, loss = fit_temperature(scores, codes, weights)
    found, loss_found = fit_temperature(unit * scores, codes, weights)
    assert found == pytest.approx(unit * temperature, rel=1e-5)
    assert loss_found == pytest.approx(loss, rel=1e-9)


def test_equal_scores_have_a_temperature():
    scores, codes, weights = problem(3, 0, 0)
    temperature, loss = fit_temperature(scores, codes, weights)
    assert temperature > 0
    assert loss == pytest.approx(np.log(3))
