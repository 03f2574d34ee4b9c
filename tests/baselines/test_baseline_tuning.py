"""How baselines choose their parameters on data held out."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from divlearn.baselines.tuning import GAMMAS, PENALTIES, choose, fit_svm
from divlearn.fitting.folds import make_folds


def blobs(seed: int, n: int = 90, p: int = 6, spread: float = 1.0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return spread * rng.standard_normal((n, p)) + 1.5 * np.eye(3, p)[y], y


# --- choice


def folds_of(y, cv=5, seed=0):
    return make_folds(cv, len(y), y, random_state=seed)


def test_the_choice_is_a_plain_grid_search():
    X, y = blobs(0)
    grid = [{"n_neighbors": k} for k in (1, 5, 15, 45)]
    splits = folds_of(y)
    found = choose(KNeighborsClassifier, grid, X, y, splits)
    plain = GridSearchCV(KNeighborsClassifier(), {"n_neighbors": [1, 5, 15, 45]}, cv=splits)
    scores = plain.fit(X, y).cv_results_["mean_test_score"]
    np.testing.assert_allclose(found.scores, scores)
    assert found.parameters == plain.best_params_
    assert found.score == max(found.scores)
    assert found.tried == grid


def test_the_first_wins_ties():
    X, y = np.r_[np.zeros(10), np.full(10, 100.0)][:, None], np.repeat([0, 1], 10)
    grid = [{"C": C} for C in (1.0, 0.5, 7.0)]
    assert choose(SVC, grid, X, y, folds_of(y)).parameters == {"C": 1.0}


def test_nothing_to_choose_from_or_by():
    X, y = blobs(1)
    single = choose(SVC, [{"C": 2.0}], X, y, folds_of(y))
    assert single.parameters == {"C": 2.0}
    assert np.isnan(single.score)
    lonely = choose(SVC, [{"C": 2.0}, {"C": 3.0}], X[:3], y[:3], folds_of(y[:3]))
    assert lonely.parameters == {"C": 2.0}
    assert np.isnan(lonely.scores).all()


# --- machines


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("p", [6, 200])  # fewer features than samples, and more
def test_machines_are_those_of_scikit_learn(kernel, p):
    X, y = blobs(2, p=p)
    few = PENALTIES[kernel][:4]  # the solver ends by itself
    machine = fit_svm(1e3 * X, y, folds_of(y), kernel=kernel, penalties=few)
    unit = np.sqrt(X.var(axis=0).sum())
    assert machine.unit == pytest.approx(1e3 * unit)
    axes = {"C": few} | ({"gamma": GAMMAS} if kernel == "rbf" else {})
    plain = GridSearchCV(SVC(kernel=kernel, break_ties=True), axes, cv=folds_of(y)).fit(X / unit, y)
    np.testing.assert_allclose(
        machine.choice.scores, plain.cv_results_["mean_test_score"], atol=1e-12
    )
    best = SVC(kernel=kernel, break_ties=True, **machine.choice.parameters).fit(X / unit, y)
    # The solver stops at a tolerance of 1e-3.
    np.testing.assert_allclose(machine.decide(1e3 * X), best.decision_function(X / unit), atol=5e-3)
    np.testing.assert_array_equal(machine.predict(1e3 * X), best.predict(X / unit))


def test_given_values_are_taken():
    X, y = blobs(3)
    assert fit_svm(X, y, folds_of(y), penalties=[0.25]).choice.parameters == {"C": 0.25}
    chosen = fit_svm(X, y, folds_of(y), kernel="rbf", gammas=[0.7]).choice
    assert {one["gamma"] for one in chosen.tried} == {0.7}
    assert len(chosen.tried) == len(PENALTIES["rbf"])


def test_the_solver_is_stopped_where_it_takes_too_long(monkeypatch):
    X, y = blobs(4, spread=5.0)
    assert fit_svm(X, y, folds_of(y), penalties=[1.0]).exact
    monkeypatch.setattr("divlearn.baselines.tuning._STEPS", 10)
    assert not fit_svm(X, y, folds_of(y), penalties=[1e6]).exact


def test_constant_vectors():
    y = np.arange(10) % 2
    machine = fit_svm(np.ones((10, 3)), y, 0)
    assert machine.unit == 1.0
    assert set(machine.predict(np.ones((2, 3)))) <= {0, 1}
