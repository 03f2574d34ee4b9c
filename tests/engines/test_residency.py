"""Fits on a device: the same results, and neither data nor divergences cross after the first."""

from __future__ import annotations

from dataclasses import fields
from functools import partial

import numpy as np
import pytest
from fake_device import DeviceArray, FakeDeviceEngine
from iddl_problems import here, solve
from resuming import assert_resumes
from scipy.special import softmax

from divlearn import which_divergence
from divlearn.arrays import to_device_of, to_host
from divlearn.cluster import ABKMeans, ABMixture
from divlearn.datasets import make_wishart_clusters
from divlearn.engines import ReferenceEngine
from divlearn.heads import samples
from divlearn.heads.heads import solve_head
from divlearn.heads.losses import RidgeLoss, SoftmaxLoss
from divlearn.iddl import IDDLClassifier, IDDLRegressor, Recipe
from divlearn.kernels import DivergenceKernelClassifier, DivergenceKernelRegressor
from divlearn.log_vectors import log_vectors
from divlearn.nearest import DivergenceKNN, NearestClassifier, NearestRegressor
from divlearn.tangent import _METHODS, TangentClassifier, TangentRegressor

N_ATOMS, N_PAIRS, D = 3, 2, 3


@pytest.fixture(scope="module")
def data():
    return make_wishart_clusters(3, 20, D, separation=3, random_state=0)


@pytest.fixture(autouse=True)
def crossed(request, monkeypatch):
    """Start to count; what is too small for a device to be worth it would cross as well."""
    monkeypatch.setattr(samples, "_HOST_SIZE", getattr(request, "param", 0))
    DeviceArray.crossed.clear()
    return DeviceArray.crossed


def classifier(**settings):
    pairs = [(1.0, 1.0), (0.2, 0.9)]
    defaults = {"divergence": pairs, "max_iter": 1, "random_state": 0, "cv": None}
    names = [one.name for one in fields(Recipe)]
    recipe = {"penalty": 1.0} | {name: settings.pop(name) for name in names if name in settings}
    return IDDLClassifier(N_ATOMS, recipe=Recipe(**recipe), **defaults | settings)


def fit_both(estimator, X, y):
    """Fit by the reference engine and on the device; returns both and what crossed."""
    right = estimator.set_params(engine=ReferenceEngine(1)).fit(X, y)
    found = type(right)(**right.get_params()).set_params(engine=FakeDeviceEngine(1)).fit(X, y)
    sizes = list(DeviceArray.crossed)
    for model in found.models_:
        assert isinstance(model.atoms, np.ndarray)
        assert model.units is None or isinstance(model.units[0], np.ndarray)
    return right, found, sizes


def test_arrays_of_both_kinds_do_not_mix():
    there, host = DeviceArray.send(np.ones((2, 3))), np.ones((2, 3))
    for mixed in (
        lambda: there + host,
        lambda: host @ there.T,
        lambda: np.concatenate([there, host]),
        lambda: np.asarray(there),
        lambda: np.where(host > 0, there, 0),
    ):
        with pytest.raises(TypeError, match="device"):
            mixed()
    assert np.array_equal(to_host(there + to_device_of(host, there)), 2 * host)
    assert to_device_of(there, host) is not there
    assert DeviceArray.crossed == [6, 6, 6, 6]


@pytest.mark.parametrize(
    ("solver", "loss"),
    [
        ("joint", "ridge"),
        ("joint", "softmax"),
        ("joint", "hinge"),
        ("stochastic", "softmax"),
        ("bcd", "ridge"),
    ],
)
def test_fits_stay_on_the_device(data, loss, solver):
    X, y = data
    model = classifier(loss=loss, solver=solver)
    right, found, sizes = fit_both(model, X, y)
    assert np.array_equal(found.atoms_, right.atoms_)
    assert np.array_equal(found.alpha_, right.alpha_)
    assert np.array_equal(found.decision_function(X), right.decision_function(X))
    whole = len(X) * min(D * D, N_ATOMS * N_PAIRS)
    assert sizes.count(X.size) == 1
    # What crosses in every iteration is as large as targets, atoms, heads and Gram matrices.
    assert max(size for size in sizes if size != X.size) < whole


@pytest.mark.parametrize("solver", ["joint", "stochastic"])
def test_fits_on_a_device_are_resumed(data, solver, tmp_path):
    model = classifier(loss="ridge", solver=solver, engine=FakeDeviceEngine(1), cv=2)
    assert_resumes(model, tmp_path / "fit", *data, n_stages=4)


@pytest.mark.parametrize(
    "settings",
    [
        {"loss": RidgeLoss(bias=False, plain=True)},
        {"divergence": "N", "loss": "ridge"},
        {"penalty": "auto", "loss": "auto", "cv": 2},
        {"divergence": "airm", "loss": "ridge"},
        {"learn": "divergences", "loss": "softmax"},
    ],
)
def test_all_that_a_fit_may_do_goes_on_a_device(data, settings):
    X, y = data
    right, found, sizes = fit_both(classifier(**settings), X, y)
    assert np.array_equal(found.atoms_, right.atoms_)
    # A device factors covariances of several classes together, and rounds otherwise.
    np.testing.assert_allclose(found.predict_proba(X), right.predict_proba(X), rtol=1e-10)
    assert sizes.count(X.size) == 1


@pytest.mark.parametrize("crossed", [1 << 17], indirect=True)
def test_small_heads_are_found_on_the_host(data):
    X, y = data
    right, found, _ = fit_both(classifier(loss="softmax"), X, y)
    assert np.array_equal(found.predict_proba(X), right.predict_proba(X))


@pytest.mark.parametrize("tolerance", [1e-9, 1e-4])
def test_heads_are_solved_where_the_features_are(tolerance):
    """Only the first and the last weights cross, and numbers."""
    rng = np.random.default_rng(0)
    n, n_features, n_classes, loss = 200, 6, 3, SoftmaxLoss().with_tolerance(tolerance)
    codes = rng.integers(n_classes, size=n)
    features = rng.standard_normal((n, n_features)) + rng.standard_normal((3, n_features))[codes]
    given = features, np.eye(n_classes)[codes], np.full(n, 1 / n)
    right = solve(loss, *given, 1e-3, engine="reference")
    there, targets, weights = map(DeviceArray.send, given)
    some = samples.Samples(here(n, "reference"), [(targets, weights)], [there], True)
    assert len(some.components[0]) == n_features + 1
    DeviceArray.crossed.clear()
    head, value = solve_head(loss, some, 1e-3)
    np.testing.assert_array_equal(head[0], right.head[0])
    assert value == right.value
    assert DeviceArray.crossed.count(n_classes * (n_features + 1)) == 2


def test_numbers_are_predicted_on_a_device(data):
    X, _ = data
    regressor = IDDLRegressor(N_ATOMS, max_iter=1, cv=2, random_state=0)
    right, found, _ = fit_both(regressor, X, np.linalg.slogdet(X)[1])
    assert np.array_equal(found.predict(X), right.predict(X))


# --- clusters and neighbours ----------------------------------------------------------------------


@pytest.mark.parametrize("divergence", [(0.5, 1.5), "burg", "airm", "paper"])
def test_clusters_stay_on_the_device(data, divergence):
    X, _ = data
    found = []
    for engine in (ReferenceEngine(1), FakeDeviceEngine(1)):
        kmeans = ABKMeans(5, divergence, random_state=0, n_init=1, max_iter=2, engine=engine)
        found.append(kmeans.fit(X))
    assert np.array_equal(found[0].cluster_centers_, found[1].cluster_centers_)
    assert np.array_equal(found[0].labels_, found[1].labels_)
    sizes = DeviceArray.crossed
    assert sizes.count(X.size) == 1
    assert max(size for size in sizes if size != X.size) < 5 * len(X)  # no table of divergences


@pytest.mark.parametrize("divergence", ["likelihood", "learn"])
def test_divergences_of_clusters_are_learned_on_a_device(data, divergence):
    X, _ = data
    found = [
        ABKMeans(3, divergence, random_state=0, n_init=1, max_iter=1, engine=engine).fit(X)
        for engine in (ReferenceEngine(1), FakeDeviceEngine(1))
    ]
    assert np.array_equal(found[0].labels_, found[1].labels_)
    assert found[0].alpha_ == found[1].alpha_
    assert DeviceArray.crossed.count(X.size) == 1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_mixtures_leave_data_on_the_device(data):
    """Divergences are learned as for k-means, above."""
    X, _ = data
    found = [
        ABMixture(3, "burg", init=X[::20], max_iter=1, engine=engine).fit(X)
        for engine in (ReferenceEngine(1), FakeDeviceEngine(1))
    ]
    assert np.array_equal(found[0].means_, found[1].means_)
    assert DeviceArray.crossed.count(X.size) == 1


def test_neighbours_are_found_on_the_device(data):
    X, y = data
    found = []
    for engine in (ReferenceEngine(1), FakeDeviceEngine(1)):
        knn = DivergenceKNN(3, divergence="stein", engine=engine).fit(X[::2], y[::2])
        found.append(knn.kneighbors(X[1::2]))
    assert all(np.array_equal(*pair) for pair in zip(*found, strict=True))
    assert max(DeviceArray.crossed) < len(X[::2]) * len(X[1::2])


def test_which_divergence_asks_the_device(data):
    X, y = data
    answers = [
        which_divergence(
            X[::3], y[::3], alphas=[0], betas=[0, 1], cv=2, random_state=0, engine=engine
        ).summary()
        for engine in (ReferenceEngine(1), FakeDeviceEngine(1))
    ]
    assert answers[0] == answers[1]


# --- estimators of vectors and tables


def fit_there(make, X, y):
    """Fit by the reference engine and on the device."""
    right = make(cv=2, random_state=0, engine=ReferenceEngine(1)).fit(X, y)
    DeviceArray.crossed.clear()
    return right, make(cv=2, random_state=0, engine=FakeDeviceEngine(1)).fit(X, y)


@pytest.mark.parametrize(
    ("model", "n_classes"), [("lda", 3), ("rda", 2), ("logistic", 2), ("logistic", 3), ("rbf", 3)]
)
def test_tangent_classifiers_learn_from_vectors_on_the_device(model, n_classes, data):
    X, y = (some[data[1] < n_classes] for some in data)
    right, found = fit_there(partial(TangentClassifier, model), X, y)
    # scikit-learn and libsvm stop before the last digits.
    tolerance = {"logistic": 0.05, "rbf": 2e-3}.get(model, 1e-6)
    np.testing.assert_allclose(found.oof_proba_, right.oof_proba_, atol=tolerance)
    new = X[::3] @ X[:1]  # not symmetric
    new = new @ new.mT
    np.testing.assert_allclose(found.predict_proba(new), right.predict_proba(new), atol=tolerance)
    assert DeviceArray.crossed[0] == X.size
    if model != "rbf":  # the kernels and support vectors of libsvm come to the host
        assert DeviceArray.crossed.count(X.size) == 1
        assert len(X) * D * (D + 1) // 2 not in DeviceArray.crossed
    if model == "rda":  # only the model of everything comes to the host, not those to choose from
        assert DeviceArray.crossed.count(found.model_.factors.size) == 1


def test_logistic_regression_on_the_device_is_optimal(data):
    X, y = data
    vectors, weights = log_vectors(X), np.linspace(1, 2, len(X))
    model = _METHODS["logistic"][0](DeviceArray.send(vectors), y, weights)(C=10.0)
    errors = softmax(model.decide(vectors), axis=1) - np.eye(3)[y]
    errors *= weights[:, None] / weights.sum()
    slopes = errors.T @ vectors + model.coefficients / (10.0 * weights.sum())
    assert np.linalg.norm(slopes) < 1e-4
    assert np.linalg.norm(errors.sum(axis=0)) < 1e-4


@pytest.mark.parametrize(
    "make",
    [
        partial(TangentClassifier, "rbf"),
        partial(DivergenceKernelClassifier, scales=(0.5, 2)),
        NearestClassifier,
        DivergenceKernelRegressor,
        NearestRegressor,
        TangentRegressor,
    ],
)
@pytest.mark.usefixtures("few_are_many")
def test_estimators_of_many_matrices_on_the_device(make, data):
    right, found = fit_there(make, *data)
    name = "oof_proba_" if hasattr(right, "oof_proba_") else "oof_prediction_"
    np.testing.assert_allclose(getattr(found, name), getattr(right, name), atol=1e-6)
    X, _ = data
    for one, other in zip(found.predict(X), right.predict(X), strict=True):
        assert one == pytest.approx(other)
