"""Heads that are support vector machines: what scikit-learn finds on the same embedding."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
from scipy.special import log_expit
from sklearn.metrics import log_loss
from sklearn.model_selection import PredefinedSplit
from sklearn.svm import SVC, LinearSVC

from divlearn.datasets import make_wishart_clusters
from divlearn.iddl import IDDLClassifier, IDDLRegressor
from divlearn.iddl.losses import Head
from divlearn.iddl.machines import Machine, choose_machine
from divlearn.labelled import check_labelled

FAST = {"n_atoms": "2 per class", "init": "samples", "max_iter": 2, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    X, y = make_wishart_clusters(3, 60, 4, separation=4, random_state=0)
    return X[::2], y[::2], X[1::2], y[1::2]


def embeddings(classifier, X):
    engine = classifier._engine()
    return [model.embed(engine, X, engine.prepare(X)) for model in classifier.models_]


def settings(classifier):
    """Numbers in the message: C, and the width of a Gaussian."""
    said = classifier.message_.split("the head is")[1]
    return [float(number) for number in re.findall(r"(?:C=|width of )(\S+)", said)]


def linear_scores(embedding, y, weights, test, C):
    found = LinearSVC(C=C, dual=False, max_iter=5000).fit(embedding, y, weights)
    decisions = found.decision_function(test)
    return np.stack([-decisions, decisions], axis=1) if decisions.ndim == 1 else decisions


def gaussian_scores(embedding, y, weights, test, C, width):
    """Sum of the logarithms of ten times the decisions squashed; two classes as they are."""
    gamma = width / embedding.var(axis=0).sum()
    found = SVC(C=C, gamma=gamma, decision_function_shape="ovo").fit(embedding, y, weights)
    decisions = found.decision_function(test)
    if decisions.ndim == 1:
        return np.stack([-decisions, decisions], axis=1)
    scores = np.zeros((len(test), 3))
    for column, (k, other) in zip(decisions.T, [(0, 1), (0, 2), (1, 2)], strict=True):
        scores[:, k] += log_expit(10 * column)
        scores[:, other] += log_expit(-10 * column)
    return scores


@pytest.mark.parametrize(("kind", "oracle"), [("svm", linear_scores), ("rbf", gaussian_scores)])
@pytest.mark.parametrize("ensemble", [None, 3])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_scores_are_those_of_scikit_learn_on_the_same_embedding(
    data, kind, oracle, ensemble, n_classes
):
    X, y, X_test, y_test = data
    X, y, X_test = X[y < n_classes], y[y < n_classes], X_test[y_test < n_classes]
    weights = 1.0 + np.arange(len(y)) % 3
    classifier = IDDLClassifier(head=kind, loss="ridge", ensemble=ensemble, **FAST)
    classifier.fit(X, y, sample_weight=weights)
    assert classifier.head_ == kind
    shares = weights / weights.sum() * len(weights)  # to all digits: libsvm stops at 1e-3
    expected = np.mean(
        [
            oracle(seen, y, shares, test, *settings(classifier))
            for seen, test in zip(
                embeddings(classifier, X), embeddings(classifier, X_test), strict=True
            )
        ],
        axis=0,
    )
    scores = classifier._mean_scores(X_test)
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(classifier.predict(X_test), expected.argmax(axis=1))
    decisions = classifier.decision_function(X_test)
    assert decisions.shape == ((len(X_test),) if n_classes == 2 else (len(X_test), 3))
    copy = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(copy.predict_proba(X_test), classifier.predict_proba(X_test))


@pytest.mark.parametrize("kind", ["svm", "rbf"])
def test_they_generalise_and_are_calibrated(data, kind):
    X, y, X_test, y_test = data
    classifier = IDDLClassifier(head=kind, loss="ridge", **FAST).fit(X, y)
    assert classifier.score(X_test, y_test) > 0.8
    assert log_loss(y_test, classifier.predict_proba(X_test)) < 0.55 * np.log(3)
    # Held-out probabilities are as good as those of data that is new.
    assert log_loss(y, classifier.oof_proba_) == pytest.approx(
        log_loss(y_test, classifier.predict_proba(X_test)), rel=0.5
    )


def test_auto_takes_what_does_best_on_data_held_out(data):
    X, y, _, _ = data
    classifier = IDDLClassifier(**FAST)
    members = classifier.fit_members(check_labelled(X, y, None, None))
    assert set(members) == {
        f"{head} {loss}" for head in ("linear", "rbf", "start") for loss in ("softmax", "ridge")
    }
    losses = {
        name: log_loss(y, member.oof_proba_)
        for name, member in members.items()
        if not name.startswith("start")
    }
    best = min(losses, key=losses.get)
    assert f"{classifier.head_} {classifier.recipe_.loss.name}" == best
    assert max(losses.values()) > losses[best] + 1e-3
    for name, member in members.items():
        assert member.head_ == name.split()[0].replace("start", "linear")


def test_auto_takes_a_gaussian_where_classes_are_not_linear():
    """A chessboard of four squares, in the plane of the logarithms of two variances."""
    rng = np.random.default_rng(0)
    corners = rng.choice([-1.0, 1.0], (400, 2))
    X = np.exp(corners + 0.3 * rng.standard_normal((400, 2)))[:, :, None] * np.eye(2)
    y = (corners[:, 0] == corners[:, 1]).astype(int)
    atoms = np.exp([[1.0, 0.0], [0.0, 1.0]])[:, :, None] * np.eye(2)
    options = {"init": atoms, "learn_atoms": False, "learn_parameters": False, "random_state": 0}
    options |= {"variant": "airm", "logarithm": False, "tangent": False}
    score = {}
    for head in ("auto", "linear"):
        classifier = IDDLClassifier(head=head, **options).fit(X[:200], y[:200])
        score[head] = classifier.score(X[200:], y[200:])
        assert classifier.head_ == ("rbf" if head == "auto" else "linear")
    assert score["auto"] > 0.95
    assert score["linear"] < 0.8
    # One model of everything has nothing to choose by.
    assert IDDLClassifier(ensemble=None, **options).fit(X[:200], y[:200]).head_ == "linear"


@pytest.mark.parametrize("kind", ["svm", "rbf"])
@pytest.mark.parametrize("n_classes", [3, 4])
def test_a_fold_that_lacks_a_class(data, kind, n_classes):
    X, y, X_test, _ = data
    y = np.where((y == 0) & (X[:, 0, 0] > np.median(X[y == 0, 0, 0])), 3, y) % n_classes
    folds = np.where(y == 1, 0, 1)  # the first holds out all of a class
    folds[y != 1] = np.arange((y != 1).sum()) % 2
    classifier = IDDLClassifier(head=kind, loss="ridge", ensemble=PredefinedSplit(folds), **FAST)
    classifier.fit(X, y)
    assert np.isfinite(classifier.predict_proba(X_test)).all()
    # In the end the heads have seen all classes.
    assert set(classifier.predict(X_test)) >= {0, 1, 2}


@pytest.mark.parametrize("kind", ["svm", "rbf"])
@pytest.mark.parametrize("present", [[0, 2], [1, 2, 3]])
def test_a_class_that_was_not_seen_is_not_predicted(kind, present):
    rng = np.random.default_rng(0)
    codes = rng.choice(present, 60)
    features = rng.standard_normal((60, 3)) + 2 * np.eye(4)[codes][:, :3]
    head = Machine(kind, 1.0).fit(features, codes, np.full(60, 1 / 60), 4)
    scores = head.scores(features)
    assert scores.shape == (60, 4)
    assert set(scores.argmax(axis=1)) == set(present)
    absent = np.setdiff1d(np.arange(4), present)
    assert (scores[:, absent].max(axis=1) <= scores[:, present].min(axis=1)).all()
    assert (scores.argmax(axis=1) == codes).mean() > 0.7


@pytest.mark.parametrize("head", ["auto", "svm", "rbf"])
def test_a_fold_of_one_class(data, head):
    X, _, _, _ = data
    y = np.zeros(len(X), dtype=int)
    y[3] = 1
    fitted = IDDLClassifier(head=head, loss="ridge", **FAST).fit(X, y)
    assert fitted.predict(X).mean() < 0.1


def test_machines_are_chosen_by_the_loss():
    rng = np.random.default_rng(0)
    codes = rng.integers(2, size=80)
    features = rng.standard_normal((80, 2)) + codes[:, None]
    fold = (features[:40], codes[:40], np.full(40, 1 / 40), features[40:])
    losses = []

    def loss(scores):
        assert scores.shape == (80, 2)
        losses.append(float(abs(scores).max()))
        return losses[-1]

    chosen = choose_machine("svm", [fold, fold], 2, loss)
    assert len(losses) == 4
    assert chosen.loss == min(losses)
    np.testing.assert_allclose(
        chosen.machine.fit(*fold[:3], 2).scores(fold[3]), chosen.scores[:40], rtol=1e-8
    )


def test_a_linear_head_is_a_head(data):
    X, y, _, _ = data
    classifier = IDDLClassifier(head="svm", loss="ridge", **FAST).fit(X, y)
    assert all(isinstance(model.head, Head) for model in classifier.models_)
    assert classifier.message_.count("the head is a linear SVM with C=") == 1


def test_what_is_refused(data):
    X, y, _, _ = data
    with pytest.raises(ValueError, match="head='forest' must be one of auto, linear, svm, rbf"):
        IDDLClassifier(head="forest", **FAST).fit(X, y)
    for head in ("svm", "rbf"):
        with pytest.raises(ValueError, match=f'head=\'{head}\' must be "auto" or "linear" for'):
            IDDLRegressor(head=head).fit(X, y)
