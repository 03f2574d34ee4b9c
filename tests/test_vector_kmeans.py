"""k-means of vectors: fits that are the same from run to run."""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads

from divlearn.vector_kmeans import fit_vectors


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
