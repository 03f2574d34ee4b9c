"""The density exp(-kappa D) / Z: its constant against closed forms, and what it recovers."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import multigammaln
from scipy.stats import invwishart, wishart

from divlearn.datasets import (
    make_inverse_wishart_clusters,
    make_riemannian_gaussian_clusters,
    make_wishart_clusters,
)
from divlearn.engines import available_engines
from divlearn.likelihood import (
    fit_likelihood,
    fit_member,
    log_density,
    log_normalizer,
)
from divlearn.likelihood.normalizer import differentiate_normalizer

MARGINS = (1e-2, 0.4, 3.0, 40.0, 1000.0)  # of kappa above its lower bound


def closed_form(alpha: float, beta: float, kappa: float, d: int) -> float:
    """Multivariate gamma functions, alpha + beta = 1."""
    if alpha == 0:
        return kappa * d - kappa * d * np.log(kappa) + multigammaln(kappa, d)
    K = kappa / (alpha * beta)
    logarithms = d * (alpha * K * np.log(beta / alpha) - K * np.log(beta))
    gammas = multigammaln(kappa / beta, d) + multigammaln(kappa / alpha, d)
    return logarithms + gammas - multigammaln(K, d)


@pytest.mark.parametrize("d", [1, 2, 3, 4, 7, 20])
@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 1.0), (0.5, 0.5), (0.875, 0.125)])
def test_pfaffian_and_closed_forms(alpha, beta, d):
    for margin in MARGINS:
        kappa = 0.5 * (d - 1) * max(alpha, beta) + margin
        expected = pytest.approx(closed_form(alpha, beta, kappa, d), abs=1e-8)
        assert differentiate_normalizer(alpha, beta, kappa, d)[0] == expected, margin
        assert log_normalizer(alpha, beta, kappa, d) == expected, margin


@pytest.mark.parametrize(("alpha", "beta"), [(0.0, 1.0), (0.5, 0.5), (0.125, 0.875)])
@pytest.mark.parametrize("margin", [1e-3, 0.1, 8.0, 170.0, 5000.0])
def test_stable_at_64(alpha, beta, margin):
    kappa = 0.5 * 63 * beta + margin
    expected = closed_form(alpha, beta, kappa, 64)
    assert differentiate_normalizer(alpha, beta, kappa, 64)[0] == pytest.approx(expected, abs=1e-8)


def test_large_matrices_of_large_concentration():
    """Functions of degree 500 exceed the range of floating point by far, relative to w."""
    expected = pytest.approx(closed_form(0.0, 1.0, 1e5, 500), rel=1e-10)
    assert log_normalizer(0.0, 1.0, 1e5, 500) == expected


@pytest.mark.parametrize("point", [(0.0, 1.0), (1.0, 0.0), (0.25, 0.75)])
def test_no_jump_where_closed_forms_begin(point):
    near = (point[0] + 1e-9, point[1] + 1e-9)
    kappa, d = 9.0, 6
    assert log_normalizer(*near, kappa, d) == pytest.approx(
        log_normalizer(*point, kappa, d), abs=1e-7
    )


@pytest.mark.parametrize("d", [1, 4, 5])
def test_swaps_and_signs(d):
    value = log_normalizer(0.3, 1.4, 6.0, d)
    assert log_normalizer(1.4, 0.3, 6.0, d) == value
    assert log_normalizer(-0.3, -1.4, 6.0, d) == value
    (_, here), (_, there) = (
        differentiate_normalizer(*pair, 6.0, d) for pair in ((0.3, 1.4), (-1.4, -0.3))
    )
    assert there[:2] == (-here[1], -here[0])


@pytest.mark.parametrize("d", [1, 2, 5, 8, 20])
@pytest.mark.parametrize(("alpha", "beta"), [(0.3, 0.9), (1.7, 0.2), (3.0, 3.0)])
def test_derivatives_and_differences(alpha, beta, d):
    kappa, step = 0.5 * (d - 1) * max(alpha, beta) + 4, 1e-4
    _, slopes = differentiate_normalizer(alpha, beta, kappa, d)
    point = np.array([alpha, beta, kappa])
    for axis, slope in enumerate(slopes):
        shift = step * np.eye(3)[axis]
        above, below = (differentiate_normalizer(*(point + s), d)[0] for s in (shift, -shift))
        assert slope == pytest.approx((above - below) / (2 * step), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1, 1.0, 3), r"kappa=1 must be > \(d - 1\) / 2 max\(alpha, beta\) = 1"),
        ((0, 0, 0.0, 3), r"kappa=0 must be >"),
        ((1, -1, 9.0, 3), "opposite signs"),
        ((1, 1, 9.0, 0), "d=0 must be >= 1"),
        ((1, 1, np.nan, 2), "kappa = nan must be finite"),
        (([1, 2], 1, 9.0, 2), "alpha must be a single number"),
    ],
)
def test_errors_of_the_constant(arguments, message):
    with pytest.raises(ValueError, match=message):
        log_normalizer(*arguments)


@pytest.mark.parametrize("engine", available_engines())
def test_densities_of_scipy(engine):
    dof, d = 9.5, 4
    X, _, centers = make_wishart_clusters(1, 6, d, random_state=3, return_centers=True)
    center = centers[0]
    found = log_density(X, center, 0, 1, dof / 2, engine=engine)
    known = [wishart.logpdf(x, dof, center / dof) for x in X]
    np.testing.assert_allclose(found, known, rtol=1e-10)
    found = log_density(X, center, 1, 0, dof / 2, engine=engine)
    known = [invwishart.logpdf(x, dof, center * dof) for x in X]
    np.testing.assert_allclose(found, known, rtol=1e-10)


@pytest.mark.parametrize(
    ("make", "point"),
    [
        (make_wishart_clusters, (0, 1)),
        (make_inverse_wishart_clusters, (1, 0)),
        (make_riemannian_gaussian_clusters, (0, 0)),
    ],
)
def test_parameters_are_recovered(make, point):
    d = 3
    X, _ = make(1, 2500, d, random_state=3)
    fit = fit_likelihood(X)
    assert fit.converged
    # Around the origin f depends on alpha - beta and on alpha beta: those are well determined,
    # alpha + beta only to n^(-1/4). With this seed and d = 3 the maximum lies at (0.37, 0.42).
    assert fit.beta - fit.alpha == pytest.approx(point[1] - point[0], abs=0.15)
    assert fit.alpha * fit.beta < 0.2
    known = fit_member(X, *point)
    assert known.kappa == pytest.approx(d + 2, rel=0.05)  # the default 2 d + 4 degrees of freedom
    assert 0 <= 2 * len(X) * (fit.log_likelihood - known.log_likelihood) < 10  # chi-squared of 2
    assert fit.log_density(X).mean() == pytest.approx(fit.log_likelihood, abs=1e-8)


def test_wide_matrices_settle_the_origin():
    X, _ = make_riemannian_gaussian_clusters(1, 2500, 5, sigma=1.0, random_state=0)
    fit = fit_likelihood(X)
    assert (fit.alpha, fit.beta) == pytest.approx((0, 0), abs=0.1)


def test_the_maximum_is_one():
    X, _ = make_wishart_clusters(1, 200, 3, random_state=5)
    fit = fit_likelihood(X)
    for alpha, beta, factor in [(0.1, 0, 1), (0, 0.1, 1), (0, 0, 1.05), (0, 0, 0.95)]:
        point = fit.alpha + alpha, fit.beta + beta
        assert log_density(X, fit.center, *point, fit.kappa * factor).mean() < fit.log_likelihood
    moved = fit.center + 0.05 * np.diag(np.diag(fit.center))
    shifted = log_density(X, moved, fit.alpha, fit.beta, fit.kappa)
    assert shifted.mean() < fit.log_likelihood


def test_congruence_moves_the_centre_only():
    X, _ = make_wishart_clusters(1, 100, 3, random_state=5)
    A = np.array([[2.0, 1, 0], [0, 1, 3], [0, 0, 0.5]])
    here, there = fit_member(X, 0.3, 0.6), fit_member(A @ X @ A.T, 0.3, 0.6)
    assert there.kappa == pytest.approx(here.kappa, rel=1e-6)
    np.testing.assert_allclose(there.center, A @ here.center @ A.T, rtol=1e-6)
    volume = 4 * np.log(np.linalg.det(A))
    assert there.log_likelihood == pytest.approx(here.log_likelihood - volume, abs=1e-8)


def test_single_precision_and_repetition():
    X, _ = make_wishart_clusters(1, 60, 3, random_state=5)
    wide, narrow = fit_member(X, 0, 1), fit_member(X.astype(np.float32), 0, 1)
    assert narrow.kappa == pytest.approx(wide.kappa, rel=1e-4)
    assert fit_likelihood(X).log_likelihood == fit_likelihood(X).log_likelihood


def test_errors_of_fits():
    with pytest.raises(ValueError, match="n_matrices=1, must be >= 2"):
        fit_likelihood([np.eye(2)])
    with pytest.raises(ValueError, match="X has n_matrices=3, all equal"):
        fit_likelihood([np.eye(2)] * 3)
    with pytest.raises(ValueError, match="must both be >= 0"):
        fit_member([np.eye(2), 2 * np.eye(2)], -1, 0)
