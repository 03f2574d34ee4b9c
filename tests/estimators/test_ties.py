"""Classes that tie: `predict` is the first class of the highest probability, or score."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import wishart
from sklearn.base import clone, is_classifier
from test_abuse_estimators import ESTIMATORS, SEED

import divlearn
from divlearn.geometry import geodesic

pytestmark = pytest.mark.usefixtures("small_grids_everywhere")

CLASSIFIERS = {
    name: model
    for name, model in ESTIMATORS.items()
    if is_classifier(model) and name != "LEML"  # which has the label of the nearest matrix
} | {
    "DivergenceKNN(4)": divlearn.DivergenceKNN(4),
    "DivergenceKNN(5), log-euclidean": divlearn.DivergenceKNN(5, "log-euclidean", "distance"),
    "DivergenceKNN(6), stein": divlearn.DivergenceKNN(6, "stein", "distance"),
    "DivergenceMDM, choose": divlearn.DivergenceMDM("choose", cv=2, **SEED),
    "DivergenceMDM, field": divlearn.DivergenceMDM(["airm", "burg", "stein"]),
    "LogEuclideanSVM, rbf": divlearn.LogEuclideanSVM("rbf", 1.0, 1.0, **SEED),
}


def copies(n_classes):
    """Every matrix once in every class."""
    X = wishart(np.random.default_rng(0), 8, 3)
    return np.repeat(X, n_classes, axis=0), np.tile(np.arange(n_classes), 8)


def mirrored(n_classes):
    """Classes turn into each other as rows and columns are reversed and matrices inverted."""
    first = wishart(np.random.default_rng(1), 10, 3) * np.array([1.0, 2.0, 4.0])[:, None]
    first = 0.5 * (first + first.mT) + 3 * np.eye(3)
    inverse = np.linalg.inv(first)
    parts = [first, inverse, first[:, ::-1, ::-1], inverse[:, ::-1, ::-1]][:n_classes]
    between = np.stack([np.eye(3)] * 5) * np.array([1.0, 1.0, 2.0, 0.5, 1.0])[:, None, None]
    X = np.concatenate([*parts, between])
    return X, np.append(np.repeat(np.arange(n_classes), 10), np.arange(5) % n_classes)


def numbers(n_classes):
    """1 x 1 matrices on a grid of logarithms: neighbours at equal distances."""
    values = np.arange(24.0)
    return np.exp(0.25 * (values - 12))[:, None, None], values.astype(int) % n_classes


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("make", "n_classes"), [(copies, 4), (mirrored, 2), (numbers, 4)])
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_the_first_of_the_most_probable_classes_is_predicted(name, make, n_classes):
    X, y = make(n_classes)
    model = clone(CLASSIFIERS[name]).fit(X, np.array(["b", "a", "d", "c"])[y])
    some = np.concatenate([X, geodesic(X[:-1], X[1:], 0.5)])
    said = model.predict(some)
    if hasattr(model, "predict_proba"):
        best = model.predict_proba(some).argmax(axis=1)
    else:
        scores = model.decision_function(some)
        best = (scores > 0).astype(int) if n_classes == 2 else scores.argmax(axis=1)
    np.testing.assert_array_equal(said, model.classes_[best])
