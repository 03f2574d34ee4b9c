"""Complex Hermitian matrices: closed forms, pyRiemann, and every estimator."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import wishart
from pyriemann.classification import MDM, KNearestNeighbor
from pyriemann.clustering import Kmeans
from pyriemann.geometry.distance import pairwise_distance
from pyriemann.geometry.mean import gmean
from scipy.linalg import eigh, expm, logm
from scipy.optimize import approx_fprime
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import divlearn
from divlearn import (
    ABKMeans,
    CalibratedClassifier,
    CrossValidatedRegressor,
    DivergenceKernel,
    DivergenceKNN,
    DivergenceMDM,
    Recenter,
    SPDClassifier,
    channel_importance,
    evaluate,
)
from divlearn.hermitian import from_real_form, real_form
from divlearn.spd import geodesic, sqrtm
from divlearn.spd import logm as our_logm

POINTS = [(0, 0), (0, 1), (1, 0), (0.5, 0.5), (1, 1), (0.5, 1.5), (-0.3, -0.9)]

MEANS = ("riemann", "logdet", "kullback_sym", "logeuclid", "euclid", "logchol", "wasserstein")
MEANS += ("harmonic",)
SEARCHED = ("riemann", "logdet", "wasserstein")


def complex_wishart(seed: int, n: int, d: int, samples: int = 12, center=None):
    """Matrices with mean ``center``, of circular complex Gaussian samples."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((2, n, d, samples))
    Z = np.linalg.cholesky(np.eye(d) if center is None else center) @ (Z[0] + 1j * Z[1])
    X = Z @ Z.mT.conj() / (2 * samples)
    return 0.5 * (X + X.mT.conj())


def classes(seed: int, n: int, d: int = 3):
    """Two classes that differ in the sign of a phase only: their real parts do not."""
    center = np.eye(d, dtype=complex)
    center[0, 1], center[1, 0] = 0.7j, -0.7j
    X = [complex_wishart(seed + k, n, d, 20, one) for k, one in enumerate((center, center.conj()))]
    return np.concatenate(X), np.repeat([0, 1], n)


def closed_form(X, Y, alpha, beta):
    t = np.log(eigh(X, Y, eigvals_only=True))
    if alpha == beta == 0:
        return 0.5 * (t**2).sum()
    if alpha == 0:
        return (np.exp(beta * t) - beta * t - 1).sum() / beta**2
    if beta == 0:
        return (np.exp(-alpha * t) + alpha * t - 1).sum() / alpha**2
    mixed = (alpha * np.exp(beta * t) + beta * np.exp(-alpha * t)) / (alpha + beta)
    return np.log(mixed).sum() / (alpha * beta)


def test_the_real_form_keeps_products_and_factors():
    X, Y = complex_wishart(0, 2, 3)
    np.testing.assert_allclose(real_form(X) @ real_form(X), real_form(X @ X), atol=1e-12)
    form = np.linalg.cholesky(real_form(X))
    np.testing.assert_allclose(from_real_form(form), np.linalg.cholesky(X), atol=1e-12)
    np.testing.assert_array_equal(from_real_form(real_form(Y)), Y)
    assert real_form(X.astype(np.complex64)).dtype == np.float32


@pytest.mark.parametrize(("alpha", "beta"), POINTS)
def test_divergences_have_their_closed_form(alpha, beta):
    X, Y = complex_wishart(1, 4, 3), complex_wishart(2, 4, 3)
    expected = np.array([[closed_form(x, y, alpha, beta) for y in Y] for x in X])
    found = divlearn.pairwise_abld(X, Y, alpha=alpha, beta=beta)
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    np.testing.assert_allclose(divlearn.abld(X, Y[0], alpha, beta), expected[:, 0], rtol=1e-8)
    np.testing.assert_allclose(divlearn.abld(X, Y, alpha, beta), np.diag(expected), rtol=1e-8)
    plane = divlearn.divergence_plane(X, Y, [alpha], [beta])
    np.testing.assert_allclose(plane[..., 0, 0], expected, rtol=1e-8)
    itself = divlearn.pairwise_abld(X, alpha=alpha, beta=beta)
    np.testing.assert_allclose(itself[0, 1], closed_form(X[0], X[1], alpha, beta), rtol=1e-8)


def test_numbers_are_real_or_complex_alike():
    X, Y = wishart(np.random.default_rng(0), 5, 3), wishart(np.random.default_rng(1), 3, 3)
    expected = divlearn.pairwise_abld(X, Y, alpha=0.5, beta=1)
    for first, second in ((X + 0j, Y), (X, Y + 0j), ((X + 0j).tolist(), Y + 0j)):
        found = divlearn.pairwise_abld(first, second, alpha=0.5, beta=1)
        np.testing.assert_allclose(found, expected, rtol=1e-10)
    mean = divlearn.mean_abld(X + 0j, 0.5, 1)
    real = divlearn.mean_abld(X, 0.5, 1)
    np.testing.assert_allclose(mean.mean, real.mean, atol=1e-10)
    assert mean.objective == pytest.approx(real.objective)
    np.testing.assert_allclose(mean.history[-1], mean.objective)
    np.testing.assert_allclose(divlearn.mean_abld([[[1 + 0j]], [[4]]], 0, 0).mean, [[2]])


def test_gradients_are_slopes():
    X, Y = complex_wishart(3, 2, 2)
    gradient = divlearn.abld_grad(X, Y, 0.5, 1.0)
    basis = np.array([[[1, 0], [0, 0]], [[0, 0], [0, 1]], [[0, 1], [1, 0]], [[0, 1j], [-1j, 0]]])

    def along(step):
        return divlearn.abld(X, Y + np.tensordot(step, basis, 1), 0.5, 1.0)

    slopes = approx_fprime(np.zeros(4), along, 1e-7)
    expected = np.einsum("ij,kji->k", gradient.Y, basis).real  # Re tr(G E)
    np.testing.assert_allclose(slopes, expected, rtol=1e-5)
    in_alpha = approx_fprime([0.5], lambda a: divlearn.abld(X, Y, a[0], 1.0), 1e-7)
    np.testing.assert_allclose(in_alpha, gradient.alpha, rtol=1e-5)
    assert gradient.value == pytest.approx(closed_form(X, Y, 0.5, 1.0))


@pytest.mark.parametrize("name", [*MEANS, "kullback", "kullback_right", "chol", "thompson"])
def test_distances_of_pyriemann(name):
    X, Y = complex_wishart(4, 5, 3), complex_wishart(5, 4, 3)
    expected = pairwise_distance(X, Y, metric=name)
    known = divlearn.get_divergence(name)
    np.testing.assert_allclose(known.pairwise(X, Y, squared=False), expected, rtol=1e-7)
    np.testing.assert_allclose(known(X[0], Y[0], squared=False), expected[0, 0], rtol=1e-7)


@pytest.mark.parametrize("name", MEANS)
def test_means_of_pyriemann(name):
    X, weights = complex_wishart(6, 7, 3), np.arange(1.0, 8)
    search = {"tol": 1e-12, "maxiter": 500} if name in SEARCHED else {}
    expected = gmean(X, metric=name, sample_weight=weights, **search)
    found = divlearn.get_divergence(name).mean(X, weights)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.iscomplexobj(found)


def test_functions_of_matrices():
    X, Y = complex_wishart(7, 2, 3)
    np.testing.assert_allclose(our_logm(X), logm(X), atol=1e-10)
    np.testing.assert_allclose(sqrtm(X) @ sqrtm(X), X, atol=1e-10)
    np.testing.assert_allclose(divlearn.spd.expm(our_logm(X)), expm(logm(X)), atol=1e-9)
    np.testing.assert_allclose(geodesic(X, Y, 1.0), Y, atol=1e-10)
    np.testing.assert_allclose(
        geodesic(X, Y, 0.5), divlearn.mean_abld([X, Y], 0, 0).mean, atol=1e-9
    )


# --- estimators


@pytest.mark.parametrize("metric", ["riemann", "logeuclid", "euclid", "wasserstein", "kullback"])
def test_nearest_means_are_those_of_pyriemann(metric):
    X, y = classes(0, 15)
    peer = MDM(metric={"mean": "euclid", "distance": metric}).fit(X, y)
    found = DivergenceMDM(metric={"mean": "euclid", "distance": metric}).fit(X, y)
    np.testing.assert_allclose(found.covmeans_, peer.covmeans_, atol=1e-12)
    np.testing.assert_allclose(found.transform(X), peer.transform(X), rtol=1e-6)
    np.testing.assert_array_equal(found.predict(X), peer.predict(X))
    assert found.score(X, y) > 0.9 > 0.8 > DivergenceMDM().fit(X.real, y).score(X.real, y)


def test_probabilities_are_those_of_real_matrices():
    """Real matrices as complex ones change nothing, with a divergence chosen or weighed too."""
    rng = np.random.default_rng(0)
    X = np.concatenate([wishart(rng, 12, 3), 3 * wishart(rng, 12, 3)])
    y = np.repeat([0, 1], 12)
    for divergence in ("airm", "kullback", "choose", ["airm", "log-euclidean"]):
        real, given = (DivergenceMDM(divergence, random_state=0).fit(one, y) for one in (X, X + 0j))
        np.testing.assert_allclose(given.predict_proba(X), real.predict_proba(X), atol=1e-6)
        assert given.scale_ == pytest.approx(real.scale_, rel=1e-4)
        np.testing.assert_allclose(given.weights_, real.weights_, rtol=1e-4)


def test_stretching_brings_dispersions_to_one():
    X = complex_wishart(8, 20, 3)
    model = Recenter(stretch=True).fit(X[:15])
    squares = (np.log(np.linalg.eigvalsh(model.transform(X[:15]))) ** 2).sum(axis=1)
    assert squares.mean() == pytest.approx(1)
    real, given = (Recenter(stretch=True).fit(one[:15]) for one in (X.real, X.real + 0j))
    for moved in (real, given):
        moved.partial_fit(X[15:].real, groups=["new"] * 5)
    np.testing.assert_allclose(given.dispersions_, real.dispersions_)
    for groups in (None, ["new"] * 20):
        ours, theirs = (model.transform(X.real, groups) for model in (given, real))
        np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_functions_get_complex_matrices():
    X, y = classes(0, 8)

    def gap(A, B, squared=False):
        assert np.iscomplexobj(A)
        return np.abs(A - B).max(axis=(-2, -1))

    metric = {"mean": "euclid", "distance": gap}
    peer, found = MDM(metric=metric).fit(X, y), DivergenceMDM(metric=metric).fit(X, y)
    np.testing.assert_allclose(found.transform(X), peer.transform(X), rtol=1e-9)
    np.testing.assert_allclose(divlearn.get_divergence(metric)(X[0], X[1]), gap(X[0], X[1]))
    distances, _ = DivergenceKNN(2, gap).fit(X, y).kneighbors(X)
    expected = np.sort(np.abs(X[:, None] - X).max(axis=(2, 3)), axis=1)[:, :2]
    np.testing.assert_allclose(distances, expected, rtol=1e-9)


@pytest.mark.parametrize("metric", ["riemann", "logeuclid", "kullback"])
def test_neighbours_are_those_of_pyriemann(metric):
    X, y = classes(2, 15)
    peer = KNearestNeighbor(3, metric=metric).fit(X[::2], y[::2])
    found = DivergenceKNN(3, metric=metric).fit(X[::2], y[::2])
    np.testing.assert_array_equal(found.predict(X), peer.predict(X))
    np.testing.assert_allclose(found.covmeans_, peer.covmeans_)
    expected = np.sort(pairwise_distance(X[1::2], X[::2], metric=metric), axis=1)[:, :3]
    np.testing.assert_allclose(found.kneighbors(X[1::2])[0], expected, rtol=1e-6)


@pytest.mark.parametrize("metric", ["riemann", "logeuclid", "euclid"])
def test_k_means_is_that_of_pyriemann(metric):
    X, _ = classes(4, 15)
    start = X[[0, -1]]
    peer = Kmeans(2, metric=metric, init=start, tol=1e-10).fit(X)
    found = ABKMeans(2, metric=metric, init=start, tol=0).fit(X)
    np.testing.assert_array_equal(found.labels_, peer.labels_)
    np.testing.assert_allclose(found.cluster_centers_, peer.centroids(), atol=1e-3)
    half = 0.5 if metric == "riemann" else 1.0  # the point (0, 0) of the plane
    expected = half * pairwise_distance(X, found.cluster_centers_, metric=metric) ** 2
    np.testing.assert_allclose(found.transform(X), expected, atol=1e-9)
    assert found.inertia_ == pytest.approx(-found.score(X))
    assert found.inertia_ == pytest.approx(found.transform(X).min(axis=1).sum(), rel=1e-6)


def test_recentring_whitens(tmp_path):
    X, y = classes(6, 15)
    centered = Recenter().fit_transform(X)
    np.testing.assert_allclose(divlearn.mean_abld(centered, 0, 0).mean, np.eye(3), atol=1e-4)
    shrunk = divlearn.Regularize(0.5).fit_transform(X)
    tau = np.trace(X, axis1=1, axis2=2).real.mean() / 3
    np.testing.assert_allclose(shrunk, 0.5 * X + 0.5 * tau * np.eye(3), atol=1e-12)
    model = DivergenceMDM().fit(X, y)
    divlearn.save(model, tmp_path / "model.divlearn")
    again = divlearn.load(tmp_path / "model.divlearn")
    np.testing.assert_array_equal(again.transform(X), model.transform(X))


def test_kernels_decay_with_the_divergence():
    X, _ = classes(8, 5)
    expected = np.exp(-0.7 * divlearn.get_divergence("stein").pairwise(X))
    kernel = DivergenceKernel("stein", 0.7)
    np.testing.assert_allclose(kernel.fit_transform(X), expected, rtol=1e-9)
    np.testing.assert_allclose(kernel.transform(X), expected, rtol=1e-9)
    np.testing.assert_allclose(kernel(X), expected, rtol=1e-9)


@pytest.mark.parametrize("divergence", ["thompson", "function", "pair"])
def test_kernels_of_functions_see_complex_matrices(divergence):
    def gap(A, B):
        assert np.iscomplexobj(A)
        assert A.shape[-1] == 3
        return np.abs(A - B).max(axis=(-2, -1))

    given = {"function": gap, "pair": {"mean": "euclid", "distance": gap}}.get(
        divergence, divergence
    )
    X, _ = classes(8, 5)
    expected = np.exp(-0.7 * divlearn.get_divergence(given).pairwise(X))
    kernel = DivergenceKernel(given, 0.7)
    np.testing.assert_allclose(kernel.fit_transform(X), expected, rtol=1e-9)
    np.testing.assert_allclose(kernel.transform(X), expected, rtol=1e-9)
    np.testing.assert_allclose(kernel(X), expected, rtol=1e-9)


def test_functions_for_means_get_complex_matrices():
    X, y = classes(0, 8)

    def average(matrices, sample_weight=None):
        assert np.iscomplexobj(matrices)
        return np.average(matrices, axis=0, weights=sample_weight)

    metric = {"mean": average, "distance": "thompson"}
    expected = [X[y == k].mean(axis=0) for k in range(2)]
    np.testing.assert_allclose(DivergenceMDM(metric=metric).fit(X, y).means_, expected)
    np.testing.assert_allclose(divlearn.get_divergence(metric).mean(X), X.mean(axis=0))


def test_regressors_and_detectors_give_functions_complex_matrices():
    X, _ = classes(3, 20)
    seen = []

    def gap(A, B):
        seen.append(A.shape[1:] == (3, 3) and np.iscomplexobj(A))
        return np.abs(A - B).max(axis=(-2, -1))

    divlearn.DivergenceKernelRegressor([gap]).fit(X, X[:, 0, 1].imag).predict(X)
    metric = {"mean": "euclid", "distance": gap}
    divlearn.DivergenceOutliers(metric).fit(X).partial_fit(X[:2]).predict(X)
    assert seen
    assert all(seen)


class Flat(ClassifierMixin, BaseEstimator):
    """The sign of the mean imaginary part of an entry tells two classes."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.decision_function(X)
        return self

    def decision_function(self, X):
        assert X.shape[1:] == (3, 3)
        return X[:, 1, 0].imag

    def predict(self, X):
        return self.classes_[(self.decision_function(X) > 0).astype(int)]


def test_classifiers_and_regressors_of_users_get_complex_matrices():
    X, y = classes(3, 20)
    evaluated = evaluate(X, y, {"": Flat()}).accuracy("")
    for model in (CalibratedClassifier(Flat(), cv=2), SPDClassifier([("flat", Flat())], cv=2)):
        assert model.fit(X, y).score(X, y) == evaluated > 0.7
    importance = channel_importance(Flat(), X, y)
    assert importance.accuracy == evaluated
    assert importance.importances[:2].min() > 0.1
    regressor = make_pipeline(FunctionTransformer(lambda X: X[:, 1, :1].imag), LinearRegression())
    model = CrossValidatedRegressor(regressor, cv=2).fit(X, X[:, 1, 0].imag)
    np.testing.assert_allclose(model.predict(X), X[:, 1, 0].imag, rtol=1e-10)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_outliers_know_the_spread_of_hermitian_scatter(d):
    """The least spread is three quarters of that of scatter with independent directions."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((2, 20000, d, d))
    H = np.triu(Z[0] + 1j * Z[1], 1) / np.sqrt(2) + np.einsum("nii->ni", Z[0])[:, None] * np.eye(d)
    squares = (np.abs(H + np.triu(H, 1).mT.conj()) ** 2).sum(axis=(1, 2))
    equal = np.repeat(np.eye(d, dtype=complex)[None], 5, axis=0)
    least = divlearn.DivergenceOutliers().fit(equal).spread_
    assert least == pytest.approx(0.75 * np.log(squares).std(), rel=0.05)


def test_features_are_divergences_to_atoms():
    X, _ = classes(16, 8)
    model = divlearn.IDDLTransformer(3, divergence="airm", random_state=0).fit(X)
    expected = divlearn.pairwise_abld(X, from_real_form(model.atoms_), alpha=0, beta=0)
    np.testing.assert_allclose(model.transform(X), expected, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize(
    "model",
    [
        divlearn.NearestClassifier(random_state=0),
        divlearn.TangentClassifier("logistic", random_state=0),
        divlearn.LogEuclideanSVM(random_state=0),
        divlearn.LEML(20, 0.3, max_iter=2, random_state=0),
        divlearn.KernelLLC(6, bandwidth=0.5, n_neighbors=3, random_state=0),
        divlearn.DivergenceKernelClassifier(random_state=0),
        divlearn.IDDLClassifier(4, max_iter=2, cv=2, random_state=0),
        divlearn.SPDClassifier(("tangent lda", "nearest mean"), cv=3, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_classifiers_see_phases(model):
    X, y = classes(10, 20)
    new, expected = classes(20, 20)
    assert model.fit(X, y).score(new, expected) > 0.85
    for member in getattr(model, "members_", {}).values():
        assert member.score(new, expected) > 0.85


def test_in_tools_that_judge():
    X, y = classes(12, 12)
    answer = divlearn.which_divergence(X, y, alphas=[0, 1], betas=[0, 1], random_state=0)
    assert answer.score > 0.8
    found = divlearn.evaluate(X, y, {"mdm": DivergenceMDM()}, cv=3, random_state=0)
    assert "mdm has an accuracy" in found.summary()


def test_what_is_wrong_is_said():
    X, y = classes(14, 5)
    wrong = X.copy()
    wrong[3, 0, 1] += 0.5j
    with pytest.raises(ValueError, match=r"X\[3\] is complex but not Hermitian: .* at \(0, 1\)"):
        DivergenceMDM().fit(wrong, y)
    with pytest.raises(ValueError, match="X is complex, but DivergenceMDM was fitted to real"):
        DivergenceMDM().fit(X.real, y).predict(X)
    with pytest.raises(ValueError, match=r"X is complex and has shape \(10, 9\), must hold square"):
        DivergenceMDM().fit(X.reshape(10, 9), y)
    with pytest.raises(ValueError, match="matrices of size 4, but DivergenceMDM is expecting 6"):
        DivergenceMDM().fit(X, y).predict(X[:, :2, :2])
    with pytest.raises(TypeError, match="ABMixture knows densities of real matrices only"):
        divlearn.ABMixture(2).fit(X)
    with pytest.raises(ValueError, match="divergence='learn' is learned from real matrices only"):
        ABKMeans(2, "learn").fit(X)
    with pytest.raises(TypeError, match="dtype complex128, but must be real numbers; pass complex"):
        divlearn.which_divergence(X)
    v = np.array([1, 1j, 0.5])
    with pytest.raises(ValueError, match="rank-deficient"):
        divlearn.abld(np.outer(v, v.conj()), np.eye(3), 0, 0)


def test_running_means_of_complex_matrices():
    X = complex_wishart(5, 12, 3)
    y = np.arange(12) % 2
    model = DivergenceMDM("burg").fit(X[:6], y[:6]).partial_fit(X[6:], y[6:])
    np.testing.assert_allclose(model.means_[0], X[y == 0].mean(axis=0), rtol=1e-10)
    assert np.iscomplexobj(model.means_)
