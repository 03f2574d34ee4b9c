"""Kernels of divergences: their values, their scales, and what they serve."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from conftest import rotated, wishart
from hypothesis import given, settings
from hypothesis import strategies as st
from pyriemann.geometry.distance import pairwise_distance
from sklearn.base import clone
from sklearn.cluster import SpectralClustering
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from divlearn import abld, get_engine, pairwise_abld
from divlearn.kernels import DivergenceKernel, DivergenceProcessKernel
from divlearn.kernels.tables import find_copies, median_scale, square_tables

seeds = st.integers(0, 2**32 - 1)
POINTS = [(0.0, 0.0), (0.5, 0.5), (1.0, 1.0), (0.0, 1.0), (1.0, 0.0), (0.3, 0.9), (-1.0, -0.25)]


def two_classes(seed: int, n: int = 40, d: int = 3):
    """Covariances whose first two variables are related in one class only."""
    rng = np.random.default_rng(seed)
    samples = rng.standard_normal((n, d, 8 * d))
    y = np.arange(n) % 2
    samples[y == 1, 1] += samples[y == 1, 0]
    return samples @ samples.mT / samples.shape[-1], y


# --- the formula


@settings(max_examples=8, deadline=None)
@given(seed=seeds, d=st.integers(1, 6), point=st.sampled_from(POINTS), scale=st.floats(0.01, 3))
def test_the_formula(seed, d, point, scale):
    rng = np.random.default_rng(seed)
    X, Y = wishart(rng, 2, d), wishart(rng, 3, d)
    divergences = [
        [0.5 * (abld(one, other, *point) + abld(other, one, *point)) for other in Y] for one in X
    ]
    kernel = DivergenceKernel(point, scale)
    np.testing.assert_allclose(kernel(X, Y), np.exp(-scale * np.array(divergences)), rtol=1e-9)
    np.testing.assert_array_equal(kernel.fit(Y).transform(X), kernel(X, Y))
    np.testing.assert_allclose(kernel(Y, X), kernel(X, Y).T, rtol=1e-12)


@pytest.mark.parametrize("alpha", [0.0, 0.25, 0.5, 1.0, 2.0])
def test_symmetric_members_are_left_as_they_are(alpha):
    X = wishart(np.random.default_rng(0), 90, 4)
    expected = np.exp(-0.3 * pairwise_abld(X, alpha=alpha, beta=alpha))
    np.testing.assert_allclose(DivergenceKernel((alpha, alpha), 0.3)(X), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "metric", "square"),
    [
        ("stein", "logdet", True),
        ("airm", "riemann", True),
        ("jeffreys", "kullback_sym", False),
        ("riemann", "riemann", True),
    ],
)
def test_names_mean_what_they_mean_in_pyriemann(name, metric, square):
    rng = np.random.default_rng(1)
    X, Y = wishart(rng, 6, 3), wishart(rng, 5, 3)
    distances = pairwise_distance(X, Y, metric=metric, squared=square)
    np.testing.assert_allclose(DivergenceKernel(name, 0.7)(X, Y), np.exp(-0.7 * distances), 1e-9)


def test_kullback_is_symmetrised():
    X = wishart(np.random.default_rng(2), 6, 3)
    jeffreys = DivergenceKernel("jeffreys", 0.5)(X)
    for name in ("kullback", "kullback-right"):
        np.testing.assert_allclose(DivergenceKernel(name, 1.0)(X), jeffreys, rtol=1e-12)


@settings(max_examples=8, deadline=None)
@given(seed=seeds, point=st.sampled_from(POINTS))
def test_invariance_under_congruence(seed, point):
    rng = np.random.default_rng(seed)
    X, Y = wishart(rng, 6, 4), wishart(rng, 5, 4)
    # Rounding of A Y A^T grows with the square of the condition of A: 100 at most here.
    A = np.linalg.cholesky(rotated(rng, 1, 4, 1e4)[0])
    kernel = DivergenceKernel(point).fit(Y)
    moved = DivergenceKernel(point).fit(A @ Y @ A.T)
    assert moved.scale_ == pytest.approx(kernel.scale_, rel=1e-6)
    np.testing.assert_allclose(moved.transform(A @ X @ A.T), kernel.transform(X), rtol=1e-6)


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("n", [1, 5, 150])
def test_square_kernels_are_exactly_symmetric_with_a_diagonal_of_ones(point, n):
    X = rotated(np.random.default_rng(3), n, 5, 1e4)
    for K in (DivergenceKernel(point, 0.1)(X), DivergenceKernel(point, 0.1).fit_transform(X)):
        np.testing.assert_array_equal(K, K.T)
        np.testing.assert_array_equal(np.diagonal(K), 1)
        transformed = DivergenceKernel(point, 0.1).fit(X).transform(X)
        np.testing.assert_allclose(K, transformed, rtol=1e-7)


def test_one_pass_gives_the_tables_of_many_points(engine):
    X = wishart(np.random.default_rng(4), 70, 3)
    tables = square_tables(engine, X, [(0.0, 1.0), (0.5, 0.5), (0.2, 0.9)])
    for table, (alpha, beta) in zip(tables, [(0, 1), (0.5, 0.5), (0.2, 0.9)], strict=True):
        forward = pairwise_abld(X, alpha=alpha, beta=beta, engine=engine)
        np.testing.assert_allclose(table, (forward + forward.T) / 2, rtol=1e-9, atol=1e-12)


def test_engines_agree(engine):
    X, _ = two_classes(0)
    K = DivergenceKernel("jeffreys", engine=engine).fit_transform(X)
    expected = DivergenceKernel("jeffreys", engine="reference").fit_transform(X)
    np.testing.assert_allclose(K, expected, rtol=1e-10)


def test_single_precision_stays():
    X = wishart(np.random.default_rng(5), 9, 3)
    exact = DivergenceKernel().fit(X)
    single = DivergenceKernel().fit(X.astype("float32"))
    K = single.transform(X[:4].astype("float32"))
    assert K.dtype == np.float32
    np.testing.assert_allclose(K, exact.transform(X[:4]), rtol=1e-4)
    assert single.transform(X[:4]).dtype == np.float64
    assert single.definiteness().on_data


# --- the scale


@pytest.mark.parametrize("name", ["stein", "airm", "jeffreys", "kullback", (0.5, 0.5)])
def test_the_median(name):
    X = wishart(np.random.default_rng(6), 11, 3)
    kernel = DivergenceKernel(name).fit(X)
    K = kernel.transform(X)
    assert np.median(K[np.triu_indices(11, 1)]) == pytest.approx(np.exp(-1), rel=1e-9)
    np.testing.assert_allclose(DivergenceKernel(name).fit_transform(X), K, rtol=1e-10)
    np.testing.assert_allclose(DivergenceKernel(name, kernel.scale_)(X), K, rtol=1e-10)


def test_the_median_of_all_pairs():
    X = wishart(np.random.default_rng(7), 11, 3)
    divergences = pairwise_abld(X, alpha=0, beta=0)[~np.eye(11, dtype=bool)]
    expected = 1 / np.median(divergences)
    assert DivergenceKernel((0, 0)).fit(X).scale_ == pytest.approx(expected, rel=1e-12)


def test_copies_do_not_count_as_pairs():
    X = wishart(np.random.default_rng(8), 4, 3)
    many = np.concatenate([X, X[:1], X[:1]])
    np.testing.assert_array_equal(find_copies(many), [0, 1, 2, 3, 0, 0])
    table = pairwise_abld(many, alpha=0, beta=0)
    counted = [table[i, j] for i in range(6) for j in range(i) if table[i, j] > 1e-20]
    assert DivergenceKernel((0, 0)).fit(many).scale_ == pytest.approx(1 / np.median(counted))
    weighted = median_scale(table[:4, :4], np.arange(4), np.array([3.0, 1, 1, 1]))
    assert weighted == pytest.approx(1 / np.median(counted), rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(seed=seeds, n=st.integers(2, 6))
def test_whole_weights_are_repetitions_for_the_median(seed, n):
    rng = np.random.default_rng(seed)
    X, counts = wishart(rng, n, 2), rng.integers(1, 4, n)
    many = np.repeat(X, counts, axis=0)
    weighted, repeated = (
        median_scale(square_tables(get_engine(), some, [(0.5, 0.5)])[0], find_copies(some), weights)
        for some, weights in ((X, counts.astype(float)), (many, None))
    )
    assert weighted == pytest.approx(repeated, rel=1e-12)


def test_without_matrices_that_differ_there_is_no_median():
    X = wishart(np.random.default_rng(9), 1, 3)
    with pytest.raises(ValueError, match=r"differ, but X has n_samples=1; pass a number for sca"):
        DivergenceKernel().fit(X)
    with pytest.raises(ValueError, match=r"differ, but X has n_samples=5, all equal; pass a num"):
        DivergenceKernel().fit(np.repeat(X, 5, axis=0))
    np.testing.assert_array_equal(DivergenceKernel("airm", 2.0).fit_transform(X), [[1.0]])


def test_a_median_out_of_range():
    X = np.array([[[1e-200]], [[1e200]]])
    with pytest.raises(ValueError, match=r"median divergence of X is inf, but must be > 0"):
        DivergenceKernel("jeffreys").fit(X)
    K = DivergenceKernel("jeffreys", 1.0).fit_transform(X)
    np.testing.assert_array_equal(K, np.eye(2))


@pytest.mark.parametrize("scale", [0, -1.0, np.nan, np.inf, "mean", None, True, [1.0]])
def test_wrong_scale(scale):
    X = wishart(np.random.default_rng(0), 5, 2)
    for use in (DivergenceKernel("stein", scale).fit, DivergenceKernel("stein", scale)):
        with pytest.raises(ValueError, match=r'must be "median" or a finite number > 0$'):
            use(X)


@pytest.mark.parametrize("scale", [2, np.float32(2), np.int64(2)])
def test_any_real_number_is_a_scale(scale):
    X = wishart(np.random.default_rng(0), 5, 2)
    expected = DivergenceKernel("stein", 2.0)(X)
    np.testing.assert_array_equal(DivergenceKernel("stein", scale)(X), expected)


# --- what is wrong is said


def test_wrong_divergences():
    X = wishart(np.random.default_rng(0), 5, 2)
    with pytest.raises(ValueError, match=r"\(alpha, beta\) = \(1, -0.5\) must not have opposite"):
        DivergenceKernel((1, -0.5)).fit(X)
    with pytest.raises(ValueError, match=r"divergence='stien' must be one of"):
        DivergenceKernel("stien").fit(X)


def test_wrong_matrices():
    rng = np.random.default_rng(0)
    X = wishart(rng, 5, 3)
    kernel = DivergenceKernel().fit(X)
    with pytest.raises(ValueError, match="of size 2, but DivergenceKernel is expecting"):
        kernel.transform(wishart(rng, 5, 2))
    with pytest.raises(ValueError, match="of size 2, but DivergenceKernel is expecting"):
        kernel.definiteness(wishart(rng, 5, 2))
    with pytest.raises(ValueError, match=r"X is 3 by 3, but Y is 2 by 2; both must have the sam"):
        kernel(X, wishart(rng, 5, 2))
    with pytest.raises(ValueError, match=r"^X\[1\]"):
        kernel.transform(np.stack([X[0], -X[0]]))
    with pytest.raises(ValueError, match=r"^Y\[1\]"):
        kernel(X, np.stack([X[0], -X[0]]))
    with pytest.raises(ValueError, match="3"):
        kernel.fit(X[0])


def test_not_fitted():
    X = wishart(np.random.default_rng(0), 5, 3)
    with pytest.raises(NotFittedError, match=r'scale="median" and regularize are learned by'):
        DivergenceKernel()(X)
    with pytest.raises(NotFittedError):
        DivergenceKernel().transform(X)
    with pytest.raises(NotFittedError):
        DivergenceKernel().definiteness()


# --- among other estimators


def test_pipeline_with_a_support_vector_machine():
    X, y = two_classes(1, n=60)
    names = np.array(["plain", "related"])[y]
    model = make_pipeline(DivergenceKernel(), SVC(kernel="precomputed", C=10))
    assert cross_val_score(model, X, names, cv=3).mean() > 0.9
    again = pickle.loads(pickle.dumps(model.fit(X, names)))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert set(again.predict(X)) == {"plain", "related"}


def test_grid_search_over_the_kernel():
    X, y = two_classes(2)
    model = make_pipeline(DivergenceKernel(), SVC(kernel="precomputed"))
    grid = {
        "divergencekernel__divergence": ["stein", "jeffreys", (1, 1)],
        "divergencekernel__scale": ["median", 0.1],
        "svc__C": [1, 100],
    }
    search = GridSearchCV(model, grid, cv=3).fit(X, y)
    assert search.best_score_ > 0.9


def test_spectral_clustering_finds_two_clusters():
    rng = np.random.default_rng(3)
    X = np.concatenate([wishart(rng, 20, 3, dof=40), wishart(rng, 20, 3, dof=40)])
    X[20:, 0] *= 3
    X[20:, :, 0] *= 3
    K = DivergenceKernel("airm").fit_transform(X)
    labels = SpectralClustering(2, affinity="precomputed", random_state=0).fit_predict(K)
    assert len(set(labels[:20])) == len(set(labels[20:])) == 1
    assert labels[0] != labels[20]


def test_kernel_ridge_regression():
    X, _ = two_classes(4, n=120)
    y = np.log(np.linalg.det(X))
    model = make_pipeline(DivergenceKernel("stein", 1.0), KernelRidge(1e-3, kernel="precomputed"))
    assert model.fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.8


def test_names_and_data_frames_of_the_output():
    X, _ = two_classes(5, n=3)
    kernel = DivergenceKernel().fit(X)
    names = ["divergencekernel0", "divergencekernel1", "divergencekernel2"]
    assert kernel.get_feature_names_out().tolist() == names
    assert clone(kernel).set_output(transform="default").fit_transform(X).shape == (3, 3)


# --- Gaussian processes


def rows(X: np.ndarray) -> np.ndarray:
    return X.reshape(len(X), -1)


def test_a_gaussian_process_learns_the_scale():
    X, _ = two_classes(6, n=60)
    y = np.log(np.linalg.det(X))
    process = ConstantKernel(10.0) * DivergenceProcessKernel("stein") + WhiteKernel(1e-4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a bound may be hit, which is not the point
        model = GaussianProcessRegressor(process).fit(rows(X[::2]), y[::2])
    assert model.score(rows(X[1::2]), y[1::2]) > 0.9
    assert model.kernel_.k1.k2.scale != 1.0
    assert "DivergenceProcessKernel('stein', scale=" in repr(model.kernel_)
    mean, deviation = model.predict(rows(X[1::2]), return_std=True)
    assert (np.abs(mean - y[1::2]) < 6 * deviation + 0.05).all()


def test_the_mean_of_a_gaussian_process_is_kernel_ridge_regression():
    X, _ = two_classes(7)
    y = X[:, 0, 0]
    process = DivergenceProcessKernel("airm", 0.3, "fixed")
    mean = GaussianProcessRegressor(process, alpha=0.1).fit(rows(X[::2]), y[::2]).predict(rows(X))
    ridge = make_pipeline(DivergenceKernel("airm", 0.3), KernelRidge(0.1, kernel="precomputed"))
    np.testing.assert_allclose(mean, ridge.fit(X[::2], y[::2]).predict(X), rtol=1e-6)


def test_a_gaussian_process_classifies():
    X, y = two_classes(8, n=60)
    model = GaussianProcessClassifier(DivergenceProcessKernel("stein", 2.0, "fixed"))
    assert model.fit(rows(X[:30]), y[:30]).score(rows(X[30:]), y[30:]) > 0.85


def test_the_gradient_in_the_scale():
    X, _ = two_classes(9, n=6)
    process = DivergenceProcessKernel("jeffreys", 0.7)
    K, gradient = process(rows(X), eval_gradient=True)
    step = 1e-6
    up, down = (process.clone_with_theta(process.theta + sign * step)(rows(X)) for sign in (1, -1))
    np.testing.assert_allclose(gradient[:, :, 0], (up - down) / (2 * step), atol=1e-8)
    np.testing.assert_array_equal(K, DivergenceKernel("jeffreys", 0.7)(X))
    np.testing.assert_array_equal(process.diag(rows(X)), 1)
    far = np.array([[1e-9], [1e9]])
    assert np.isfinite(process(far, eval_gradient=True)[1]).all()
    assert DivergenceProcessKernel("stein", 0.7, "fixed")(far, eval_gradient=True)[1].shape[2] == 0
    assert not process.is_stationary()


def test_wrong_rows():
    process = DivergenceProcessKernel()
    with pytest.raises(ValueError, match=r"X has shape \(2, 3\), but must have shape \(n, d"):
        process(np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"X has shape \(2, 2, 2\), but must"):
        process(np.ones((2, 2, 2)))
    with pytest.raises(ValueError, match=r"eval_gradient=True must come without Y"):
        process(np.ones((2, 1)), np.ones((2, 1)), eval_gradient=True)
