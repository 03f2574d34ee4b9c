"""What a model says of its divergences, against what the fit found on its way."""

from copy import copy

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm
from sklearn.model_selection import StratifiedKFold

from divlearn import IDDLClassifier, IDDLRegressor, IDDLTransformer, load, save
from divlearn.datasets import make_wishart_clusters
from divlearn.iddl import Recipe
from divlearn.iddl.judging import name_point, summarize


@pytest.fixture(scope="module")
def data():
    return make_wishart_clusters(3, 30, 4, separation=2, random_state=0)


@pytest.fixture(scope="module")
def fitted(data):
    """A classifier of several divergences, which nobody changes."""
    return IDDLClassifier(n_atoms=6, max_iter=1, rank="full", cv=2, random_state=0).fit(*data)


def test_one_fixed_divergence_is_the_start(data):
    given = {"divergence": "stein", "max_iter": 2, "rank": "full", "random_state": 0}
    model = IDDLClassifier(recipe=Recipe(loss="softmax", penalty=0.01), **given).fit(*data)
    losses = model.held_out_losses_
    assert list(losses) == ["stein", "model", "chance"]
    assert_allclose(losses["stein"].sum(), model.history_["held_out_loss"][0], rtol=1e-12)
    gains = losses["stein"] - losses["model"]
    error = np.sqrt(len(gains)) * gains.std(ddof=1)
    assert (
        f"Gain {gains.sum():.3g} +- {error:.2g}, paired over 90 matrices or groups"
        in model.summary()
    )


def test_message_and_summary_give_the_same_held_out_loss(data):
    """That of choices made on other folds; the choice by all folds has a lower one."""
    model = IDDLClassifier(n_atoms=6, max_iter=1, random_state=0).fit(*data)
    loss = f"{model.held_out_losses_['model'].sum():.4g}"
    assert f"held-out loss {loss} of linear heads" in model.message_
    assert f"Held-out loss {loss} of linear heads" in model.summary()


def test_groups_are_what_is_independent(data):
    """Copies of a matrix in a group add nothing to what is known of the gain."""
    X, y = data
    given = {"n_atoms": 6, "max_iter": 1, "rank": "full", "random_state": 0}
    folds = list(StratifiedKFold(3).split(X, y))
    twice = [tuple(np.concatenate([rows, rows + len(X)]) for rows in fold) for fold in folds]
    once = IDDLClassifier(cv=folds, **given).fit(X, y)
    groups = np.tile(np.arange(len(X)), 2)
    copied = IDDLClassifier(cv=twice, **given)
    copied.fit(np.tile(X, (2, 1, 1)), np.tile(y, 2), groups=groups)
    for losses in (once.held_out_losses_, copied.held_out_losses_):
        assert {len(one) for one in losses.values()} == {len(X)}
    assert_allclose(copied.held_out_losses_["chance"], once.held_out_losses_["chance"], rtol=1e-12)
    # Atoms are not the same: k-means draws from twice as many.
    assert_allclose(
        copied.held_out_losses_["stein"].std(), once.held_out_losses_["stein"].std(), rtol=0.3
    )


def test_every_fixed_divergence_has_its_line(fitted):
    lines = fitted.summary().splitlines()
    assert lines[0].endswith("of full rank")
    shares = []
    for name, alpha, beta in [("stein", 0.5, 0.5), ("burg", 0, 1), ("reverse-burg", 1, 0)]:
        (line,) = [one.split() for one in lines if one.startswith(f"{name} ")]
        assert line[1:3] == [f"{alpha:g}", f"{beta:g}"]
        assert line[4] == f"{fitted.held_out_losses_[name].sum():.4g}"
        shares.append(float(line[3].rstrip("%")))
    assert sum(shares) == pytest.approx(100, abs=1.5)


def test_models_of_earlier_versions_have_no_held_out_losses(fitted, tmp_path):
    model = copy(fitted)
    table = [line.split()[:4] for line in model.summary().splitlines()[2:6]]
    del model.held_out_losses_
    save(model, tmp_path / "old.divlearn")
    lines = load(tmp_path / "old.divlearn").summary().splitlines()
    assert [line.split()[:4] for line in lines[2:]] == table
    assert all(line.endswith(" -") for line in lines[3:])


def test_learned_pairs_are_ranges(data):
    model = IDDLClassifier(divergence="N", n_atoms=3, max_iter=2, rank="full", random_state=0)
    text = model.fit(*data).summary()
    assert f"{model.alpha_.min():.3g} to {model.alpha_.max():.3g}" in text


def test_a_single_model_and_lower_ranks_have_no_comparison(data):
    single = IDDLClassifier(n_atoms=3, max_iter=1, cv=None, rank="full", random_state=0).fit(*data)
    assert "Gain" not in single.summary()
    low = IDDLClassifier(3, recipe=Recipe(loss="softmax"), max_iter=1, rank=2, random_state=0).fit(
        *data
    )
    assert low.summary() == f"Models: {len(low.models_) + len(low.starts_)} of rank 2"


def test_numbers_have_a_summary_too(data):
    X = data[0]
    y = np.linalg.slogdet(X)[1]
    text = IDDLRegressor(n_atoms=3, max_iter=3, rank="full", random_state=0).fit(X, y).summary()
    assert "learning pays" in text


def test_points_have_their_names():
    assert name_point(0.0, 0.0) == "airm"
    assert name_point(0.3, 0.2) == "(0.3, 0.2)"


def test_learning_does_not_pay_without_signal(data, fitted):
    X, _ = data
    y = np.random.default_rng(0).permutation(len(X)) % 2
    given = {"n_atoms": 6, "max_iter": 1, "rank": "full", "cv": 2, "random_state": 0}
    noise = IDDLClassifier(**given).fit(X, y)
    assert noise.summary().endswith("neither is clearly better than chance.")
    rare = np.random.default_rng(1).permutation(len(X)) < 9  # chance is the frequency of classes
    assert noise.fit(X, rare).summary().endswith("neither is clearly better than chance.")
    counts, weights = np.bincount(rare), 1 / len(X)
    entropy = -(counts * weights * np.log(counts * weights)).sum()
    assert_allclose(noise.held_out_losses_["chance"].sum(), entropy, rtol=1e-2)
    numbers = IDDLRegressor(**given)
    assert numbers.fit(X, y * 1.0).summary().endswith("neither is clearly better than chance.")
    assert "chance" not in fitted.summary()


@pytest.mark.parametrize("n_groups", [2, 3, 5, 40])
def test_verdicts_of_few_groups_are_as_seldom_false_as_those_of_many(n_groups):
    """Losses that differ by chance alone: of 3 groups, 18 % exceed two standard errors."""
    rng = np.random.default_rng(0)
    said = []
    for _ in range(600):
        model, stein, far = rng.standard_normal((3, n_groups))
        said.append(summarize([], [], {"model": model, "stein": stein, "chance": far + 100}))
        said.append(summarize([], [], {"model": far, "stein": far, "chance": far + model}))
    differ = np.mean([one.endswith(("learning pays.", "is better.")) for one in said[::2]])
    above = np.mean(["neither is clearly better" not in one for one in said[1::2]])
    assert differ == pytest.approx(2 * norm.sf(2), abs=0.026)  # three binomial errors
    assert above == pytest.approx(norm.sf(2), abs=0.019)


def test_heads_of_constants_have_no_weights(data):
    model = IDDLRegressor(n_atoms=3, max_iter=1, random_state=0).fit(data[0], np.full(90, 7.0))
    said = model.summary()
    assert said.count(" 0% ") == 3
    assert "nan" not in said


def test_transformers_describe_what_they_learned(data):
    X, y = data
    given = {"n_atoms": 3, "max_iter": 1, "rank": "full", "cv": 2, "random_state": 0}
    learned = IDDLTransformer(**given).fit(X, y)
    classifier = IDDLClassifier(**given).fit(X, y)
    assert learned.summary() == classifier.summary()
    plain = IDDLTransformer(n_atoms=3, divergence="stein", random_state=0).fit(X)
    assert plain.summary().startswith("Models: 1 of full rank")
