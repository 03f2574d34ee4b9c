"""Streams: what they reach, and the averages and steps they are made of."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import log_loss
from test_iddl_objective import make
from test_partial_fit import CLASSES, FAST, make_data, stream

from divlearn import abld
from divlearn.iddl import IDDLClassifier, IDDLRegressor
from divlearn.iddl.losses import LOSSES
from divlearn.iddl.running import Running, Standing
from divlearn.iddl.stochastic import Learner


@pytest.fixture(scope="module")
def data():
    return make_data()


# what it reaches


def test_a_stream_comes_close_to_all_data_at_once(data):
    X, y, X_test, y_test = data
    options = {"loss": "softmax", "gamma": 1e-3, "tangent": False, "ensemble": None, **FAST}
    options["init"] = "class-kmeans"
    everything = IDDLClassifier(max_iter=5, **options).fit(X, y)
    first = IDDLClassifier(max_iter=5, **options).fit(X[:200], y[:200])
    streamed = stream(IDDLClassifier(**options), X, y, classes=CLASSES)
    goal = everything.score(X_test, y_test)
    assert goal > 0.8
    assert streamed.score(X_test, y_test) > goal - 0.025
    assert streamed.score(X_test, y_test) > first.score(X_test, y_test) + 0.02
    proba = [model.predict_proba(X_test) for model in (everything, streamed)]
    assert log_loss(y_test, proba[1]) < 1.15 * log_loss(y_test, proba[0])


def test_atoms_learn_not_the_head_alone(data):
    X, y, X_test, y_test = data
    score = {}
    for learn in (True, False):
        options = {"learn_atoms": learn, "learn_parameters": learn, "init": "identity"}
        classifier = IDDLClassifier(5, random_state=0, **options)
        score[learn] = stream(classifier, X, y, classes=CLASSES).score(X_test, y_test)
        losses = classifier.history_["objective"]
        assert (losses[-3:].mean() < 0.75 * losses[0]) == learn
    assert score[True] > score[False] + 0.2


@pytest.mark.parametrize(
    "options",
    [
        {"loss": "ridge"},
        {"loss": "hinge"},
        {"tangent": True},
        {"variant": "V"},
        {"variant": "A"},
        {"logarithm": False, "standardize": False},
        {"bias": False, "standardize": False, "loss": "ridge"},
        {"init": "kmeans", "pairs": "grid"},
        {"learn_atoms": False},
        {"gamma": 0.0, "loss": "ridge"},
    ],
    ids=str,
)
def test_settings(data, options):
    X, y, X_test, y_test = data
    classifier = stream(IDDLClassifier(**FAST | options), X[:1000], y[:1000], classes=CLASSES)
    assert classifier.score(X_test, y_test) > 0.75
    assert log_loss(y_test, classifier.predict_proba(X_test)) < 0.5 * np.log(5)
    variant = options.get("variant", "N")
    if variant == "V":
        np.testing.assert_array_equal(classifier.alpha_, classifier.beta_)
    assert (classifier.alpha_ == 0).all() == (variant == "A")


@pytest.mark.parametrize("loss", ["softmax", "ridge", "hinge"])
def test_one_matrix_at_a_time(data, loss):
    X, y, X_test, y_test = data
    classifier = stream(IDDLClassifier(loss=loss, **FAST), X[:120], y[:120], 1, classes=CLASSES)
    assert len(np.unique(classifier.atoms_, axis=0)) == 10  # no two stay together
    assert classifier.score(X_test, y_test) > 0.5


def test_a_class_that_comes_late(data):
    X, y, X_test, y_test = data
    early = np.flatnonzero(y[:400] < 4)
    late = np.setdiff1d(np.arange(len(X)), early)
    classifier = IDDLClassifier(**FAST).partial_fit(X[early], y[early], CLASSES)
    assert not (classifier.predict(X_test) == 4).any()
    stream(classifier, X[late], y[late])
    assert (classifier.predict(X_test[y_test == 4]) == 4).mean() > 0.6
    before = classifier.score(X_test, y_test)
    # A batch of one class is allowed, too, and does not spoil everything.
    classifier.partial_fit(X[y == 0][:50], y[y == 0][:50])
    assert classifier.score(X_test, y_test) > before - 0.05


def test_regression(data):
    X, _, X_test, _ = data

    def targets(X):
        return np.stack([1e6 * abld(X, np.eye(4), 0, 0) + 3, np.linalg.slogdet(X)[1]], axis=1)

    regressor = stream(IDDLRegressor(random_state=0), X, targets(X))
    assert regressor.predict(X_test).shape == (len(X_test), 2)
    assert regressor.score(X_test, targets(X_test)) > 0.9
    single = stream(IDDLRegressor(random_state=0), X[:600], targets(X[:600])[:, 0])
    assert single.predict(X_test).shape == (len(X_test),)
    assert single.score(X_test, targets(X_test)[:, 0]) > 0.85


# averages


def test_averages_of_a_stream_are_those_of_all_rows():
    rng = np.random.default_rng(0)
    rows, weights = rng.standard_normal((50, 3)) * [1, 5, 0.1] + [3, 0, -7], rng.random(50)
    running, seen = Running.of(rows[:9], weights[:9] / weights[:9].sum()), weights[:9].sum()
    for part in (slice(9, 10), slice(10, 31), slice(31, 50)):
        new = weights[part].sum()
        running = running.learn(rows[part], weights[part] / new, new / (seen + new))
        seen += new
    np.testing.assert_allclose(running.mean, np.average(rows, axis=0, weights=weights))
    np.testing.assert_allclose(running.covariance, np.cov(rows.T, aweights=weights, bias=True))


@pytest.mark.parametrize("tangent", [False, True])
def test_later_batches_count_more_in_proportion_to_when_they_came(data, tangent):
    """With all matrices weighed by when they came, from what the model says of itself."""
    X, y, _, _ = data
    options = {"learn_atoms": False, "learn_parameters": False, "tangent": tangent}
    classifier = stream(IDDLClassifier(**FAST | options), X[:270], y[:270], 90, classes=CLASSES)
    model = classifier.models_[0]
    V = np.stack(
        [
            abld(X[:270], atom, alpha, beta)
            for atom, alphas, betas in zip(model.atoms, model.alpha, model.beta, strict=True)
            for alpha, beta in zip(alphas, betas, strict=True)
        ],
        axis=1,
    )
    features = np.log(V + model.feature_map.offset)
    # The first batch was there twice, for the start and to be learned from.
    rows = np.r_[0:90, 0:270]
    weights = np.repeat(np.diff(np.arange(5) ** 2), 90)
    np.testing.assert_allclose(
        model.features.mean, np.average(features[rows], axis=0, weights=weights), rtol=1e-6
    )
    covariance = np.cov(features[rows].T, aweights=weights, bias=True)
    np.testing.assert_allclose(model.features.scale**2, np.diag(covariance), rtol=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_through_what_stands_are_those_of_the_objective(loss):
    """Where the stream is all data and the head is the best, to all digits."""
    objective, start = make(loss=loss, standardize=True, logarithm=True, gamma=0.05)
    trial = objective.trial(start)
    head, features = trial.memo.head, trial.memo.features
    expected = objective.gradient(trial)
    push = 2 * objective.gamma * (head.weights**2).sum(axis=0)
    objective.feature_map = Standing(objective.feature_map.offset, True, features, push)
    gradient = objective.gradient(objective.hold_head(start, trial.memo.V, head))
    np.testing.assert_allclose(gradient, expected, atol=1e-6 * np.abs(expected).max())
    objective.feature_map = Standing(objective.feature_map.offset, True, features)
    without = objective.gradient(objective.hold_head(start, trial.memo.V, head))
    assert np.abs(without - expected).max() > 1e-2 * np.abs(expected).max()


@pytest.mark.parametrize("loss", ["ridge", "softmax"])
def test_with_the_dictionary_held_the_head_comes_close_to_that_of_all_data(data, loss):
    X, y, X_test, _ = data
    options = {"learn_atoms": False, "learn_parameters": False, "init": X[:8], "tangent": False}
    options |= {"loss": loss, "gamma": 1e-3, "ensemble": None, "random_state": 0}
    best = IDDLClassifier(**options).fit(X, y)
    found = IDDLClassifier(**options).partial_fit(X[:200], y[:200], CLASSES)
    value = {}
    for name in ("first", "all"):
        if name == "all":
            stream(found, X[200:], y[200:])
        scores = found._mean_scores(X)
        losses = LOSSES[loss]().losses(scores, np.eye(5)[y])
        value[name] = losses.mean() + 1e-3 * (found.models_[0].head.weights ** 2).sum()
    least = best.history_["objective"][-1]
    assert least < value["all"]
    # From nine times as much data, a ninth would be the best.
    assert value["all"] - least < 0.25 * (value["first"] - least)
    agree = (found.predict(X_test) == best.predict(X_test)).mean()
    assert agree > 0.95


# steps that fail


def test_steps_that_are_too_long_are_undone_and_halved(data, monkeypatch):
    X, y, X_test, _ = data
    sizes = []
    learn = Learner.learn

    def fails(self, batch, trial, step_size, head_rate):
        sizes.append(step_size)
        return None if step_size > 0.03 else learn(self, batch, trial, step_size, head_rate)

    plain = IDDLClassifier(**FAST).partial_fit(X[:200], y[:200], CLASSES)
    monkeypatch.setattr(Learner, "learn", fails)
    classifier = IDDLClassifier(**FAST).partial_fit(X[:200], y[:200], CLASSES)
    np.testing.assert_allclose(sizes[:3], [0.1, 0.05, 0.025])
    assert len(sizes) == 2 + 3
    assert classifier._online.step_size == 0.025
    assert classifier.n_samples_seen_ == 200
    assert not np.allclose(classifier.predict_proba(X_test), plain.predict_proba(X_test))
    before = classifier.predict_proba(X_test)
    monkeypatch.setattr(Learner, "learn", lambda *_: None)
    classifier.partial_fit(X[200:400], y[200:400])
    assert classifier.message_.startswith("batch 2 taught nothing: with steps down to 0.0002")
    np.testing.assert_array_equal(classifier.predict_proba(X_test), before)
    assert (classifier.n_iter_, classifier.n_samples_seen_) == (2, 200)
    monkeypatch.undo()
    assert classifier.partial_fit(X[200:400], y[200:400]).message_ == "batch 3 is learned"


def test_an_interrupt_keeps_what_was_learned(data, monkeypatch):
    X, y, X_test, y_test = data
    classifier = IDDLClassifier(**FAST).partial_fit(X[:200], y[:200], CLASSES)
    learn, count = Learner.learn, 0

    def interrupted(*arguments):
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        return learn(*arguments)

    before = classifier.predict_proba(X_test)
    monkeypatch.setattr(Learner, "learn", interrupted)
    classifier.partial_fit(X[200:460], y[200:460])  # in four minibatches of 65
    assert classifier.message_ == "interrupted by the user in batch 2"
    assert classifier.n_samples_seen_ == 200 + 2 * 65
    assert np.isnan(classifier.oof_proba_).all(axis=1).sum() == 2 * 65
    assert not np.allclose(classifier.predict_proba(X_test), before)
    monkeypatch.undo()
    classifier.partial_fit(X[460:], y[460:])
    assert classifier.score(X_test, y_test) > 0.8


def test_matrices_beyond_all_bounds_are_not_learned_from(data):
    X, y, X_test, _ = data
    classifier = IDDLClassifier(variant="burg", logarithm=False, **FAST)
    classifier.partial_fit(X[:100], y[:100], CLASSES)
    before = classifier.predict_proba(X_test)
    huge = np.concatenate([X[100:110], 1e300 * X[:1]])
    classifier.partial_fit(huge, y[100:111])
    assert classifier.message_.startswith("batch 2 taught nothing")
    np.testing.assert_array_equal(classifier.predict_proba(X_test), before)
