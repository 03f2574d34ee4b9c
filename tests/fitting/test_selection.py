"""Choice by held-out data: figures of a fold belong to what is chosen without the fold."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import config_context
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from divlearn.fitting.calibration import calibrate
from divlearn.fitting.selection import HeldOut, calibrated_without_each, choose, nest_folds


def noise(seed, n=48):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 4)), rng.permutation(np.arange(n) % 2)


def accuracy(parts, rows):
    return float(np.concatenate(parts).mean())


def held_out(make, X, y, folds, nested=True):
    nest = nest_folds(folds, y) if nested else None
    everything = [*folds, *(nest.folds if nest else [])]

    def decide(candidate, number):
        train, held = everything[number]
        return make(candidate).fit(X[train], y[train]).predict(X[held]) == y[held]

    def judge(parts, rows):
        right = np.concatenate(parts)
        return right / len(right)

    return HeldOut(decide, judge, folds, nest)


def test_inner_folds_leave_out_two_blocks():
    X, y = noise(0)
    folds = list(StratifiedKFold(4, shuffle=True, random_state=0).split(X, y))
    nest = nest_folds(folds, y)
    assert len(nest.folds) == 6
    for k, judged in enumerate(nest.judged):
        held = [nest.folds[number][1][outside] for number, outside in judged]
        np.testing.assert_array_equal(np.sort(np.concatenate(held)), folds[k][0])
        for number, _ in judged:
            train, both = nest.folds[number]
            assert not np.isin(train, folds[k][1]).any()
            assert not np.isin(train, both).any()
            assert len(train) == len(X) // 2


@pytest.mark.parametrize("n_folds", [3, 4, 7, 20])
def test_no_more_than_six_inner_models_whatever_the_folds(n_folds):
    X, y = noise(1, 60)
    folds = list(KFold(n_folds, shuffle=True, random_state=0).split(X))
    nest = nest_folds(folds, y)
    assert len(nest.folds) == (3 if n_folds == 3 else 6)
    for k, judged in enumerate(nest.judged):
        assert judged
        assert not any(np.isin(folds[k][1], nest.folds[number][0]).any() for number, _ in judged)


def test_what_cannot_be_nested_takes_the_candidate_in_the_middle():
    X, y = noise(2)
    folds = list(StratifiedKFold(2, shuffle=True, random_state=0).split(X, y))
    assert not any(nest_folds(folds, y).judged)
    found = held_out(KNeighborsClassifier, X, y, folds)
    assert found.best_without_each([1, 3, 5], lambda _: []) == [3, 3]


def test_folds_that_overlap():
    X, y = noise(2)
    folds = list(ShuffleSplit(8, test_size=0.3, random_state=0).split(X))
    for (_, held), judged in zip(folds, nest_folds(folds, y).judged, strict=True):
        for number, outside in judged:
            train, both = nest_folds(folds, y).folds[number]
            assert not np.isin(held, train).any()
            assert not np.isin(held, both[outside]).any()


def test_the_choice_without_a_fold_is_that_of_nested_cross_validation():
    X, y = noise(3, 60)
    X[:, 0] += y
    folds = list(StratifiedKFold(4, shuffle=True, random_state=1).split(X, y))
    found = held_out(KNeighborsClassifier, X, y, folds).best_without_each([1, 3, 9], lambda _: [])
    for k, (train, _) in enumerate(folds):
        scores = []
        for count in (1, 3, 9):
            right = []
            for j, (_, held) in enumerate(folds):
                if j != k:
                    rest = np.setdiff1d(train, held)
                    model = KNeighborsClassifier(count).fit(X[rest], y[rest])
                    right.append(model.predict(X[held]) == y[held])
            scores.append(np.concatenate(right).mean())
        assert found[k] == (1, 3, 9)[int(np.argmax(scores))]


def test_refinements_are_tried_next_to_the_best():
    X, y = noise(4)
    folds = list(StratifiedKFold(4, shuffle=True, random_state=0).split(X, y))
    found = held_out(lambda C: SVC(C=C), X, y, folds)
    best = found.best([1.0, 10.0], lambda best: [best / 3, best * 3])
    scores = {C: found.score(C) for C in (best / 3, best, best * 3) if best == C or C > 0}
    assert found.score(best) == max(scores.values()) or best in (1.0, 10.0)
    assert found.score(best) >= max(found.score(1.0), found.score(10.0))


@config_context(assume_finite=True, skip_parameter_validation=True)  # of ten thousand fits
def test_noise_is_at_chance_and_the_best_of_many_is_not():
    """Scores of the other folds are not enough for machines with narrow kernels."""
    candidates = [(gamma, C) for gamma in (0.1, 0.3, 1.0, 3.0) for C in (1.0, 100.0)]
    highest, crossed, nested = [], [], []
    for seed in range(60):
        X, y = noise(seed)
        folds = list(StratifiedKFold(4, shuffle=True, random_state=seed).split(X, y))
        make = lambda one: SVC(gamma=one[0], C=one[1])  # noqa: E731
        found = held_out(make, X, y, folds)
        highest.append(max(found.score(one) for one in candidates))
        chosen = found.best_without_each(candidates, lambda _: [])
        nested.append(accuracy(found.parts(chosen), None))
        plain = held_out(make, X, y, folds, nested=False)
        crossed.append(accuracy(plain.parts(plain.best_without_each(candidates, lambda _: [])), 0))
    error = np.std(nested) / np.sqrt(len(nested))
    assert abs(np.mean(nested) - 0.5) < 3 * error
    assert np.mean(highest) > 0.5 + 4 * error
    assert np.mean(crossed) > np.mean(nested) + error


@pytest.mark.parametrize("nested", [False, True])
def test_calibration_of_a_fold_does_not_see_it(nested):
    rng = np.random.default_rng(0)
    scores, codes = rng.standard_normal((2, 40, 3, 1)), rng.integers(3, size=40)
    folds = list(KFold(4).split(codes))
    nest = nest_folds(folds, codes) if nested else None
    everything = [*folds, *(nest.folds if nest else ())]
    said = HeldOut(lambda one, k: scores[one, everything[k][1]], None, folds, nest)
    chosen = [0, 1, 0, 1]
    rows, found = calibrated_without_each(said, chosen, codes, np.ones(40))
    turned = np.where(np.arange(40) < 10, (codes + 1) % 3, codes)
    again = calibrated_without_each(said, chosen, turned, np.ones(40))[1]
    np.testing.assert_array_equal(rows, np.arange(40))
    np.testing.assert_array_equal(again[:10], found[:10])
    assert (again[10:] != found[10:]).any()
    for k, (train, held) in enumerate(folds):  # by the scores of the same candidate
        known = calibrate(scores[chosen[k], train], codes[train], np.ones(30))
        expected = np.exp(known.log_probabilities(scores[chosen[k], held]))
        np.testing.assert_allclose(found[held], expected)


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([1.0, 3.0, 3.0, 2.0], 1),  # the first of those that tie
        ([1.0, np.nan, 2.0], 2),  # what cannot be judged loses
        ([-np.inf, np.nan], 0),
        ([np.nan, np.nan], 0),  # where nothing can be, the first
    ],
)
def test_the_best_score_is_chosen(scores, best):
    found, given = choose(range(len(scores)), scores.__getitem__)
    assert found == best
    np.testing.assert_array_equal(given, scores)
