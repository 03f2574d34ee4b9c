"""Which divergence: honest scores, plain words, and answers where the answer is known."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from conftest import wishart
from numpy.testing import assert_array_equal
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import cross_val_predict

from divlearn.datasets import make_recordings, make_wishart_clusters
from divlearn.divergence import abld
from divlearn.engines import get_engine
from divlearn.fitting.folds import make_folds
from divlearn.judge import (
    NAMED,
    NamedScore,
    RuleScore,
    WhichDivergence,
    which_divergence,
)
from divlearn.nearest import DivergenceKNN, DivergenceMDM, plane

ALPHAS, BETAS = [0.0, 0.5, 1.5], [0.0, 1.0]


def overlapping(n: int = 60, d: int = 3, seed: int = 0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    factors = rng.standard_normal((n, d, d + 1)) * (1 + 0.6 * labels[:, None, None])
    return factors @ factors.mT, labels


def fold_of(y, groups, cv):
    """The fold of every matrix."""
    folds = np.empty(len(y), dtype=int)
    for fold, (_, held) in enumerate(make_folds(cv, len(y), y, groups, random_state=0)):
        folds[held] = fold
    return folds


def hits(divergences, inside, y, groups, folds):
    """Whether neighbours of other folds and groups, in some folds, are of the same class."""
    table = divergences.copy()
    table[(folds[:, None] == folds) | (groups[:, None] == groups)] = np.inf
    table[:, ~np.isin(folds, inside)] = np.inf
    return y[table.argmin(axis=1)] == y


def score_means(inside, X, y, folds):
    """Accuracies of exact nearest means on some folds, with means of the others among them."""
    rows, right = np.flatnonzero(np.isin(folds, inside)), {name: [] for name in NAMED}
    for name, fold in product(NAMED, inside):
        train, test = rows[folds[rows] != fold], rows[folds[rows] == fold]
        right[name].extend(DivergenceMDM(name).fit(X[train], y[train]).predict(X[test]) == y[test])
    return [np.mean(right[name]) for name in NAMED]


@pytest.mark.parametrize("copies", [1, 2])
def test_neighbours_of_a_plain_loop(copies):
    """Nested cross-validation as one would write it, one matrix after the other, with groups."""
    images, classes = overlapping(36 // copies)
    X, y = np.repeat(images, copies, axis=0), np.repeat(classes, copies)
    X[::2] *= 1.01  # near copies
    names = np.repeat([f"image {number}" for number in range(36 // copies)], copies)
    given = names if copies > 1 else None
    options = {"cv": 3, "alphas": ALPHAS, "betas": BETAS, "random_state": 0}
    answer = which_divergence(X, y, groups=given, **options)
    folds, grid = fold_of(y, given, 3), list(product(ALPHAS, BETAS))
    assert all(len(set(folds[names == name])) == 1 for name in names)
    about = y, names, folds
    tables = [abld(X[:, None], X, *point) for point in grid]
    scores = [hits(table, range(3), *about).mean() for table in tables]
    np.testing.assert_allclose(answer.map.ravel(), scores)
    assert scores[grid.index(answer.best)] == max(scores)
    named = [abld(X[:, None], X, known.alpha, known.beta) for known in NAMED.values()]
    scores = [hits(table, range(3), *about).mean() for table in named]
    np.testing.assert_allclose([row.score for row in answer.named.values()], scores)
    learned, chosen = np.empty((2, len(y)), dtype=bool)
    for fold in range(3):
        others, own = [k for k in range(3) if k != fold], folds == fold
        scores = [hits(table, others, *about)[~own].mean() for table in tables]
        assert scores[grid.index(answer.chosen[fold])] == max(scores)
        learned[own] = hits(tables[grid.index(answer.chosen[fold])], others, *about)[own]
        best = np.argmax([hits(table, others, *about)[~own].mean() for table in named])
        chosen[own] = hits(named[best], others, *about)[own]
    assert answer.score == pytest.approx(learned.mean())
    assert answer.rules["learned nearest neighbour"].score == answer.score
    assert answer.rules["nearest neighbour"].score == pytest.approx(chosen.mean())
    assert len(set(answer.chosen)) > 1  # or the loop would not see who chooses


def test_nearest_means_of_a_plain_loop():
    """Means are exact, and chosen without the fold they are judged on."""
    X, y = overlapping(60)
    answer = which_divergence(X, y, cv=3, alphas=ALPHAS, betas=BETAS, random_state=0)
    folds, names = fold_of(y, None, 3), np.array(list(NAMED))
    exact = score_means(range(3), X, y, folds)
    np.testing.assert_allclose([row.mean_score for row in answer.named.values()], exact)
    right, chosen = [], set()
    for fold in range(3):
        train, test = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        others = [k for k in range(3) if k != fold]
        name = names[int(np.argmax(score_means(others, X, y, folds)))]
        right.extend(DivergenceMDM(name).fit(X[train], y[train]).predict(X[test]) == y[test])
        chosen.add(name)
    assert answer.rules["nearest mean"].score == pytest.approx(np.mean(right))
    assert len(chosen) > 1
    assert answer.rules["nearest mean"].score < max(exact)  # which is the best of five


def test_recommends_the_rule_and_divergence_of_the_highest_accuracy():
    """Recordings of new subjects: of exact means, not only of approximate ones."""
    recordings, y, subjects = make_recordings(72, 6, random_state=0)
    X, options = recordings @ recordings.mT / recordings.shape[2], {"cv": 3, "random_state": 0}
    answer = which_divergence(X, y, groups=subjects, alphas=ALPHAS, betas=BETAS, **options)
    splits = make_folds(3, len(y), y, subjects, random_state=0)
    for make, key in ((DivergenceMDM, "mean_score"), (partial(DivergenceKNN, 1), "score")):
        for name, row in answer.named.items():
            said = cross_val_predict(make(name), X, y, cv=splits)
            assert getattr(row, key) == pytest.approx(np.mean(said == y))
    best = max(max(row.score, row.mean_score) for row in answer.named.values())
    top = answer.named[answer.best_named]
    assert (top.mean_score if answer.rule == "nearest mean" else top.score) == best
    assert answer.summary().startswith(f"Use the {answer.rule} in {answer.best_named}: held-out")
    assert f"held-out accuracy {answer.rule_score:.1%} +-" in answer.summary()


def test_means_are_preferred_where_neighbours_are_noisy():
    """Matrices of few samples: the likelihood is that of the Burg divergence to the mean."""
    X, y = make_wishart_clusters(4, 40, 6, dof=7, separation=3, random_state=0)
    answer = which_divergence(X, y, cv=3, alphas=[0, 1], betas=[0, 1], random_state=0)
    assert answer.rule == "nearest mean"
    assert answer.rules["nearest neighbour"].p_value < 0.05
    assert answer.summary().startswith("Use the nearest mean in burg: ")
    assert "The nearest neighbour is significantly worse" in answer.summary()


def test_classes_of_different_size_count_alike():
    """Scores are those that scikit-learn calls balanced."""
    X, y = overlapping(60)
    kept = np.sort(np.concatenate([np.flatnonzero(y > 0), np.flatnonzero(y == 0)[:6]]))
    X, y = X[kept], y[kept]
    answer = which_divergence(X, y, cv=3, alphas=ALPHAS, betas=BETAS, random_state=0)
    folds = fold_of(y, None, 3)
    splits = [(np.flatnonzero(folds != k), np.flatnonzero(folds == k)) for k in range(3)]
    for make, key in ((DivergenceMDM, "mean_score"), (partial(DivergenceKNN, 1), "score")):
        said = cross_val_predict(make("stein"), X, y, cv=splits)
        expected = balanced_accuracy_score(y, said)
        assert getattr(answer.named["stein"], key) == pytest.approx(expected)
    assert answer.chance == pytest.approx(1 / 3)
    assert "balanced accuracy" in answer.summary()


def test_folds_that_leave_nothing_to_choose_by():
    """With two folds there is no other to choose on: the first contender is taken."""
    X, y = overlapping(30)
    answer = which_divergence(X, y, cv=2, alphas=ALPHAS, betas=BETAS, random_state=0)
    assert answer.chosen == ((0.0, 0.0), (0.0, 0.0))
    assert answer.rules["nearest mean"].score == answer.named["airm"].mean_score


def test_blocks_do_not_show(request):
    X, y = overlapping(18)
    options = {"cv": 2, "alphas": ALPHAS, "betas": BETAS, "random_state": 0}
    expected = which_divergence(X, y, **options)
    request.getfixturevalue("small_blocks")
    blocked = which_divergence(X, y, **options)
    np.testing.assert_array_equal(blocked.map, expected.map)
    assert blocked.table() == expected.table()


def test_separated_classes_need_no_learning():
    X, y = make_wishart_clusters(3, 30, 3, separation=30, random_state=0)
    answer = which_divergence(X, y, cv=2, random_state=0)
    assert answer.criterion == "accuracy"
    assert answer.map.shape == (17, 17)
    assert answer.score > 0.95
    assert answer.summary().startswith("Use the nearest mean in any named divergence: ")


def test_learning_is_recommended_where_it_helps():
    """One eigenvalue tells the classes apart; members without a name ignore the noisy others.

    The second class lies on both sides of the first, so that means tell nothing.
    """
    rng, variant = np.random.default_rng(0), np.tile([0, 1, 2, 1], 75)
    y, noise = variant % 2, 3 * rng.standard_t(1.5, (5, 300)).clip(-9, 9)
    logs = np.column_stack([*noise, rng.normal(-1.5 * variant, 0.12)])
    X = np.exp(logs)[:, :, None] * np.eye(6)
    grid = {"alphas": [0, 1, 4, 8], "betas": [0, 1, 4, 8]}
    answer = which_divergence(X, y, cv=3, random_state=0, **grid)
    assert all(row.beaten for row in answer.named.values())
    point = f"({answer.best[0]:g}, {answer.best[1]:g})"
    assert answer.rule == "learned nearest neighbour"
    assert answer.rule_score == answer.score
    assert answer.summary().startswith(f"Use the nearest neighbour in the learned point {point}: ")
    assert max(answer.best) > 1
    assert answer.score <= answer.map.max()


def test_permuted_labels_mean_nothing():
    X, y = overlapping(90)
    shuffled = np.random.default_rng(3).permutation(y)
    answer = which_divergence(X, shuffled, cv=3, alphas=ALPHAS, betas=BETAS, random_state=0)
    assert answer.summary().startswith(
        "No divergence separates these classes significantly better than chance"
    )
    assert answer.score < 0.5
    assert answer.map.max() >= answer.score  # the map's maximum is not what is reported


@pytest.mark.parametrize("n_groups", [None, 10])
def test_nothing_is_recommended_without_signal(n_groups):
    """A class of four fifths: neighbours are right more often than means, and know nothing."""
    rng = np.random.default_rng(8)
    X, y = wishart(rng, 60, 2), rng.permutation(np.arange(60) < 12)
    groups = None if n_groups is None else np.arange(60) % n_groups
    options = {"cv": 3, "alphas": [0], "betas": [0], "random_state": 0}
    answer = which_divergence(X, y, groups=groups, **options)
    assert answer.measure == "balanced accuracy"
    assert answer.p_chance > 0.05
    assert answer.summary().startswith("No divergence separates these classes")


def test_the_same_twice():
    X, y = overlapping(18)
    options = {"cv": 2, "alphas": ALPHAS, "betas": BETAS, "random_state": 7}
    one, other = (which_divergence(X, y, **options) for _ in range(2))
    assert one.table() == other.table()
    assert one.summary() == other.summary()
    np.testing.assert_array_equal(one.map, other.map)


def test_words_of_every_verdict():
    row = NamedScore(0.0, 1.0, 0.8, 0.1, 0.02, 1e-4, mean_score=0.75)
    same, worse = RuleScore(0.8, 0.0, 0.0, 1.0), RuleScore(0.75, 0.05, 0.01, 0.001)
    grid = np.array([0.0, 1.0])
    answer = WhichDivergence(
        criterion="accuracy",
        measure="accuracy",
        best=(1.0, 1.0),
        score=0.82,
        alphas=grid,
        betas=grid,
        named={"airm": replace(row, score=0.7), "burg": row},
        map=np.full((2, 2), 0.8),
        n_matrices=200,
        chance=0.5,
        p_chance=1e-9,
        rule="nearest neighbour",
        rule_score=0.79,
        rule_error=0.03,
        rules={
            "nearest mean": worse,
            "nearest neighbour": same,
            "learned nearest neighbour": RuleScore(0.82, -0.02, 0.01, 0.3),
        },
    )
    assert answer.summary() == (
        "Use the nearest neighbour in burg: held-out accuracy 79.0% +- 3.0% on 200 matrices, "
        "chosen without each fold; chance is 50.0%. By rule: nearest neighbour 80.0%; nearest mean "
        "75.0%, 5.0 +- 1.0 points behind (p = 0.001); learned nearest neighbour 82.0%, 2.0 +- 1.0 "
        "points ahead (p = 0.3). The nearest mean is significantly worse, the learned nearest "
        "neighbour not significantly better (max-T sign-flip test over matrices, adjusted for all "
        "rules)."
    )
    assert "200 matrices of 8 groups, chosen" in replace(answer, n_groups=8).summary()
    assert "sign-flip test over groups" in replace(answer, n_groups=8).summary()
    three = dict.fromkeys(("airm", "stein", "burg"), row) | {"log-cosh": replace(row, score=0.1)}
    for names, verdict in (
        (dict.fromkeys(("airm", "burg"), row), "Use the nearest neighbour in any named divergence"),
        (three, "Use the nearest neighbour in airm, stein or burg: held-out"),
    ):
        assert replace(answer, named=names).summary().startswith(verdict)
    means = replace(answer, rule="nearest mean", rules=dict.fromkeys(answer.rules, same))
    assert means.summary().startswith("Use the nearest mean in any named divergence: ")
    learned = replace(answer, rule="learned nearest neighbour", rule_score=0.82)
    assert learned.summary().startswith(
        "Use the nearest neighbour in the learned point (1, 1): held-out accuracy 82.0%"
    )
    nothing = replace(answer, p_chance=0.06)
    assert nothing.summary() == (
        "No divergence separates these classes significantly better than chance: with the "
        "divergence chosen without each fold, the held-out accuracy is 75.0% for the nearest mean, "
        "80.0% for the nearest neighbour, 82.0% for the learned nearest neighbour, and chance is "
        "50.0% (p = 0.06, 200 matrices)."
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.zeros(30)}, "y holds the one class 0.0, must hold >= 2"),
        ({"y": np.arange(29) % 3}, "y has 29 rows, but X has 30 matrices"),
        ({"cv": 1}, "cv=1 must be >= 2"),
        ({"groups": np.arange(29)}, "groups has 29 entries, must have one for each of 30"),
        ({"groups": np.arange(30) % 3}, "class 0 has 1 group, must have >= 2"),
        ({"groups": np.arange(30), "y": None}, "without labels.*leave out groups, or pass y"),
        ({"alphas": [-1, 0]}, "alphas starts at -1, must be >= 0"),
        ({"betas": [1, 0]}, "ascending"),
        ({"X": np.eye(2)[None], "y": None}, "n_matrices=1, must be >= 2"),
    ],
)
def test_errors(change, message):
    X, y = overlapping(30)
    with pytest.raises(ValueError, match=message):
        which_divergence(**({"X": X, "y": y, "cv": 3} | change))


def test_of_many_matrices_some_are_judged_by_neighbours_and_means_of_all(monkeypatch):
    X, y = make_wishart_clusters(3, 20, 3, separation=2, random_state=0)
    X, y = X[:-5], y[:-5]
    folds = np.arange(len(y)) % 4
    points, engine = np.array([(0.0, 0.0), (0.5, 0.5), (0.0, 1.0)]), get_engine("auto")
    given = X, y, folds, None, points
    every, everyone = plane.judge_neighbors(*given, plane.draw_judged(y), engine)
    assert_array_equal(everyone, np.arange(len(y)))
    monkeypatch.setattr(plane, "_MOST_PAIRS", 0)
    monkeypatch.setattr(plane, "_LEAST_JUDGED", 20)
    some, judged = plane.judge_neighbors(*given, plane.draw_judged(y), engine)
    assert_array_equal(np.bincount(y[judged]), np.ceil(np.bincount(y) * 20 / 55))
    assert_array_equal(some, every[:, :, judged])
    answer = which_divergence(X, y, cv=2, random_state=0)
    said = "all 22 matrices were judged, drawn from 55, by neighbours and means of all"
    assert answer.n_matrices == 22
    assert answer.message == said
