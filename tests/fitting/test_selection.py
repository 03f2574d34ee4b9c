"""Choice by held-out data: figures of a fold belong to what is chosen without the fold."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from divlearn.fitting.selection import HeldOut, average_held_out, nest_folds


def noise(seed, n=48):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, 4)), rng.permutation(np.arange(n) % 2)


def criterion(parts, rows):
    right = np.concatenate(parts)
    return right / len(right)


def decider(make, X, y, folds):
    everything = [*folds, *nest_folds(folds, y)[0]]

    @cache
    def decide(candidate, number):
        train, held = everything[number]
        return make(candidate).fit(X[train], y[train]).predict(X[held]) == y[held]

    return decide


def held_out(make, X, y, folds):
    return HeldOut(decider(make, X, y, folds), criterion, folds, nest_folds(folds, y), nested=True)


def chosen_without_each(found, candidates):
    return [found.best(candidates, lambda _: [], k) for k in range(len(found.folds))]


def test_inner_folds_leave_out_two_blocks():
    X, y = noise(0)
    folds = list(StratifiedKFold(4, shuffle=True, random_state=0).split(X, y))
    inner, judged_by = nest_folds(folds, y)
    assert len(inner) == 6
    for k, judged in enumerate(judged_by):
        held = [inner[number][1][outside] for number, outside in judged]
        np.testing.assert_array_equal(np.sort(np.concatenate(held)), folds[k][0])
        for number, _ in judged:
            train, both = inner[number]
            assert not np.isin(train, folds[k][1]).any()
            assert not np.isin(train, both).any()
            assert len(train) == len(X) // 2


@pytest.mark.parametrize("n_folds", [3, 4, 7, 20])
def test_no_more_than_six_inner_models_whatever_the_folds(n_folds):
    X, y = noise(1, 60)
    folds = list(KFold(n_folds, shuffle=True, random_state=0).split(X))
    inner, judged_by = nest_folds(folds, y)
    assert len(inner) == (3 if n_folds == 3 else 6)
    for k, judged in enumerate(judged_by):
        assert judged
        assert not any(np.isin(folds[k][1], inner[number][0]).any() for number, _ in judged)


def test_what_cannot_be_nested_takes_the_candidate_in_the_middle():
    X, y = noise(2)
    folds = list(StratifiedKFold(2, shuffle=True, random_state=0).split(X, y))
    assert not any(nest_folds(folds, y)[1])
    found = held_out(KNeighborsClassifier, X, y, folds)
    assert chosen_without_each(found, [1, 3, 5]) == [3, 3]


def test_folds_that_overlap():
    X, y = noise(2)
    folds = list(ShuffleSplit(8, test_size=0.3, random_state=0).split(X))
    for (_, held), judged in zip(folds, nest_folds(folds, y)[1], strict=True):
        for number, outside in judged:
            train, both = nest_folds(folds, y)[0][number]
            assert not np.isin(held, train).any()
            assert not np.isin(held, both[outside]).any()


def test_the_choice_without_a_fold_is_that_of_nested_cross_validation():
    X, y = noise(3, 60)
    X[:, 0] += y
    folds = list(StratifiedKFold(4, shuffle=True, random_state=1).split(X, y))
    found = chosen_without_each(held_out(KNeighborsClassifier, X, y, folds), [1, 3, 9])
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


def kernel_ridge(X, y, folds):
    """Decide by kernel ridge regression of the signs of classes, for candidates (gamma, C)."""
    everything = [*folds, *nest_folds(folds, y)[0]]
    squared = ((X[:, None] - X) ** 2).sum(axis=-1)

    @cache
    def decide(candidate, number):
        train, held = everything[number]
        kernel = np.exp(-candidate[0] * squared)
        ridge = np.eye(len(train)) / candidate[1]
        dual = np.linalg.solve(kernel[np.ix_(train, train)] + ridge, 2.0 * y[train] - 1)
        return (kernel[np.ix_(held, train)] @ dual > 0) == y[held]

    return decide


def test_noise_is_at_chance_and_the_best_of_many_is_not():
    """Scores of the other folds are not enough for machines with narrow kernels."""
    candidates = [(gamma, C) for gamma in (0.1, 0.3, 1.0, 3.0) for C in (1.0, 100.0)]
    highest, crossed, nested = [], [], []
    for seed in range(40):
        X, y = noise(seed)
        folds = list(StratifiedKFold(4, shuffle=True, random_state=seed).split(X, y))
        decide = kernel_ridge(X, y, folds)
        for accuracies, inner in ((nested, True), (crossed, False)):
            found = HeldOut(decide, criterion, folds, nest_folds(folds, y), nested=inner)
            decisions = found.decisions(chosen_without_each(found, candidates))
            accuracies.append(np.concatenate(decisions).mean())
        highest.append(max(found.score(one) for one in candidates))
    error = np.std(nested) / np.sqrt(len(nested))
    assert abs(np.mean(nested) - 0.5) < 3 * error
    assert np.mean(highest) > 0.5 + 4 * error
    assert np.mean(crossed) > np.mean(nested) + error


def test_a_margin_keeps_the_first_candidate_unless_another_is_certainly_better():
    folds = list(KFold(2).split(np.arange(40)))
    shares = {0: np.zeros(40), 1: np.tile([1.0, -0.9], 20), 2: np.tile([1.0, 0.5], 20)}

    def best(candidates, margin):
        criterion = lambda parts, _: np.concatenate(parts)  # noqa: E731
        decide = lambda one, k: shares[one][folds[k][1]]  # noqa: E731
        nest = nest_folds(folds, np.arange(40) % 2)
        found = HeldOut(decide, criterion, folds, nest, nested=False, margin=margin)
        return found.best(candidates, lambda _: [])

    assert best([0, 1], 0.0) == 1
    assert best([0, 1], 2.0) == 0
    assert best([0, 1, 2], 2.0) == 2


def test_held_out_values_are_means_over_folds():
    folds = [(np.array([0, 3]), np.array([1, 2])), (np.array([0, 1]), np.array([2, 4]))]
    parts = [1.0 * held + train.sum() for train, held in folds]
    rows, values = average_held_out(parts, folds, 5)
    np.testing.assert_array_equal(rows, [1, 2, 4])
    np.testing.assert_array_equal(values, [4.0, 4.0, 5.0])


def test_what_cannot_be_judged_loses():
    folds = list(KFold(2).split(np.arange(6)))
    shares = {"nan": np.full(6, np.nan), "low": np.full(6, -2.0), "high": np.full(6, -1.0)}
    nest = nest_folds(folds, np.arange(6) % 2)

    def best(candidates):
        decide = lambda one, k: shares[one][folds[k][1]]  # noqa: E731
        found = HeldOut(decide, lambda parts, _: np.concatenate(parts), folds, nest, nested=False)
        return found.best(candidates, lambda _: [])

    assert best(["nan", "low", "high", "nan"]) == "high"
    assert best(["nan"]) == "nan"
