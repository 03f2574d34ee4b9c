"""Vectors: their distances, and k-means fits that are the same from run to run."""

from __future__ import annotations

import numpy as np
from conftest import wishart
from fake_device import DeviceArray
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads

from divlearn.iddl.atoms import initial_atoms
from divlearn.log_vectors import fit_vectors, log_vectors, refine_centres, squared_distances


def test_squared_distances_keep_their_digits_far_from_the_origin():
    random = np.random.default_rng(0)
    first, second = random.normal(size=(2, 30, 5))
    found = squared_distances(2**20 + first, 2**20 + second)
    gaps = (2**20 + first)[:, None] - (2**20 + second)
    np.testing.assert_allclose(found, (gaps**2).sum(axis=2), rtol=1e-9, atol=1e-14)


def test_squared_distances_are_those_of_scipy_wherever_the_vectors_are():
    rng = np.random.default_rng(0)
    rows, others = rng.normal(size=(20, 5)), rng.normal(size=(7, 5))
    others[0] = rows[0]
    expected = cdist(rows, others, "sqeuclidean")
    found = squared_distances(rows, others)
    np.testing.assert_allclose(found, expected, atol=1e-13)
    assert (found >= 0).all()
    there = squared_distances(DeviceArray.send(rows), DeviceArray.send(others))
    np.testing.assert_array_equal(there.get(), found)


def test_one_thread_adds_up():
    """Several would add their sums in the order in which they are ready."""
    seen = []

    class Watched(KMeans):
        def fit(self, X, y=None, sample_weight=None):
            seen.append(_openmp_effective_n_threads())
            return super().fit(X, y, sample_weight)

    before = _openmp_effective_n_threads()
    rows = np.random.default_rng(0).normal(size=(50, 3))
    weights = np.arange(1.0, 51.0)
    found = fit_vectors(Watched(4, n_init=1, random_state=0), rows, weights)
    assert seen == [1]
    assert _openmp_effective_n_threads() == before
    nearest = KMeans(4, n_init=1, random_state=0).fit(rows, sample_weight=weights)
    np.testing.assert_allclose(found.cluster_centers_, nearest.cluster_centers_, rtol=1e-12)


def test_too_few_different_vectors_are_no_warning():
    assert len(fit_vectors(KMeans(3, n_init=1), np.ones((5, 2))).cluster_centers_) == 3


def test_centres_are_refined_where_the_vectors_are():
    rows = np.random.default_rng(1).normal(size=(200, 4))
    right = KMeans(6, init=rows[:6], n_init=1).fit(rows).cluster_centers_
    there = DeviceArray.send(rows)
    np.testing.assert_allclose(refine_centres(there, there[:6]).get(), right, rtol=1e-12)
    far = np.append(rows[:5], np.full((1, 4), 1e3), axis=0)  # a cluster without vectors
    assert refine_centres(there, DeviceArray.send(far)) is None


def test_atoms_start_the_same_on_a_device():
    rng = np.random.default_rng(2)
    X = wishart(rng, 80, 5) * np.geomspace(1, 1e150, 80)[:, None, None]
    vectors = log_vectors(X)
    there = log_vectors(DeviceArray.send(X))
    np.testing.assert_allclose(there.get(), vectors, rtol=1e-12, atol=1e-12)
    X = X[:30]
    codes = np.arange(30) % 2
    found, right = (
        initial_atoms(X, codes, 7, "class-kmeans", np.random.RandomState(0), lambda v=v: v[:30])
        for v in (there, vectors)
    )
    np.testing.assert_allclose(found, right, rtol=1e-10)
