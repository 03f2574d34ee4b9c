"""Least squares with kernels of landmarks, against the exact machine and its objective."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from divlearn.committee import REGRESSORS, SPDRegressor
from divlearn.datasets import make_wishart_clusters
from divlearn.kernels import (
    DivergenceKernel,
    DivergenceKernelClassifier,
    DivergenceKernelRegressor,
)
from divlearn.kernels.machines import FLOORS, Landmarks, LeastSquares, make_definite
from divlearn.kernels.tables import pick_landmarks
from divlearn.nearest import NearestClassifier, NearestRegressor

WEIGHTS = np.linspace(1, 2, 20)


def make(n_landmarks):
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(3), (6, 9, 5))
    vectors = rng.standard_normal((3, 5))[codes] + rng.standard_normal((20, 5))
    table = cdist(vectors, vectors, "sqeuclidean")
    some = np.arange(20)[:: 20 // n_landmarks]
    inner = lambda scale: np.exp(-scale * table[np.ix_(some, some)])  # noqa: E731
    squares = Landmarks(lambda rows: table[rows][:, some], inner, np.eye(3)[codes], WEIGHTS)
    return squares, np.exp(-0.1 * table), some, np.eye(3)[codes]


def test_all_vectors_as_landmarks_are_the_exact_machine():
    """By the system of Suykens and Vandewalle (1999), weighted, with indicators of classes."""
    squares, kernel, _, targets = make(20)
    model = LeastSquares(*squares.learn(C=3.0, scale=0.1))
    ridge = np.diag(WEIGHTS.mean() / (3.0 * WEIGHTS))
    system = np.block([[kernel + ridge, np.ones((20, 1))], [np.ones((1, 20)), np.zeros((1, 1))]])
    solved = np.linalg.solve(system, np.vstack([targets, np.zeros((1, 3))]))
    shares = kernel @ solved[:-1] + solved[-1]
    expected = np.log(np.maximum(shares, 0)[..., None] + np.array(FLOORS))
    np.testing.assert_allclose(model.decide(kernel), expected, atol=1e-6)


@pytest.mark.parametrize("block", [6, 100])
def test_few_landmarks_minimise_the_penalised_squares(block, monkeypatch):
    monkeypatch.setattr("divlearn.kernels.machines._BLOCK", block)
    squares, kernel, some, targets = make(5)
    model = LeastSquares(*squares.learn(C=3.0, scale=0.1))

    def objective(coefficients, offsets):
        errors = kernel[:, some] @ coefficients.T + offsets - targets
        penalty = np.trace(coefficients @ kernel[np.ix_(some, some)] @ coefficients.T) / 3.0
        return (WEIGHTS / WEIGHTS.mean()) @ (errors**2).sum(axis=1) + penalty

    least, rng = objective(model.coefficients, model.offsets), np.random.default_rng(0)
    for _ in range(20):
        steps = 1e-3 * rng.standard_normal((len(some) + 1, 3))
        assert objective(model.coefficients + steps[:-1].T, model.offsets + steps[-1]) > least


@pytest.mark.usefixtures("few_are_many")
def test_landmarks_are_stratified():
    codes = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], (100, 200, 100)))
    rows = pick_landmarks(codes)
    assert len(np.unique(rows)) == 30
    assert np.abs(np.bincount(codes[rows]) - [7.5, 15, 7.5]).max() <= 1
    assert len(pick_landmarks(np.repeat(np.arange(50), 20))) == 500  # of many classes


@pytest.mark.usefixtures("few_are_many")
def test_tables_have_fewer_landmarks_rather_than_more_memory(monkeypatch):
    X, y = make_wishart_clusters(2, 60, 2, separation=4, random_state=0)
    few = 9
    monkeypatch.setattr("divlearn.kernels.tables._LARGEST_TABLE", 8 * len(X) * 6 * few)
    model = DivergenceKernelClassifier(random_state=0).fit(X, y)
    assert len(model.kernel_.matrices_) == few
    assert model.score(X, y) > 0.7


def test_indefinite_kernels_get_the_absolute_values_of_their_eigenvalues():
    kernel = np.array([[1.0, 2.0], [2.0, 1.0]])  # eigenvalues 3 and -1
    np.testing.assert_allclose(make_definite(kernel), [[2.0, 1.0], [1.0, 2.0]])
    definite = np.array([[2.0, 1.0], [1.0, 2.0]])
    np.testing.assert_array_equal(make_definite(definite), definite)


@pytest.mark.usefixtures("few_are_many")
@pytest.mark.parametrize("n_classes", [2, 3])
def test_many_matrices_have_kernels_of_landmarks(n_classes):
    X, y = make_wishart_clusters(n_classes, 60, 4, separation=4, random_state=0)
    model = DivergenceKernelClassifier(scales=(0.5, 2), random_state=0).fit(X[::2], y[::2])
    assert isinstance(model.svc_, LeastSquares)
    assert model.score(X[1::2], y[1::2]) > 0.9
    assert model.held_out_accuracy_ > 0.85
    landmarks = X[::2][pick_landmarks(y[::2])]
    kernel = DivergenceKernel(model.kernel_.divergence, model.kernel_.scale_).fit(landmarks)
    scores = model.svc_.decide(kernel.transform(X))[..., model.calibration_[0]]
    np.testing.assert_array_equal(model.predict(X), scores.argmax(axis=1))
    decisions = model.decision_function(X)
    assert decisions.shape == ((len(X),) if n_classes == 2 else (len(X), 3))
    best = (decisions > 0).astype(int) if n_classes == 2 else decisions.argmax(axis=1)
    np.testing.assert_array_equal(best, model.predict(X))
    assert model.oof_decision_.shape == (len(X) // 2, *decisions.shape[1:])


def test_neighbours_of_many_matrices_are_those_of_a_table(request):
    X, y = make_wishart_clusters(3, 40, 4, separation=3, random_state=0)
    table = NearestClassifier(random_state=0).fit(X, y)
    request.getfixturevalue("few_are_many")
    blocks = NearestClassifier(random_state=0).fit(X, y)
    tried = [one["divergence"].name for one in blocks.cv_results_["params"]]
    assert set(tried) == {"log-euclidean"}
    first = table.cv_results_["mean_test_score"][: len(tried)]
    np.testing.assert_allclose(blocks.cv_results_["mean_test_score"], first, rtol=1e-6)


def numbered():
    X, _ = make_wishart_clusters(1, 160, 3, random_state=0)
    return X, np.linalg.slogdet(X)[1] + 0.1 * np.random.default_rng(0).standard_normal(len(X))


@pytest.mark.usefixtures("few_are_many")
def test_numbers_of_many_matrices_are_predicted_by_landmarks():
    """By the normal equations with an intercept."""
    X, y = numbered()
    weights = np.linspace(1, 2, 80)
    model = DivergenceKernelRegressor(penalties=(0.1, 1.0), random_state=0)
    model.fit(X[::2], y[::2], weights)
    assert model.score(X[1::2], y[1::2]) > 0.9
    assert model.held_out_r2_ > 0.9
    divergence, scale, penalty = model.best_params_.values()
    landmarks = X[::2][pick_landmarks(np.zeros(80, dtype=int))]
    np.testing.assert_array_equal(model.matrices_, landmarks)
    kernel = DivergenceKernel(divergence, scale).fit(landmarks)
    inner = make_definite(kernel.transform(landmarks))
    columns = np.column_stack([kernel.transform(X[::2]), np.ones(80)])
    weighted = columns.T * (weights / weights.mean())
    system = weighted @ columns + penalty * np.pad(inner, (0, 1))
    standardised = (y[::2] - model.mean_) / model.scale_
    solved = np.linalg.solve(system, weighted @ standardised)
    found = np.column_stack([kernel.transform(X), np.ones(len(X))]) @ solved
    np.testing.assert_allclose(model.predict(X), found * model.scale_ + model.mean_, atol=1e-5)


def test_neighbours_of_many_numbers_are_those_of_a_table(request):
    X, y = numbered()
    table = NearestRegressor(random_state=0).fit(X, y)
    request.getfixturevalue("few_are_many")
    many = NearestRegressor(random_state=0).fit(X, y)
    tried = many.cv_results_["params"]
    assert {one["divergence"].name for one in tried} == {"log-euclidean"}
    first = table.cv_results_["mean_test_score"][: len(tried)]
    np.testing.assert_allclose(many.cv_results_["mean_test_score"], first, rtol=1e-6)


@pytest.mark.usefixtures("few_are_many")
def test_a_committee_of_regressors_has_no_table_of_all_pairs(monkeypatch):
    def refuse(*_):
        raise AssertionError("a table of all pairs")

    monkeypatch.setattr("divlearn.kernels.tables.square_tables", refuse)
    X, y = numbered()
    members = [name for name in REGRESSORS if name != "iddl"]
    model = SPDRegressor(members, random_state=0).fit(X[::2], y[::2])
    assert set(model.members_) == set(members)
    assert model.score(X[1::2], y[1::2]) > 0.9


@pytest.mark.usefixtures("few_are_many")
def test_equal_landmarks_are_named():
    """Matrices that are drawn are copies of the first one."""
    X, _ = make_wishart_clusters(1, 104, 3, random_state=0)
    y = np.repeat([0, 1], 52)
    X[pick_landmarks(y)] = X[0]
    message = (
        "the set of landmarks, drawn from 104 matrices, has n_samples=30, all equal; leave out "
        "copies"
    )
    with pytest.raises(ValueError, match=message):
        DivergenceKernelClassifier(random_state=0).fit(X, y)
