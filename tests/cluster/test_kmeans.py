"""ABKMeans: what a run does, against oracles and by its invariants."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from conftest import wishart
from hypothesis import given, settings
from hypothesis import strategies as st
from pyriemann.clustering import Kmeans
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from divlearn import abld, mean_abld, pairwise_abld
from divlearn.cluster import ABKMeans, KarcherKMeans, lloyd, pairwise_f1_score
from divlearn.datasets import make_wishart_clusters

RULES = ["stein", "airm", "burg", (0.5, 1.5), (2.0, 3.0), "learn", "likelihood"]


@pytest.fixture(scope="module")
def data():
    return make_wishart_clusters(4, 20, 3, separation=5, random_state=3)


def starts(X, k, seed=0):
    return X[np.random.default_rng(seed).choice(len(X), k, replace=False)]


def congruence(d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((d, d)) + 2 * np.eye(d)


@cache
def fitted(divergence) -> tuple[np.ndarray, ABKMeans]:
    """Matrices, and the clusters of them that nobody changes."""
    X, _ = make_wishart_clusters(4, 10, 3, separation=5, random_state=3)
    return X, ABKMeans(4, divergence, init=starts(X, 4), tol=0).fit(X)


# what is minimised


@pytest.mark.parametrize("divergence", [*RULES, "paper", "paper-tied"], ids=str)
def test_no_block_raises_the_objective(divergence):
    _, found = fitted(divergence)
    history = found.history_
    objective = history["objective"]
    assert (np.diff(objective) <= 1e-11 * np.abs(objective[1:])).all()
    assert objective[-1] < objective[0]
    assert objective[-1] == pytest.approx(found.objective_, rel=1e-12)
    learned = divergence in ("learn", "likelihood", "paper", "paper-tied")
    turn = ["centroids", "parameters", "assignment"] if learned else ["centroids", "assignment"]
    assert history["block"].tolist() == ["start", *turn * found.n_iter_]
    assert (np.diff(history["seconds"]) >= 0).all()
    assert history["changed"][-1] == 0


@pytest.mark.parametrize("divergence", RULES, ids=str)
def test_results_agree_with_each_other(divergence):
    X, found = fitted(divergence)
    table = pairwise_abld(X, found.cluster_centers_, alpha=found.alpha_, beta=found.beta_)
    np.testing.assert_array_equal(found.labels_, table.argmin(axis=1))
    np.testing.assert_array_equal(found.predict(X), found.labels_)
    np.testing.assert_allclose(found.transform(X), table, rtol=1e-10)
    assert found.inertia_ == pytest.approx(table.min(axis=1).sum())
    assert found.score(X) == pytest.approx(-found.inertia_)
    if not isinstance(divergence, str) or divergence not in ("learn", "likelihood"):
        assert found.objective_ == pytest.approx(found.inertia_)
    elif divergence == "learn":
        penalty = found.alpha_**2 + found.beta_**2
        assert found.objective_ == pytest.approx(found.inertia_ + penalty)


@pytest.fixture
def many_steps(monkeypatch):
    """Centroids are as exact as means in every iteration."""
    monkeypatch.setattr(lloyd, "_STEPS", 50)


@pytest.mark.parametrize("divergence", [(0.5, 0.5), (0, 0), (0, 1), (0.3, 1.2), (3, 4)], ids=str)
@pytest.mark.usefixtures("many_steps")
def test_centroids_are_means_of_their_clusters(data, divergence):
    X, _ = data
    found = ABKMeans(4, divergence, tol=0, random_state=0).fit(X)
    for z, center in enumerate(found.cluster_centers_):
        mean = mean_abld(X[found.labels_ == z], *divergence).mean
        assert float(abld(mean, center, 0, 0)) < 1e-5


@pytest.mark.usefixtures("many_steps")
def test_one_cluster_is_one_mean(data):
    X, _ = data
    found = ABKMeans(1, (0.3, 0.9)).fit(X)
    mean = mean_abld(X, 0.3, 0.9)
    np.testing.assert_allclose(found.cluster_centers_[0], mean.mean, rtol=1e-2)
    assert found.inertia_ / len(X) == pytest.approx(mean.objective, rel=1e-5)
    assert not found.labels_.any()


# against others


@pytest.mark.parametrize(
    ("metric", "divergence", "scale"), [("riemann", "airm", 0.5), ("logdet", "stein", 4)]
)
@pytest.mark.usefixtures("many_steps")
def test_the_same_as_pyriemann(data, metric, divergence, scale):
    X, _ = data
    init = starts(X, 4, seed=1)
    peer = Kmeans(4, metric=metric, init=init, tol=1e-12).fit(X)
    found = ABKMeans(4, divergence, init=init, tol=0).fit(X)
    np.testing.assert_array_equal(found.labels_, peer.labels_)
    np.testing.assert_allclose(found.cluster_centers_, peer.centroids(), rtol=2e-3, atol=1e-3)
    np.testing.assert_allclose(found.transform(X), scale * peer.transform(X) ** 2, rtol=1e-2)


def test_karcher_is_the_origin(data):
    X, _ = data
    options = {"n_init": 2, "random_state": 5}
    first, second = KarcherKMeans(4, **options).fit(X), ABKMeans(4, (0, 0), **options).fit(X)
    np.testing.assert_array_equal(first.labels_, second.labels_)
    np.testing.assert_array_equal(first.cluster_centers_, second.cluster_centers_)
    assert (first.alpha_, first.beta_) == (0, 0)


def test_numbers_are_clustered_as_gaussians_of_logarithms():
    """1 x 1 matrices at the origin: ordinary k-means of log x."""
    rng = np.random.default_rng(0)
    logarithms = np.concatenate([rng.normal(c, 0.3, 50) for c in (-2, 0, 2)])
    found = ABKMeans(3, (0, 0), random_state=0, tol=0).fit(np.exp(logarithms)[:, None, None])
    centers = np.sort(np.log(found.cluster_centers_.ravel()))
    means = np.sort([logarithms[found.labels_ == z].mean() for z in range(3)])
    np.testing.assert_allclose(centers, means, atol=1e-6)


# invariances


@pytest.mark.parametrize(
    ("divergence", "init"),
    [
        *(((0.5, 1.5), init) for init in ("tangent", "k-means++", "random", "array")),
        *((divergence, "tangent") for divergence in ("stein", "likelihood")),
    ],
    ids=str,
)
def test_a_congruence_changes_nothing(data, divergence, init):
    X = data[0][::2]
    A = congruence(3)
    given = starts(X, 4) if init == "array" else init
    turned = A @ given @ A.T if init == "array" else init
    options = {"random_state": 2, "n_init": 1, "max_iter": 3}
    first = ABKMeans(4, divergence, init=given, **options).fit(X)
    Y = A @ X @ A.T
    second = ABKMeans(4, divergence, init=turned, **options).fit(0.5 * (Y + Y.mT))
    np.testing.assert_array_equal(first.labels_, second.labels_)
    np.testing.assert_allclose(
        second.cluster_centers_, A @ first.cluster_centers_ @ A.T, rtol=1e-5, atol=1e-6
    )
    assert second.inertia_ == pytest.approx(first.inertia_)


@settings(deadline=None, max_examples=5)
@given(st.floats(-8, 8), st.sampled_from(["stein", (0.3, 1.1), "burg", "learn"]))
def test_a_change_of_units_changes_nothing(exponent, divergence):
    X = wishart(np.random.default_rng(1), 60, 3)
    factor = 10.0**exponent
    options = {"random_state": 0, "n_init": 1}
    first = ABKMeans(3, divergence, **options).fit(X)
    second = ABKMeans(3, divergence, **options).fit(factor * X)
    np.testing.assert_array_equal(first.labels_, second.labels_)
    np.testing.assert_allclose(second.cluster_centers_, factor * first.cluster_centers_, rtol=1e-6)


@settings(deadline=None, max_examples=5)
@given(st.permutations(range(60)), st.sampled_from(["stein", "airm", (0.5, 1.5), "learn"]))
def test_the_order_of_matrices_changes_nothing(order, divergence):
    X = wishart(np.random.default_rng(2), 60, 3)
    options = {"init": starts(X, 3), "max_iter": 3}
    first = ABKMeans(3, divergence, **options).fit(X)
    second = ABKMeans(3, divergence, **options).fit(X[order])
    np.testing.assert_array_equal(first.labels_[order], second.labels_)
    np.testing.assert_allclose(second.cluster_centers_, first.cluster_centers_, rtol=1e-6)


@pytest.mark.parametrize("divergence", ["stein", (0, 1), "likelihood"], ids=str)
def test_weights_are_repetitions(data, divergence):
    X, _ = data
    X = X[::2]
    counts = np.random.default_rng(0).integers(0, 4, len(X))
    init = starts(X, 3)
    kmeans = ABKMeans(3, divergence, init=init, max_iter=3)
    weighted = clone(kmeans).fit(X, sample_weight=counts)
    repeated = kmeans.fit(np.repeat(X, counts, axis=0))
    np.testing.assert_array_equal(np.repeat(weighted.labels_, counts), repeated.labels_)
    np.testing.assert_allclose(weighted.cluster_centers_, repeated.cluster_centers_, rtol=1e-6)
    mean = counts[counts > 0].mean()  # which weights are divided by
    assert weighted.inertia_ * mean == pytest.approx(repeated.inertia_)
    assert weighted.objective_ * mean == pytest.approx(repeated.objective_)
    np.testing.assert_array_equal(weighted.labels_, weighted.predict(X))  # also those of no weight


@pytest.mark.parametrize("init", ["tangent", "log-euclidean", "k-means++", "random"])
def test_a_seed_decides_everything(data, init):
    X, _ = data
    options = {"init": init, "n_init": 1, "max_iter": 2}
    first, second = (ABKMeans(4, random_state=7, **options).fit(X) for _ in range(2))
    np.testing.assert_array_equal(first.cluster_centers_, second.cluster_centers_)
    other = ABKMeans(4, random_state=8, **options).fit(X)
    assert not np.array_equal(first.cluster_centers_, other.cluster_centers_)


# quality


@pytest.mark.parametrize("divergence", ["stein", "burg", "learn"])
def test_clusters_are_found(divergence):
    X, y = make_wishart_clusters(4, 20, 3, separation=10, random_state=0)
    found = ABKMeans(4, divergence, n_init=2, random_state=0).fit(X)
    assert pairwise_f1_score(y, found.labels_) > 0.95
    assert adjusted_rand_score(y, found.labels_) > 0.9


def test_more_starts_are_no_worse(data):
    X, _ = data
    inertias = [
        ABKMeans(6, init="random", n_init=n, random_state=0).fit(X).inertia_ for n in (1, 3)
    ]
    assert (np.diff(inertias) <= 0).all()
    assert inertias[-1] < inertias[0]
