"""IDDLRegressor and IDDLTransformer as users and scikit-learn see them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from divlearn import abld
from divlearn.datasets import make_wishart_clusters
from divlearn.iddl import IDDLRegressor, IDDLTransformer, Recipe, RidgeLoss

FAST = {"n_atoms": 3, "rank": "full", "cv": 2, "max_iter": 3, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    X, labels = make_wishart_clusters(3, 50, 4, separation=4, random_state=1)
    return X, labels, np.linalg.slogdet(X)[1]


def test_it_predicts_a_divergence_to_a_hidden_matrix(data):
    X, _, _ = data
    hidden = X[::7].mean(axis=0)
    y = abld(X, hidden, 0.0, 0.0)
    regressor = IDDLRegressor(random_state=0).fit(X[::2], y[::2])
    assert regressor.score(X[1::2], y[1::2]) > 0.9


def test_the_start_is_left_out_where_it_harms():
    X, _ = make_wishart_clusters(1, 80, 3, random_state=0)
    regressor = IDDLRegressor(rank="full", random_state=0).fit(X, np.linalg.slogdet(X)[1])
    assert regressor.starts_ == []


def test_several_outputs_in_their_own_units(data):
    X, _, y = data
    both = np.stack([y, 1e6 * np.trace(X, axis1=1, axis2=2) + 3], axis=1)
    regressor = IDDLRegressor(**FAST).fit(X[::2], both[::2])
    predicted = regressor.predict(X[1::2])
    assert predicted.shape == (75, 2)
    assert regressor.score(X[1::2], both[1::2]) > 0.8
    scaled = IDDLRegressor(**FAST).fit(X[::2], both[::2] * [1e-3, 1e3]).predict(X[1::2])
    np.testing.assert_allclose(scaled, predicted * [1e-3, 1e3], rtol=1e-6)


def test_constant_targets_are_predicted(data):
    X, _, _ = data
    np.testing.assert_allclose(IDDLRegressor(**FAST).fit(X, np.full(len(X), 7.0)).predict(X), 7)


def test_regressors_in_other_tools(data):
    X, _, y = data
    fast = IDDLRegressor(**FAST | {"cv": None, "max_iter": 1})
    assert cross_val_score(fast, X, y, cv=2).mean() > 0.8
    search = GridSearchCV(fast, {"divergence": ["stein", "burg"]}, cv=2).fit(X, y)
    copy = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(copy.predict(X), search.predict(X))


@pytest.mark.parametrize(
    ("y", "options", "message"),
    [
        (np.full(150, np.nan), {}, "Input y contains NaN"),
        (None, {"n_atoms": 0}, "n_atoms=0 must be >= 1"),
    ],
)
def test_bad_regressions(data, y, options, message):
    X, _, good = data
    with pytest.raises(ValueError, match=message):
        IDDLRegressor(**FAST | options).fit(X, good if y is None else y)


def test_no_weight_at_all(data):
    X, _, y = data
    with pytest.raises(ValueError, match="at least one non-zero"):
        IDDLRegressor(**FAST).fit(X, y, sample_weight=np.zeros(len(X)))


# the encoder


def test_without_labels_it_encodes_by_centres(data):
    X, _, _ = data
    encoder = IDDLTransformer(n_atoms=4, divergence=(0.3, 0.8), random_state=0)
    V = encoder.fit_transform(X)
    expected = np.stack([abld(X, atom, 0.3, 0.8) for atom in encoder.atoms_], axis=1)
    np.testing.assert_allclose(V, expected, rtol=1e-9)
    assert encoder.n_iter_ == 0
    names = encoder.get_feature_names_out()
    assert names.tolist() == [f"iddltransformer{k}" for k in range(4)]


@pytest.mark.parametrize("numbers", [False, True])
def test_with_labels_it_encodes_by_what_was_learned(data, numbers):
    X, labels, y = data
    encoder = IDDLTransformer(**FAST | {"cv": None}).fit(X, y if numbers else labels)
    V = encoder.transform(X)
    assert V.shape == (len(X), 3 * 3) == (len(X), len(encoder.get_feature_names_out()))
    for atom, alphas, betas, columns in zip(
        encoder.atoms_, encoder.alpha_, encoder.beta_, V.T.reshape(3, 3, -1), strict=True
    ):
        for alpha, beta, column in zip(alphas, betas, columns, strict=True):
            np.testing.assert_allclose(column, abld(X, atom, alpha, beta), rtol=1e-8)


def test_encoders_in_pipelines(data):
    X, labels, y = data
    encoder = IDDLTransformer(**FAST | {"cv": None, "max_iter": 1})
    classify = make_pipeline(encoder, StandardScaler(), KNeighborsClassifier(3))
    assert cross_val_score(classify, X, labels, cv=3).mean() > 0.75
    regress = make_pipeline(encoder, StandardScaler(), RidgeCV())
    assert cross_val_score(regress, X, y, cv=3).mean() > 0.7


def test_several_columns_of_integers_are_numbers(data):
    X, labels, _ = data
    Y = np.column_stack([labels, 2 * labels])
    found, expected = (IDDLTransformer(**FAST).fit(X, values) for values in (Y, Y.astype(float)))
    np.testing.assert_array_equal(found.transform(X), expected.transform(X))


@pytest.mark.parametrize("solver", ["joint", "bcd", "stochastic"])
def test_numbers_that_are_all_the_same(solver):
    """The first head is perfect, and there is no share of nothing to gain."""
    X, _ = make_wishart_clusters(1, 30, 3, random_state=0)
    model = IDDLRegressor(
        n_atoms=2, recipe=Recipe(solver=solver), cv=None, max_iter=2, random_state=0
    )
    np.testing.assert_allclose(model.fit(X, np.full(30, 2.0)).predict(X), 2, atol=1e-8)


def test_the_loss_of_numbers(data):
    X, _, y = data
    with pytest.raises(ValueError, match="loss='softmax' must be 'auto', 'ridge' or a RidgeLoss"):
        IDDLTransformer(recipe=Recipe(loss="softmax"), **FAST).fit(X, y)
    by_name, by_class = (
        IDDLRegressor(recipe=Recipe(loss=loss), **FAST).fit(X, y).predict(X)
        for loss in ("ridge", RidgeLoss)
    )
    np.testing.assert_array_equal(by_class, by_name)


def test_held_out_predictions_are_of_models_that_have_not_seen_them(data):
    """Two outputs: one to learn, and noise, which only those who have seen it can predict."""
    X, _, y = data
    both = np.stack([y, np.random.default_rng(0).standard_normal(len(y))], axis=1)
    weights = (np.arange(len(y)) % 10 > 0).astype(float)
    regressor = IDDLRegressor(**FAST).fit(X, both, sample_weight=weights)
    held_out, seen = regressor.oof_prediction_, weights > 0
    np.testing.assert_array_equal(np.isnan(held_out).all(axis=1), ~seen)
    learned, noise = r2_score(both[seen], held_out[seen], multioutput="raw_values")
    assert learned > 0.8
    assert noise < 0.02
    assert r2_score(both[seen, 1], regressor.predict(X[seen])[:, 1]) > noise
    alone = IDDLRegressor(**FAST).fit(X, y)
    assert alone.oof_prediction_.shape == y.shape
