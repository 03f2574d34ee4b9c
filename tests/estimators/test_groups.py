"""Matrices that belong together: no fold splits them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import divlearn
from divlearn.datasets import make_wishart_clusters
from divlearn.iddl import Recipe
from divlearn.judge import evaluate
from divlearn.judge.evaluation import held_out_predictions
from divlearn.judge.significance import compare_paired, standard_error
from divlearn.nearest import DivergenceKNN, DivergenceMDM
from divlearn.report.fitted import compare_with_baselines

pytestmark = pytest.mark.usefixtures("small_grids_everywhere")

CLASSIFIERS = {
    "IDDLClassifier": divlearn.IDDLClassifier(
        8, recipe=Recipe(loss="ridge"), rank="full", max_iter=1, cv=4, random_state=0
    ),
    "SPDClassifier": divlearn.SPDClassifier(("tangent rbf", "tangent lda"), random_state=0),
    "DivergenceKernelClassifier": divlearn.DivergenceKernelClassifier(
        [0.5], [0.5], [1, 4], [10, 100], random_state=0
    ),
}


@pytest.fixture(scope="module")
def images():
    """Copies of matrices that tell nothing of their classes, five of each."""
    X, _ = make_wishart_clusters(1, 16, 3, random_state=0)
    groups = np.repeat(np.arange(16), 5)
    factors = 1 + 1e-3 * np.random.default_rng(0).standard_normal(len(groups))
    return X[groups] * factors[:, None, None], groups % 2, groups


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_copies_do_not_vouch_for_each_other(name, images):
    X, y, groups = images
    model = CLASSIFIERS[name]
    alone = model.fit(X, y).oof_proba_
    assert np.mean(alone.argmax(axis=1) == y) > 0.95
    together = model.fit(X, y, groups=groups).oof_proba_
    assert np.mean(together.argmax(axis=1) == y) < 0.75


@pytest.mark.parametrize("number", [20, 60])
@pytest.mark.parametrize("name", [*CLASSIFIERS, "IDDLRegressor"])
def test_groups_of_another_length(name, number):
    X, y = make_wishart_clusters(2, 12, 3, separation=4, random_state=0)
    model = CLASSIFIERS.get(name, divlearn.IDDLRegressor(random_state=0))
    with pytest.raises(ValueError, match=f"{number}.*24|24.*{number}"):
        model.fit(X, y, groups=np.arange(number))


@pytest.mark.parametrize("cv", [0, "4", 1.5])
def test_errors_name_the_parameter(cv):
    X, y = make_wishart_clusters(2, 12, 3, separation=4, random_state=0)
    with pytest.raises(ValueError, match=f"^cv={cv!r} must be an integer >= 2"):
        divlearn.SPDClassifier(("tangent rbf",), cv=cv).fit(X, y)
    with pytest.raises(ValueError, match=f"^cv={cv!r} must be an integer >= 2"):
        divlearn.IDDLClassifier(cv=cv).fit(X, y)


def test_baselines_beside_a_model_are_held_out_as_it_was(images):
    X, y, groups = images
    model = CLASSIFIERS["DivergenceKernelClassifier"].fit(X, y, groups=groups)
    held_out = held_out_predictions(model, y)
    n_wrong = []
    for known in (None, groups):
        section = compare_with_baselines(held_out, X, y, known)
        headings = [heading for heading, _ in section.content["headings"]]
        rows = [*section.content["shown"], *section.content["rest"]]
        neighbour = headings.index("1-NN, AIRM")
        n_wrong.append(sum(row[neighbour]["style"] == "wrong" for row in rows))
    assert n_wrong[0] == 0  # the nearest is a copy
    assert n_wrong[1] > len(y) // 8


def binomial_error(share, count):
    return np.sqrt(share * (1 - share) / count)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_copies_change_no_error_and_no_p_value(seed, copies):
    """A group of copies is worth one matrix; and a matrix alone is a group."""
    first, second = np.random.default_rng(seed).random((2, 40)) < 0.6
    plain = compare_paired(first, second)
    many = (np.repeat(flags, copies) for flags in (first, second))
    grouped = compare_paired(*many, np.repeat(np.arange(40), copies))
    assert grouped.first_only == copies * plain.first_only
    assert np.isclose(grouped.p_value, plain.p_value)
    assert np.isclose(grouped.difference, plain.difference)
    few = np.sqrt(40 / 39)  # one degree of freedom is lost to the mean
    assert np.isclose(grouped.standard_error, few * plain.standard_error)
    share = standard_error(np.repeat(first, copies), np.repeat(np.arange(40), copies))
    assert np.isclose(share, few * binomial_error(first.mean(), 40))


def test_many_copies_are_no_evidence(images):
    X, y, groups = images
    assert (
        "no divergence separates"
        in divlearn.which_divergence(X, y, groups=groups, random_state=0).summary().lower()
    )
    few = {"1-NN": DivergenceKNN(1), "mean": DivergenceMDM()}
    alone, together = evaluate(X, y, few), evaluate(X, y, few, groups=groups)
    assert alone.table()[0].accuracy == 1
    row = together.table()[0]
    n_groups = groups.max() + 1
    assert row.standard_error > 0.8 * binomial_error(row.accuracy, n_groups)


def test_which_takes_no_more_folds_than_groups(images):
    X, _, _ = images
    few = np.repeat(np.arange(8), 10)  # four of either class
    answer = divlearn.which_divergence(X, few % 2, groups=few, cv=9)
    assert len(answer.chosen) == 8
    assert answer.n_groups == 8


def test_an_evaluation_takes_no_more_folds_than_groups(images):
    X, _, _ = images
    groups = np.repeat(np.arange(4), 20)  # two of either class
    found = evaluate(X, groups % 2, {"1-NN": DivergenceKNN(1)}, cv=5, groups=groups)
    assert found.n_folds == 4
