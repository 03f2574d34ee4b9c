"""How baselines choose their parameters on held-out data."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from divlearn.baselines.log_svm import GAMMAS, PENALTIES, fit_svm
from divlearn.fitting.folds import make_folds
from divlearn.fitting.selection import average_held_out, choose


def blobs(seed: int, n: int = 90, p: int = 6, spread: float = 1.0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    return spread * rng.standard_normal((n, p)) + 1.5 * np.eye(3, p)[y], y


# --- choice


def folds_of(y, cv=5, seed=0):
    return make_folds(cv, len(y), y, random_state=seed)


def test_the_choice_is_a_plain_grid_search():
    X, y = blobs(0)
    neighbors, splits = [1, 5, 15, 45], folds_of(y)

    def score(k):
        model = KNeighborsClassifier(k)
        return np.mean([model.fit(X[a], y[a]).score(X[b], y[b]) for a, b in splits])

    best, found = choose(neighbors, score)
    plain = GridSearchCV(KNeighborsClassifier(), {"n_neighbors": neighbors}, cv=splits)
    scores = plain.fit(X, y).cv_results_["mean_test_score"]
    np.testing.assert_allclose(found, scores)
    assert neighbors[best] == plain.best_params_["n_neighbors"]


def test_the_first_wins_ties_and_an_interrupt_keeps_the_best_so_far():
    def score(value):
        if value is None:
            raise KeyboardInterrupt
        return -abs(value)

    assert choose([2, -1, 1], score) == (1, [-2, -1, -1])
    assert choose([2, 1, None, 0], score) == (1, [-2, -1])
    with pytest.raises(KeyboardInterrupt):
        choose([None, 1], score)


def test_held_out_predictions_are_means_over_folds():
    folds = [(np.array([0, 3]), np.array([1, 2])), (np.array([0, 1]), np.array([2, 4]))]
    parts = [1.0 * held + train.sum() for train, held in folds]
    rows, values = average_held_out(parts, folds, 5)
    np.testing.assert_array_equal(rows, [1, 2, 4])
    np.testing.assert_array_equal(values, [4.0, 4.0, 5.0])


def test_nothing_to_choose_from_or_by():
    X, y = blobs(1)
    _, machine, history, _ = fit_svm(X, y, folds_of(y), penalties=[2.0])
    assert machine.C == 2.0
    assert np.isnan(history["accuracy"]).all()
    _, machine, history, _ = fit_svm(X[:3], y[:3], folds_of(y[:3]), penalties=[2.0, 3.0])
    assert machine.C == 2.0
    assert np.isnan(history["accuracy"]).all()


# --- machines


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("p", [6, 200])  # fewer features than samples, and more
def test_machines_are_those_of_scikit_learn(kernel, p):
    X, y = blobs(2, p=p)
    few = PENALTIES[kernel][:2]  # the solver ends by itself
    found, machine, history, _ = fit_svm(1e3 * X, y, folds_of(y), kernel=kernel, penalties=few)
    unit = np.sqrt(X.var(axis=0).sum())
    assert found == pytest.approx(1e3 * unit)
    axes = {"C": few} | ({"gamma": GAMMAS} if kernel == "rbf" else {})
    plain = GridSearchCV(SVC(kernel=kernel, break_ties=True), axes, cv=folds_of(y)).fit(X / unit, y)
    np.testing.assert_allclose(
        history["accuracy"], plain.cv_results_["mean_test_score"], atol=1e-12
    )
    chosen = {name: getattr(machine, name) for name in axes}
    best = SVC(kernel=kernel, break_ties=True, **chosen).fit(X / unit, y)
    # The solver stops at a tolerance of 1e-3.
    np.testing.assert_allclose(
        machine.decision_function(1e3 * X / found), best.decision_function(X / unit), atol=5e-3
    )
    np.testing.assert_array_equal(machine.predict(1e3 * X / found), best.predict(X / unit))


def test_given_values_are_taken():
    X, y = blobs(3)
    assert fit_svm(X, y, folds_of(y), penalties=[0.25])[1].C == 0.25
    _, _, history, _ = fit_svm(X, y, folds_of(y), kernel="rbf", gammas=[0.7])
    assert set(history["gamma"]) == {0.7}
    assert len(history["C"]) == len(PENALTIES["rbf"])


def test_the_solver_is_stopped_where_it_takes_too_long(monkeypatch):
    X, y = blobs(4, spread=5.0)
    assert fit_svm(X, y, folds_of(y), penalties=[1.0])[1].fit_status_ == 0
    monkeypatch.setattr("divlearn.baselines.log_svm._STEPS", 10)
    assert fit_svm(X, y, folds_of(y), penalties=[1e6])[1].fit_status_ != 0


def test_constant_vectors():
    y = np.arange(10) % 2
    unit, machine, _, _ = fit_svm(np.ones((10, 3)), y, [])
    assert unit == 1.0
    assert set(machine.predict(np.ones((2, 3)))) <= {0, 1}
