"""Minimum distance to mean, against pyRiemann, closed forms and optimality."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hostile_arrays import spread
from pyriemann.classification import MDM, FgMDM, MeanField
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_val_predict,
)

from divlearn import abld, get_divergence, load, save
from divlearn.datasets import make_wishart_clusters
from divlearn.geometry import expm, logm
from divlearn.nearest import DivergenceMDM

KULLBACK = {"mean": "euclid", "distance": "kullback"}  # whose mean is the arithmetic one
REVERSE = {"mean": "harmonic", "distance": "kullback_right"}


def classes(seed: int, n: int = 90, d: int = 4, separation: float = 2.0):
    X, y = make_wishart_clusters(3, n // 3, d, separation=separation, random_state=seed)
    order = np.random.default_rng(seed).permutation(n)
    return X[order], y[order]


# --- against a peer


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("airm", "riemann"),
        ("stein", "logdet"),
        ("log-euclidean", "logeuclid"),
        ("kullback", KULLBACK),
        ("kullback-right", REVERSE),
        ("jeffreys", "kullback_sym"),
    ],
)
def test_as_pyriemann(ours, theirs):
    X, y = classes(0)
    weights = np.random.default_rng(0).uniform(0.5, 2, len(X))
    model, peer = DivergenceMDM(ours), MDM(theirs)
    model.fit(X[:60], y[:60], weights[:60])
    peer.fit(X[:60], y[:60], weights[:60])
    # Its means of "logdet" stop at 1e-4.
    np.testing.assert_allclose(model.means_, peer.covmeans_, atol=3e-4 if ours == "stein" else 1e-5)
    np.testing.assert_allclose(model.transform(X[60:]), peer.transform(X[60:]), rtol=1e-3)
    np.testing.assert_array_equal(model.predict(X[60:]), peer.predict(X[60:]))
    if not isinstance(theirs, dict) and ours != "jeffreys":  # it squares these divergences
        np.testing.assert_allclose(
            model.predict_proba(X[60:]), peer.predict_proba(X[60:]), atol=1e-3
        )


@pytest.mark.parametrize("n_classes", [2, 4])
def test_filtering_as_pyriemann(n_classes, set_tolerance):
    set_tolerance("means", 1e-9)
    X, y = make_wishart_clusters(n_classes, 40, 4, separation=2, random_state=0)
    model = DivergenceMDM(filtering=True).fit(X[::2], y[::2])
    peer = FgMDM(metric="riemann").fit(X[::2], y[::2])
    np.testing.assert_allclose(model.transform(X[1::2]), peer.transform(X[1::2]), atol=1e-6)
    np.testing.assert_array_equal(model.predict(X[1::2]), peer.predict(X[1::2]))


def test_filters_are_learned_without_each_fold():
    X, y = classes(0)
    folds = list(StratifiedKFold(3).split(X, y))
    found = DivergenceMDM("choose", filtering=True, cv=folds).fit(X, y).cv_results_
    for name in ("burg", "reverse-burg", "log-euclidean"):  # whose means are exact
        model = DivergenceMDM(name, filtering=True)
        place = found["divergence"].tolist().index(name)
        expected = np.mean(cross_val_predict(model, X, y, cv=folds) == y)
        assert found["accuracy"][place] == pytest.approx(expected)


# --- means are what they should be


@pytest.mark.parametrize(
    "divergence", ["airm", "stein", "burg", "reverse-burg", "jeffreys", (0.5, 1.5), (-0.3, -1)]
)
def test_no_other_matrix_is_nearer(divergence):
    X, y = classes(1)
    model, rng = DivergenceMDM(divergence).fit(X, y), np.random.default_rng(0)
    known = get_divergence(divergence)
    for code, mean in enumerate(model.means_):
        own, middle = X[y == code], logm(mean)
        least = known(own, mean).sum()
        for _ in range(5):
            step = rng.standard_normal(mean.shape)
            for size in (1e-3, -1e-3):
                assert known(own, expm(middle + size * (step + step.T))).sum() > least


def test_transform_is_the_divergence_to_the_mean():
    X, y = classes(2)
    model = DivergenceMDM((0.0, 1.0)).fit(X[:60], y[:60])
    expected = np.stack([abld(X[60:], mean, 0, 1) for mean in model.means_], axis=1)
    np.testing.assert_allclose(model.transform(X[60:]), expected, rtol=1e-10)
    shares = np.exp(-expected) / np.exp(-expected).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(X[60:]), shares, rtol=1e-8)
    squares = DivergenceMDM("log-euclidean").fit(X[:60], y[:60])
    exponents = -(squares.transform(X[60:]) ** 2)
    shares = np.exp(exponents) / np.exp(exponents).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(squares.predict_proba(X[60:]), shares, rtol=1e-8)


@pytest.mark.parametrize("divergence", ["airm", "burg", "jeffreys", "log-euclidean", (0.2, 0.7)])
def test_weights_are_repetitions(divergence):
    X, y = classes(3, n=30)
    weights = np.random.default_rng(1).integers(0, 4, 30)
    weighted = DivergenceMDM(divergence).fit(X, y, 1e-200 * weights)
    repeated = DivergenceMDM(divergence).fit(np.repeat(X, weights, 0), np.repeat(y, weights))
    np.testing.assert_allclose(weighted.means_, repeated.means_, rtol=1e-4, atol=1e-5)


def test_invariance_under_congruence():
    X, y = classes(4)
    A = np.random.default_rng(2).standard_normal((4, 4))
    for divergence in ("airm", (0.5, 1.5), "jeffreys"):
        model = DivergenceMDM(divergence).fit(X, y)
        moved = DivergenceMDM(divergence).fit(A @ X @ A.T, y)
        np.testing.assert_allclose(moved.transform(A @ X @ A.T), model.transform(X), rtol=1e-3)


def test_a_mean_that_is_not_exact_is_told(set_tolerance):
    X, y = classes(6)
    set_tolerance("means", 1e-300)
    with pytest.warns(ConvergenceWarning) as told:
        DivergenceMDM().fit(X, y)
    messages = [str(one.message) for one in told]
    assert len(messages) == 3
    assert messages[1].startswith("the mean of class 1 is not exact: no step lowers the objective")


# --- several divergences

FIELD = ["airm", "stein", "log-euclidean", (0.5, 1.0)]


@pytest.mark.parametrize("filtering", [False, True])
@pytest.mark.parametrize("divergence", ["airm", "log-euclidean", (0.5, 1.0)])
def test_a_field_of_one_is_this_divergence(divergence, filtering):
    X, y = classes(11)
    one = DivergenceMDM(divergence, filtering=filtering).fit(X[:60], y[:60])
    field = DivergenceMDM([divergence], filtering=filtering).fit(X[:60], y[:60])
    np.testing.assert_array_equal(field.means_, one.means_[None])
    np.testing.assert_array_equal(field.transform(X[60:]), one.transform(X[60:]))
    np.testing.assert_array_equal(field.predict_proba(X[60:]), one.predict_proba(X[60:]))
    assert field.divergence_ == [one.divergence_]
    assert one.weights_ == [1]


def best_factor(table, codes, weights):
    """Factor of divergences for the lowest log-loss; another class has probability 1/(n + 2)."""
    n, n_classes = table.shape
    targets = np.where(
        np.eye(n_classes)[codes] == 1, 1 - 1 / (n + 2), 1 / (n + 2) / (n_classes - 1)
    )

    def loss(t):
        logs = log_softmax(-np.exp(t) * table, axis=1)
        return -np.average((targets * logs).sum(axis=1), weights=weights)

    return np.exp(minimize_scalar(loss, (-5, 0, 5), tol=1e-10).x)


def test_a_field_is_the_average_of_its_divergences():
    X, y = classes(12, separation=1.0)
    weights = np.random.default_rng(0).uniform(0.5, 2, 60)
    exponents = np.zeros((30, 3))
    for name in ("stein", "burg"):
        one = DivergenceMDM(name).fit(X[:60], y[:60], weights)
        known = get_divergence(name)
        tables = np.stack([known(X, mean) for mean in one.means_], axis=1)
        exponents -= best_factor(tables[:60], y[:60], weights) * tables[60:] / 2
    field = DivergenceMDM(["stein", "burg"]).fit(X[:60], y[:60], weights)
    np.testing.assert_allclose(field.predict_proba(X[60:]), softmax(exponents, axis=1), atol=1e-5)
    np.testing.assert_allclose(field.transform(X[60:]), -exponents, rtol=1e-4)
    np.testing.assert_array_equal(field.predict(X[60:]), exponents.argmax(axis=1))


def test_units_do_not_matter():
    """kullback is half of burg, and riemann twice the divergence (0, 0)."""
    X, y = classes(13)
    some = DivergenceMDM(["airm", "burg"]).fit(X[:60], y[:60])
    same = DivergenceMDM([(0.0, 0.0), "kullback"]).fit(X[:60], y[:60])
    np.testing.assert_allclose(same.weights_, some.weights_ * [2, 2], rtol=1e-5)
    np.testing.assert_allclose(
        same.predict_proba(X[60:]), some.predict_proba(X[60:]), rtol=1e-5, atol=1e-8
    )


def test_a_field_of_airm_is_that_of_pyriemann():
    """Its fields have one distance, so that those with several means are others."""
    X, y = classes(14)
    field, peer = DivergenceMDM(["airm"]).fit(X[:60], y[:60]), MeanField([0]).fit(X[:60], y[:60])
    np.testing.assert_allclose(field.means_[0], peer.covmeans_[:, 0], atol=1e-5)
    np.testing.assert_allclose(field.transform(X[60:]), peer.transform(X[60:]), rtol=1e-4)
    np.testing.assert_array_equal(field.predict(X[60:]), peer.predict(X[60:]))


def test_a_field_of_squared_distances_is_one():
    X, y = classes(15)
    field = DivergenceMDM(["airm", "stein", "log-euclidean"]).fit(X, y)
    names = ("airm", "stein", "log-euclidean")
    parts = [DivergenceMDM(name).fit(X, y).transform(X) ** 2 for name in names]
    expected = np.sqrt(np.tensordot(field.weights_, parts, 1))
    np.testing.assert_allclose(field.transform(X), expected, rtol=1e-6)


def test_fields_among_other_estimators(tmp_path):
    X, y = classes(16)
    labels = np.array(["one", "two", "three"])[y]
    grid = {"divergence": ["airm", FIELD, ["airm", "burg"], np.array([[0, 0], [0, 1]])]}
    search = GridSearchCV(DivergenceMDM(filtering=True), grid, cv=2).fit(X, labels)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    model = clone(DivergenceMDM(FIELD)).fit(X, labels)
    assert model.means_.shape == (4, 3, 4, 4)
    assert model.get_feature_names_out().tolist() == [
        f"divergencemdm_{name}" for name in ("one", "three", "two")
    ]
    save(model, tmp_path / "field.divlearn")
    for again in (pickle.loads(pickle.dumps(model)), load(tmp_path / "field.divlearn")):
        assert again.divergence_ == model.divergence_
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


# --- among other estimators


def test_no_weight_is_no_matrix():
    X, y = classes(8)
    labels = np.where(np.arange(90) == 0, "unknown", y.astype(str))
    weights = (np.arange(90) > 5).astype(float)
    model = DivergenceMDM().fit(X, labels, weights)
    assert model.classes_.tolist() == ["0", "1", "2"]
    np.testing.assert_allclose(model.means_, DivergenceMDM().fit(X[6:], y[6:]).means_, rtol=1e-10)


# --- what is wrong is said


@pytest.mark.parametrize(
    ("divergence", "message"),
    [
        (get_divergence((0.2, 0.9)).symmetrize(), r"no closed form except for 'jeffreys'; pass th"),
        ((1.0, -0.5), r"\(1, -0.5\) must not have opposite signs"),
        ("near", r"divergence='near' must be one of airm"),
        ((1.0, 2.0, 3.0), r"must be a name or a pair of finite numbers"),
        ([], r"divergence=\[\] must hold one divergence, or several .*; name one"),
        (["airm", "near"], r"divergence='near' must be one of airm"),
        (["airm", "choose"], r"divergence='choose' must be one of airm"),
        (["airm", 0.5], r"divergence=0.5 must be a name or a pair"),
        (
            ["burg", "airm", "kl"],
            r"differ by more than a factor; leave out all but one of \['burg', 'kl'\]",
        ),
        (["airm", "airm"], r"leave out all but one of \['airm', 'airm'\]"),
        (["airm", (1.0, -0.5)], r"\(1, -0.5\) must not have opposite signs"),
    ],
)
def test_wrong_divergences(divergence, message):
    X, y = classes(9)
    with pytest.raises(ValueError, match=message):
        DivergenceMDM(divergence).fit(X, y)


def test_wrong_engine():
    with pytest.raises(ValueError, match=r"engine='fast' must be"):
        DivergenceMDM(engine="fast").fit(*classes(10))


def test_a_divergence_is_chosen_on_nearly_singular_matrices():
    """Rounding makes the inverse of their mean inverse asymmetric."""
    X, y = classes(9)
    for divergence in ("choose", FIELD):
        model = DivergenceMDM(divergence, cv=2, random_state=0).fit(spread(X, 15), y)
        assert model.score(spread(X, 15), y) > 0.5
