"""Folds: what is held out, and that groups, classes and weights are respected by everything."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    PredefinedSplit,
    StratifiedKFold,
)
from sklearn.pipeline import make_pipeline

import divlearn
from divlearn.baselines import LEML, RSPDL, LogEuclideanSVM
from divlearn.datasets import make_wishart_clusters
from divlearn.fitting.folds import fit_grouped, make_folds
from divlearn.judge import evaluate, plane_map
from divlearn.report.fitted import map_training_data


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_every_class_trains_and_groups_stay_whole(data):
    n = data.draw(st.integers(4, 40))
    seed = data.draw(st.integers(0, 2**31 - 1))
    rng = np.random.default_rng(seed)
    y = rng.integers(0, data.draw(st.integers(1, 4)), n)
    groups = rng.integers(0, n, n) if data.draw(st.booleans()) else None
    cv = data.draw(st.integers(2, 6))
    if groups is not None and len(set(groups)) < 2:
        return
    folds = make_folds(cv, n, y, groups, random_state=seed)
    names = np.arange(n) if groups is None else groups
    for train, held in folds:
        np.testing.assert_array_equal(np.sort(np.r_[train, held]), np.arange(n))
        assert set(y[train]) == set(y)
        assert not set(names[train]) & set(names[held])
    if folds:
        held = np.concatenate([held for _, held in folds])
        assert len(np.unique(held)) == len(held)
        alone = {
            group
            for label in np.unique(y)
            if len(set(names[y == label])) == 1
            for group in names[y == label]
        }
        assert set(names[held]) == set(names) - alone


def test_a_number_without_groups_is_that_of_scikit_learn():
    y = np.repeat([0, 1, 2], [30, 20, 9])
    expected = StratifiedKFold(4, shuffle=True, random_state=3).split(y, y)
    for (train, held), (plain_train, plain_held) in zip(
        make_folds(4, 59, y, random_state=3), expected, strict=True
    ):
        np.testing.assert_array_equal(train, plain_train)
        np.testing.assert_array_equal(held, plain_held)


@pytest.mark.parametrize("cv", [2, 5, 50])
def test_numbers_of_folds(cv):
    y = np.repeat([0, 1], 10)
    assert len(make_folds(cv, 20, y, random_state=0)) == min(cv, 10)
    assert len(make_folds(cv, 20, None, random_state=0)) == min(cv, 20)
    assert len(make_folds(cv, 20, y, np.arange(20) // 4, random_state=0)) == min(cv, 5)
    assert make_folds(cv, 2, np.array([0, 1]), random_state=0) == []


def test_splitters_see_all_matrices_and_answers_are_about_the_kept():
    y, kept = np.arange(12) % 2, np.array([0, 1, 2, 3, 6, 7, 10, 11])
    assigned = np.arange(12) // 4
    for cv in (
        PredefinedSplit(assigned),
        GroupKFold(3),
        [(np.flatnonzero(assigned != k), np.flatnonzero(assigned == k)) for k in range(3)],
    ):
        groups = assigned if isinstance(cv, GroupKFold) else None
        folds = make_folds(cv, 12, y, groups, positions=kept)
        held = sorted(tuple(kept[held]) for _, held in folds)
        assert held == [(0, 1, 2, 3), (6, 7), (10, 11)]
        for train, test in folds:
            np.testing.assert_array_equal(np.sort(np.r_[train, test]), np.arange(8))


@pytest.mark.parametrize(
    ("cv", "message"),
    [
        (1, "cv=1 must be an integer >= 2, a splitter or pairs of indices"),
        (0, "cv=0 must be"),
        (True, "cv=True must be"),
        (None, "cv=None must be"),
        ("4", "cv='4' must be"),
        (2.5, "cv=2.5 must be"),
        ([(np.arange(4), np.arange(4, 60))], "cv must give pairs of indices"),
        ([np.arange(6)], "cv must give pairs of indices"),
        ([(np.arange(6), np.arange(3))], "trains on matrices that it holds out"),
        ([(np.arange(6), np.arange(0))], "cv holds out no matrix of weight > 0"),
        ([(np.arange(0, 6, 2), np.arange(1, 6, 2))], "trains without class 1"),
    ],
)
def test_folds_that_are_refused(cv, message):
    with pytest.raises(ValueError, match=message):
        make_folds(cv, 6, np.arange(6) % 2)


def test_groups_that_are_refused():
    y = np.arange(6) % 2
    with pytest.raises(ValueError, match="groups has 1 group, must have >= 2"):
        make_folds(2, 6, y, np.zeros(6))
    with pytest.raises(ValueError, match="groups has 5 entries, must have one for each of 6"):
        make_folds(2, 6, y, np.zeros(5))
    with pytest.raises(ValueError, match=r"groups should be a 1d array, got .* \(6, 2\)"):
        make_folds(2, 6, y, np.zeros((6, 2)))
    numbers, days = [0, np.nan, 1, 1, 2, 2], ["2026-01-01", "NaT", *["2026-01-02"] * 4]
    for unknown in (numbers, np.array(numbers, object), np.array(days, "datetime64[D]")):
        with pytest.raises(ValueError, match=r"groups\[1\] is (nan|NaT), must be a number .*drop"):
            make_folds(2, 6, y, unknown)


def test_entangled_groups_are_held_out_one_by_one():
    """Of three classes with two groups each, two folds would hold out one class as a whole."""
    cyclic = np.array([0, 1, 1, 2, 2, 0])
    folds = make_folds(2, 6, np.repeat([0, 1, 2], 2), cyclic, random_state=0)
    assert [held.tolist() for _, held in folds] == [[0, 5], [1, 2], [3, 4]]


# --- everything that holds anything out


@pytest.fixture(scope="module")
def copies():
    """Twenty groups of four near-copies with labels that mean nothing: the truth is 50 %."""
    X, _ = make_wishart_clusters(1, 20, 3, random_state=0)
    groups = np.repeat(np.arange(20), 4)
    factors = 1 + 1e-3 * np.random.default_rng(0).standard_normal(len(groups))
    return X[groups] * factors[:, None, None], groups % 2, groups


def held_out_accuracy(model):
    """What a model says that it reaches on held-out data."""
    if hasattr(model, "held_out_accuracy_"):
        return model.held_out_accuracy_
    return float(np.nanmax(model.history_["accuracy"]))


@pytest.mark.parametrize(
    "model",
    [
        LogEuclideanSVM("rbf", random_state=0),
        LogEuclideanSVM("linear", random_state=0),
        LEML(random_state=0),
        RSPDL(4, max_iter=1, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_baselines_are_tuned_on_whole_groups(model, copies):
    X, y, groups = copies
    assert held_out_accuracy(model.fit(X, y, groups=groups)) < 0.75
    if isinstance(model, LogEuclideanSVM) and model.kernel == "rbf":
        assert held_out_accuracy(model.fit(X, y)) > 0.95


def test_maps_know_groups(copies):
    X, y, groups = copies
    assert plane_map(X, y, [0, 1], [0, 1]).accuracy.min() == 1
    grouped = plane_map(X, y, [0, 1], [0, 1], groups=groups)
    assert grouped.accuracy.max() < 0.8
    assert (grouped.standard_error > 0.05).all()  # of 30 groups, not of 120 matrices
    assert map_training_data(X, y, groups).accuracy.max() < 0.8


class GroupsSeen(ClassifierMixin, BaseEstimator):
    """Keeps the groups it was given."""

    seen: list = []  # noqa: RUF012

    def fit(self, X, y, groups=None):
        self.classes_ = np.unique(y)
        self.seen.append((len(X), groups))
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])


def test_an_evaluation_hands_groups_to_the_fit(copies):
    X, y, groups = copies
    GroupsSeen.seen.clear()
    evaluate(X, y, {"one": GroupsSeen(), "two": make_pipeline(GroupsSeen())}, cv=3, groups=groups)
    assert len(GroupsSeen.seen) == 6
    for n, seen in GroupsSeen.seen:
        assert len(seen) == n
        assert set(np.unique(seen, return_counts=True)[1]) == {4}
    evaluate(X, y, {"one": GroupsSeen()}, cv=3)
    assert GroupsSeen.seen[-1][1] is None


def test_groups_are_routed(copies):
    X, y, groups = copies
    with config_context(enable_metadata_routing=True):
        GroupsSeen.seen.clear()
        asked = make_pipeline(GroupsSeen().set_fit_request(groups=True))
        fit_grouped(asked, X, y, groups)
        fit_grouped(make_pipeline(GroupsSeen().set_fit_request(groups=False)), X, y, groups)
        assert [seen is None for _, seen in GroupsSeen.seen] == [False, True]
        classifier = divlearn.DivergenceKernelClassifier(
            alphas=[0.0], betas=[0.0], random_state=0
        ).set_fit_request(groups=True)
        search = GridSearchCV(classifier, {"C": [(1.0,), (10.0,)]}, cv=GroupKFold(3))
        search.fit(X, y, groups=groups)
        assert search.best_score_ < 0.75
        assert search.best_estimator_.best_score_ < 0.75


def test_folds_that_part_groups_are_warned_of():
    groups, fold = np.arange(8) // 2, np.arange(8) // 4
    whole = make_folds(PredefinedSplit(fold), 8, groups=groups)
    np.testing.assert_array_equal([held for _, held in whole], [[0, 1, 2, 3], [4, 5, 6, 7]])
    assert len(make_folds(KFold(2), 8, groups=groups)) == 2
    pairs = list(KFold(2, shuffle=True, random_state=0).split(groups))
    for cv in (PredefinedSplit(np.arange(8) % 2), pairs, KFold(3)):
        with pytest.warns(UserWarning, match="cv holds out a part of group .* trains on the rest"):
            make_folds(cv, 8, groups=groups)
