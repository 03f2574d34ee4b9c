"""Labelled matrices: what is kept, what weighs how much, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import DataConversionWarning
from sklearn.utils import compute_sample_weight, get_tags

from divlearn import (
    DivergenceKernelClassifier,
    IDDLTransformer,
    SPDClassifier,
    which_divergence,
)
from divlearn.baselines import LEML, RSPDL, KernelLLC, KernelSparseCoding, LogEuclideanSVM
from divlearn.datasets import make_wishart_clusters
from divlearn.fitting.labelled import MatricesMixin, check_labelled
from divlearn.iddl import IDDLClassifier, Recipe
from divlearn.judge import evaluate, plane_map
from divlearn.nearest import DivergenceKNN, DivergenceMDM


@pytest.fixture(scope="module")
def X():
    return make_wishart_clusters(1, 8, 3, random_state=0)[0]


LEARNER = DivergenceMDM()
Y = np.array(["b", "a", "b", "c", "a", "b", "b", "a"])


def test_labels_become_codes(X):
    data = check_labelled(LEARNER, X.tolist(), Y.tolist(), None, None)
    np.testing.assert_array_equal(data.matrices, X)
    np.testing.assert_array_equal(data.classes, ["a", "b", "c"])
    np.testing.assert_array_equal(data.classes[data.codes], Y)
    np.testing.assert_array_equal(data.weights, np.ones(8))
    np.testing.assert_array_equal(data.positions, np.arange(8))
    np.testing.assert_array_equal(data.y, Y)
    assert check_labelled(LEARNER, X.astype(np.float32), Y, None, None).matrices.dtype == np.float64


def test_matrices_of_no_weight_are_no_samples(X):
    weights = np.array([2.0, 0, 1, 0, 3, 0, 1, 1])  # of c there is nothing left
    data = check_labelled(LEARNER, X, Y, weights, None)
    np.testing.assert_array_equal(data.positions, [0, 2, 4, 6, 7])
    np.testing.assert_array_equal(data.matrices, X[weights > 0])
    np.testing.assert_array_equal(data.classes, ["a", "b"])
    np.testing.assert_array_equal(data.classes[data.codes], Y[weights > 0])
    np.testing.assert_allclose(data.weights, [1.25, 0.625, 1.875, 0.625, 0.625])  # of mean one
    np.testing.assert_array_equal(data.y, Y)


@pytest.mark.parametrize("class_weight", ["balanced", {"a": 5.0}, {"a": 1, "b": 2, "c": 3}])
def test_weights_of_classes_multiply(X, class_weight):
    weights = np.array([2.0, 0, 1, 1, 3, 0, 1, 1])
    kept = weights > 0
    data = check_labelled(LEARNER, X, Y, weights, class_weight)
    expected = weights[kept] * compute_sample_weight(class_weight, Y[kept])
    np.testing.assert_allclose(data.weights, expected / expected.mean())
    # Of what is kept: without weights, all classes are worth the same.
    if class_weight == "balanced":
        plain = check_labelled(LEARNER, X, Y, kept.astype(float), class_weight)
        np.testing.assert_allclose(np.bincount(plain.codes, plain.weights), 2)


def test_a_class_of_no_weight_is_left_out(X):
    data = check_labelled(LEARNER, X, Y, None, {"a": 0.0, "b": 1.0, "c": 1.0})
    np.testing.assert_array_equal(data.classes, ["b", "c"])
    np.testing.assert_array_equal(data.positions, np.flatnonzero(Y != "a"))
    assert (data.weights > 0).all()


def test_values_of_rows_among_those_given(X):
    weights = np.array([1.0, 0, 1, 1, 0, 1, 1, 1])
    data = check_labelled(LEARNER, X, Y, weights, None)
    rows = np.array([4, 0])  # among those kept: 0 2 3 5 6 7
    spread = data.scatter(rows, np.array([[1.0, 2.0], [3.0, 4.0]]))
    expected = np.full((8, 2), np.nan)
    expected[6], expected[0] = [1, 2], [3, 4]
    np.testing.assert_array_equal(spread, expected)
    flat = data.scatter(np.arange(6), np.arange(6.0))
    np.testing.assert_array_equal(flat, [0, np.nan, 1, 2, np.nan, 3, 4, 5])
    assert np.isnan(data.scatter(rows[:0], np.zeros((0, 3)))).all()
    assert data.scatter(rows[:0], np.zeros((0, 3))).shape == (8, 3)


def test_entries_of_what_is_kept(X):
    weights = [0, 1, 1, 1, 0, 1, 1, 1]
    data = check_labelled(LEARNER, X, Y, weights, None, groups=list("stuvwxyz"))
    np.testing.assert_array_equal(data.matrix_groups, list("tuvxyz"))
    assert check_labelled(LEARNER, X, Y, weights, None).matrix_groups is None


@pytest.mark.parametrize(
    ("y", "weights", "class_weight", "message"),
    [
        (Y, [1, 0, 1, 0, 0, 1, 1, 0], None, "y holds the one class b"),
        (Y, None, {"d": 1.0}, "not in class_weight"),
        (Y, np.arange(1, 9), dict.fromkeys("abc", 1e308), "weights have the sum inf"),
    ],
)
def test_what_is_refused(X, y, weights, class_weight, message):
    """More of it is in the tests of shards, which are refused in the same words."""
    with pytest.raises(ValueError, match=message):
        check_labelled(LEARNER, X, y, weights, class_weight)


def test_bad_matrices(X):
    with pytest.raises(ValueError, match=r"X\[2\]"):
        check_labelled(LEARNER, np.concatenate([X[:2], -X[2:]]), Y, None, None)
    with pytest.raises(ValueError, match=r"X has shape \(3, 3\), expected"):
        check_labelled(LEARNER, X[0], Y, None, None)


def test_a_column_is_taken_with_a_warning(X):
    with pytest.warns(DataConversionWarning):
        data = check_labelled(LEARNER, X, Y[:, None], None, None)
    np.testing.assert_array_equal(data.classes[data.codes], Y)


def test_tags():
    class Estimator(MatricesMixin, BaseEstimator):
        pass

    tags = get_tags(Estimator()).input_tags
    assert tags.three_d_array
    assert not tags.two_d_array


CLASSIFIERS = [
    DivergenceKernelClassifier(),
    DivergenceKNN(),
    DivergenceMDM(),
    IDDLClassifier(),
    IDDLTransformer(),
    KernelLLC(),
    KernelSparseCoding(),
    LEML(),
    LogEuclideanSVM(),
    RSPDL(),
    SPDClassifier(),
]
MISSING = {
    "text": ["a", "b", "a", None, "a", "b", "a", None],
    "numbers": [0, 1, 0, None, 0, 1, 0, None],
    "array": np.array(["a", "b", "a", None, "a", "b", "a", None], dtype=object),
}


@pytest.mark.parametrize("classifier", CLASSIFIERS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("kind", MISSING)
def test_a_label_that_is_missing_is_named(X, classifier, kind):
    with pytest.raises(ValueError, match=r"^y\[3\] is None, must be a number or text"):
        clone(classifier).fit(X, MISSING[kind])


def test_missing_labels_of_shards_and_questions(X):
    y = MISSING["array"]
    for ask in (which_divergence, plane_map, evaluate):
        with pytest.raises(ValueError, match=r"^y\[3\] is None"):
            ask(X, y)
    with pytest.raises(ValueError, match=r"shard 1: y\[1\] is None"):
        IDDLClassifier(recipe=Recipe(loss="ridge", penalty=1e-2), cv=None).fit(
            lambda: [(X[:2], y[:2]), (X[2:], y[2:])], None
        )
