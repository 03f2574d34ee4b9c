"""Pairwise and matched F1 against counting pairs, permutations and scikit-learn."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from divlearn.cluster import matched_f1_score, pairwise_f1_score

labelings = st.integers(1, 12).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(0, 3), min_size=n, max_size=n)] * 2)
)


@settings(deadline=None, max_examples=20)
@given(labelings)
def test_pairs_are_counted(labels):
    classes, clusters = labels
    rows = list(combinations(range(len(classes)), 2))
    alike = np.array([classes[i] == classes[j] for i, j in rows], bool)
    together = np.array([clusters[i] == clusters[j] for i, j in rows], bool)
    if alike.any() or together.any():
        assert pairwise_f1_score(classes, clusters) == pytest.approx(f1_score(alike, together))


@settings(deadline=None, max_examples=5)
@given(labelings)
def test_the_best_matching_is_found(labels):
    """Against all ways to rename clusters, scored by scikit-learn."""
    classes, clusters = map(np.array, labels)
    kinds, sizes = np.unique(classes, return_counts=True)
    spare = -1 - np.arange(max(0, len(np.unique(clusters)) - len(kinds)))
    best = {"macro": 0.0, "weighted": 0.0}
    for names in permutations([*kinds, *spare], len(np.unique(clusters))):
        renamed = np.array(names)[np.unique(clusters, return_inverse=True)[1]]
        scores = f1_score(classes, renamed, labels=kinds, average=None, zero_division=0)
        best["macro"] = max(best["macro"], scores.mean())
        best["weighted"] = max(best["weighted"], np.average(scores, weights=sizes))
    for average, score in best.items():
        assert matched_f1_score(classes, clusters, average=average) == pytest.approx(score)


@settings(deadline=None, max_examples=10)
@given(labelings, st.permutations(range(4)))
def test_names_and_order_do_not_matter(labels, names):
    classes, clusters = map(np.array, labels)
    renamed = np.array(["a", "b", "c", "d"])[np.array(names)[clusters]]
    order = np.argsort(renamed, kind="stable")
    for score in (pairwise_f1_score, matched_f1_score):
        expected = score(classes, clusters)
        assert 0 <= expected <= 1
        assert score(classes[order], renamed[order]) == pytest.approx(expected)
        assert score(classes, classes) == 1


def test_many_samples_cost_no_more_than_their_table():
    rng = np.random.default_rng(0)
    classes, clusters = rng.integers(0, 4, (2, 300_000), dtype=np.int8)
    assert pairwise_f1_score(classes, clusters) == pytest.approx(0.25, abs=2e-3)


def test_all_alone_is_all_that_could_be_found():
    singles = np.arange(100_000)
    assert pairwise_f1_score(singles, singles[::-1]) == 1
    assert pairwise_f1_score(singles, np.zeros_like(singles)) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([], []), "labels_true is empty"),
        (([0, 1], [0]), "inconsistent numbers of samples"),
        (([[0, 1]], [0, 1]), "1d array"),
    ],
)
def test_bad_labels(arguments, message):
    for score in (pairwise_f1_score, matched_f1_score):
        with pytest.raises(ValueError, match=message):
            score(*arguments)


def test_bad_average():
    with pytest.raises(ValueError, match=r"average='micro' must be \"macro\" or \"weighted\""):
        matched_f1_score([0, 1], [0, 1], average="micro")
