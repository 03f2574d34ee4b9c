"""Support vector machines on logarithms of matrices."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy.linalg import logm
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

from divlearn.baselines import LogEuclideanSVM
from divlearn.baselines.log_svm import GAMMAS, PENALTIES
from divlearn.datasets import make_wishart_clusters
from divlearn.fitting.folds import make_folds
from divlearn.kernels.machines import couple


def classes(seed: int, n: int = 60, d: int = 3, separation: float = 2.0):
    X, y = make_wishart_clusters(3, n // 3, d, separation=separation, random_state=seed)
    order = np.random.default_rng(seed).permutation(n)
    return X[order], y[order]


@pytest.mark.parametrize("d", [3, 10])  # 6 entries, and 55, more than there are matrices to train
@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_kernels_are_those_of_logarithms(kernel, d):
    X, y = classes(0, n=45, d=d)
    train, test = np.arange(30), np.arange(30, 45)
    model = LogEuclideanSVM(kernel, 3.0, 0.7 if kernel == "rbf" else None, random_state=0)
    model.fit(X[train], y[train])
    logarithms = np.stack([logm(matrix).ravel() for matrix in X])  # Frobenius products as they are
    variance = logarithms[train].var(axis=0).sum()
    products = logarithms @ logarithms.T / variance
    lengths = np.diag(products)
    table = products
    if kernel == "rbf":
        table = np.exp(-0.7 * (lengths[:, None] + lengths - 2 * products))
    machine = SVC(kernel="precomputed", C=3.0, decision_function_shape="ovo")
    machine.fit(table[np.ix_(train, train)], y[train])
    decisions = machine.decision_function(table[np.ix_(test, train)])
    expected = couple(decisions)[..., model.calibration_[0]]
    # The solver stops at a tolerance of 1e-3.
    np.testing.assert_allclose(model.decision_function(X[test]), expected, atol=5e-3)
    np.testing.assert_array_equal(model.predict(X[test]), expected.argmax(axis=1))


@pytest.mark.parametrize("d", [3, 12])  # fewer entries than matrices, and more
def test_accuracies_are_those_of_a_grid_search(d):
    X, y = classes(1, d=d, separation=1.0)
    X, y = X[y < 2], y[y < 2]
    model = LogEuclideanSVM(random_state=0).fit(X, y)
    vectors = np.stack([logm(matrix).ravel() for matrix in X])
    vectors /= np.sqrt(vectors.var(axis=0).sum())
    folds = make_folds(5, len(y), y, random_state=0)
    few = {"C": PENALTIES["linear"][:4]}  # the solver ends by itself
    plain = GridSearchCV(SVC(kernel="linear"), few, cv=folds).fit(vectors, y)
    found = model.cv_results_["mean_test_score"][:4]
    np.testing.assert_allclose(found, plain.cv_results_["mean_test_score"], atol=1e-9)


def test_what_was_chosen_is_kept():
    X, y = classes(1, n=30, separation=1.0)
    model = LogEuclideanSVM("rbf", random_state=0).fit(X, y)
    n_tried = len(PENALTIES["rbf"]) * len(GAMMAS)
    results = model.cv_results_
    assert len(results["params"]) == n_tried
    assert model.best_params_ == results["params"][int(results["mean_test_score"].argmax())]
    assert model.held_out_accuracy_ <= results["mean_test_score"].max()
    said = f"held-out accuracy {model.held_out_accuracy_:.3f} over 5 folds; each has the best of"
    assert f"{said} {n_tried} combinations on the other folds" in model.message_
    C, gamma = model.best_params_.values()
    assert model.message_.startswith(f"C = {C:g}, gamma = {gamma:g}")


def test_what_was_given_is_taken():
    X, y = classes(2)
    model = LogEuclideanSVM(C=2.5, random_state=0).fit(X, y)
    assert model.best_params_ == {"C": 2.5}
    assert "best of" not in model.message_
    some = LogEuclideanSVM("rbf", C=2.5, random_state=0).fit(X, y).cv_results_["param_C"]
    assert set(some) == {2.5}


def test_lone_members():
    X, _ = classes(3)
    model = LogEuclideanSVM(random_state=0).fit(X[:3], ["a", "b", "c"])
    assert model.best_params_ == {"C": PENALTIES["linear"][0]}
    assert "no class has two matrices" in model.message_
    assert set(model.predict(X)) <= {"a", "b", "c"}


def test_equal_matrices():
    X, y = np.tile(np.eye(3), (10, 1, 1)), np.arange(10) % 2
    assert set(LogEuclideanSVM(random_state=0).fit(X, y).predict(X)) <= {0, 1}


def test_the_solver_is_stopped_where_it_takes_too_long():
    X, y = make_wishart_clusters(2, 20, 3, separation=0.3, random_state=4)
    assert LogEuclideanSVM(C=1.0, random_state=0).fit(X, y).model_.fit_status_ == 0
    late = LogEuclideanSVM(C=1e6, random_state=0).fit(X, y).model_
    assert late.fit_status_ != 0
    assert late.n_iter_.max() == 100_000


def test_the_unit_of_logarithms_does_not_matter():
    # Powers of matrices scale their logarithms.
    X, y = classes(4)
    values, vectors = np.linalg.eigh(X)
    powers = (vectors * values[:, None, :] ** 0.1) @ vectors.mT
    model, other = (
        LogEuclideanSVM("rbf", 1.0, 1.0, random_state=0).fit(some, y) for some in (X, powers)
    )
    np.testing.assert_allclose(
        other.decision_function(powers), model.decision_function(X), atol=5e-3
    )


def test_machines_with_functions_for_kernels_can_be_pickled():
    wide, y = classes(5, d=12)
    machine = LogEuclideanSVM("rbf", 1.0, 1.0).fit(wide, y)
    again = pickle.loads(pickle.dumps(machine))
    np.testing.assert_array_equal(again.decision_function(wide), machine.decision_function(wide))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"kernel": "poly"}, r"kernel='poly' must be one of linear, rbf"),
        ({"C": 0.0}, r"C=0.0 must be a finite number > 0"),
        ({"kernel": "rbf", "gamma": -1.0}, r"gamma=-1.0 must be a finite number > 0"),
        ({"gamma": 1.0}, r"gamma=1.0 must be None for kernel='linear'; leave it out"),
    ],
)
def test_wrong_parameters(parameters, message):
    X, y = classes(6)
    with pytest.raises(ValueError, match=message):
        LogEuclideanSVM(**parameters).fit(X, y)


def test_few_matrices_of_a_class_in_a_fold_are_nothing_to_warn_of():
    """Classes of three have one or two in the parts that choose: scikit-learn warns of these."""
    X, y = make_wishart_clusters(24, 3, 3, separation=9, random_state=0)
    assert len(LogEuclideanSVM(C=1.0, random_state=0).fit(X, y).classes_) == 24
