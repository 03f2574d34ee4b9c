"""How alpha, beta and kappa are learned, and how centroids move: the parts of a turn alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from conftest import wishart
from scipy.optimize import minimize

from divlearn import abld, mean_abld
from divlearn.cluster import ABKMeans
from divlearn.cluster.centroids import Cluster, fixed_point_step, safeguarded
from divlearn.cluster.parameters import Likelihood, Penalized, Point
from divlearn.cluster.samples import Samples
from divlearn.datasets import (
    make_inverse_wishart_clusters,
    make_riemannian_gaussian_clusters,
    make_wishart_clusters,
)
from divlearn.engines import get_engine
from divlearn.likelihood import fit_likelihood, log_normalizer
from divlearn.likelihood.spectra import Spectra
from divlearn.spectral import abld_scalar

D = 3


@pytest.fixture
def spectra():
    rng = np.random.default_rng(0)
    t, weights = rng.normal(0.1, 0.6, (400, D)), rng.uniform(0.5, 2, 400)
    return t, weights, Spectra(get_engine("auto", 1), [(t, weights)])


def mean_divergence(spectra, alpha, beta):
    return float(spectra.sums(alpha, beta, np.zeros(1))[0, 0])


def repeat(rule, point, spectra, times=10):
    for _ in range(times):
        point = rule.update(point, spectra).point
    return point


# divergences from spectra


@pytest.mark.parametrize("point", [(0.7, 1.2), (0, 0), (0, 1), (15, 3)], ids=str)
def test_spectra_are_matrices_of_size_one(spectra, point):
    t, weights, known = spectra
    shift = 0.3
    expected = abld_scalar(t, *point).f.sum(axis=1)
    np.testing.assert_allclose(known.divergences(*point), expected, rtol=1e-12)
    sums = known.sums(*point, np.array([shift]))[:, 0]
    at = abld_scalar(t - shift, *point)
    mean = weights / weights.sum()
    expected = [mean @ one.sum(axis=1) for one in (at.f, at.f_alpha, at.f_beta, at.f_t)]
    np.testing.assert_allclose(sums, expected, rtol=1e-9)


# the paper's rule


@pytest.mark.parametrize("mu", [0.01, 1.0, 1000.0])
@pytest.mark.parametrize("tied", [True, False])
def test_the_papers_minimum(spectra, mu, tied):
    t, weights, known = spectra

    def objective(both):
        both = np.broadcast_to(both, 2)
        D_all = weights @ abld_scalar(t, *both, derivatives=()).f.sum(axis=1)
        return D_all + mu * (both @ both)

    rule = Penalized(mu, tied)
    point = repeat(rule, rule.start, known)
    best = minimize(
        objective, [1.0] if tied else [1.0, 1.0], bounds=[(0, None)] * (1 if tied else 2),
        method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 1e-8},
    )  # fmt: skip
    assert objective(point[:2]) <= best.fun * (1 + 1e-6)
    np.testing.assert_allclose(point[:2], np.broadcast_to(best.x, 2), rtol=0.01, atol=1e-3)
    value = rule.objective(mean_divergence(known, *point[:2]), point, weights.sum(), D)
    assert weights.sum() * value == pytest.approx(objective(point[:2]))


def test_parameters_that_grow_are_noticed():
    assert "raise mu" in Penalized(1e-9, False).trouble(Point(1001, 3))
    assert Penalized(1e-9, False).trouble(Point(999, 3)) is None


# the likelihood


@pytest.mark.parametrize("tied", [True, False])
def test_the_most_likely_parameters(spectra, tied):
    t, weights, known = spectra
    mean = weights / weights.sum()

    def loss(variables):
        *both, kappa, shift = variables
        both = np.broadcast_to(both, 2)
        if min(both) < 0 or kappa <= 0.5 * (D - 1) * max(both):
            return math.inf
        f = abld_scalar(t - shift, *both, derivatives=()).f.sum(axis=1)
        return kappa * (mean @ f) + log_normalizer(*both, kappa, D)

    rule = Likelihood(tied)
    point = rule.begin(mean_divergence(known, 1, 1), D)
    update = rule.update(point, known)
    assert update.objective < rule.objective(mean_divergence(known, 1, 1), point, 1.0, D)
    for _ in range(6):
        t = t - update.shift
        known = Spectra(get_engine("auto", 1), [(t, weights)])
        update = rule.update(update.point, known)
    both = update.point[1:2] if tied else update.point[:2]
    found = [*both, update.point.kappa, 0.0]
    assert loss(found) == pytest.approx(update.objective, abs=1e-9)
    best = minimize(loss, found, method="Nelder-Mead", options={"xatol": 1e-4, "fatol": 1e-9})
    assert update.objective <= best.fun + 1e-5


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
    found = ABKMeans(4, "likelihood", n_init=2, random_state=0).fit(X)
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
    rule = Likelihood(False)
    assert "unbounded" in rule.trouble(rule.begin(0.0, 3))
    assert rule.trouble(rule.begin(1e-3, 3)) is None


# centroids


def make_cluster(X, alpha, beta, weights=None):
    weights = np.ones(len(X)) if weights is None else weights
    samples = Samples.prepare(get_engine("auto", 1), X, weights, 1)
    rows = np.arange(len(X))
    return Cluster(samples.engine, rows, samples.take(rows), weights / weights.sum(), alpha, beta)


@pytest.mark.parametrize("point", [(0, 1), (1, 0)])
def test_one_step_is_enough_for_closed_forms(point):
    rng = np.random.default_rng(0)
    X, weights = wishart(rng, 30, 4), rng.uniform(0.1, 1, 30)
    cluster = make_cluster(X, *point, weights)
    moved, sizes = fixed_point_step(X[:1], cluster.slopes(X[0])[None], *point)
    expected = mean_abld(X, *point, weights).mean
    np.testing.assert_allclose(moved[0], expected, rtol=1e-9, atol=1e-11)
    assert sizes[0] == pytest.approx(math.sqrt(2 * float(abld(expected, X[0], 0, 0)) / 4), rel=0.3)


@pytest.mark.parametrize("point", [(0, 0), (0.5, 0.5), (0.5, 1.5), (0.2, 0.3)], ids=str)
def test_few_steps_come_close(point):
    X = wishart(np.random.default_rng(1), 40, 4)
    cluster, expected = make_cluster(X, *point), mean_abld(X, *point).mean
    centers, gaps = X[:1], []
    for _ in range(6):
        gaps.append(float(abld(expected, centers[0], 0, 0)))
        centers, _ = fixed_point_step(centers, cluster.slopes(centers[0])[None], *point)
    assert gaps[3] < 0.02 * gaps[0]
    assert gaps[5] < 1e-3 * gaps[0]


@pytest.mark.parametrize("point", [(0, 0), (0.4, 0.9), (3, 4)], ids=str)
def test_the_gradient_of_a_centroid(point):
    """Against differences along random steps, in the frame of the centroid."""
    rng = np.random.default_rng(2)
    X = wishart(rng, 20, 3)
    cluster = make_cluster(X, *point)
    frame = np.linalg.cholesky(X[0]) @ np.linalg.qr(rng.standard_normal((3, 3)))[0]
    gradient = cluster.gradient(cluster.trial(frame))
    step = rng.standard_normal((3, 3))
    step = 1e-5 * (step + step.T)
    ahead, back = (cluster.trial(cluster.move(frame, s)).value for s in (step, -step))
    assert np.vdot(gradient, step) == pytest.approx(0.5 * (ahead - back), rel=1e-5)


def test_careful_steps_never_rise():
    X = wishart(np.random.default_rng(3), 25, 3)
    cluster = make_cluster(X, 6.0, 9.0)
    center = 50 * X[0]
    for steps in (1, 2, 5):
        moved = safeguarded(cluster, center, steps)
        assert abld(X, moved, 6, 9).mean() < abld(X, center, 6, 9).mean()
