"""SPDRegressor: its members beside scikit-learn's, what it weighs, and that figures are honest."""

from __future__ import annotations

import pickle
from copy import copy

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.metrics import mean_absolute_error, r2_score
from sklearn.model_selection import KFold, PredefinedSplit, cross_val_predict, cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVR

import divlearn
from divlearn.committee import REGRESSORS, CrossValidatedRegressor, SPDRegressor
from divlearn.committee.weights import fit_number_average
from divlearn.datasets import make_wishart_clusters
from divlearn.kernels import DivergenceKernel, DivergenceKernelRegressor
from divlearn.kernels.tables import symmetric_table
from divlearn.log_vectors import log_vectors
from divlearn.nearest import NearestRegressor
from divlearn.tangent import TangentRegressor

QUICK = ("tangent ridge", "log ridge", "nearest neighbour")
MEMBERS = {
    "ridge": TangentRegressor(random_state=0),
    "kernel": DivergenceKernelRegressor(["stein", "log-euclidean"], random_state=0),
    "nearest": NearestRegressor(random_state=0),
}


@pytest.fixture(scope="module")
def data():
    """A divergence to a hidden matrix, which no linear model of logarithms knows, with noise."""
    X, _ = make_wishart_clusters(1, 120, 3, random_state=0)
    y = divlearn.abld(X, X[-1], 0.5, 0.5)
    y = y + 0.3 * y.std() * np.random.default_rng(0).standard_normal(len(y))
    return X[:60], y[:60], X[60:119], y[60:119]


@pytest.fixture(scope="module")
def weights():
    return np.random.default_rng(1).uniform(0.2, 3, 60)


@pytest.fixture(scope="module")
def fitted(data):
    return SPDRegressor(cv=3, random_state=0).fit(*data[:2])


@pytest.fixture(scope="module")
def quick(data):
    return SPDRegressor(QUICK, cv=3, random_state=0).fit(*data[:2])


# members beside scikit-learn's


def own_kernel(model, X, Y):
    table = symmetric_table(model.best_params_["divergence"], divlearn.get_engine("auto"), X, Y)
    return np.exp(-model.best_params_["scale"] * table)


def test_ridge_is_that_of_scikit_learn(data, weights):
    X, y, X_test, _ = data
    model = TangentRegressor(random_state=0).fit(X, y, sample_weight=weights)
    vectors, unseen = (log_vectors(some, model.whitener_) for some in (X, X_test))
    weighed = weights / weights.mean()
    expected = Ridge(model.best_params_["penalty"]).fit(vectors / model.deviation_, y, weighed)
    np.testing.assert_allclose(
        model.predict(X_test), expected.predict(unseen / model.deviation_), rtol=1e-8
    )


@pytest.mark.parametrize("divergence", ["stein", "log-euclidean"])
def test_kernel_ridge_is_that_of_scikit_learn(data, weights, divergence):
    X, y, X_test, _ = data
    model = DivergenceKernelRegressor([divergence], [1.0], [0.1], random_state=0)
    model.fit(X, y, sample_weight=weights)
    scale, mean = model.best_params_["scale"], np.average(y, weights=weights)
    kernel = DivergenceKernel(divergence, scale).fit(X)
    expected = KernelRidge(alpha=0.1, kernel="precomputed")
    expected.fit(kernel.transform(X), y - mean, weights / weights.mean())
    np.testing.assert_allclose(
        model.predict(X_test), mean + expected.predict(kernel.transform(X_test)), rtol=1e-6
    )


def test_kernels_that_are_not_definite_lose_no_digits(data):
    """Directions of negative eigenvalues are left out: predictions stay near the numbers."""
    X, y, X_test, _ = data
    model = DivergenceKernelRegressor([(2.0, 2.0)], [0.03], [1e-5], random_state=0).fit(X, y)
    kernel = own_kernel(model, X, X)
    assert np.linalg.eigvalsh(kernel).min() < -1e-5
    assert np.abs(model.predict(X_test)).max() < 10 * np.abs(y).max()


def test_neighbours_are_those_of_scikit_learn(data):
    X, y, X_test, _ = data
    model = NearestRegressor(random_state=0).fit(X, y)
    engine, best = divlearn.get_engine("auto"), model.best_params_
    expected = KNeighborsRegressor(best["n_neighbors"], metric="precomputed")
    expected.fit(symmetric_table(best["divergence"], engine, X), y)
    table = symmetric_table(best["divergence"], engine, X_test, X)
    np.testing.assert_allclose(model.predict(X_test), expected.predict(table), rtol=1e-8)


def test_weights_of_neighbours_are_shares_in_the_mean():
    X = np.array([0.9, 1.0, 1.1, 9.0, 10.0, 11.0])[:, None, None] * np.eye(2)
    weights, y = np.array([1.0, 1.0, 2.0, 1.0, 1.0, 1.0]), np.array([0.0, 3.0, 6.0, 50.0, 50, 50])
    model = NearestRegressor(cv=3, random_state=0).fit(X, y, sample_weight=weights)
    model.best_params_["n_neighbors"] = 3
    assert model.predict(np.eye(2)[None])[0] == pytest.approx((0 + 3 + 2 * 6) / 4)


def test_any_regressor_is_cross_validated_as_scikit_learn_does(data):
    X, y, X_test, _ = data
    pipeline = make_pipeline(FunctionTransformer(log_vectors), SVR(C=10))
    splits = PredefinedSplit(np.arange(60) % 3)
    model = CrossValidatedRegressor(pipeline, cv=splits).fit(X, y)
    expected = cross_val_predict(pipeline, X, y, cv=splits)
    np.testing.assert_allclose(model.oof_prediction_, expected)
    assert model.held_out_r2_ == pytest.approx(r2_score(y, expected))
    assert model.held_out_mae_ == pytest.approx(mean_absolute_error(y, expected))
    np.testing.assert_allclose(model.predict(X_test), pipeline.fit(X, y).predict(X_test))


@pytest.mark.parametrize("name", MEMBERS)
def test_held_out_predictions_do_not_know_their_numbers(data, name):
    """Neither the model nor its parameters: other numbers of a fold leave its predictions."""
    X, y, _, _ = data
    folds = list(KFold(3, shuffle=True, random_state=0).split(X))
    model = clone(MEMBERS[name]).set_params(cv=folds)
    expected = model.fit(X, y).oof_prediction_
    for _, held in folds:
        other = y.copy()
        other[held] = np.random.default_rng(2).permutation(y)[held] ** 2
        found = clone(model).fit(X, other).oof_prediction_[held]
        np.testing.assert_allclose(found, expected[held], rtol=1e-6)


# the committee


def test_all_members(data, fitted):
    X, y, X_test, y_test = data
    assert tuple(fitted.weights_) == REGRESSORS
    assert sum(fitted.weights_.values()) == pytest.approx(1)
    assert min(fitted.weights_.values()) > 0
    scores = {name: one.score(X_test, y_test) for name, one in fitted.members_.items()}
    assert fitted.score(X_test, y_test) > np.median(list(scores.values()))
    assert fitted.score(X_test, y_test) > 0.7
    kept = fitted.oof_prediction_
    assert fitted.oof_r2_["average"] == pytest.approx(r2_score(y, kept))
    assert fitted.oof_mae_["average"] == pytest.approx(mean_absolute_error(y, kept))
    for name, member in fitted.members_.items():
        assert fitted.oof_r2_[name] == pytest.approx(r2_score(y, member.oof_prediction_))
        alone = clone(member).fit(X[:30], y[:30])  # without the committee
        assert alone.predict(X_test).shape == y_test.shape


def test_members_are_mixed_by_their_weights(fitted):
    class One:
        def predict(self, X):
            return np.array([1.0, 2.0])

    class Two:
        def predict(self, X):
            return np.array([5.0, 10.0])

    committee = copy(fitted)
    committee.members_, committee.weights_ = {"a": One(), "b": Two()}, {"a": 0.25, "b": 0.75}
    np.testing.assert_allclose(committee.predict(np.stack([np.eye(3)] * 2)), [4, 8])


def test_units_of_numbers_do_not_matter(data, quick):
    X, y, X_test, _ = data
    other = SPDRegressor(QUICK, cv=3, random_state=0).fit(X, 1e-9 * y - 3)
    np.testing.assert_allclose(other.predict(X_test), 1e-9 * quick.predict(X_test) - 3, rtol=1e-9)
    assert other.oof_r2_["average"] == pytest.approx(quick.oof_r2_["average"], rel=1e-5)
    assert other.oof_mae_["average"] == pytest.approx(1e-9 * quick.oof_mae_["average"], rel=1e-5)


def test_only_ratios_of_weights_matter(data, weights):
    X, y, X_test, _ = data
    zero = np.where(np.arange(60) % 7, weights, 0)
    plain, scaled = (
        SPDRegressor(QUICK, cv=3, random_state=0).fit(X, y, sample_weight=scale * zero)
        for scale in (1.0, 2.0**20)
    )
    np.testing.assert_array_equal(scaled.predict(X_test), plain.predict(X_test))
    assert scaled.oof_r2_ == plain.oof_r2_
    np.testing.assert_array_equal(np.isnan(plain.oof_prediction_), zero == 0)
    assert plain.oof_r2_["average"] == pytest.approx(
        r2_score(y[zero > 0], plain.oof_prediction_[zero > 0], sample_weight=zero[zero > 0])
    )


def test_groups_keep_together():
    """Numbers mean nothing, but copies share them: whoever has seen one knows the others."""
    rng = np.random.default_rng(0)
    X = np.repeat(make_wishart_clusters(1, 20, 3, random_state=0)[0], 6, axis=0)
    y = np.repeat(rng.standard_normal(20), 6)
    model = SPDRegressor(("nearest neighbour", "log ridge"), random_state=0)
    assert model.fit(X, y).oof_r2_["average"] > 0.6
    assert model.fit(X, y, groups=np.arange(120) // 6).oof_r2_["average"] < 0.2


def test_nothing_is_found_where_there_is_nothing(data):
    noise = np.random.default_rng(0).standard_normal(60)
    model = SPDRegressor(QUICK, cv=3, random_state=0).fit(data[0], noise)
    assert max(model.oof_r2_.values()) < 0.05


def test_members_of_a_users_own(data):
    X, y, X_test, y_test = data
    own = make_pipeline(FunctionTransformer(log_vectors), Ridge(0.01))
    model = SPDRegressor(["nearest neighbour", ("mine", own)], random_state=0).fit(X, y)
    assert list(model.members_) == ["nearest neighbour", "mine"]
    np.testing.assert_allclose(
        model.members_["mine"].predict(X_test), own.fit(X, y).predict(X_test), rtol=1e-9
    )
    assert model.score(X_test, y_test) > 0.5


def test_it_says_what_it_weighs(data, fitted, capsys):
    text = fitted.summary()
    assert all(name in text for name in REGRESSORS)
    assert f"R2 of {fitted.oof_r2_['average']:.3f}" in text
    model = SPDRegressor(QUICK, verbose=1, random_state=0).fit(*data[:2])
    out = capsys.readouterr().out
    assert "Weights by the likelihood of held-out numbers" in out
    assert (
        f"log ridge {model.weights_['log ridge']:.2f} (R2 {model.oof_r2_['log ridge']:.3f}" in out
    )


def test_seeds_files_and_tools(data, fitted, quick, tmp_path):
    X, y, X_test, _ = data
    again = SPDRegressor(QUICK, cv=3, random_state=0).fit(X, y)
    np.testing.assert_array_equal(again.predict(X_test), quick.predict(X_test))
    expected = fitted.predict(X_test)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(X_test), expected)
    divlearn.save(fitted, tmp_path / "model")
    again = divlearn.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X_test), expected)
    assert again.oof_mae_ == fitted.oof_mae_
    sizes = np.linalg.slogdet(X)[1]  # which are linear in logarithms
    assert cross_val_score(SPDRegressor(QUICK, cv=3, random_state=0), X, sizes, cv=3).mean() > 0.9


def test_constant_numbers_are_predicted(data):
    model = SPDRegressor(QUICK, cv=3, random_state=0).fit(data[0], np.full(60, 0.1))
    np.testing.assert_allclose(model.predict(data[2]), 0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"members": ()}, r"members=\(\) must be a sequence of names"),
        ({"members": ("tangent lda",)}, r"member 'tangent lda' must be one of tangent ridge"),
        ({"members": (("mine", 3),)}, r"3 must have fit and predict; pass a regressor"),
        ({"cv": 1}, r"=1 must be an integer >= 2"),
        ({"time_limit": 0}, r"time_limit=0 must be > 0, in seconds, or None"),
    ],
)
def test_bad_parameters(data, options, message):
    with pytest.raises(ValueError, match=message):
        SPDRegressor(**{"members": QUICK} | options).fit(*data[:2])


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (TangentRegressor("zero"), "at='zero' must be one of mean, identity"),
        (DivergenceKernelRegressor(scales=[0.0]), r"scales=\[0.0\] must be > 0"),
        (DivergenceKernelRegressor(penalties=[-1.0]), r"penalties=\[-1.0\] must be > 0"),
    ],
)
def test_bad_parameters_of_members(data, model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(*data[:2])


def test_bad_data(data):
    X, y, _, _ = data
    with pytest.raises(ValueError, match=r"n_samples=1 of weight > 0 must be >= 2"):
        SPDRegressor(QUICK).fit(X, y, sample_weight=np.arange(60) == 3)
    with pytest.raises(ValueError, match="expecting 3"):
        SPDRegressor(("tangent ridge",)).fit(X, y).predict(np.eye(2)[None])
    with pytest.raises(ValueError, match="1d array"):
        SPDRegressor(QUICK).fit(X, np.stack([y, y], axis=1))


@pytest.mark.parametrize("n_matrices", [2, 3, 5])
def test_few_matrices(data, n_matrices):
    X, y, X_test, _ = data
    model = SPDRegressor(QUICK, cv=3, random_state=0).fit(X[:n_matrices], y[:n_matrices])
    assert np.isfinite(model.predict(X_test)).all()


# weights


def test_weights_minimise_the_objective():
    rng = np.random.default_rng(0)
    numbers, counts = rng.standard_normal(60), rng.uniform(0.5, 2, 60)
    said = numbers + rng.standard_normal((4, 60)) * [[0.5], [1], [2], [3]]
    weights, _ = fit_number_average(said, numbers, counts)
    assert (np.diff(weights) < 0).all()

    def objective(w):
        variance = np.average((w @ said - numbers) ** 2, weights=counts) + 1e-6
        return counts.sum() / 2 * np.log(variance) - 3 * np.log(w).mean()

    for _ in range(50):
        other = np.abs(weights + 1e-3 * rng.standard_normal(4))
        assert objective(other / other.sum()) >= objective(weights) - 1e-9


def test_equal_members_have_equal_weights():
    said = np.broadcast_to(np.linspace(-1, 1, 20), (3, 20))
    weights, _ = fit_number_average(said, np.linspace(-2, 2, 20), np.ones(20))
    np.testing.assert_allclose(weights, 1 / 3, rtol=1e-6)


@pytest.mark.parametrize("power", [-900, -600, 600, 1010])
def test_the_unit_of_numbers_does_not_matter(data, quick, power):
    """Squares of such numbers underflow or overflow."""
    X, y, new, _ = data
    usual, scaled = quick, SPDRegressor(QUICK, cv=3, random_state=0).fit(X, y * 2.0**power)
    assert scaled.oof_r2_ == usual.oof_r2_
    np.testing.assert_allclose(scaled.predict(new) / 2.0**power, usual.predict(new), rtol=1e-5)


# what is refused


@pytest.mark.parametrize("name", MEMBERS)
def test_text_that_is_no_number_is_refused(data, name):
    X, y, *_ = data
    names = np.where(y > np.median(y), "1.5", "high")
    message = "y holds 'high', must hold numbers for a regressor; pass these or use a classifier"
    with pytest.raises(ValueError, match=message):
        clone(MEMBERS[name]).fit(X, names)
    clone(MEMBERS[name]).fit(X, y.astype(str))


@pytest.mark.parametrize("name", ["kernel", "nearest"])
def test_tables_that_are_too_large_tell_how_many_matrices_fit(data, name, monkeypatch):
    X, y, *_ = data
    monkeypatch.setattr("divlearn.kernels.tables._LARGEST_TABLE", 100_000)
    with pytest.raises(ValueError, match=r"n_matrices=60 with 6 .*at most \d+ matrices$") as told:
        clone(MEMBERS[name]).fit(X, y)
    most = int(str(told.value).split()[-2])
    clone(MEMBERS[name]).fit(X[:most], y[:most])
    with pytest.raises(ValueError, match="at most"):
        clone(MEMBERS[name]).fit(X[: most + 1], y[: most + 1])


# time


def test_a_kernel_whose_eigenvectors_would_take_too_long_is_skipped(data, monkeypatch):
    """One second for a matrix of size 64: 280 of sizes 45 and 30 take 56 seconds."""
    calls = []
    monkeypatch.setattr("divlearn.committee.base.clock", lambda: float(len(calls)))
    monkeypatch.setattr("divlearn.committee.regressor.eigh", lambda *_, **__: calls.append(0))
    members = ("log ridge", "kernel", "nearest neighbour")
    for limit, skipped in ((30, ["kernel"]), (120, [])):
        model = SPDRegressor(members, time_limit=limit, random_state=0, n_jobs=1).fit(*data[:2])
        assert [name for name in members if name not in model.members_] == skipped
        assert ("kernel was skipped: it would exceed time_limit=30" in model.message_) == (
            skipped == ["kernel"]
        )
