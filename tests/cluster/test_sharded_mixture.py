"""Mixtures on shards: those of data in memory."""

from __future__ import annotations

import numpy as np
import pytest

from divlearn.cluster import ABMixture
from divlearn.cluster.em import EM, Mixture, expect, nearest
from divlearn.datasets import make_wishart_clusters
from divlearn.likelihood.members import get_members
from divlearn.sharded import open_shards, shards
from divlearn.sharded.opening import open_data

ATTRIBUTES = ("weights_", "means_", "alpha_", "beta_", "kappa_", "lower_bound_")


@pytest.fixture(scope="module")
def data():
    X, _ = make_wishart_clusters(3, 10, 2, separation=3, random_state=0)
    weights = np.random.RandomState(0).uniform(size=len(X))
    weights[7] = 0
    return X, weights


@pytest.fixture(autouse=True)
def few_steps(set_tolerance):
    """They tell as much as many."""
    set_tolerance("mixtures", 1e-2)


def close(first, second, tolerance=1e-8):
    np.testing.assert_allclose(first, second, rtol=tolerance, atol=tolerance)


def quick(n_components=3, divergence="learn", **settings):
    return ABMixture(n_components, divergence, **{"random_state": 0} | settings)


def same(whole, parts):
    for name in ATTRIBUTES:
        close(getattr(whole, name), getattr(parts, name))
    assert whole.message_ == parts.message_
    assert whole.n_iter_ == parts.n_iter_
    assert whole.bics_.keys() == parts.bics_.keys()
    close(list(whole.bics_.values()), list(parts.bics_.values()))
    close(whole.history_["lower_bound"], parts.history_["lower_bound"])


# ---------------------------------------------------------------------- fits


@pytest.mark.parametrize(
    ("divergence", "share", "block_size", "weighted", "settings"),
    [
        ("learn", "all", 13, True, {"n_components": 1}),
        ("wishart", "divergence", 7, True, {"n_components": [1, 2]}),
        ("wishart", "all", 30, True, {"n_init": 2, "init": "k-means++"}),
        ("inverse-wishart", "none", 3, False, {"n_components": 2}),
    ],
)
def test_mixtures_are_those_of_data_in_memory(
    data, divergence, share, block_size, weighted, settings
):
    X, weights = data
    given = weights if weighted else None
    mixture = quick(divergence=divergence, share=share, **settings)
    whole = mixture.fit(X, None, given)
    parts = quick(divergence=divergence, share=share, **settings)
    same(whole, parts.fit(open_shards(X, None, given, block_size=block_size)))


def test_files_and_weights_are_opened_by_fit(data, tmp_path):
    X, weights = data
    files = []
    for i, part in enumerate(np.array_split(X, 4)):
        files.append(tmp_path / f"{i}.npy")
        np.save(files[-1], part)
    parts = quick(divergence="wishart")
    labels = parts.fit_predict(files, None, weights)
    whole = quick(divergence="wishart").fit(X, None, weights)
    same(whole, parts)
    assert np.array_equal(labels, whole.predict(X))


def test_starts_and_moves_are_made_of_a_sample(set_tolerance, monkeypatch):
    set_tolerance("mixtures", 1e-10)
    X, _ = make_wishart_clusters(2, 30, 2, separation=6, random_state=0)
    X = X[np.random.RandomState(0).permutation(60)]
    monkeypatch.setattr(shards, "SAMPLE", 30)
    parts = quick(2, "wishart").fit(open_shards(X, block_size=10))
    whole = quick(2, "wishart").fit(X)
    # Starts differ, but both end at the maximum for all matrices.
    close(whole.lower_bound_, parts.lower_bound_)


# ---------------------------------------------------------------------- what a fitted one says


def test_what_a_mixture_says_of_shards(data):
    X, weights = data
    mixture = quick(divergence="wishart").fit(X)
    shards = open_shards(X, None, weights, block_size=13)  # weights are for fitting
    assert np.array_equal(mixture.predict(shards), mixture.predict(X))
    for name in ("predict_proba", "score_samples", "score", "bic", "aic"):
        close(getattr(mixture, name)(shards), getattr(mixture, name)(X), 1e-12)


def test_members_are_compared_on_shards(data):
    X = data[0][::3]
    mixture = quick(1, "wishart").fit(X)
    whole, parts = mixture.compare(X), mixture.compare(open_shards(X, block_size=13))
    for name, fit in whole.items():
        close(fit.log_likelihood, parts[name].log_likelihood)
        close(fit.kappa, parts[name].kappa)


def test_errors_name_what_is_wrong(data):
    X, _ = data
    bad = X.copy()
    bad[23] = -bad[23]
    with pytest.raises(ValueError, match=r"shard 2 \(item 2 .*\), X\[3\] has a diagonal entry"):
        quick().fit(lambda: iter(np.split(bad, 3)))
    with pytest.raises(ValueError, match="n_components=31 must be >= 1 and <= 30"):
        quick(31).fit(open_shards(X))
    with pytest.raises(ValueError, match=r"n_matrices=1 with a weight > 0 .* must be >= 2"):
        quick(1).fit(open_shards(X, None, np.eye(30)[7]))
    with pytest.raises(ValueError, match="matrices of size 1, but ABMixture is expecting 2"):
        quick(2, "wishart").fit(X).predict(open_shards(X[:, :1, :1]))


# ---------------------------------------------------------------------- the steps of a fit


@pytest.fixture(scope="module")
def many():
    """Matrices in both forms, and a mixture with a component that has none of them."""
    X, _ = make_wishart_clusters(2, 700, 2, separation=1, random_state=1)
    weights = np.random.RandomState(1).uniform(0.5, 2, size=len(X))
    whole = open_data(X, None, weights)
    shards = open_shards(X, None, 7 * weights, block_size=97)
    means = np.stack([X[0], 1e9 * np.eye(2), X[-1]])
    densities = np.array([[0.5, 0, 0], [1, 0, 1], [4, 3, 2], [0, 1, 2]], float)
    return whole, shards, Mixture(np.array([0.4, 0.1, 0.5]), means, densities)


def test_responsibilities_are_those_of_data_in_memory(many):
    whole, parts, mixture = many
    (one, bound), (other, found) = expect(whole, mixture), expect(parts, mixture)
    close(bound, found, 1e-12)
    close(one.weights, other.weights, 1e-12)
    assert one.alive.tolist() == other.alive.tolist() == [0, 2]
    points = [tuple(point) for point in mixture.densities[:2, one.alive].T]
    start, tol = mixture.means[one.alive], np.full(2, 1e-9)
    means, moved = (both.settle(one.alive, start, points, 20, tol) for both in (one, other))
    close(means, moved)
    assert not np.allclose(moved[0], start[0])
    same_spectra(one.spectra(one.alive, means), other.spectra(one.alive, means))
    following = EM(parts, get_members("matrix-f"), "none", 1, 1e-4).refit(mixture)
    assert np.array_equal(following.means[1], mixture.means[1])  # what has no matrices stays
    assert not np.allclose(following.means[0], mixture.means[0])


def test_nearest_are_those_of_data_in_memory(many):
    whole, parts, mixture = many
    one, other = (nearest(both, mixture.means, (0.5, 0.5)) for both in (whole, parts))
    close(one.weights, other.weights, 1e-12)
    assert one.alive.tolist() == other.alive.tolist() == [0, 2]
    centers = mixture.means[one.alive]
    same_spectra(one.spectra(one.alive, centers), other.spectra(one.alive, centers))


def same_spectra(whole, parts):
    close(whole.totals, parts.totals, 1e-12)
    assert (len(whole), whole.d) == (len(parts), parts.d) == (2, 2)
    shift = np.array([0.1, -0.3])
    for enough in (50, 10_000):
        few = min(enough, 700)
        for first, second in zip(whole.thinned(enough), parts.thinned(enough), strict=True):
            assert few / 2 < len(second[0]) <= max(enough, 1400)
            close(first[0], second[0], 1e-9)
            close(first[1], second[1], 1e-9)
    close(whole.sums(0.3, 0.9, shift), parts.sums(0.3, 0.9, shift), 1e-10)
    close(whole.only(1).sums(0.3, 0.9, shift[1:]), parts.only(1).sums(0.3, 0.9, shift[1:]), 1e-10)
    close(whole.only(1).thinned(50)[0][0], parts.only(1).thinned(50)[0][0], 1e-9)
