"""Metrics outside the alpha-beta family, and users' own, against pyRiemann and closed forms."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from conftest import wishart
from oracle.high_precision import Pair
from pyriemann.classification import MDM
from pyriemann.geometry import distance as distances
from pyriemann.geometry import mean as means
from scipy.linalg import expm as scipy_expm
from scipy.linalg import logm as scipy_logm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

import divlearn
from divlearn import (
    ABKMeans,
    DivergenceKernel,
    DivergenceKNN,
    DivergenceMDM,
    Recenter,
    get_divergence,
)
from divlearn.divergence import DIVERGENCES, ABDivergence, EmbeddedMetric, get_member
from divlearn.geometry import geodesic

METRICS = {
    "log-euclidean": "logeuclid",
    "euclidean": "euclid",
    "harmonic": "harmonic",
    "cholesky": "chol",
    "log-cholesky": "logchol",
    "wasserstein": "wasserstein",
}
EMBEDDED = [name for name, one in DIVERGENCES.items() if isinstance(one, EmbeddedMetric)]


def data(n: int = 8, d: int = 4):
    rng = np.random.default_rng(0)
    return wishart(rng, n, d, 3 * d), wishart(rng, n + 2, d, 3 * d)


def classes(n: int = 24):
    rng = np.random.default_rng(1)
    X = np.concatenate([wishart(rng, n // 2, 3), 3 * wishart(rng, n // 2, 3)])
    return X, np.repeat([0, 1], n // 2)


# --- distances ------------------------------------------------------------------------------------


def test_all_metrics_are_here():
    outside = {name for name, one in DIVERGENCES.items() if not isinstance(one, ABDivergence)}
    assert outside == {*METRICS, "thompson"}


@pytest.mark.parametrize("name", [*METRICS, "thompson"])
def test_distances_are_those_of_pyriemann(name):
    X, Y = data()
    peer = METRICS.get(name, name)
    ours = get_divergence(peer)
    assert ours is get_divergence(name)
    assert ours.squared_distance
    assert ours.formula
    expected = [[distances.distance(x, y, metric=peer) for y in Y] for x in X]
    table = ours.pairwise(X, Y, squared=False)
    np.testing.assert_allclose(table, expected, rtol=1e-10)
    np.testing.assert_allclose(ours.pairwise(X, Y), table**2, rtol=1e-10)
    np.testing.assert_allclose(ours(X, Y[0], squared=False), table[:, 0], rtol=1e-10)
    np.testing.assert_allclose(ours(X[:, None], Y[None]), table**2, rtol=1e-10)
    assert ours(X[1], Y[2], squared=True) == pytest.approx(table[1, 2] ** 2)
    own = ours.pairwise(X)
    assert (np.diag(own) == 0).all()
    np.testing.assert_allclose(own, own.T, rtol=1e-10)


def test_wasserstein_keeps_small_distances():
    """Of diagonal matrices: those of square roots. Traces would lose half of the digits."""
    x = np.array([1.0, 4.0])
    near = x * (1 + 1e-7)
    exact = ((np.sqrt(near) - np.sqrt(x)) ** 2).sum()
    assert get_divergence("bures")(np.diag(x), np.diag(near)) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("condition", [1e6, 1e12])
def test_thompson_keeps_small_eigenvalues(condition):
    """Against 60 digits: the smallest of a wide spectrum was lost, and its logarithm was NaN."""
    rng, sizes = np.random.default_rng(0), np.geomspace(1, condition, 4)
    bases = np.linalg.qr(rng.standard_normal((8, 4, 4)))[0]
    matrices = (bases * sizes) @ bases.mT
    X, Y = np.split(0.5 * (matrices + matrices.mT), 2)
    expected = [float(max(t**2 for t in Pair(*pair).t)) for pair in zip(X, Y, strict=True)]
    np.testing.assert_allclose(get_divergence("thompson")(X, Y), expected, rtol=1e-16 * condition)
    assert get_divergence("thompson")(1e-12 * X[0], 1e-12 * X[0]) < 1e-8


@pytest.mark.parametrize("name", EMBEDDED)
def test_distances_of_vectors_are_the_distances(name):
    X, _ = data()
    metric = get_divergence(name)
    vectors = metric.vectors(X)
    assert vectors.shape == (8, 10)
    squares = ((vectors[:, None] - vectors) ** 2).sum(axis=2)
    np.testing.assert_allclose(metric.pairwise(X), squares, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(metric.restore(vectors), X, rtol=1e-10)


def test_sizes_must_agree():
    X, Y = data()
    with pytest.raises(ValueError, match="X is 4 by 4, but Y is 3 by 3"):
        get_divergence("euclid").pairwise(X, Y[:, :3, :3])
    with pytest.raises(ValueError, match=r"^X\[0\]"):
        get_divergence("wasserstein").pairwise(-X, Y)


# --- means ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["wasserstein", "harmonic"])
@pytest.mark.parametrize("condition", [1e8, 1e10])
def test_means_of_ill_conditioned_matrices(name, condition):
    """Those of commuting matrices are means of eigenvalues, and that of one matrix is itself."""
    rng, weights = np.random.default_rng(0), np.array([0.2, 0.3, 0.5])
    basis = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    sizes = np.geomspace(1, condition, 4) * rng.uniform(0.5, 2, (3, 4))
    X = (basis * sizes[:, None]) @ basis.T
    X = 0.5 * (X + X.mT)
    power = {"wasserstein": 0.5, "harmonic": -1}[name]
    expected = (basis * (weights @ sizes**power) ** (1 / power)) @ basis.T
    tolerance = {"atol": 1e-15 * condition * sizes.max()}
    np.testing.assert_allclose(get_divergence(name).mean(X, weights), expected, **tolerance)
    np.testing.assert_allclose(get_divergence(name).mean(X[:1]), X[0], **tolerance)


@pytest.mark.parametrize("name", [*METRICS, "airm", "stein", "jeffreys", "kullback"])
def test_means_are_those_of_pyriemann(name):
    X, _ = data()
    weights = np.arange(1.0, 9)
    peer = {"airm": "riemann", "stein": "logdet", "jeffreys": "kullback_sym", "kullback": "euclid"}
    expected = means.gmean(X, metric=(METRICS | peer)[name], sample_weight=weights)
    tolerance = 1e-3 if name == "stein" else 1e-7  # where its search stops
    found = get_divergence(name).mean(X, weights)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_means_in_closed_form():
    """Two matrices: the middle of a geodesic, or of a chord."""
    X, _ = data(2, 3)
    first, second = X
    between = {
        "airm": geodesic(first, second, 0.5),
        "log-euclidean": scipy_expm((scipy_logm(first) + scipy_logm(second)) / 2),
        "burg": (first + second) / 2,
        "reverse-burg": 2 * np.linalg.inv(np.linalg.inv(first) + np.linalg.inv(second)),
    }
    for name, expected in between.items():
        np.testing.assert_allclose(get_divergence(name).mean(X), expected, rtol=1e-8, atol=1e-10)


def test_means_that_are_not_reached_are_said():
    X, _ = data()
    with pytest.warns(ConvergenceWarning, match=r"the mean of class b is not exact: .*gradient no"):
        get_divergence("airm").mean(X, tol=1e-300, what="class b")
    with pytest.warns(ConvergenceWarning, match=r"the mean of the matrices is not exact: max_iter"):
        get_divergence("wasserstein").mean(X, tol=1e-300)


# --- users' own -----------------------------------------------------------------------------------


def test_a_function_is_a_divergence_without_a_mean():
    X, y = classes()
    thompson = get_divergence(distances.distance_thompson)
    assert thompson.name == "distance_thompson"
    expected = distances.pairwise_distance(X, X[:3], metric="thompson")
    np.testing.assert_allclose(thompson.pairwise(X, X[:3]), expected)
    np.testing.assert_allclose(thompson(X[:3], X[3:6]), np.diag(thompson.pairwise(X[:3], X[3:6])))
    np.testing.assert_allclose(thompson(X[0], X[1], squared=True), expected[0, 1] ** 2)
    knn = DivergenceKNN(1, distances.distance_thompson).fit(X, y)
    assert knn.score(X, y) == 1
    with pytest.raises(ValueError, match=r"distance_thompson is a function without a mean; pass"):
        DivergenceMDM(distances.distance_thompson).fit(X, y)


def test_a_function_of_two_matrices_must_be_vectorized():
    def gap(x, y):
        return np.abs(x - y).max()

    X, _ = classes()
    with pytest.raises(ValueError, match=r"gap returned the shape \(\) for matrices of shape \(24"):
        get_divergence(gap).pairwise(X)
    vectorized = get_divergence(np.vectorize(gap, signature="(d,d),(d,d)->()"))
    assert vectorized.pairwise(X)[1, 2] == gap(X[1], X[2])


@pytest.mark.parametrize(
    "metric",
    [
        {"mean": "euclid", "distance": "kullback"},
        {"mean": "harmonic", "distance": "kullback_right"},
        {"mean": "riemann", "distance": "wasserstein"},
        {"mean": means.mean_logeuclid, "distance": distances.distance_thompson},
    ],
)
def test_pairs_of_functions_as_in_pyriemann(metric):
    X, y = classes()
    weights = np.linspace(1, 2, len(X))
    peer = MDM(metric=metric).fit(X, y, weights)
    model = clone(DivergenceMDM(metric=metric)).fit(X, y, weights)
    np.testing.assert_allclose(model.means_, peer.covmeans_, rtol=1e-4)
    np.testing.assert_allclose(model.transform(X), peer.transform(X), rtol=1e-4)
    np.testing.assert_array_equal(model.predict(X), peer.predict(X))


def test_files_keep_pairs_of_named_divergences(tmp_path):
    X, y = classes()
    model = DivergenceMDM({"mean": "euclid", "distance": "burg"}).fit(X, y)
    divlearn.save(model, tmp_path / "model")
    again = divlearn.load(tmp_path / "model")
    np.testing.assert_array_equal(again.fit(X, y).transform(X), model.transform(X))


def test_wrong_pairs_of_functions():
    with pytest.raises(ValueError, match=r'must have the keys "mean" and "distance"'):
        get_divergence({"mean": "airm"})
    with pytest.raises(ValueError, match="divergence='power' must be one of airm"):
        get_divergence({"mean": "power", "distance": "airm"})
    X, y = classes()
    metric = {"mean": lambda X, sample_weight: -X[0], "distance": "airm"}
    with pytest.raises(ValueError, match=r"^the mean"):
        DivergenceMDM(metric).fit(X, y)


# --- in estimators --------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Convergence not reached")  # of pyRiemann, at 1e12
@pytest.mark.parametrize("unit", [1e-18, 1e-12, 1e12])
@pytest.mark.parametrize("name", METRICS)
def test_predictions_are_those_of_pyriemann_in_any_unit(name, unit):
    """As covariances of EEG in volts, whose probabilities are equal up to rounding."""
    X, y = classes()
    X, labels = unit * X, np.array(["right", "left"])[y]
    peer, model = MDM(METRICS[name]).fit(X, labels), DivergenceMDM(name).fit(X, labels)
    np.testing.assert_array_equal(model.predict(X), peer.predict(X))


@pytest.mark.parametrize("name", METRICS)
def test_estimators_take_them(name, tmp_path):
    X, y = classes()
    mdm = DivergenceMDM(name).fit(X, y)
    peer = MDM(METRICS[name] if name != "harmonic" else "harmonic").fit(X, y)
    np.testing.assert_allclose(mdm.transform(X), peer.transform(X), rtol=1e-4)
    np.testing.assert_allclose(mdm.predict_proba(X), peer.predict_proba(X), atol=1e-4)
    assert mdm.divergence_ is DIVERGENCES[name]
    divlearn.save(mdm, tmp_path / "model")
    again = divlearn.load(tmp_path / "model")
    assert again.divergence_ is DIVERGENCES[name]
    np.testing.assert_array_equal(again.predict_proba(X), mdm.predict_proba(X))
    assert pickle.loads(pickle.dumps(mdm)).divergence_ == mdm.divergence_
    knn = DivergenceKNN(3, name).fit(X, y)
    found, places = knn.kneighbors(X[:5], 3)
    table = get_divergence(name).pairwise(X[:5], X, squared=False)
    np.testing.assert_allclose(found, np.sort(table, axis=1)[:, :3], atol=1e-10)
    np.testing.assert_allclose(np.take_along_axis(table, places, axis=1), found, atol=1e-10)
    recentred = Recenter(name).fit_transform(X)
    np.testing.assert_allclose(Recenter(name).fit(X).means_[0], get_divergence(name).mean(X), 1e-4)
    assert recentred.shape == X.shape


@pytest.mark.parametrize("name", METRICS)
def test_kernels(name):
    X, y = classes()
    kernel = DivergenceKernel(name, 0.3).fit(X)
    table = get_divergence(name).pairwise(X)
    np.testing.assert_allclose(kernel.transform(X), np.exp(-0.3 * table), rtol=1e-8)
    np.testing.assert_allclose(kernel.fit_transform(X), np.exp(-0.3 * table), rtol=1e-8)
    assert kernel.is_psd == (name in EMBEDDED)
    smallest = np.linalg.eigvalsh(kernel.transform(X))[0]
    assert name not in EMBEDDED or smallest > -1e-10
    assert SVC(kernel="precomputed").fit(kernel.transform(X), y).score(kernel.transform(X), y) > 0.8
    median = DivergenceKernel(name).fit(X)
    assert median.scale_ == pytest.approx(1 / np.median(table[np.triu_indices(24, 1)]))


def test_kernels_of_functions_are_symmetrised():
    X, _ = classes()

    def one_sided(A, B):
        return get_divergence("kullback")(A, B)

    found = DivergenceKernel(one_sided, 1.0).fit(X[:10])
    expected = DivergenceKernel("jeffreys", 0.5).fit(X[:10])
    np.testing.assert_allclose(found.transform(X), expected.transform(X), rtol=1e-10)
    np.testing.assert_allclose(found(X), expected(X), rtol=1e-10)
    assert "no theorem covers this divergence" in str(found.definiteness())


def test_functions_of_the_same_name_stay_apart():
    X, _ = classes()
    y = np.log(X[:, 0, 0])
    useful = lambda A, B: (np.log(A[:, 0, 0]) - np.log(B[0, 0])) ** 2  # noqa: E731
    useless = lambda A, B: np.abs(A[:, 0, 1] - B[0, 1])  # noqa: E731
    models = {
        divergences: divlearn.DivergenceKernelRegressor(divergences, random_state=0).fit(X, y)
        for divergences in [(useful,), (useful, useless), (useless, useful)]
    }
    for model in models.values():
        assert model.best_params_["divergence"].function is useful
        assert model.score(X, y) == pytest.approx(models[(useful,)].score(X, y))


@pytest.mark.parametrize(
    "refuse",
    [
        lambda X, y: divlearn.IDDLClassifier(divergence="wasserstein").fit(X, y),
        lambda X, y: divlearn.ABKMeans(2, "wasserstein").fit(X),
        lambda X, y: divlearn.ABMixture(2, "wasserstein").fit(X),
        lambda X, y: get_member("wasserstein"),
    ],
)
def test_estimators_of_the_family_refuse_others(refuse):
    with pytest.raises(ValueError, match=r"divergence='wasserstein' .*must be .*airm, .*"):
        refuse(*classes())


@pytest.mark.parametrize("size", [1e200, 1e-200])
@pytest.mark.parametrize("name", ["euclidean", "harmonic"])
def test_squares_that_overflow_are_refused(name, size):
    """Distances were infinite or zero, and probabilities of classes NaN."""
    X = size * np.array([np.eye(2), 2 * np.eye(2), 3 * np.eye(2), 4 * np.eye(2)])
    metric, y = get_divergence(name), [0, 0, 1, 1]
    pattern = rf"in '{name}', whose squares (over|under)flow; multiply all matrices by one number"
    for call in (
        lambda: metric(X[0], X[1]),
        lambda: metric.pairwise(X),
        lambda: DivergenceMDM(name).fit(X, y).predict_proba(X),
        lambda: ABKMeans(2, name).fit(X),
    ):
        with pytest.raises(ValueError, match=pattern):
            call()
