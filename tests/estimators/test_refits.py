"""Fits after fits: one that fails leaves all as it was, one that ends nothing of the last."""

from __future__ import annotations

from copy import copy

import numpy as np
import pytest
from conftest import wishart
from engine_calls import ActingEngine
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from test_abuse_estimators import ESTIMATORS, answers, data, fitted

import divlearn
from divlearn.descriptors import (
    BlockDiagonal,
    CovarianceKernel,
    RBFKernelDescriptor,
    RegionCovariance,
)

pytestmark = pytest.mark.usefixtures("small_grids_everywhere")


class Broken(RuntimeError):
    pass


def fail():
    raise Broken


def others():
    """Matrices of another size, and other classes."""
    y = np.arange(12) % 3
    return wishart(np.random.default_rng(1), 12, 3) * (1 + y)[:, None, None], y + 7


@pytest.mark.parametrize(
    "name", [name for name in ESTIMATORS if "engine" in ESTIMATORS[name].get_params()]
)
def test_a_fit_that_fails_leaves_what_was_learned(name):
    engine = ActingEngine(fail)
    model, (X, y) = copy(fitted(name)).set_params(engine=engine), others()
    before, said = dict(vars(model)), answers(model, data()[0])
    engine.act_at(0)
    clone(model).set_params(engine=engine).fit(X, y)
    if engine.count:  # at the last call most has been learned
        engine.act_at(engine.count)
        with pytest.raises(Broken):
            model.fit(X, y)
        assert vars(model).keys() == before.keys()
        assert all(vars(model)[key] is value for key, value in before.items())
    engine.act_at(0)
    for method, values in answers(model, data()[0]).items():
        np.testing.assert_array_equal(values, said[method])


@pytest.mark.parametrize("name", ESTIMATORS)
def test_all_fits_are_whole(name):
    """Also where no engine can fail in the middle of them."""
    assert hasattr(type(ESTIMATORS[name]).fit, "__wrapped__")


SERIES = np.random.default_rng(0).standard_normal((3, 2, 9))
IMAGES = np.random.default_rng(0).uniform(size=(2, 20, 20, 3))
# What they are fitted to first, and what they cannot be fitted to.
DESCRIPTORS = {
    "tracks": (RBFKernelDescriptor(), SERIES, np.ones((3, 3, 9))),
    "streams": (BlockDiagonal(), [[np.eye(2)] * 2] * 3, [[np.eye(2), -np.eye(2), np.eye(2)]]),
    "images": (RegionCovariance("cancer"), IMAGES, IMAGES[..., 0]),
    "features": (CovarianceKernel("cancer"), IMAGES, IMAGES[..., 0]),
}


@pytest.mark.parametrize("method", ["fit", "fit_transform"])
@pytest.mark.parametrize("name", DESCRIPTORS)
def test_descriptors_stay_as_they_were_too(name, method):
    model, good, bad = DESCRIPTORS[name]
    before = dict(vars(model.fit(good)))
    with pytest.raises((ValueError, TypeError)):
        getattr(model, method)(bad)
    assert vars(model) == before


def test_a_first_fit_that_fails_is_none():
    X, y = data()
    committee = divlearn.SPDClassifier(("tangent logistic",))
    with pytest.raises(ValueError, match="has 1 matrix"):
        committee.fit(X, np.where(np.arange(len(y)) == 0, 5, y))
    with pytest.raises(NotFittedError):
        committee.predict(X)


def test_old_classes_do_not_get_new_names():
    X, y = data()
    model = divlearn.DivergenceKernelClassifier([0.5], [0.5], random_state=0)
    model.fit(X, np.array(["a", "b"])[y])
    with pytest.raises(ValueError, match="groups has 1 group"):
        model.fit(X, np.array(["healthy", "sick"])[y], groups=np.zeros(len(y)))
    assert set(model.predict(X)) <= {"a", "b"}


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (divlearn.ABKMeans(2, "likelihood", n_init=1, random_state=0), {"divergence": "burg"}),
        (divlearn.ABKMeans(2, "euclidean", n_init=1, random_state=0), {"divergence": "burg"}),
        (divlearn.DivergenceMDM("choose", random_state=0), {"divergence": "airm"}),
        (divlearn.DivergenceKNN(1, "log-euclidean"), {"divergence": "airm"}),
        (divlearn.Recenter("choose"), {"divergence": "airm"}),
        (divlearn.Recenter(stretch=True), {"stretch": False}),
    ],
    ids=str,
)
def test_nothing_of_the_last_fit_stays(first, then, tmp_path):
    X, y = data()
    groups = {} if hasattr(first, "fit_predict") else {"groups": np.arange(len(y)) // 3}
    groups = {} if isinstance(first, divlearn.DivergenceKNN) else groups
    model = clone(first).fit(X, y, **groups).set_params(**then)
    few, classes = others()
    groups = {name: groups[name][: len(few)] for name in groups}
    expected = clone(model).fit(few, classes, **groups)
    assert vars(model.fit(few, classes, **groups)).keys() == vars(expected).keys()
    divlearn.save(model, tmp_path / "model")
    divlearn.load(tmp_path / "model")
