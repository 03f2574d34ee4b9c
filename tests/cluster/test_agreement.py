"""Clusters beside chance: levels of the permutation test, and stability where there is none."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.metrics import adjusted_rand_score

from divlearn.cluster import ABKMeans, ABMixture
from divlearn.cluster.agreement import measure_stability, p_agreement
from divlearn.datasets import make_wishart_clusters
from divlearn.report.fitted import say_clusters

GROUPS = np.repeat(np.arange(12), 5)


def test_p_value_of_all_permutations():
    """Six matrices: the share of all 20 orders that differ with an index as high."""
    classes, clusters = np.array(["a", "a", "a", "b", "b", "b"]), np.array([0, 0, 1, 1, 1, 1])
    found = adjusted_rand_score(classes, clusters)
    every = [adjusted_rand_score(order, clusters) for order in set(permutations(classes.tolist()))]
    expected = np.mean(np.array(every) >= found - 1e-12)
    assert p_agreement(classes, clusters) == pytest.approx(expected, abs=0.05)
    assert p_agreement(classes, np.zeros(6, dtype=int)) == 1


def clusters_of_groups(rng):
    """Clusters follow the groups, four matrices of five."""
    kept = rng.random(60) < 0.8
    return np.where(kept, rng.integers(0, 3, 12)[GROUPS], rng.integers(0, 3, 60))


@pytest.mark.parametrize("pure", [True, False])
@pytest.mark.usefixtures("few_permutations")
def test_groups_are_no_evidence(pure):
    """Clusters and classes follow groups, and have nothing else in common: naively 20 to 30 %."""
    rng, found = np.random.default_rng(0), []
    for _ in range(40):
        shares = np.arange(12) % 2 if pure else rng.random(12)
        classes = rng.random(60) < rng.permutation(shares)[GROUPS]
        clusters = clusters_of_groups(rng)
        found.append([p_agreement(classes, clusters, some) < 0.05 for some in (GROUPS, None)])
    grouped, naive = np.mean(found, axis=0)
    assert grouped <= 0.07
    assert naive > 0.1


@pytest.mark.usefixtures("few_permutations")
def test_groups_of_unequal_size_are_no_evidence():
    rng, found = np.random.default_rng(1), []
    groups = np.repeat(np.arange(12), [20, 1, 1, 1, 5, 5, 5, 5, 5, 4, 4, 4])
    for _ in range(60):
        classes = rng.random(60) < rng.choice([0.02, 0.98], 12)[groups]
        clusters = rng.integers(0, 2, 12)[groups]
        found.append([p_agreement(classes, clusters, some) < 0.05 for some in (groups, None)])
    grouped, naive = np.mean(found, axis=0)
    assert grouped <= 0.07
    assert naive > 0.1


def test_agreement_is_found_in_groups():
    clusters = np.repeat(np.arange(12) % 2, 5)
    assert p_agreement(clusters, clusters, GROUPS) < 0.01
    classes = clusters.copy()
    classes[0] = 1 - classes[0]  # a single label that is not that of its group
    assert p_agreement(classes, clusters, GROUPS) < 0.01


@pytest.mark.parametrize("make", [ABKMeans, ABMixture])
def test_clusters_are_stable_where_there_are_any(make, set_tolerance):
    set_tolerance("mixtures", 1e-2)
    X, _ = make_wishart_clusters(3, 20, 2, separation=12, random_state=0)
    assert measure_stability(make(3, "burg", random_state=0).fit(X), X) > 0.9


def test_clusters_of_noise_are_not_stable():
    X, _ = make_wishart_clusters(1, 60, 6, random_state=0)
    model = ABKMeans(3, random_state=0).fit(X)
    assert abs(measure_stability(model, X)) < 0.3
    assert np.isnan(measure_stability(model, X[:10]))
    assert "Stability is not known: it takes at least 4 matrices" in say_clusters(np.arange(5))[1]


def test_stability_does_not_prove_clusters():
    """One cluster that is long, as random gains make it, is cut nearly the same way by halves."""
    X, _ = make_wishart_clusters(1, 80, 4, random_state=0)
    gains = np.exp(np.random.default_rng(0).normal(size=80))
    model = ABKMeans(2, random_state=0).fit(X * gains[:, None, None])
    stability = measure_stability(model, X * gains[:, None, None])
    assert stability > 0.5
    headline, evidence = say_clusters(model.labels_, stability=stability)
    assert "chance" not in headline
    assert "not that they are separate" in evidence


class Recorder(BaseEstimator):
    """Remembers which groups it was shown: their numbers are the matrices."""

    seen: list = []  # noqa: RUF012
    cluster_centers_ = np.zeros((2, 1, 1))

    def fit(self, X):
        self.seen.append(set(X.ravel().tolist()))
        return self

    def predict(self, X):
        return np.arange(len(X)) % 2


def test_halves_do_not_share_a_group():
    Recorder.seen.clear()
    measure_stability(Recorder(), GROUPS.reshape(-1, 1, 1).astype(float), GROUPS)
    halves = list(zip(Recorder.seen[::2], Recorder.seen[1::2], strict=True))
    assert len(halves) == 3
    assert all(not one & other and one | other == set(range(12)) for one, other in halves)
    assert halves[0] != halves[1]
