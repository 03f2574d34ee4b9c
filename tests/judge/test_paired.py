"""How sure accuracies are: levels under the null and power, by simulation and against scipy.

benchmarks/honesty.py repeats simulations often enough to measure levels; here they find errors.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import norm, t, ttest_1samp
from sklearn.metrics import balanced_accuracy_score

from divlearn.datasets import make_wishart_clusters
from divlearn.judge import Evaluation, which_divergence
from divlearn.judge.significance import (
    balanced_weights,
    compare_all,
    compare_jointly,
    compare_paired,
    p_above_chance,
    standard_error,
)
from divlearn.report import page_of
from divlearn.text import say_p


def test_error_of_a_balanced_accuracy():
    """Of a mean over classes: the root of the mean variances over the number of classes."""
    rng, codes = np.random.default_rng(0), np.repeat([0, 1, 2], [10, 40, 70])
    flags = rng.random(120) < 0.6
    recalls = [flags[codes == code].mean() for code in range(3)]
    variances = [p * (1 - p) / n for p, n in zip(recalls, (10, 40, 70), strict=True)]
    assert standard_error(flags, None, codes) == pytest.approx(np.sqrt(sum(variances)) / 3)
    score = balanced_accuracy_score(codes, np.where(flags, codes, (codes + 1) % 3))
    assert np.mean(balanced_weights(codes) * flags) == pytest.approx(score)


def test_groups_of_one_size_are_a_t_test_of_their_accuracies():
    rng = np.random.default_rng(1)
    flags = rng.random((12, 84)) < rng.uniform(0.2, 0.4, (12, 1))
    groups, codes = np.repeat(np.arange(12), 84), np.tile(np.arange(4), 12 * 21)
    found = ttest_1samp(flags.mean(axis=1), 0.25, alternative="greater")
    expected = t.sf(found.statistic / np.sqrt(2), 11)  # of twice the variance
    assert p_above_chance(flags.ravel(), codes, groups) == pytest.approx(expected)
    error = flags.mean(axis=1).std(ddof=1) / np.sqrt(12)
    assert standard_error(flags.ravel(), groups) == pytest.approx(error)


def test_few_groups_that_agree_claim_no_more_than_they_can():
    flags, groups = np.ones(300, dtype=bool), np.repeat(np.arange(3), 100)
    codes = np.tile([0, 1], 150)
    assert p_above_chance(flags, codes, groups) == pytest.approx(0.5**3)
    assert p_above_chance(~flags, codes, groups) == 1
    # Three objects, one of the first class: the chance to name all is at most 1/3 * (2/3)^2.
    of_one_class = np.repeat([0, 1, 1], 100)
    assert p_above_chance(flags, of_one_class, groups) == pytest.approx(4 / 27)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_constant_predictions_are_not_above_chance(n_classes):
    """Balanced accuracies that are 1 / n_classes up to rounding."""
    for sizes in product(range(2, 25, 3), repeat=n_classes):
        codes = np.repeat(np.arange(n_classes), sizes)
        assert p_above_chance(codes == 0, codes) == 1
        groups = np.arange(len(codes)) % 5
        assert p_above_chance(codes == 0, codes, groups) == 1


GROUPS = np.repeat(np.arange(12), 40)


def guesses_of_subjects(rng):
    """Labels and guesses of every subject have shares of their own, and nothing in common."""
    labels, guesses = (
        np.array([rng.choice(4, 40, p=share) for share in rng.dirichlet(np.full(4, 2.0), 12)])
        for _ in range(2)
    )
    return (labels == guesses).ravel(), labels.ravel()


def guesses_of_objects(rng):
    """Every object is of one class, and all its images are guessed alike."""
    return np.repeat(rng.random(12) < 0.25, 40), np.repeat(np.arange(12) % 4, 40)


def guesses_of_rare_classes(rng):
    """Guesses name the classes as often as they occur, 80, 10, 7 and 3 %."""
    labels, guesses = rng.choice(4, (2, 480), p=[0.8, 0.1, 0.07, 0.03])
    return labels == guesses, labels


def skill_of_subjects(rng):
    """Subjects are recognised, on 42 % of their trials, give or take 8."""
    skill = np.clip(rng.normal(0.42, 0.08, 12), 0, 1)
    return (rng.random((12, 40)) < skill[:, None]).ravel(), np.tile(np.arange(4), 120)


@pytest.mark.parametrize(
    ("draw", "least", "most"),
    [
        (guesses_of_subjects, 0, 0.065),
        (guesses_of_objects, 0, 0.065),
        (guesses_of_rare_classes, 0, 0.065),
        (skill_of_subjects, 0.95, 1),
    ],
)
def test_level_and_power_over_groups(draw, least, most):
    rng = np.random.default_rng(2)
    rejected = np.mean([p_above_chance(*draw(rng), GROUPS) < 0.05 for _ in range(150)])
    assert least <= rejected <= most


def test_level_where_one_group_has_most_matrices():
    """Groups differ in how many are right by chance; the largest determines the accuracy."""
    sizes, rng = [100, *[5] * 9], np.random.default_rng(3)
    groups, codes = np.repeat(np.arange(10), sizes), np.arange(145) % 2
    flags = rng.random((150, 145)) < np.repeat(rng.uniform(size=(150, 10)), sizes, axis=1)
    assert np.mean([p_above_chance(row, codes, groups) < 0.05 for row in flags]) <= 0.05
    skilled = rng.random((150, 145)) < 0.9
    assert np.mean([p_above_chance(row, codes, groups) < 0.05 for row in skilled]) >= 0.9
    # Without dependence within groups the squared standard error is right on average.
    errors = [standard_error(row, groups) for row in rng.standard_normal((150, 145))]
    assert np.mean(np.square(errors)) == pytest.approx(1 / 145, rel=0.2)


def by_neighbour(distances, codes, folds):
    distances = np.where(folds[:, None] == folds, np.inf, distances)
    return codes[distances.argmin(axis=1)]


def by_mean(distances, codes, folds):
    """The class of the least mean distance, less half of that within the class."""
    apart, member = folds[:, None] != folds, codes == np.arange(2)[:, None]
    score = []
    for own in member:
        rows = apart & own
        size = rows.sum(axis=1)
        within = ((rows @ distances) * rows).sum(axis=1) / size**2
        score.append((distances * rows).sum(axis=1) / size - 0.5 * within)
    return np.argmin(score, axis=0)


@pytest.mark.parametrize(("predict", "share"), [(by_neighbour, 0.8), (by_mean, 0.5)])
def test_level_of_held_out_predictions(predict, share):
    """Matrices that are predicted from each other: a binomial test finds signal in 9 to 14 %."""
    rng, found = np.random.default_rng(4), []
    codes, folds = (np.arange(60) >= share * 60).astype(np.intp), np.arange(60) % 5
    for _ in range(150):
        X = rng.standard_normal((60, 2))
        said = predict(((X[:, None] - X) ** 2).sum(axis=2), codes, folds)
        found.append(p_above_chance(said == codes, codes) < 0.05)
    assert np.mean(found) <= 0.07


def answers(rng, accuracies, correlation, n, n_groups=None):
    """Whether classifiers are right, with errors in common, and within groups if there are any."""
    groups = None if n_groups is None else np.arange(n) % n_groups

    def noise(count):
        alone = rng.standard_normal((count, n))
        if groups is None:
            return alone
        return (
            np.sqrt(0.8) * alone + np.sqrt(0.2) * rng.standard_normal((count, n_groups))[:, groups]
        )

    scores = np.sqrt(correlation) * noise(1) + np.sqrt(1 - correlation) * noise(len(accuracies))
    return dict(enumerate(scores < norm.ppf(accuracies)[:, None])), groups


@pytest.fixture
def few_flips(monkeypatch):
    """Enough for a test at the level of 5 %."""
    monkeypatch.setattr("divlearn.judge.significance._N_FLIPS", 999)


@pytest.mark.parametrize(("correlation", "n_groups"), [(0.0, None), (0.9, None), (0.5, 12)])
@pytest.mark.usefixtures("few_flips")
def test_level_of_the_best_of_nine(correlation, n_groups):
    """Of nine equal classifiers, single tests find one worse than the best in 17 to 40 %."""
    rng, claims = np.random.default_rng(5), []
    for _ in range(60):
        right, groups = answers(rng, [0.75] * 9, correlation, 60, n_groups)
        best = max(right, key=lambda name: right[name].mean())
        p_values = compare_all(right, groups)
        claims.append(any(p < 0.05 for pair, p in p_values.items() if best in pair))
    assert np.mean(claims) <= 0.07


@pytest.mark.usefixtures("few_flips")
def test_power_beside_a_pair_that_is_named_in_advance():
    rng, found = np.random.default_rng(6), []
    for _ in range(25):
        right, _ = answers(rng, [0.75] * 8 + [0.65], 0.5, 300)
        best = max(right, key=lambda name: right[name].mean())
        alone = compare_paired(right[0], right[8]).p_value < 0.05
        found.append((compare_all(right)[frozenset((best, 8))] < 0.05, alone))
    joint, single = np.mean(found, axis=0)
    assert joint > max(0.8, single - 0.1)


def test_adjusted_p_values_of_all_flips():
    """Eight groups, three comparisons: every one of the 256 flips counts the same."""
    rng = np.random.default_rng(7)
    gains, groups = rng.choice([-1.0, 0, 1, 1], (3, 80)), np.arange(80) % 8
    sums = np.array([np.bincount(groups, row) for row in gains])
    sums /= np.linalg.norm(sums, axis=1, keepdims=True)
    far = [np.abs(sums @ signs).max() for signs in product([-1, 1], repeat=8)]
    expected = [np.mean(np.array(far) >= one - 1e-9) for one in np.abs(sums.sum(axis=1))]
    np.testing.assert_allclose(compare_jointly(gains, groups), expected, atol=0.02)
    nothing = compare_jointly(np.vstack([gains[0], 0 * gains[0]]))
    assert nothing[1] == 1


def test_signs_are_flipped_in_every_way():
    rng = np.random.default_rng(3)
    for _ in range(5):
        first, second = rng.random((2, 60)) < 0.6
        groups = rng.integers(0, 9, 60)
        gains = np.bincount(groups, first.astype(float) - second, minlength=9)
        sums = [np.dot(signs, gains) for signs in product([-1, 1], repeat=9)]
        expected = np.mean(np.abs(sums) >= abs(gains.sum()))
        assert compare_paired(first, second, groups).p_value == pytest.approx(expected)


def test_a_difference_of_all_groups_is_seen_though_each_is_small():
    """Twelve subjects gain two of forty each: a sign test and a binomial test agree on 1 / 2048."""
    second = np.tile(np.arange(40) < 20, 12)
    first = np.tile(np.arange(40) < 22, 12)
    found = compare_paired(first, second, np.repeat(np.arange(12), 40))
    assert found.p_value == pytest.approx(2 / 2**12)


def test_which_sees_what_twelve_subjects_agree_on():
    """Weak classes, moved by every subject: right on a third of four classes, at t = 5 and more."""
    rng = np.random.default_rng(0)
    X, y = make_wishart_clusters(4, 36, 4, separation=2, random_state=0)
    groups = np.empty(len(y), dtype=int)
    for label in range(4):
        groups[y == label] = np.arange(36) % 12
    frames = np.eye(4) + 0.15 * rng.standard_normal((12, 4, 4))
    X = frames[groups] @ X @ frames[groups].mT
    grid = {"cv": 3, "alphas": [0, 1], "betas": [0, 1]}
    answer = which_divergence(X, y, groups=groups, random_state=0, **grid)
    assert 0.3 < answer.score < 0.6
    assert answer.p_chance < 0.01
    assert answer.summary().startswith("Use the nearest ")
    shuffled = which_divergence(X, rng.permutation(y), groups=groups, random_state=0, **grid)
    assert shuffled.p_chance > 0.05
    assert shuffled.summary().startswith("No divergence separates these classes")


@pytest.mark.parametrize(
    "gains",
    [[1] * 7, [1] * 300 + [2] * 100, [3] * 2000 + [-5] * 800 + [7] * 130],
    ids=["few", "alike", "many"],
)
def test_p_values_are_no_smaller_than_those_of_all_signs_alike(gains):
    """Sums of products by Fourier transforms have errors of rounding, negative ones among them."""
    sizes, least = np.abs(gains), 2.0 ** (1 - len(gains))
    flags = np.repeat(np.sign(gains), sizes)[None].astype(float)
    found = compare_jointly(flags, np.repeat(np.arange(len(gains)), sizes))[0]
    assert found >= least
    assert found == pytest.approx(least, rel=1e-9) or min(gains) < 0
    assert found <= 2 * norm.sf(np.sum(gains) / np.linalg.norm(gains)) + 0.02  # for many units


def test_p_values_that_are_rounding_are_shown_as_a_bound():
    assert [say_p(p) for p in (0.0, 3e-17, 1e-16, 0.0312)] == [
        "p < 1e-16",
        "p < 1e-16",
        "p = 1e-16",
        "p = 0.031",
    ]
    codes = np.arange(4000) % 2
    predictions = {"right": codes, "wrong": np.where(np.arange(4000) < 300, 1 - codes, codes)}
    seconds, message = {"right": 1.0, "wrong": 1.0}, "all 2 folds completed"
    found = Evaluation(np.arange(2), codes, predictions, seconds, 2, np.arange(4000), message)
    assert found.table()[1].versus_best.p_value < 1e-16
    assert "(p < 1e-16)" in found.summary()
    assert "&lt; 1e-16" in page_of(found).html()
