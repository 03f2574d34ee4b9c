"""Gaussian embeddings, and what is common to all transformers of series: their input."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyriemann.geometry.covariance import covariances as pyriemann_covariances
from pyriemann.tangentspace import TangentSpace
from sklearn.base import clone
from sklearn.covariance import ledoit_wolf, oas
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from divlearn.descriptors.kernel import RBFKernelDescriptor
from divlearn.descriptors.series import GaussianEmbedding
from divlearn.spd import SPDRepairWarning, check_spd

seeds = st.integers(0, 2**32 - 1)
TRANSFORMERS = [GaussianEmbedding(), RBFKernelDescriptor()]
each_transformer = pytest.mark.parametrize("transformer", TRANSFORMERS, ids=["gaussian", "kernel"])


def random_series(seed: int, n: int = 5, d: int = 3, n_times: int = 20) -> np.ndarray:
    rng = np.random.default_rng(seed)
    mixing = 0.4 * rng.standard_normal((n, d, d)) + 3 * np.eye(d)
    return mixing @ rng.standard_normal((n, d, n_times)) + rng.standard_normal((n, d, 1))


def naive(series: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    mean = series.mean(axis=1)
    top = np.column_stack([covariance + np.outer(mean, mean), mean])
    return np.vstack([top, np.append(mean, 1)])


def quiet(transformer, X) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SPDRepairWarning)
        return transformer.fit_transform(X)


# --- the formula


@settings(max_examples=15, deadline=None)
@given(seed=seeds, d=st.integers(1, 6), extra=st.integers(3, 30))
def test_the_formula(seed, d, extra):
    X = random_series(seed, d=d, n_times=d + extra)
    expected = [naive(one, np.atleast_2d(np.cov(one))) for one in X]
    P = GaussianEmbedding().fit_transform(X)
    np.testing.assert_allclose(P, expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(P, P.mT)


@settings(max_examples=15, deadline=None)
@given(seed=seeds, d=st.integers(1, 6))
def test_determinants(seed, d):
    X = random_series(seed, d=d)
    P = GaussianEmbedding().fit_transform(X)
    S = [np.atleast_2d(np.cov(one)) for one in X]
    np.testing.assert_allclose(np.linalg.slogdet(P)[1], np.linalg.slogdet(S)[1], atol=1e-9)
    unit = GaussianEmbedding(normalize=True).fit_transform(X)
    np.testing.assert_allclose(np.linalg.slogdet(unit)[1], 0, atol=1e-9)
    np.testing.assert_allclose(unit / unit[:, -1:, -1:], P, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "function"), [("lwf", ledoit_wolf), ("oas", oas)])
def test_shrunk_covariances(name, function):
    X = random_series(1, d=6, n_times=5)
    P = GaussianEmbedding(name).fit_transform(X)
    expected = [naive(one, function(one.T)[0]) for one in X]
    np.testing.assert_allclose(P, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ["hub", "stu"])
def test_estimators_of_pyriemann(name):
    def estimator(series):
        return pyriemann_covariances(series[None], name)[0]

    X = random_series(2)
    expected = [naive(one, estimator(one)) for one in X]
    np.testing.assert_allclose(GaussianEmbedding(estimator).fit_transform(X), expected, rtol=1e-10)


def test_a_callable_is_given_centred_series():
    X = [random_series(3, n=1)[0] + 1e6, random_series(3, n=1, n_times=9)[0]]
    seen = []

    def estimator(series):
        seen.append(series)
        return np.cov(series)

    P = GaussianEmbedding(estimator).fit_transform(X)
    np.testing.assert_allclose(P, GaussianEmbedding().fit_transform(X), rtol=1e-12)
    for one, original in zip(seen, X, strict=True):
        np.testing.assert_allclose(one, original - original.mean(axis=1, keepdims=True), atol=1e-8)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (lambda series: np.cov(series)[0], r"returned an array of shape \(3,\) .* shape \(3, 3\)$"),
        (lambda series: np.cov(series) * 1j, r"dtype complex128 .*must return real numbers"),
        (lambda series: np.full((3, 3), np.nan), r"^covariance of X\[0\] has a NaN entry"),
        (lambda series: np.triu(np.ones((3, 3))), r"^covariance of X\[0\] is not symmetric"),
        (lambda series: np.zeros((3, 3)), r"^X: matrix 0 \(and 4 more\) has no variance"),
    ],
)
def test_wrong_results_of_a_callable(estimator, message):
    with pytest.raises(ValueError, match=message):
        GaussianEmbedding(estimator).fit_transform(random_series(0))


@pytest.mark.parametrize("estimator", ["scm", None, 3])
def test_unknown_estimators(estimator):
    message = rf'estimator={estimator!r} must be "cov", "lwf", "oas" or a callable'
    with pytest.raises(ValueError, match=message):
        GaussianEmbedding(estimator).fit(random_series(0))


# --- numbers


def test_covariances_are_accurate_at_any_offset():
    X = np.round(random_series(4, n_times=200) * 2**20) / 2**20
    seen = []

    def estimator(series):
        seen.append(series @ series.T / (series.shape[1] - 1))
        return seen[-1]

    with pytest.warns(SPDRepairWarning, match="^X embedded in float64, where means hide deviatio"):
        P = GaussianEmbedding(estimator).fit_transform(X + 1e8)
    np.testing.assert_allclose(seen, [np.cov(one) for one in X], rtol=1e-13, atol=1e-14)
    check_spd(P)


@pytest.mark.parametrize(("dtype", "offset"), [("float64", 1e9), ("float32", 3e4)])
def test_deviations_hidden_by_means_are_raised_to_what_can_be_resolved(dtype, offset):
    X = random_series(5)
    X[3] += offset
    X = X.astype(dtype)
    with pytest.warns(SPDRepairWarning, match=rf"in {dtype}, .*1 of 5 matrices .*\(first: 3\)"):
        P = GaussianEmbedding().fit_transform(X)
    check_spd(P)
    # What can be read off the embedding itself: means to its precision, larger deviations.
    tolerance = 100 * np.finfo(dtype).eps
    np.testing.assert_allclose(P[3, :3, 3], X[3].mean(axis=1, dtype="float64"), rtol=tolerance)
    variances = np.diag(P[3].astype("float64"))[:3] - P[3, :3, 3].astype("float64") ** 2
    resolved = 16 * 4 * np.finfo(dtype).eps * offset**2
    np.testing.assert_array_less(0.2 * resolved, variances)
    np.testing.assert_array_less(variances, 5 * resolved)
    others = [0, 1, 2, 4]
    np.testing.assert_array_equal(P[others], GaussianEmbedding().fit_transform(X[others]))


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_what_does_not_fit_float32(scale):
    X = random_series(6) * scale
    check_spd(GaussianEmbedding().fit_transform(X))
    message = r"^embedding of X\[0\] does not fit the range of float32 \(5 of 5 .*rescale"
    with pytest.raises(ValueError, match=message):
        GaussianEmbedding().fit_transform(X.astype("float32"))


@pytest.mark.parametrize("scale", [1e-140, 1e140])
@pytest.mark.parametrize("normalize", [False, True])
def test_units_near_the_ends_of_the_range(scale, normalize):
    P = GaussianEmbedding(normalize=normalize).fit_transform(random_series(7) * scale)
    check_spd(P)


# --- definiteness


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("n_times", [2, 3, 6])
def test_short_series_are_regularised_and_it_is_said(n_times, dtype):
    X = random_series(8, d=6, n_times=n_times).astype(dtype)
    embedding = GaussianEmbedding().fit(X)
    with pytest.warns(SPDRepairWarning) as caught:
        P = embedding.transform(X)
    assert str(caught[0].message).startswith("X: 5 of 5 matrices had a correlation")
    assert all(str(one.message).startswith("X embedded in float32") for one in caught[1:])
    assert P.dtype == dtype
    np.testing.assert_array_equal(check_spd(P), P)


def test_the_floor_that_was_asked_for():
    X = random_series(10, d=4, n_times=3)
    X -= X.mean(axis=2, keepdims=True)
    P = quiet(GaussianEmbedding(floor=0.01), X)
    S = P[:, :4, :4]
    deviations = np.sqrt(np.einsum("nii->ni", S))
    R = S / deviations[:, :, None] / deviations[:, None, :]
    np.testing.assert_allclose(np.linalg.eigvalsh(R)[:, 0], 0.01, rtol=1e-9)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("value", [0.0, 0.1, -3.3])
def test_constant_channels(value, dtype):
    # The mean of many 0.1 is not 0.1: only an exact shift shows that the channel is constant.
    X = random_series(11, d=4, n_times=77).astype(dtype)
    X[1, 2] = value
    with pytest.warns(SPDRepairWarning, match=r"had channels without variance \(first: 1, numb"):
        P = GaussianEmbedding().fit_transform(X)
    check_spd(P)
    assert P[1, 2, 4] == np.array(value, dtype)
    np.testing.assert_allclose(P[1, 2, [0, 1, 3]], P[1, 4, [0, 1, 3]] * P[1, 2, 4], rtol=1e-6)


# --- what comes in, for every transformer of series


@each_transformer
def test_series_of_different_lengths(transformer):
    X = [random_series(i, n=1, n_times=n)[0] for i, n in enumerate([9, 20, 9, 7, 20, 20])]
    fitted = clone(transformer).fit(X)
    result = fitted.transform(X)
    for i, one in enumerate(X):
        np.testing.assert_allclose(result[i], fitted.transform(one[None])[0], rtol=1e-13)
    objects = np.empty(len(X), dtype=object)
    objects[:] = X
    np.testing.assert_array_equal(fitted.transform(objects), result)
    np.testing.assert_array_equal(fitted.transform(tuple(X)), result)
    np.testing.assert_array_equal(fitted.transform([one.tolist() for one in X]), result)


@each_transformer
def test_many_series_are_computed_in_blocks(transformer):
    """More than 2**17 entries: a single series is a block of its own."""
    X = np.tile(random_series(14, n=50), (2**17 // random_series(14, n=50).size + 1, 1, 1))
    fitted = clone(transformer).fit(X)
    expected = [fitted.transform(X[[i]])[0] for i in (0, 7, -1)]
    np.testing.assert_allclose(fitted.transform(X)[[0, 7, -1]], expected, rtol=1e-13)


@pytest.mark.parametrize(
    ("given_dtype", "expected"),
    [(">f4", "float32"), (">f8", "float64"), ("float16", "float64"), ("uint64", "float64")],
)
@each_transformer
def test_types(transformer, given_dtype, expected):
    X = np.abs(np.round(10 * random_series(15))).astype(given_dtype)
    result = clone(transformer).fit_transform(X)
    assert result.dtype == np.dtype(expected)
    assert result.dtype.isnative
    check_spd(result)
    # Computed in float64, whatever comes in: rounded only once.
    exact = clone(transformer).fit_transform(X.astype("float64"))
    np.testing.assert_array_equal(result, exact.astype(expected))


@each_transformer
def test_one_double_makes_all_double(transformer):
    X = list(random_series(16).astype("float32"))
    assert clone(transformer).fit_transform(X).dtype == np.float32
    X[3] = X[3].astype("float64")
    assert clone(transformer).fit_transform(X).dtype == np.float64


def with_entry(value) -> list[np.ndarray]:
    X = [random_series(i, n=1, n_times=n)[0] for i, n in enumerate([9, 8, 9, 9])]
    X[2][1, 4] = X[3][0, 0] = value
    return X


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (with_entry(np.nan), ValueError, r"^X\[2\] has the entry nan at channel 1, time 4"),
        (with_entry(-np.inf), ValueError, r"^X\[2\] has the entry -inf .*; drop this series,"),
        (with_entry(1e200), ValueError, r"^X\[2\] has the entry 1e\+200 .*at most 3.27e\+150 in"),
        (np.full((2, 3, 4), np.nan), ValueError, r"^X\[0\] has the entry nan at channel 0, time 0"),
        (np.ones((2, 3, 4)) * 1j, TypeError, r"^X has dtype complex128, but .* real numbers; conv"),
        ([np.ones((3, 4)), np.ones((3, 4)) * 1j], TypeError, r"^X\[1\] has dtype complex128"),
        (np.full((2, 3, 4), "a"), TypeError, r"^X has dtype <U1"),
        ([[["a", "b"], ["c", "d"]]], TypeError, r"^X\[0\] has dtype <U1"),
        ([[[1, None], [2, 3]]], TypeError, r"^X\[0\] has dtype object"),
        ("series", TypeError, r"^X has dtype <U6"),
        (None, TypeError, r"^X has dtype object"),
        ([[[1, 2], [3]]], ValueError, r"^X\[0\] is ragged: its channels differ in length"),
        (np.ones((3, 4)), ValueError, r"^X has shape \(3, 4\), expected .*pass X\[np.newaxis\]$"),
        (np.ones((2, 2, 3, 4)), ValueError, r"^X has shape \(2, 2, 3, 4\), expected \(n_series, n"),
        ([[1, 2], [3, 4]], ValueError, r"^X\[0\] has shape \(2,\), expected .* pass a list of it$"),
        ([np.ones((3, 4)), np.ones((2, 4))], ValueError, r"^X\[1\] has 2 channels, but X\[0\]"),
        ([], ValueError, r"^X is empty; pass at least one series$"),
        (np.ones((0, 3, 4)), ValueError, r"^X is empty"),
        (np.ones((2, 0, 4)), ValueError, r"^X\[0\] has shape \(0, 4\), must have >= 1 channels"),
        (np.ones((2, 3, 0)), ValueError, r"^X\[0\] has shape \(3, 0\), must have"),
        (np.ma.masked_less(np.zeros((2, 3, 4)), 1), ValueError, r"^X has masked entries; fill"),
        ([np.ma.masked_less(np.zeros((3, 4)), 1)], ValueError, r"^X\[0\] has masked entries; fill"),
    ],
)
@each_transformer
def test_wrong_input(transformer, X, error, message):
    with pytest.raises(error, match=message):
        clone(transformer).fit(X)
    with pytest.raises(error, match=message):
        clone(transformer).fit(random_series(0)).transform(X)


def test_one_time_has_no_covariance():
    X = [random_series(0, n=1)[0], np.ones((3, 1))]
    with pytest.raises(
        ValueError, match=r"^X\[1\] has shape .*1\), must have .* >= 2 times; drop it or pass lo"
    ):
        GaussianEmbedding().fit(X)


@each_transformer
def test_other_channels_than_in_fit(transformer):
    fitted = clone(transformer).fit(random_series(0))
    assert fitted.n_features_in_ == 3
    name = type(transformer).__name__
    message = rf"^X has 4 channels, but {name} is expecting 3 channels as input; pass"
    with pytest.raises(ValueError, match=message):
        fitted.transform(random_series(0, d=4))


# --- among other estimators


@each_transformer
def test_estimators(transformer):
    X = random_series(18)
    with pytest.raises(NotFittedError):
        clone(transformer).transform(X)
    fitted = clone(transformer).fit(X)
    assert clone(fitted).get_params() == transformer.get_params()
    restored = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(restored.transform(X), fitted.transform(X))
    assert fitted.__sklearn_tags__().input_tags.three_d_array
    assert not fitted.__sklearn_tags__().input_tags.two_d_array
    assert not hasattr(fitted, "get_feature_names_out")
    # A request for data frames, for the sake of other steps, leaves matrices arrays.
    frames = clone(transformer).set_output(transform="pandas")
    np.testing.assert_array_equal(frames.fit_transform(X), fitted.transform(X))


def classes(n: int = 30) -> tuple[list[np.ndarray], np.ndarray]:
    """Series of different lengths whose classes differ in mean and covariance."""
    rng = np.random.default_rng(19)
    y = np.arange(n) % 2
    X = [
        rng.standard_normal((3, 20 + i)) * (1 + y[i] * np.arange(3))[:, None] + 0.3 * y[i]
        for i in range(n)
    ]
    return X, y


@each_transformer
def test_pipeline_and_grid_search_over_series_of_different_lengths(transformer):
    X, y = classes()
    name = type(transformer).__name__.lower()
    pipeline = make_pipeline(clone(transformer), TangentSpace(), LogisticRegression())
    search = GridSearchCV(pipeline, {f"{name}__floor": ["auto", 0.05]}, cv=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SPDRepairWarning)
        search.fit(X, y)
        assert search.score(X, y) > 0.9


def test_noise_is_added_to_the_variances():
    X = random_series(8)
    P, plain = GaussianEmbedding(noise=0.5).fit_transform(X), GaussianEmbedding().fit_transform(X)
    d = X[0].shape[0]
    added = np.zeros((d + 1, d + 1))
    added[:d, :d] = 0.25 * np.eye(d)
    np.testing.assert_allclose(P - plain, np.broadcast_to(added, P.shape), atol=1e-12)


def test_noise_makes_still_channels_definite():
    P = GaussianEmbedding(noise=0.1).fit_transform(np.ones((2, 3, 5)))  # no warning: nothing mended
    np.testing.assert_allclose(np.linalg.det(P), 1e-6)


@pytest.mark.parametrize("noise", [-0.1, np.inf, np.nan, True, "0.1", None])
def test_wrong_noise(noise):
    with pytest.raises(ValueError, match=r"noise=.* must be a finite number >= 0"):
        GaussianEmbedding(noise=noise).fit(random_series(0))
