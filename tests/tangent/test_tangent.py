"""Classifiers of tangent vectors with more entries than there are vectors."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.svm import SVC

from divlearn.baselines import LogEuclideanSVM
from divlearn.datasets import make_wishart_clusters
from divlearn.heads.discriminants import project_to_span
from divlearn.kernels.machines import LeastSquares, couple
from divlearn.tangent import _METHODS, TangentClassifier


def make():
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(3), (6, 9, 5))
    vectors = rng.standard_normal((3, 60))[codes] + rng.standard_normal((20, 60))
    return vectors, codes, 2 * rng.standard_normal((30, 60))


@pytest.mark.parametrize("model", ["lda", "rda"])
def test_three_matrices_of_each_class_are_enough(model):
    """Folds of folds train on one matrix of each class, from which no covariance is learned."""
    X, y = make_wishart_clusters(5, 3, 4, separation=8, random_state=0)
    classifier = TangentClassifier(model, random_state=0).fit(X, y)
    assert classifier.score(X, y) > 0.8
    assert classifier.held_out_accuracy_ > 0.4


@pytest.mark.parametrize("n_classes", [2, 3])
def test_logistic_regression_in_the_dual_is_optimal_in_full_space(n_classes):
    vectors, codes, _ = make()
    vectors, codes = vectors[codes < n_classes], codes[codes < n_classes]
    weights = np.linspace(1, 2, len(codes))
    coordinates, basis = project_to_span(vectors)
    assert basis.shape == (60, len(codes))
    np.testing.assert_allclose(coordinates @ basis.T, vectors, atol=1e-12)
    model = _METHODS["logistic"][0](vectors, codes, weights)(C=10.0)
    W, offsets = model.coefficients, model.offsets
    errors = softmax(vectors @ W.T + offsets, axis=1) - np.eye(n_classes)[codes]
    errors *= weights[:, None] / weights.sum()
    # Of two classes only the difference has a penalty.
    penalty = (W if n_classes > 2 else W[[1]]) / (10.0 * weights.sum())
    slopes = (errors.T @ vectors)[-len(penalty) :] + penalty
    assert np.linalg.norm(slopes) < 3e-4  # the solver stops at 1e-4 of the slopes at zero
    assert np.linalg.norm(errors.sum(axis=0)) < 3e-4


def test_the_gaussian_machine_is_that_of_scikit_learn():
    vectors, codes, new = make()
    order = np.random.default_rng(1).permutation(len(codes))
    vectors, codes, weights = vectors[order], codes[order], np.linspace(1, 2, len(codes))
    machine = SVC(C=3.0, gamma=0.01, decision_function_shape="ovo").fit(vectors, codes, weights)
    found = _METHODS["rbf"][0](vectors, codes, weights)(C=3.0, gamma=0.01).decide(new)
    np.testing.assert_allclose(found, couple(machine.decision_function(new)), atol=1e-6)


# --- landmarks


@pytest.mark.parametrize("n_classes", [2, 3])
def test_many_matrices_are_classified_by_landmarks(n_classes, request):
    X, y = make_wishart_clusters(n_classes, 60, 4, separation=4, random_state=0)
    exact = TangentClassifier("rbf", random_state=0).fit(X[::2], y[::2])
    request.getfixturevalue("few_are_many")
    model = TangentClassifier("rbf", random_state=0).fit(X[::2], y[::2])
    assert isinstance(model.model_.machine, LeastSquares)
    assert model.score(X[1::2], y[1::2]) > exact.score(X[1::2], y[1::2]) - 0.05
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)


@pytest.mark.parametrize("method", ["lda", "logistic", "rda", "rbf", "svm", "svm rbf"])
def test_small_differences_of_matrices_in_small_units(method):
    """Logarithms have digits in common, which differ with the unit."""
    random, y = np.random.default_rng(0), np.arange(60) % 2
    noise = random.normal(size=(60, 3, 3))
    X = np.eye(3) + 1e-7 * (noise + noise.mT + 3 * y[:, None, None] * np.diag([1, -1, 0]))
    if method.startswith("svm"):
        model = LogEuclideanSVM("rbf" if "rbf" in method else "linear", 10.0, random_state=0)
    else:
        model = TangentClassifier(method, at="identity", random_state=0)
    one, volts = (
        model.fit(scale * X[:40], y[:40]).predict_proba(scale * X[40:]) for scale in (1, 1e-12)
    )
    # The logarithm of 1e-12 has 27 units in front of the digits that differ, from the seventh on.
    np.testing.assert_allclose(volts, one, atol=1e-3)
