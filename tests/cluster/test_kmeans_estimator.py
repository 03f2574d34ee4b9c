"""ABKMeans and KarcherKMeans as users and scikit-learn see them."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pytest
from interrupting import press_ctrl_c, stop_at
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from divlearn.cluster import ABKMeans, KarcherKMeans
from divlearn.cluster.clusters import find_nearest
from divlearn.datasets import make_wishart_clusters
from divlearn.engines import ReferenceEngine
from divlearn.fitting import listen


@pytest.fixture(scope="module")
def data():
    return make_wishart_clusters(3, 40, 4, separation=6, random_state=1)


def test_in_other_tools(data):
    X, y = data
    model = make_pipeline(
        ABKMeans(5, random_state=0, n_init=1), StandardScaler(), LogisticRegression()
    )
    assert cross_val_score(model, X, y, cv=3).mean() > 0.9
    search = GridSearchCV(
        KarcherKMeans(n_init=1, random_state=0), {"n_clusters": [1, 3]}, cv=2
    ).fit(X)
    assert search.best_params_ == {"n_clusters": 3}
    copy = pickle.loads(pickle.dumps(search.best_estimator_))
    np.testing.assert_array_equal(copy.predict(X), search.predict(X))
    assert not hasattr(clone(search.best_estimator_), "labels_")


def test_names_of_features(data):
    X, _ = data
    found = ABKMeans(3, random_state=0).fit(X)
    assert found.get_feature_names_out().tolist() == ["abkmeans0", "abkmeans1", "abkmeans2"]
    assert found.transform(X).shape == (120, 3)
    np.testing.assert_array_equal(found.fit_predict(X), found.labels_)


def test_the_papers_set_up(data):
    X, _ = data
    for tied in (True, False):
        model = ABKMeans.paper(3, tied=tied)
        assert (model.init, model.n_init, model.tol) == ("log-euclidean", 1, 1e-3)
        found = model.set_params(random_state=0).fit(X)
        assert (found.alpha_ == found.beta_) == tied
        assert found.history_["alpha"][0] == found.history_["beta"][0] == 1


@pytest.mark.parametrize("divergence", ["stein", "learn"])
def test_engines_agree(data, divergence):
    X, _ = data
    options = {"init": X[:3], "max_iter": 3}
    first = ABKMeans(3, divergence, **options).fit(X)
    second = ABKMeans(3, divergence, engine=ReferenceEngine(1), **options).fit(X)
    np.testing.assert_array_equal(first.labels_, second.labels_)
    np.testing.assert_allclose(first.cluster_centers_, second.cluster_centers_, rtol=1e-6)


class SmallTables(ReferenceEngine):
    """Of eight columns, the fewest there are."""

    table_entries, most_columns = 1, 0

    def encode(self, data, atoms, *arguments, **options):
        SmallTables.most_columns = max(SmallTables.most_columns, len(atoms))
        return super().encode(data, atoms, *arguments, **options)


@pytest.mark.parametrize("divergence", ["stein", "learn"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_tables_of_bounded_size_change_nothing(data, divergence):
    X, _ = data
    whole, parts = (
        ABKMeans(20, divergence, random_state=0, n_init=1, max_iter=1, engine=engine).fit(X)
        for engine in (ReferenceEngine(1), SmallTables(1))
    )
    np.testing.assert_array_equal(whole.cluster_centers_, parts.cluster_centers_)
    np.testing.assert_array_equal(whole.labels_, parts.labels_)
    np.testing.assert_array_equal(whole.predict(X), parts.predict(X))
    assert SmallTables.most_columns == 8


def test_single_precision_is_clustered_in_double(data):
    X, _ = data
    X = X.astype(np.float32)
    first = ABKMeans(3, random_state=0).fit(X)
    second = ABKMeans(3, random_state=0).fit(X.astype(np.float64))
    np.testing.assert_array_equal(first.cluster_centers_, second.cluster_centers_)


# odd data


def test_a_cluster_that_starts_far_off_is_filled(data):
    X, _ = data
    init = X[:3].copy()
    init[1] *= 1e6
    for divergence in ("stein", "learn", "likelihood"):
        found = ABKMeans(3, divergence, init=init, max_iter=4).fit(X)
        assert len(np.unique(found.labels_)) == 3
        np.testing.assert_array_equal(found.labels_, found.predict(X))
        objective = found.history_["objective"]
        assert (np.diff(objective) <= 1e-11 * np.abs(objective[1:])).all()


@pytest.mark.parametrize("init", ["tangent", "log-euclidean", "k-means++", "random"])
def test_fewer_matrices_than_clusters_that_differ(data, init):
    X = np.repeat(data[0][:3], 5, axis=0)
    with pytest.warns(ConvergenceWarning, match=r"n_found=3 distinct clusters.*n_clusters=5"):
        found = ABKMeans(5, init=init, random_state=0).fit(X)
    assert found.inertia_ < 1e-12
    assert len({tuple(found.labels_[i : i + 5]) for i in (0, 5, 10)}) == 3
    np.testing.assert_array_equal(found.labels_, found.predict(X))


def test_every_matrix_a_cluster(data):
    X = data[0][:6]
    found = ABKMeans(6, random_state=0).fit(X)
    assert sorted(found.labels_) == list(range(6))
    assert found.inertia_ < 1e-12


def test_matrices_of_very_different_units():
    """Variances from 1e-6 to 1e6, for which engines put variables in another order."""
    X, _ = make_wishart_clusters(3, 30, 4, separation=8, random_state=0)
    units = np.array([1e-3, 1e3, 1.0, 30.0])
    first = ABKMeans(3, n_init=1, random_state=0).fit(X)
    second = ABKMeans(3, n_init=1, random_state=0).fit(units[:, None] * X * units)
    np.testing.assert_array_equal(first.labels_, second.labels_)


def test_wide_spreads_do_not_overshoot():
    """Eigenvalues over twelve decades: plain fixed points would raise the objective."""
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((60, 3, 3)))[0]
    X = (Q * np.exp(rng.normal(0, 5, (60, 1, 3)))) @ Q.mT
    X = 0.5 * (X + X.mT)
    for divergence in ("airm", "stein", (0.5, 1.5), "burg"):
        found = ABKMeans(3, divergence, init=X[:3], tol=0).fit(X)
        objective = found.history_["objective"]
        assert (np.diff(objective) <= 1e-10 * np.abs(objective[1:])).all()


# the way it ends


def test_a_user_who_stops_it_keeps_what_was_found(data):
    X, _ = data
    with listen(stop_at("iterations", 2)):
        found = ABKMeans(6, init=X[:6], tol=0).fit(X)
    assert found.message_ == "interrupted by the user in iteration 3"
    assert found.n_iter_ == 2
    np.testing.assert_array_equal(found.labels_, found.predict(X))


def test_an_interrupted_start_that_is_worse_is_told_of(data):
    X, _ = data
    begun = []

    def stop_in_the_second(what, done, *_):
        begun.extend([done] * (what == "iterations" and done == 1))
        if len(begun) == 2:
            begun.append("stopped")
            press_ctrl_c()

    options = {"init": "random", "random_state": 0}
    with listen(stop_in_the_second):
        found = ABKMeans(3, n_init=4, **options).fit(X)
    assert found.message_ == "interrupted by the user in start 2"
    assert found.objective_ == ABKMeans(3, n_init=1, **options).fit(X).objective_


def test_it_says_why_it_stopped(data, capsys):
    X, _ = data
    found = ABKMeans(3, random_state=0, n_init=2, verbose=2).fit(X)
    assert found.message_.endswith("of the assignments changed, < tol=0.001")
    printed = capsys.readouterr().out
    assert f"2 of 2 starts, objective {found.objective_:.6g} after" in printed
    assert re.search(r"\[ABKMeans\] \d+ s: 0 of 2 starts; 1 of \d+ iterations, objective", printed)
    assert ABKMeans(6, init=X[:6], max_iter=1).fit(X).message_ == "max_iter=1 reached"


@pytest.mark.parametrize("divergence", ["learn", "paper-tied"])
def test_with_hardly_a_penalty_parameters_grow_without_end(divergence, monkeypatch):
    monkeypatch.setattr("divlearn.cluster.parameters._LARGEST", 2.0)
    X, _ = make_wishart_clusters(3, 300, 4, separation=2, random_state=1)
    model = ABKMeans(3, divergence, tol=0, init=X[:3])
    with pytest.warns(ConvergenceWarning, match=r"grow without end.*penalty .* is too small"):
        found = model.fit(X)
    assert "fix the divergence" in found.message_
    assert found.inertia_ > 0
    np.testing.assert_array_equal(found.labels_, found.predict(X))


def test_a_likelihood_without_bound(data):
    X = data[0][:4]
    with pytest.warns(ConvergenceWarning, match="the likelihood is unbounded"):
        found = ABKMeans(4, "likelihood", random_state=0).fit(X)
    assert sorted(found.labels_) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_clusters": 121}, ValueError, "n_clusters=121 must be <= n_matrices=120 "),
        ({"n_clusters": 0}, ValueError, "n_clusters=0 must be >= 1"),
        ({"n_clusters": 2.0}, TypeError, "n_clusters=2.0 must be an integer >= 1"),
        ({"n_init": 0}, ValueError, "n_init=0 must be >= 1"),
        ({"max_iter": 0}, ValueError, "max_iter=0 must be >= 1"),
        ({"tol": -1}, ValueError, "tol=-1 must be a finite number >= 0"),
        ({"init": "nearest"}, ValueError, "init='nearest' must be one of tangent, log-euc"),
        ({"init": np.eye(4)[None]}, ValueError, r"init has shape \(1, 4, 4\), but must have"),
        ({"init": -np.ones((3, 4, 4))}, ValueError, r"init\[0\] has a diagonal entry"),
        ({"divergence": "nearest"}, ValueError, "divergence='nearest' must be one of"),
        ({"divergence": (1, -1)}, ValueError, r"\(1, -1\) must not have opposite signs"),
        (
            {"divergence": "jeffreys"},
            ValueError,
            "divergence='jeffreys' is the mean of both directions",
        ),
        ({"engine": "abacus"}, ValueError, "engine='abacus' must be"),
    ],
)
def test_bad_parameters(data, options, error, message):
    with pytest.raises(error, match=message):
        ABKMeans(**{"n_clusters": 3} | options).fit(data[0])


def test_bad_data(data):
    X, _ = data
    X = X.copy()
    with pytest.raises(ValueError, match="n_clusters=3 must be <= n_matrices=2"):
        ABKMeans(3).fit(X, sample_weight=[1, 1] + [0] * 118)
    with pytest.raises(ValueError, match=r"sample_weight\[0\] = -1.0 must be >= 0"):
        ABKMeans(3).fit(X, sample_weight=-np.ones(120))
    with pytest.raises(NotFittedError):
        ABKMeans(3).predict(X)
    with pytest.raises(ValueError, match="X has matrices of size 2, but ABKMeans is expecting 4"):
        ABKMeans(3, random_state=0).fit(X).predict(X[:, :2, :2])
    X[7, 0, 1] = X[7, 1, 0] = 100
    with pytest.raises(ValueError, match=r"X\[7\] is indefinite"):
        ABKMeans(3).fit(X)


def test_an_objective_beyond_all_range_is_no_result(data):
    X, _ = data
    with pytest.raises(FloatingPointError, match="the objective is inf in iteration 0, of start"):
        ABKMeans(1, (0, 3), init=1e-150 * X[:1]).fit(X)


def test_nearest_centres_are_known():
    table = np.array([[1.0, 2.0], [np.nan, 3.0]])
    with pytest.raises(FloatingPointError, match="a divergence is nan to the nearest centre"):
        find_nearest(table)
    assert find_nearest(np.array([[np.inf, np.inf], [2.0, 1.0]]))[0].tolist() == [0, 1]
