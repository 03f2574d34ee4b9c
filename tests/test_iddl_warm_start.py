"""Warm starts: a fit goes on from the atoms and divergences of the last one."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from divlearn.datasets import make_wishart_clusters
from divlearn.iddl import IDDLClassifier, IDDLRegressor, IDDLTransformer

ONE = {"loss": "ridge", "gamma": 1e-2, "tangent": False, "ensemble": None, "random_state": 0}
FAST = {"n_atoms": "2 per class", "init": "samples", "max_iter": 3, "warm_start": True, **ONE}
LEARNED = ["shared", "tied", "free"]


@pytest.fixture(scope="module")
def data():
    return make_wishart_clusters(3, 40, 4, separation=4, random_state=0)


def parameters(estimator):
    return estimator.atoms_, estimator.alpha_, estimator.beta_


def assert_same(first, second):
    for one, other in zip(first, second, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("variant", [*LEARNED, "stein"])
@pytest.mark.parametrize("ensemble", [None, 3])
@pytest.mark.parametrize("pairs", ["auto", "grid", [(0.3, 0.6)]])
def test_no_iteration_changes_nothing(data, variant, ensemble, pairs):
    X, y = data
    options = FAST | {"variant": variant, "ensemble": ensemble, "pairs": pairs, "head": "linear"}
    classifier = IDDLClassifier(**options).fit(X, y)
    before = parameters(classifier)
    classifier.set_params(max_iter=0).fit(X, y)
    assert_same(parameters(classifier), before)
    if ensemble is None:  # several models may have been taken from iteration 0
        cold = clone(classifier).fit(X, y)
        assert not np.allclose(cold.atoms_, before[0])
        # Where a grid led to 0, alpha = beta stays there: divergences are even in it.
        assert variant == "stein" or pairs == "grid" or not np.allclose(cold.alpha_, before[1])


@pytest.mark.parametrize("variant", LEARNED)
@pytest.mark.parametrize("solver", ["joint", "bcd", "stochastic"])
def test_the_objective_goes_on_falling(data, variant, solver):
    X, y = data
    options = FAST | {"variant": variant, "solver": solver, "standardize": False}
    options |= {"logarithm": False, "max_iter": 2}  # what features are made of does not change
    classifier = IDDLClassifier(**options).fit(X, y)
    end = classifier.history_["objective"][-1]
    going_on = classifier.fit(X, y).history_["objective"]
    assert going_on[0] == pytest.approx(end, rel=1e-8)
    assert going_on[-1] < end
    cold = clone(classifier).set_params(warm_start=False).fit(X, y).history_["objective"]
    assert going_on[-1] < cold[-1]


@pytest.mark.parametrize("loss", ["ridge", "softmax"])
def test_the_objective_falls_with_features_made_anew(data, loss):
    """The offsets of logarithms follow the divergences: at first it may rise, not in the end."""
    X, y = data
    classifier = IDDLClassifier(**FAST | {"loss": loss, "max_iter": 5}).fit(X, y)
    end = classifier.history_["objective"][-1]
    assert classifier.fit(X, y).history_["objective"][-1] <= end


def test_going_on_on_other_data(data):
    X, y = data
    classifier = IDDLClassifier(**FAST).fit(X[::2], y[::2])
    atoms = classifier.atoms_
    classifier.set_params(max_iter=0).fit(X[1::2], y[1::2] + 5)
    np.testing.assert_allclose(classifier.atoms_, atoms, rtol=1e-10)
    np.testing.assert_array_equal(classifier.classes_, [5, 6, 7])
    assert classifier.score(X[::2], y[::2] + 5) > 0.7


def test_other_variants_take_the_atoms_and_what_fits_of_the_parameters(data):
    X, y = data
    classifier = IDDLClassifier(**FAST | {"pairs": [(0.4, 1.1)]}).fit(X, y)
    atoms, alpha, beta = parameters(classifier)
    still = {"max_iter": 0}
    tied = classifier.set_params(variant="tied", **still).fit(X, y)
    np.testing.assert_allclose(tied.alpha_, (alpha + beta) / 2)
    np.testing.assert_array_equal(tied.alpha_, tied.beta_)
    shared = classifier.set_params(variant="shared").fit(X, y)
    np.testing.assert_allclose(shared.alpha_, np.full_like(alpha, ((alpha + beta) / 2).mean()))
    stein = classifier.set_params(variant="stein").fit(X, y)
    assert (stein.alpha_ == 0.5).all()
    three = classifier.set_params(variant="free", pairs="auto").fit(X, y)
    np.testing.assert_array_equal(three.alpha_, np.tile([1.0, 0.0, 1.0], (6, 1)))
    np.testing.assert_allclose(three.atoms_, atoms, rtol=1e-10)


def test_matrices_of_another_size(data):
    X, y = data
    classifier = IDDLClassifier(**FAST).fit(X, y)
    with pytest.raises(ValueError, match="X has matrices of size 3, but warm_start=True goes on"):
        classifier.fit(X[:, :3, :3], y)
    classifier.set_params(warm_start=False).fit(X[:, :3, :3], y)
    assert classifier.n_features_in_ == 3


def test_without_it_fits_start_anew(data):
    X, y = data
    classifier = IDDLClassifier(**FAST | {"warm_start": False}).fit(X, y)
    before = parameters(classifier)
    assert_same(parameters(classifier.fit(X, y)), before)


def test_regressors(data):
    X, _ = data
    y = np.linalg.slogdet(X)[1]
    options = {key: value for key, value in FAST.items() if key != "n_atoms"}
    regressor = IDDLRegressor(n_atoms=3, **options).fit(X, y)
    end = regressor.history_["objective"][-1]
    assert regressor.fit(X, y).history_["objective"][-1] < end
    before = parameters(regressor)
    assert_same(parameters(regressor.set_params(max_iter=0).fit(X[::2], y[::2])), before)


@pytest.mark.parametrize("first", ["classes", "numbers", "nothing"])
@pytest.mark.parametrize("second", ["classes", "numbers", "nothing"])
def test_encoders(data, first, second):
    X, y = data
    targets = {"classes": y, "numbers": X[:, 0, 0], "nothing": None}
    encoder = IDDLTransformer(**FAST | {"n_atoms": 4}).fit(X, targets[first])
    before = parameters(encoder)
    encoder.set_params(max_iter=0, init="identity").fit(X, targets[second])
    assert_same(parameters(encoder), before)


@pytest.mark.parametrize("ensemble", [None, 4])
def test_data_held_out_stays_so(ensemble):
    """Labels that mean nothing are not predicted, however often a fit goes on."""
    X, _ = make_wishart_clusters(1, 200, 4, random_state=0)
    y = np.random.default_rng(1).integers(2, size=200)
    options = FAST | {"n_atoms": 8, "max_iter": 10, "ensemble": ensemble, "head": "linear"}
    classifier = IDDLClassifier(**options)
    for _ in range(3):
        classifier.fit(X, y)
    assert classifier.score(X, y) > 0.6  # it has learned them by heart, or tried to
    assert (classifier.oof_proba_.argmax(axis=1) == y).mean() < 0.58
