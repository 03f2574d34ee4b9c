"""How sure accuracies are: levels under the null and power, by simulation and against scipy."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import binomtest, ttest_1samp

from divlearn.datasets import make_wishart_clusters
from divlearn.judge import which_divergence
from divlearn.judge.significance import compare_paired, p_above, standard_error


def test_without_groups_it_is_the_binomial_test():
    flags = np.random.default_rng(0).random(200) < 0.3
    expected = binomtest(int(flags.sum()), 200, 0.25, alternative="greater").pvalue
    assert p_above(flags, 0.25) == pytest.approx(expected)


def test_groups_of_one_size_are_a_t_test_of_their_accuracies():
    rng = np.random.default_rng(1)
    flags = rng.random((12, 85)) < rng.uniform(0.2, 0.4, (12, 1))
    groups = np.repeat(np.arange(12), 85)
    expected = ttest_1samp(flags.mean(axis=1), 0.25, alternative="greater").pvalue
    assert p_above(flags.ravel(), 0.25, groups) == pytest.approx(expected)
    error = flags.mean(axis=1).std(ddof=1) / np.sqrt(12)
    assert standard_error(flags.ravel(), groups) == pytest.approx(error)


def test_few_groups_that_agree_claim_no_more_than_they_can():
    flags, groups = np.ones(300, dtype=bool), np.repeat(np.arange(3), 100)
    assert p_above(flags, 0.5, groups) == 0.5**3
    assert p_above(~flags, 0.5, groups) == 1


def guesses_of_subjects(rng):
    """Labels and guesses of every subject have shares of their own, and nothing in common."""
    labels, guesses = (
        np.array([rng.choice(4, 40, p=share) for share in rng.dirichlet(np.full(4, 2.0), 12)])
        for _ in range(2)
    )
    return (labels == guesses).ravel()


def guesses_of_objects(rng):
    """Every object is of one class, and all its images are guessed alike."""
    return np.repeat(rng.random(12) < 0.25, 40)


def skill_of_subjects(rng):
    """Subjects are recognised, on 38 % of their trials, give or take 8."""
    skill = np.clip(rng.normal(0.38, 0.08, 12), 0, 1)
    return (rng.random((12, 40)) < skill[:, None]).ravel()


@pytest.mark.parametrize(
    ("draw", "least", "most"),
    [(guesses_of_subjects, 0, 0.065), (guesses_of_objects, 0, 0.065), (skill_of_subjects, 0.95, 1)],
)
def test_level_and_power_over_groups(draw, least, most):
    rng, groups = np.random.default_rng(2), np.repeat(np.arange(12), 40)
    rejected = np.mean([p_above(draw(rng), 0.25, groups) < 0.05 for _ in range(1000)])
    assert least <= rejected <= most


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
    X, y = make_wishart_clusters(4, 60, 4, separation=2, random_state=0)
    groups = np.empty(len(y), dtype=int)
    for label in range(4):
        groups[y == label] = np.arange(60) % 12
    frames = np.eye(4) + 0.15 * rng.standard_normal((12, 4, 4))
    X = frames[groups] @ X @ frames[groups].mT
    grid = {"alphas": [0, 0.5, 1], "betas": [0, 0.5, 1]}
    answer = which_divergence(X, y, groups=groups, random_state=0, **grid)
    assert 0.3 < answer.score < 0.6
    assert answer.p_chance < 0.01
    assert answer.summary().startswith("Use")
    shuffled = which_divergence(X, rng.permutation(y), groups=groups, random_state=0, **grid)
    assert shuffled.p_chance > 0.05
    assert shuffled.summary().startswith("No divergence separates these classes")
