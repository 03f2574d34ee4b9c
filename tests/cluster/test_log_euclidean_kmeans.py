"""LogEuclideanKMeans against scikit-learn on logarithms, and pyRiemann."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from conftest import wishart
from pyriemann.clustering import Kmeans
from scipy.linalg import logm
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from divlearn.cluster import LogEuclideanKMeans
from divlearn.datasets import make_wishart_clusters
from divlearn.log_vectors import from_log_vectors, log_vectors


@pytest.fixture(scope="module")
def data():
    return make_wishart_clusters(3, 40, 4, separation=6, random_state=1)


@pytest.mark.parametrize("d", [1, 2, 5, 12])
def test_vectors_are_logarithms(d):
    X = wishart(np.random.default_rng(d), 40, d)
    vectors = log_vectors(X)
    logarithms = np.stack([logm(one) for one in X])
    assert vectors.shape == (40, d * (d + 1) // 2)
    np.testing.assert_allclose(
        np.linalg.norm(vectors[1:] - vectors[:-1], axis=1),
        np.linalg.norm(logarithms[1:] - logarithms[:-1], axis=(1, 2)),
        rtol=1e-9,
    )
    np.testing.assert_allclose(from_log_vectors(vectors), X, rtol=1e-9, atol=1e-12)
    A = np.random.default_rng(0).standard_normal((d, d))
    np.testing.assert_allclose(log_vectors(X, A), log_vectors(A @ X @ A.T), rtol=1e-6, atol=1e-9)


def test_it_is_k_means_of_logarithms(data):
    X, _ = data
    logarithms = np.stack([logm(one) for one in X]).reshape(len(X), -1)
    expected = KMeans(3, n_init=4, random_state=0).fit(logarithms)
    found = LogEuclideanKMeans(3, random_state=0).fit(X)
    np.testing.assert_array_equal(found.labels_, expected.labels_)
    assert found.inertia_ == pytest.approx(expected.inertia_)
    np.testing.assert_allclose(found.transform(X), expected.transform(logarithms) ** 2, rtol=1e-6)
    centers = np.stack([logm(one) for one in found.cluster_centers_]).reshape(3, -1)
    np.testing.assert_allclose(centers, expected.cluster_centers_, atol=1e-9)


def test_the_same_as_pyriemann(data):
    X, _ = data
    peer = Kmeans(3, metric="logeuclid", init=X[:3], tol=1e-12).fit(X)
    found = LogEuclideanKMeans(3, init=X[:3], tol=0).fit(X)
    np.testing.assert_array_equal(found.labels_, peer.labels_)
    np.testing.assert_allclose(found.cluster_centers_, peer.centroids(), rtol=1e-8, atol=1e-10)


def test_results_agree_with_each_other(data):
    X, _ = data
    weights = np.random.default_rng(0).uniform(0, 1, len(X))
    found = LogEuclideanKMeans(3, tol=0, random_state=0).fit(X, sample_weight=weights)
    np.testing.assert_array_equal(found.predict(X), found.labels_)
    assert found.score(X, sample_weight=weights) == pytest.approx(-found.inertia_)
    assert found.get_feature_names_out()[0] == "logeuclideankmeans0"
    copy = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(copy.predict(X), found.labels_)


def test_it_says_why_it_stopped(data):
    X, _ = data
    found = LogEuclideanKMeans(3, random_state=0).fit(X)
    assert found.message_.startswith("the clusters no longer change")
    assert LogEuclideanKMeans(6, init=X[:6], max_iter=1).fit(X).message_ == "max_iter=1 reached"


def test_bad_input(data):
    X, _ = data
    with pytest.raises(ValueError, match="n_clusters=121 must be <= n_matrices=120"):
        LogEuclideanKMeans(121).fit(X)
    with pytest.raises(ValueError, match=r"init has shape \(2, 4, 4\), but must have \(3, 4, 4\)"):
        LogEuclideanKMeans(3, init=X[:2]).fit(X)
    with pytest.raises(ValueError, match="init='nearest' must be one of tangent"):
        LogEuclideanKMeans(3, init="nearest").fit(X)
    with pytest.warns(ConvergenceWarning, match="n_found=2 distinct clusters"):
        LogEuclideanKMeans(3, random_state=0).fit(np.repeat(X[:2], 4, axis=0))
    bad = X.copy()
    bad[3] = 0
    with pytest.raises(ValueError, match=r"X\[3\] has a diagonal entry"):
        LogEuclideanKMeans(3).fit(bad)
