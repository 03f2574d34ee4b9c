"""Draws of exp(-kappa D) / Z against constants, SciPy's distributions and invariances.

Statistical tests have fixed seeds. Each bounds a z-score by 4.5 (a right sampler exceeds it with
probability 7e-6) or a Kolmogorov-Smirnov p-value from below by 1e-3.
"""

from __future__ import annotations

import numpy as np
import pytest
from conftest import rotated
from scipy import stats

from divlearn.datasets.riemannian_gaussian import sample_log_eigenvalues
from divlearn.divergence import abld
from divlearn.likelihood import sample_family
from divlearn.likelihood.fit import potential_of
from divlearn.likelihood.normalizer import differentiate_normalizer, smallest_kappa

LARGEST_Z = 4.5
SMALLEST_P = 1e-3
POINTS = [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (0.5, 0.5), (0.3, 1.6), (1.5, 1.5)]


@pytest.mark.parametrize(("d", "margin"), [(1, 1.0), (2, 6.0), (6, 1.0)])
@pytest.mark.parametrize(("alpha", "beta"), POINTS)
def test_mean_divergence_is_the_slope_of_the_constant(alpha, beta, margin, d):
    kappa = smallest_kappa(alpha, beta, d) + margin
    X = sample_family(alpha, beta, kappa, 1000, np.eye(d), 0)
    divergences = abld(X, np.eye(d), alpha, beta)
    error = divergences.mean() + differentiate_normalizer(alpha, beta, kappa, d)[1][2]
    assert abs(error) < LARGEST_Z * divergences.std() / np.sqrt(len(X))


@pytest.mark.parametrize("dof", [4.5, 20.0])
def test_wishart(dof):
    center = rotated(np.random.default_rng(0), 1, 4, 20.0)[0]
    X = sample_family(0, 1, dof / 2, 3000, center, 0)
    known = stats.wishart(dof, center / dof).rvs(3000, random_state=1)
    for statistic in (np.trace, np.linalg.det, np.linalg.norm):
        drawn, expected = ([statistic(x) for x in draws] for draws in (X, known))
        assert stats.ks_2samp(drawn, expected).pvalue > SMALLEST_P


def test_matrix_f():
    """With alpha + beta = 1, X is beta / alpha times a matrix of the beta distribution, type II."""
    alpha, beta, kappa, d = 0.3, 0.7, 4.0, 3
    X = sample_family(alpha, beta, kappa, 3000, np.eye(d), 0)
    above, below = (
        stats.wishart(2 * kappa / share, np.eye(d)).rvs(3000, random_state=seed)
        for seed, share in enumerate((beta, alpha))
    )
    ratio = beta / alpha * np.linalg.solve(below, above)
    for statistic in (np.trace, np.linalg.det):
        drawn, expected = ([statistic(x) for x in draws] for draws in (X, ratio))
        assert stats.ks_2samp(drawn, expected).pvalue > SMALLEST_P


def test_numbers():
    """With d = 1 these are gamma, log-normal and scaled beta prime variables."""
    center = [[3.0]]
    for alpha, beta, known in [
        (0, 1, stats.gamma(2.5, scale=1 / 2.5)),
        (0, 0, stats.lognorm(2.5**-0.5)),
        (0.5, 0.5, stats.betaprime(5, 5)),
    ]:
        X = sample_family(alpha, beta, 2.5, 3000, center, 0)
        assert stats.kstest(X[:, 0, 0] / 3, known.cdf).pvalue > SMALLEST_P


def test_inverses_swap_the_parameters():
    X = sample_family(0.2, 1.1, 6.0, 3000, np.eye(3), 0)
    Y = sample_family(1.1, 0.2, 6.0, 3000, np.eye(3), 1)
    for statistic in (np.trace, np.linalg.det):
        drawn, expected = [statistic(np.linalg.inv(x)) for x in X], [statistic(y) for y in Y]
        assert stats.ks_2samp(drawn, expected).pvalue > SMALLEST_P


def test_centres_move_draws_along():
    factor = np.array([[2.0, 0, 0], [1, 1, 0], [0, 3, 0.5]])
    there = sample_family(0.2, 1.1, 6.0, 20, factor @ factor.T, 0)
    here = sample_family(0.2, 1.1, 6.0, 20, np.eye(3), 0)
    np.testing.assert_allclose(there, factor @ here @ factor.T, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(there, there.mT)


def test_random_states():
    draws = [sample_family(0, 1, 5, 4, np.eye(2), seed) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.allclose(draws[0], draws[2])
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    sample_family(0, 1, 5, 4, np.eye(2))
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


@pytest.mark.parametrize("d", [3, 20])
def test_acceptance(d):
    """As stated: half at twice the lower bound of kappa, nearly all far above it."""
    twice, far = (
        sample_log_eigenvalues(
            potential_of(0, 1, factor * (d - 1) / 2), 500, d, np.random.RandomState(0)
        )[1]
        for factor in (2, 100)
    )
    assert 0.35 < twice < 0.7
    assert 0.75 < far <= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1, 1, 5, np.eye(3)), r"kappa=1 must be > \(d - 1\) / 2 max\(alpha, beta\) = 1"),
        ((1, -1, 9, 5, np.eye(3)), "opposite signs"),
        ((0, 1, 9, 0, np.eye(3)), "n_samples=0 must be >= 1"),
        ((0, 1, 9, 5, -np.eye(3)), "center has a diagonal entry -1"),
        ((0, 1, 1.01, 500, np.eye(3), 0), "kappa=1.01 is so close to .* = 1 that draws cannot"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        sample_family(*arguments)
