"""Only the ratios of weights matter: every estimator divides them by their mean."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import accuracy_score
from test_abuse_estimators import ESTIMATORS, SEED, answers

import divlearn
from divlearn.datasets import make_wishart_clusters
from divlearn.descriptors import Regularize
from divlearn.iddl import Recipe
from divlearn.sharded import open_shards
from divlearn.weights import check_weights

X, Y = make_wishart_clusters(3, 6, 2, separation=1.5, random_state=0)
WEIGHTS = np.random.default_rng(0).uniform(0.2, 3, len(X)) * (np.arange(len(X)) % 9 > 0)
SCALE = 2.0**20  # which changes no bit of a number but its exponent
MODELS = ESTIMATORS | {
    "Regularize": Regularize("shrink"),
    "SPDClassifier": divlearn.SPDClassifier(cv=2, **SEED),  # with all members
    "ABKMeans, likelihood": divlearn.ABKMeans(2, "likelihood", n_init=1, max_iter=1, **SEED),
    "ABKMeans, paper": divlearn.ABKMeans.paper(2).set_params(max_iter=1, **SEED),
    "ABMixture, learned": divlearn.ABMixture(1, max_iter=1, **SEED),
    "DivergenceKNN(4)": divlearn.DivergenceKNN(4),
    "DivergenceMDM, choose": divlearn.DivergenceMDM("choose", cv=2, **SEED),
    "DivergenceMDM, field": divlearn.DivergenceMDM(["airm", "burg"], filtering=True),
}
TAKING = [
    name
    for name, model in MODELS.items()
    if "sample_weight" in inspect.signature(type(model).fit).parameters
]
ONE_MODEL = {"cv": None, "recipe": Recipe(loss="ridge", penalty=1e-2), "max_iter": 1, **SEED}
ON_SHARDS = {
    "IDDLClassifier": (divlearn.IDDLClassifier(3, **ONE_MODEL), Y),
    "IDDLRegressor": (divlearn.IDDLRegressor(3, **ONE_MODEL), np.linalg.slogdet(X)[1]),
    "ABKMeans, learned": (ESTIMATORS["ABKMeans, learned"], None),
    "LogEuclideanKMeans": (ESTIMATORS["LogEuclideanKMeans"], None),
    "ABMixture": (ESTIMATORS["ABMixture"], None),
}
pytestmark = [
    pytest.mark.usefixtures("small_grids_everywhere"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]


def check_same(first, second):
    found = answers(second, X)
    for name, expected in answers(first, X).items():
        np.testing.assert_array_equal(found[name], expected, err_msg=name)


def test_who_takes_no_weights():
    without = {type(MODELS[name]).__name__ for name in MODELS.keys() - set(TAKING)}
    assert without == {
        "DivergenceKernel",
        "Recenter",
        "LEML",
        "RSPDL",
        "KernelLLC",
        "KernelSparseCoding",
        "IDDLTransformer",
    }


@pytest.mark.parametrize("name", TAKING)
def test_the_scale_of_weights_changes_nothing(name):
    """Neither that of matrices nor that of classes."""
    plain, other = (clone(MODELS[name]) for _ in range(2))
    if hasattr(plain, "class_weight"):
        plain.set_params(class_weight={0: 1.0, 1: 2.0, 2: 3.0})
        other.set_params(class_weight={0: SCALE, 1: 2 * SCALE, 2: 3 * SCALE})
    plain.fit(X, Y, sample_weight=WEIGHTS)
    check_same(plain, other.fit(X, Y, sample_weight=SCALE * WEIGHTS))


@pytest.mark.parametrize("name", TAKING)
def test_equal_weights_are_no_weights(name):
    plain = clone(MODELS[name]).fit(X, Y)
    check_same(plain, clone(MODELS[name]).fit(X, Y, sample_weight=np.full(len(X), 1e-6)))


@pytest.mark.parametrize("name", ON_SHARDS)
def test_the_scale_of_weights_of_shards_changes_nothing(name):
    model, y = ON_SHARDS[name]
    plain, other = (
        clone(model).fit(
            open_shards(X, y, scale * WEIGHTS, block_size=12, memory_limit=limit), None
        )
        for scale, limit in ((1.0, None), (SCALE, 1000))
    )  # blocks that are kept, and blocks that are read again
    check_same(plain, other)


@pytest.mark.parametrize("name", TAKING)
def test_weights_far_apart(name):
    weights = np.where(np.arange(len(X)) % 4, 1e300, 1e-300)
    fitted = clone(MODELS[name]).fit(X, Y, sample_weight=weights)
    for method, values in answers(fitted, X).items():
        assert np.isfinite(values).all(), method


@pytest.mark.parametrize(
    "name", ["SPDClassifier", "DivergenceKernelClassifier", "TangentClassifier"]
)
def test_held_out_accuracies_are_of_matrices_and_not_of_classes(name):
    """As `score` has them, which takes weights of matrices only."""
    given = MODELS | {"TangentClassifier": divlearn.TangentClassifier(cv=2, **SEED)}
    model = clone(given[name]).set_params(class_weight={0: 9.0, 1: 1.0, 2: 1.0})
    model.fit(X, Y, sample_weight=WEIGHTS)
    found = model.oof_accuracy_["average"] if name == "SPDClassifier" else model.held_out_accuracy_
    seen = WEIGHTS > 0
    predicted = model.oof_proba_[seen].argmax(axis=1)
    assert found == pytest.approx(accuracy_score(Y[seen], predicted, sample_weight=WEIGHTS[seen]))


def test_weights_have_a_mean_of_one():
    np.testing.assert_allclose(check_weights([1, 0, 2, 3], 4), [0.5, 0, 1, 1.5])
    assert check_weights(5e-324, 3).tolist() == check_weights(0.1, 3).tolist() == [1, 1, 1]
    assert check_weights([5e-324, 1.5e-323], 2).tolist() == [0.5, 1.5]
    assert check_weights(None, 3).tolist() == [1, 1, 1]
    large, tiny, none = check_weights([1e300, 1e-300, 0], 3)
    assert large == 2
    assert 0 < tiny < 1e-300  # what has a weight keeps one
    assert none == 0


def test_means_depend_on_ratios_of_weights_alone():
    plain, large, small = (
        divlearn.mean_abld(X, 0.5, 1.5, scale * WEIGHTS).mean for scale in (1.0, SCALE, 1 / SCALE)
    )
    np.testing.assert_array_equal(large, plain)
    np.testing.assert_array_equal(small, plain)
