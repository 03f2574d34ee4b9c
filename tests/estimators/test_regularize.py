"""One meaning of ``regularize`` for every estimator: learned in fit, the same for new matrices."""

from __future__ import annotations

import pickle
from functools import partial
from inspect import signature

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from test_abuse_estimators import ESTIMATORS, answers

import divlearn
from divlearn.datasets import make_wishart_clusters
from divlearn.descriptors import Regularize
from divlearn.judge import evaluate, plane_map, which_divergence
from divlearn.sharded import open_shards

pytestmark = pytest.mark.usefixtures("small_grids_everywhere")

MODELS = ESTIMATORS | {"Regularize": Regularize()}
HINT = r'rank-deficient: numerical rank 2 of 3.* or pass regularize="shrink", here or to check_spd$'


def average_referenced(seed=0, n_matrices=24):
    """Covariances of signals whose channels sum to zero at all times, of two classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_matrices) % 2
    signals = rng.standard_normal((n_matrices, 3, 40)) * (1 + y[:, None, None] * [[3], [0], [0]])
    signals -= signals.mean(axis=1, keepdims=True)
    return signals @ signals.mT / 40, y


X, Y = average_referenced()
NEW = 5 * average_referenced(1)[0]  # in other units: what was learned from X must not follow


def by_hand(matrices, weight, training=X):
    """The map in closed form."""
    tau = np.trace(training, axis1=1, axis2=2).mean() / 3
    return (1 - weight) * matrices + weight * tau * np.eye(3)


@pytest.mark.parametrize("name", MODELS)
def test_rank_deficient_matrices(name, tmp_path):
    """Fits and answers are those for matrices that were regularized by hand, in both."""
    model = clone(MODELS[name])
    with pytest.raises(ValueError, match=HINT):
        clone(model).set_params(regularize="raise").fit(X, Y)
    model.set_params(regularize=0.1).fit(X, Y)
    assert model.shrinkage_ == pytest.approx((0.1, np.trace(X.mean(axis=0)) / 3), rel=1e-12)
    known = clone(model).set_params(regularize="raise").fit(by_hand(X, 0.1), Y)
    assert known.shrinkage_ is None
    expected = answers(known, by_hand(NEW, 0.1))
    divlearn.save(model, tmp_path / "model")
    copies = model, pickle.loads(pickle.dumps(model)), divlearn.load(tmp_path / "model")
    for one in copies:
        for method, values in answers(one, NEW).items():
            np.testing.assert_allclose(values, expected[method], rtol=1e-6, atol=1e-9)
    with pytest.raises(ValueError, match=r'rank-deficient.* or fit with regularize="shrink"$'):
        answers(known, NEW)


@pytest.mark.parametrize("name", MODELS)
def test_weights_that_are_refused(name):
    with pytest.raises(ValueError, match=r"regularize=2 must be .* > 0 and < 1"):
        clone(MODELS[name]).set_params(regularize=2).fit(X, Y)


@pytest.mark.parametrize("name", MODELS)
def test_shrink_is_a_weight_and_matrices_of_no_weight_teach_nothing(name):
    model, given, options = clone(MODELS[name]).set_params(regularize="shrink"), X, {}
    if "sample_weight" in signature(model.fit).parameters:
        weights = np.where(np.arange(24) < 20, 2.0, 0.0)
        given, options = (
            np.where(weights[:, None, None] > 0, X, 1e6 * X),
            {"sample_weight": weights},
        )
    model.fit(given, Y, **options)
    taught = X[:20] if options else X
    assert model.shrinkage_ == pytest.approx((0.01, np.trace(taught.mean(axis=0)) / 3))


def test_weights_are_those_of_the_mean():
    weights = np.arange(1.0, 25)
    tau = np.average(np.trace(X, axis1=1, axis2=2), weights=weights) / 3
    assert Regularize().fit(X, sample_weight=weights).shrinkage_[1] == pytest.approx(tau)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_transformer_keeps_types_and_the_training_variance(dtype):
    given = X.astype(dtype)
    model = Regularize(0.2).fit(given)
    for matrices in (given, NEW.astype(dtype)):
        found = model.transform(matrices)
        assert found.dtype == dtype
        np.testing.assert_allclose(found, by_hand(matrices, 0.2), rtol=2e-6)
    with pytest.raises(ValueError, match="size 2, but Regularize is expecting 3"):
        model.transform(X[:, :2, :2])
    with pytest.raises(NotFittedError):
        Regularize().transform(X)


def test_pipelines_learn_it_in_every_fold(tmp_path):
    learned = divlearn.IDDLTransformer(4, max_iter=1, cv=2, random_state=0)
    pipeline = make_pipeline(Regularize(), learned, LogisticRegression())
    assert cross_val_score(pipeline, X, Y, cv=3).mean() > 0.8
    divlearn.save(pipeline.fit(X, Y), tmp_path / "model")
    loaded = divlearn.load(tmp_path / "model")
    assert loaded[0].shrinkage_ == pipeline[0].shrinkage_
    np.testing.assert_array_equal(loaded.predict(NEW), pipeline.predict(NEW))


def test_lists_of_matrices():
    model = divlearn.DivergenceMDM(regularize="shrink").fit(X.tolist(), Y)
    np.testing.assert_array_equal(model.predict(X.tolist()), model.predict(X))


def test_kernels_between_any_matrices():
    kernel = divlearn.DivergenceKernel("stein", 0.5, regularize=0.1)
    with pytest.raises(NotFittedError, match="regularize are learned by fit"):
        kernel(X)
    plain = divlearn.DivergenceKernel("stein", 0.5)
    kernel.fit(X)
    np.testing.assert_allclose(kernel(NEW), plain(by_hand(NEW, 0.1)))
    np.testing.assert_allclose(kernel(NEW, X), plain(by_hand(NEW, 0.1), by_hand(X, 0.1)))


def test_files_are_as_matrices_in_memory(tmp_path):
    np.save(tmp_path / "X.npy", X)
    weights = np.linspace(0.5, 2, len(X))
    for model in (divlearn.ABKMeans(2, n_init=1), divlearn.IDDLRegressor(cv=None, max_iter=1)):
        model.set_params(regularize="shrink", random_state=0)
        here = clone(model).fit(X, Y, weights)
        there = clone(model).fit(tmp_path / "X.npy", Y, weights)
        assert there.shrinkage_ == pytest.approx(here.shrinkage_)
        np.testing.assert_allclose(there.predict(X), here.predict(tmp_path / "X.npy"), rtol=1e-6)
        small = open_shards(tmp_path / "X.npy", block_size=3, memory_limit=1, regularize=0.1)
        expected = by_hand(X, 0.1)
        for _ in range(2):  # what is read again is the same
            found = np.concatenate(small.map(lambda block: block.data.matrices))
            np.testing.assert_allclose(found, expected)


def test_shards_that_cannot_be_regularized(tmp_path):
    np.save(tmp_path / "X.npy", X)
    model = divlearn.IDDLRegressor(cv=None, max_iter=1, regularize="shrink")
    with pytest.raises(ValueError, match="opened already; pass regularize='shrink' to open_shards"):
        model.fit(open_shards(by_hand(X, 0.1), Y), None)
    with pytest.raises(ValueError, match="opened already; pass regularize="):
        model.fit(X, Y).predict(open_shards(by_hand(X, 0.1)))
    opened = open_shards(tmp_path / "X.npy", regularize=model.shrinkage_)
    np.testing.assert_allclose(model.predict(opened), model.predict(X))


def test_questions_about_data():
    clusters, y = make_wishart_clusters(3, 8, 3, separation=6, random_state=0)
    flat = clusters.copy()
    flat[:, 2] = flat[:, :, 2] = 0
    tau = np.trace(flat, axis1=1, axis2=2).mean() / 3
    full = 0.8 * flat + 0.2 * tau * np.eye(3)
    for ask in (plane_map, partial(which_divergence, random_state=0)):
        grid = {"alphas": [0, 0.5, 1], "betas": [0, 0.5, 1]}
        with pytest.raises(ValueError, match='or pass regularize="shrink"'):
            ask(flat, y, **grid)
        found = ask(flat, y, regularize=0.2, **grid)
        assert found.summary() == ask(full, y, **grid).summary()


def test_evaluation_learns_it_from_the_training_part_of_a_fold():
    class Spy(divlearn.DivergenceMDM):
        def fit(self, X, y):
            seen.append(X)
            return super().fit(X, y)

        def predict(self, X):
            seen.append(X)
            return super().predict(X)

    seen, folds = [], [(np.arange(12), np.arange(12, 24)), (np.arange(12, 24), np.arange(12))]
    scaled = np.concatenate([X[:12], 100 * X[12:]])
    with pytest.raises(ValueError, match=r'^X\[0\] is rank-deficient.* pass regularize="shrink"'):
        evaluate(scaled, Y, {"spy": Spy()}, cv=folds)
    evaluate(scaled, Y, {"spy": Spy()}, cv=folds, regularize=0.1)
    for k, (train, test) in enumerate(folds):
        for found, rows in zip(seen[2 * k : 2 * k + 2], (train, test), strict=True):
            np.testing.assert_allclose(found, by_hand(scaled[rows], 0.1, scaled[train]))
