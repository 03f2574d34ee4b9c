"""How alpha, beta and kappa are learned, and how centroids move: the parts of a turn alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from clouds import spectra_of
from conftest import wishart
from scipy.optimize import minimize

from divlearn import abld, mean_abld
from divlearn.cluster import ABKMeans
from divlearn.cluster.clusters import Clusters, Memberships, _Centroid, fixed_point_step
from divlearn.cluster.parameters import Likelihood, Penalized
from divlearn.datasets import (
    make_inverse_wishart_clusters,
    make_riemannian_gaussian_clusters,
    make_wishart_clusters,
)
from divlearn.likelihood import fit_likelihood, log_normalizer
from divlearn.sharded.opening import open_data
from divlearn.spectral import abld_scalar

D = 3


@pytest.fixture
def spectra():
    rng = np.random.default_rng(0)
    t, weights = rng.normal(0.1, 0.6, (400, D)), rng.uniform(0.5, 2, 400)
    return t, weights, spectra_of((t, weights))


def mean_divergence(spectra, alpha, beta):
    return float(spectra.sums(alpha, beta, np.zeros(1))[0, 0])


def repeat(rule, point, spectra, weight, times=10):
    for _ in range(times):
        point, _, _ = rule.update(point, spectra, weight)
    return point


# divergences from spectra


@pytest.mark.parametrize("point", [(0.7, 1.2), (0, 0), (0, 1), (15, 3)], ids=str)
def test_spectra_are_matrices_of_size_one(spectra, point):
    t, weights, known = spectra
    shift = 0.3
    sums = known.sums(*point, np.array([shift]))[:, 0]
    at = abld_scalar(t - shift, *point)
    mean = weights / weights.sum()
    expected = [mean @ one.sum(axis=1) for one in (at.f, at.f_alpha, at.f_beta, at.f_t)]
    np.testing.assert_allclose(sums, expected, rtol=1e-9)


# the paper's rule


@pytest.mark.parametrize("unit", [100.0, 1.0, 1e-3])
@pytest.mark.parametrize("tied", [True, False])
def test_the_papers_minimum(spectra, unit, tied):
    t, weights, known = spectra
    weights = unit * weights

    def objective(both):
        both = np.broadcast_to(both, 2)
        D_all = weights @ abld_scalar(t, *both, derivatives=()).f.sum(axis=1)
        return D_all + both @ both

    rule = Penalized(tied=tied)
    point = repeat(rule, rule.start, known, weights.sum())
    best = minimize(
        objective,
        [1.0] if tied else [1.0, 1.0],
        bounds=[(0, None)] * (1 if tied else 2),
        method="L-BFGS-B",
        options={"ftol": 1e-14, "gtol": 1e-8},
    )
    assert objective(point[:2]) <= best.fun * (1 + 1e-6)
    np.testing.assert_allclose(point[:2], np.broadcast_to(best.x, 2), rtol=0.01, atol=1e-3)
    value = rule.objective(mean_divergence(known, *point[:2]), point, weights.sum(), D)
    assert weights.sum() * value == pytest.approx(objective(point[:2]))


def test_parameters_that_grow_are_noticed():
    assert "fix the divergence" in Penalized().warning((1001, 3, math.nan))
    assert Penalized().warning((999, 3, math.nan)) is None


# the likelihood


def test_the_most_likely_parameters(spectra):
    t, weights, known = spectra
    mean = weights / weights.sum()

    def loss(variables):
        *both, kappa, shift = variables
        if min(both) < 0 or kappa <= 0.5 * (D - 1) * max(both):
            return math.inf
        f = abld_scalar(t - shift, *both, derivatives=()).f.sum(axis=1)
        return kappa * (mean @ f) + log_normalizer(*both, kappa, D)

    rule = Likelihood()
    point = rule.begin(mean_divergence(known, 1, 1), D)
    before = rule.objective(mean_divergence(known, 1, 1), point, 1.0, D)
    point, objective, shift = rule.update(point, known, 1.0)
    assert objective < before
    for _ in range(6):
        t = t - shift
        known = spectra_of((t, weights))
        point, objective, shift = rule.update(point, known, 1.0)
    found = np.array([*point, 0.0])
    assert loss(found) == pytest.approx(objective, abs=1e-9)
    rng = np.random.default_rng(1)
    for size in (0.1, 0.01, 0.003):
        steps = size * rng.standard_normal((12, 4))
        assert objective <= min(loss(found + step) for step in steps) + 1e-5


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (make_wishart_clusters, (0, 1)),
        (make_inverse_wishart_clusters, (1, 0)),
        (make_riemannian_gaussian_clusters, (0, 0)),
    ],
)
def test_the_likelihood_knows_where_clusters_come_from(make, expected):
    X, _ = make(4, 150, 3, separation=12, random_state=0)
    found = ABKMeans(4, "likelihood", n_init=1, random_state=0).fit(X)
    assert abs((found.beta_ - found.alpha_) - (expected[1] - expected[0])) < 0.15
    assert abs(found.alpha_ + found.beta_ - sum(expected)) < 0.5


def test_one_cluster_by_likelihood_is_a_fit():
    X, _ = make_wishart_clusters(1, 300, 3, random_state=0)
    found = ABKMeans(1, "likelihood", tol=0).fit(X)
    fit = fit_likelihood(X)
    volume = 2 * np.linalg.slogdet(X)[1].mean()
    assert -found.objective_ / 300 - volume == pytest.approx(fit.log_likelihood, abs=1e-4)
    assert found.kappa_ == pytest.approx(fit.kappa, rel=0.02)
    assert abs(found.beta_ - fit.beta) < 0.05


def test_matrices_that_equal_their_centroids_are_noticed():
    rule = Likelihood()
    assert "unbounded" in rule.warning(rule.begin(0.0, 3))
    assert rule.warning(rule.begin(1e-3, 3)) is None


# centroids


def make_cluster(X, weights=None):
    """All matrices in one cluster."""
    weights = np.ones(len(X)) if weights is None else weights
    shards = open_data(X, None, weights)
    members = [Memberships([np.arange(len(X))], [weights])]
    return Clusters(shards, members, np.array([weights.sum()]))


@pytest.mark.parametrize("point", [(0, 1), (1, 0)])
def test_one_step_is_enough_for_closed_forms(point):
    rng = np.random.default_rng(0)
    X, weights = wishart(rng, 30, 4), rng.uniform(0.1, 1, 30)
    cluster = make_cluster(X, weights)
    moved, sizes = fixed_point_step(X[:1], cluster.slopes(np.array([0]), X[:1], [point])[1], *point)
    expected = mean_abld(X, *point, weights).mean
    np.testing.assert_allclose(moved[0], expected, rtol=1e-9, atol=1e-11)
    assert sizes[0] == pytest.approx(math.sqrt(2 * float(abld(expected, X[0], 0, 0)) / 4), rel=0.3)


@pytest.mark.parametrize("point", [(0, 0), (0.5, 0.5), (0.5, 1.5), (0.2, 0.3)], ids=str)
def test_few_steps_come_close(point):
    X = wishart(np.random.default_rng(1), 40, 4)
    cluster, expected = make_cluster(X), mean_abld(X, *point).mean
    centers, gaps = X[:1], []
    for _ in range(6):
        gaps.append(float(abld(expected, centers[0], 0, 0)))
        slope = cluster.slopes(np.array([0]), centers[:1], [point])[1][0]
        centers, _ = fixed_point_step(centers, slope[None], *point)
    assert gaps[3] < 0.02 * gaps[0]
    assert gaps[5] < 1e-3 * gaps[0]


@pytest.mark.parametrize("point", [(0, 0), (0.4, 0.9), (3, 4)], ids=str)
def test_the_gradient_of_a_centroid(point):
    """Against differences along random steps, in the frame of the centroid."""
    rng = np.random.default_rng(2)
    X = wishart(rng, 20, 3)
    cluster = _Centroid(make_cluster(X), 0, point)
    frame = np.linalg.cholesky(X[0]) @ np.linalg.qr(rng.standard_normal((3, 3)))[0]
    gradient = cluster.gradient(cluster.trial(frame))
    step = rng.standard_normal((3, 3))
    step = 1e-5 * (step + step.T)
    ahead, back = (cluster.trial(cluster.move(frame, s)).value for s in (step, -step))
    assert np.vdot(gradient, step) == pytest.approx(0.5 * (ahead - back), rel=1e-5)


def test_careful_steps_never_rise():
    X = wishart(np.random.default_rng(3), 25, 3)
    cluster = make_cluster(X)
    center = 50 * X[0]
    for steps in (1, 2, 5):
        moved = cluster.settle(np.array([0]), center[None], [(6.0, 9.0)], steps)[0]
        assert abld(X, moved, 6, 9).mean() < abld(X, center, 6, 9).mean()


@pytest.mark.parametrize("point", [(0.0, 1.0), (1.0, 0.0), (0.3, 0.8)])
def test_careful_steps_end_at_the_mean(point):
    """Also in closed form, and in units whose inverses overflow."""
    rng = np.random.default_rng(4)
    X, weights = 1e-300 * wishart(rng, 25, 3), rng.uniform(0.1, 1, 25)
    tol = np.array([1e-9])
    moved = make_cluster(X, weights).settle(np.array([0]), X[:1], [point], 200, tol)[0]
    expected = mean_abld(1e300 * X, *point, weights).mean
    np.testing.assert_allclose(1e300 * moved, expected, atol=1e-8)
