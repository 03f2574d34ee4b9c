"""What predictions prepare once: never that of other training data, and not part of the model."""

from __future__ import annotations

import gc
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest import make_engine
from engine_problems import has_native
from sklearn.base import clone

from divlearn import DivergenceKNN, IDDLClassifier
from divlearn.datasets import make_wishart_clusters
from divlearn.engines import Prepared, ReferenceEngine
from divlearn.fitting import held_out
from divlearn.kernels import DivergenceKernel
from divlearn.nearest import NearestClassifier

X, Y = make_wishart_clusters(3, 40, 3, separation=2, random_state=0)
NEW, X, Y = X[1::6], X[::2], Y[::2]
SEED = {"random_state": 0}
MODELS = {
    "kernel": (DivergenceKernel("airm", scale=1.0), "transform"),
    "embedded": (DivergenceKernel("log-euclidean", scale=1.0), "transform"),
    "neighbours": (DivergenceKNN(5, (0.2, 0.7), "distance"), "predict_proba"),
    "nearest": (NearestClassifier(cv=2, **SEED), "predict_proba"),
    "iddl": (IDDLClassifier(3, divergence="airm", max_iter=1, cv=2, **SEED), "predict_proba"),
}


@pytest.fixture(params=MODELS)
def case(request):
    """An estimator, and a function to its results for matrices one by one."""
    model, method = MODELS[request.param]
    predict = lambda model: np.concatenate([getattr(model, method)(one[None]) for one in NEW])  # noqa: E731
    return clone(model), predict


def test_a_refit_replaces_it(case):
    model, predict = case
    predict(model.fit(X, Y))
    scaled = 3 * X[1::2] + 0.1 * np.eye(3)
    again = predict(model.fit(scaled, Y[1::2]))
    np.testing.assert_array_equal(again, predict(clone(model).fit(scaled, Y[1::2])))


def test_all_engines_have_their_own(case):
    model, predict = case
    results = [predict(model.fit(X, Y))]
    compiled = [make_engine("native-baseline")] if has_native else []
    for engine in ("reference", *compiled, "auto"):
        results.append(predict(model.set_params(engine=engine)))
    for other in results[1:]:
        np.testing.assert_allclose(other, results[0], rtol=1e-9)


def test_one_matrix_is_as_good_as_many(case):
    model, predict = case
    together = lambda model: np.concatenate([predict(model)] * 2)  # noqa: E731
    found = together(model.fit(X, Y))
    method = "predict_proba" if hasattr(model, "predict_proba") else "transform"
    many = getattr(model, method)(np.concatenate([NEW] * 5))  # more than there are to compare with
    np.testing.assert_allclose(found, many[: len(found)], rtol=1e-9)


def test_it_is_not_part_of_the_model(case):
    model, predict = case
    before, state = pickle.dumps(model.fit(X, Y)), dict(vars(model))
    expected = predict(model)
    assert vars(model).keys() == state.keys()
    assert len(pickle.dumps(model)) == len(before)
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(predict(loaded), expected)
    known = len(held_out._prepared)
    del loaded
    gc.collect()
    assert len(held_out._prepared) == known - 1


def test_learned_models_go_with_their_estimator():
    model = clone(MODELS["iddl"][0]).fit(X, Y)
    model.predict(NEW[:1])
    learned = weakref.ref(model.models_[0])
    del model
    gc.collect()
    assert learned() is None


def test_threads(case):
    model, predict = case
    expected = predict(model.fit(X, Y))
    fresh = clone(model).fit(X, Y)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(predict, [fresh] * 8):
            np.testing.assert_array_equal(found, expected)


def test_single_and_double_precision_in_turn():
    kernel = DivergenceKernel("airm", scale=1.0).fit(X.astype(np.float32))
    expected = DivergenceKernel("airm", scale=1.0).fit(X.astype(np.float32)).transform(NEW[:1])
    assert kernel.transform(NEW[:1].astype(np.float32)).dtype == np.float32
    np.testing.assert_array_equal(kernel.transform(NEW[:1]), expected)
    assert expected.dtype == np.float64


class Noting(ReferenceEngine):
    def __init__(self):
        super().__init__(1)
        self.computed = []  # shared by copies

    def spectra(self, *args):
        self.computed.append(args)
        return super().spectra(*args)


def test_estimators_share_spectra_to_the_same_matrices_only():
    engine = Noting()
    new, others = Prepared.checked(NEW[:2]), X[1:] + np.eye(3)
    for matrices in (X, others, X):
        for divergence in ("airm", (2.0, 0.5)):
            kernel = DivergenceKernel(divergence, scale=1.0, engine=engine)
            kernel.fit_checked(matrices)
            found = kernel.transform_prepared(new)
            expected = kernel.set_params(engine="auto")(NEW[:2], matrices)
            np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert len(engine.computed) == 2
