"""Estimators in place of pyRiemann's: the same calls, attributes and numbers."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import wishart
from pyriemann.classification import MDM, FgMDM, KNearestNeighbor
from pyriemann.clustering import Kmeans
from pyriemann.estimation import Covariances
from sklearn import config_context
from sklearn.base import clone
from sklearn.ensemble import BaggingClassifier
from sklearn.inspection import permutation_importance
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from divlearn import (
    ABKMeans,
    DivergenceKNN,
    DivergenceMDM,
    DivergenceProcessKernel,
    IDDLClassifier,
    IDDLRegressor,
    IDDLTransformer,
    LogEuclideanKMeans,
    from_rows,
    load,
    save,
    to_rows,
    vectorized,
)
from divlearn.datasets import make_recordings, make_wishart_clusters

MEANS = ["euclid", "logeuclid", "riemann", "logdet", "logchol", "wasserstein", "kullback_sym"]
DISTANCES = [*MEANS, "chol", "harmonic", "kullback", "kullback_right", "thompson"]


def largest_gap(A, B, squared=False):
    return np.abs(A - B).max(axis=(-2, -1))


def trimmed(X, sample_weight=None):
    return np.average(X, axis=0, weights=sample_weight)


@pytest.fixture(scope="module")
def data():
    X, y = make_wishart_clusters(3, 16, 3, separation=2, random_state=3)
    return X, y, np.random.default_rng(0).uniform(0.5, 2, len(X))


def swap(peer, ours, X, y, weights):
    fitted = [model.fit(X[::2], y[::2], sample_weight=weights[::2]) for model in (peer, ours)]
    for one in fitted:
        assert one.covmeans_.shape == fitted[0].covmeans_.shape
    np.testing.assert_allclose(fitted[1].covmeans_, fitted[0].covmeans_, atol=2e-3)
    np.testing.assert_array_equal(ours.predict(X), peer.predict(X))
    return fitted


PAIRS = [*((mean, "riemann") for mean in MEANS), *(("euclid", one) for one in DISTANCES)]


@pytest.mark.parametrize(("mean", "distance"), [*PAIRS, (trimmed, largest_gap)])
def test_nearest_means(data, mean, distance):
    metric = {"mean": mean, "distance": distance}
    peer, ours = swap(MDM(metric=metric, n_jobs=1), DivergenceMDM(metric=metric, n_jobs=1), *data)
    np.testing.assert_allclose(ours.transform(data[0]), peer.transform(data[0]), rtol=0.02)


@pytest.mark.parametrize("metric", ["riemann", "euclid", "logeuclid", "wasserstein", "logchol"])
def test_nearest_means_and_their_probabilities(data, metric):
    peer, ours = swap(MDM(metric=metric), DivergenceMDM(metric=metric), *data)
    X, y, _ = data
    np.testing.assert_allclose(ours.predict_proba(X), peer.predict_proba(X), atol=0.01)
    np.testing.assert_array_equal(ours.fit_transform(X, y), ours.fit(X, y).transform(X))


def test_filtered_means(data):
    X, y, _ = data
    peer, ours = FgMDM().fit(X, y), DivergenceMDM(filtering=True).fit(X, y)
    np.testing.assert_allclose(ours.transform(X), peer.transform(X), rtol=0.02)


@pytest.mark.parametrize("k", [1, 3, 99])
@pytest.mark.parametrize("metric", [*DISTANCES, largest_gap])
def test_neighbours(data, k, metric):
    X, y, weights = data
    known = {"mean": "euclid", "distance": metric} if callable(metric) else metric
    peer = KNearestNeighbor(k, metric=known).fit(X[::2], y[::2])
    ours = DivergenceKNN(k, metric=metric, n_jobs=2).fit(X[::2], y[::2])
    np.testing.assert_array_equal(ours.covmeans_, peer.covmeans_)
    np.testing.assert_array_equal(ours.classmeans_, peer.classmeans_)
    np.testing.assert_array_equal(ours.predict(X), peer.predict(X))
    assert ours.fit(X, y, sample_weight=weights).predict(X).shape == y.shape


@pytest.mark.parametrize("metric", ["riemann", "euclid", "logeuclid", "logchol"])
def test_k_means(data, metric):
    X, _, _ = data
    start = X[[0, 20, 40]]
    peer = Kmeans(3, metric=metric, init=start, tol=1e-12).fit(X)
    ours = ABKMeans(3, metric=metric, init=start, tol=0, n_jobs=1).fit(X)
    np.testing.assert_array_equal(ours.labels_, peer.labels_)
    np.testing.assert_allclose(ours.centroids(), peer.centroids(), atol=1e-3)
    scale = 2.0 if metric == "riemann" else 1.0  # (0, 0) is half the squared distance
    np.testing.assert_allclose(
        np.sqrt(scale * ours.transform(X)), peer.transform(X), rtol=5e-3, atol=1e-3
    )


@pytest.mark.parametrize("init", ["tangent", "log-euclidean", "k-means++", "random"])
def test_k_means_of_vectors_from_all_starts(data, init, tmp_path):
    X, _, weights = data
    model = ABKMeans(3, "euclid", init=init, n_init=3, random_state=0).fit(X, sample_weight=weights)
    means = [np.average(X[model.labels_ == k], 0, weights[model.labels_ == k]) for k in range(3)]
    np.testing.assert_allclose(model.cluster_centers_, means, rtol=1e-6)
    rows = X.reshape(len(X), 1, -1) - model.cluster_centers_.reshape(1, 3, -1)
    squares = (rows**2).sum(axis=2)
    np.testing.assert_allclose(model.transform(X), squares, rtol=1e-6, atol=1e-9)
    expected = (weights / weights.mean()) @ squares.min(axis=1)
    assert model.inertia_ == pytest.approx(expected) == -model.score(X, sample_weight=weights)
    save(model, tmp_path / "model.divlearn")
    np.testing.assert_array_equal(load(tmp_path / "model.divlearn").predict(X), model.labels_)
    assert not hasattr(model, "alpha_")
    again = model.set_params(divergence="stein").fit(X)
    assert again.alpha_ == 0.5
    assert not hasattr(again.set_params(metric="euclid").fit(X), "history_")


def test_log_euclidean_k_means_is_one_of_them(data):
    X = data[0]
    given = {"init": "k-means++", "max_iter": 300, "tol": 1e-4, "random_state": 0}
    one, other = LogEuclideanKMeans(3, random_state=0), ABKMeans(3, "logeuclid", **given)
    np.testing.assert_array_equal(one.fit(X).labels_, other.fit(X).labels_)
    np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)
    del one._metric  # as in files of version 0.2
    np.testing.assert_array_equal(one.predict(X), other.labels_)
    with pytest.raises(ValueError, match="'wasserstein' is not in the alpha-beta family"):
        ABKMeans(3, "wasserstein").fit(X)


@pytest.mark.parametrize("wrong", [42, "faulty", {"foo": "bar"}, {"mean": 42, "distance": "airm"}])
@pytest.mark.parametrize("made", [DivergenceMDM, DivergenceKNN, ABKMeans])
def test_metrics_that_are_none(data, made, wrong):
    with pytest.raises(ValueError, match=r"divergence=.* must"):
        made(metric=wrong).fit(*data[:2])


@pytest.mark.parametrize(
    "made", [IDDLClassifier, IDDLRegressor, IDDLTransformer, DivergenceProcessKernel]
)
def test_the_alias_of_all_that_have_a_divergence(made):
    model = made(metric="stein")
    assert model.metric == model.divergence == clone(model).metric == "stein"
    assert "metric" not in model.get_params()
    assert model.set_params(metric="airm").divergence == "airm"
    model.metric = "burg"  # as scripts set it
    assert model.divergence == clone(model).divergence == "burg"


def test_in_a_pipeline_of_pyriemann():
    X, y, _ = make_recordings(60, random_state=0)
    peer, ours = (make_pipeline(Covariances("scm"), one) for one in (MDM(), DivergenceMDM()))
    found, expected = (cross_val_score(one, X, y, cv=2) for one in (ours, peer))
    np.testing.assert_allclose(found, expected)
    grid = {"divergencemdm__metric": ["riemann", "euclid"], "divergencemdm__n_jobs": [1]}
    search = GridSearchCV(ours, grid, cv=2).fit(X, y)
    assert search.best_params_["divergencemdm__metric"] == search.best_estimator_[-1].divergence


def test_threads(data):
    X, y, _ = data
    with pytest.raises(ValueError, match="n_jobs=0 must be an integer"):
        DivergenceMDM(n_jobs=0).fit(X, y)
    one, all_of_them = (DivergenceMDM(n_jobs=n).fit(X, y) for n in (1, -1))
    np.testing.assert_array_equal(one.means_, all_of_them.means_)


# --- beyond pyRiemann


def test_class_weights_are_priors():
    rng = np.random.default_rng(0)
    X = np.concatenate([wishart(rng, 40, 3), 1.5 * wishart(rng, 10, 3)])
    y = np.repeat(["often", "rarely"], [40, 10])
    plain = DivergenceMDM().fit(X, y)
    odds = plain.predict_proba(X)[:, 1] / plain.predict_proba(X)[:, 0]
    weighted = DivergenceMDM(class_weight={"often": 4}).fit(X, y)
    np.testing.assert_array_equal(weighted.means_, plain.means_)
    np.testing.assert_allclose(weighted.predict_proba(X)[:, 1], odds / (4 + odds), rtol=1e-9)
    assert (weighted.predict(X) == "often").sum() > (plain.predict(X) == "often").sum()
    balanced = DivergenceMDM(class_weight="balanced").fit(X, y)
    np.testing.assert_array_equal(balanced.predict_proba(X), plain.predict_proba(X))
    chosen = DivergenceMDM("choose", class_weight={"often": 4}, random_state=0).fit(X, y)
    np.testing.assert_allclose(chosen.oof_proba_.sum(axis=1), 1)
    left_out = DivergenceMDM(class_weight={"other": 0}).fit([*X, X[0]], [*y, "other"])
    assert left_out.classes_.tolist() == ["often", "rarely"]
    np.testing.assert_allclose(left_out.predict_proba(X), plain.predict_proba(X))
    with pytest.raises(ValueError, match=r"class_weight=.* must be finite and >= 0"):
        DivergenceMDM(class_weight={"often": -1}).fit(X, y)


def test_columns_carry_names_of_classes(data):
    X, y, _ = data
    model = DivergenceMDM().fit(X, np.array(["left", "right", "rest"])[y])
    names = ["divergencemdm_left", "divergencemdm_rest", "divergencemdm_right"]
    assert model.get_feature_names_out().tolist() == names


def test_rows_for_tools_that_take_2d_data(data, tmp_path):
    X, y, _ = data
    rows = to_rows(X)
    np.testing.assert_allclose(from_rows(rows), X, rtol=1e-9, atol=1e-12)
    model = vectorized(DivergenceMDM()).fit(rows, y)
    np.testing.assert_array_equal(model.predict(rows), DivergenceMDM().fit(X, y).predict(X))
    with config_context(transform_output="pandas"):  # matrices make no table: without a warning
        np.testing.assert_array_equal(clone(model).fit(rows, y).predict(rows), model.predict(rows))
    bagged = BaggingClassifier(vectorized(DivergenceMDM()), 5, random_state=0).fit(rows, y)
    assert accuracy_score(y, bagged.predict(rows)) > 0.8
    save(model, tmp_path / "model.divlearn")
    np.testing.assert_array_equal(
        load(tmp_path / "model.divlearn").predict(rows), model.predict(rows)
    )
    # Matrices that differ in one variance only: that entry of the logarithm is all that matters.
    scales = np.exp(np.random.default_rng(0).normal(np.repeat([0, 2], 20), 0.3))
    spread = to_rows([np.diag([1.0, one]) for one in scales])
    spread[:, :2] = np.random.default_rng(1).normal(0, 0.1, (40, 2))
    model, labels = vectorized(DivergenceMDM()), np.repeat([0, 1], 20)
    found = permutation_importance(model.fit(spread, labels), spread, labels, random_state=0)
    assert found.importances_mean[2] > 0.3 > np.abs(found.importances_mean[:2]).max() + 0.25
    with pytest.raises(
        ValueError, match=r"rows has shape \(48, 5\), must have .* pass all columns"
    ):
        from_rows(rows[:, :5])
