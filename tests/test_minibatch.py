"""MiniBatchABKMeans: streams of matrices, against means in closed form and against all at once."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from conftest import wishart
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from divlearn import mean_abld, pairwise_abld
from divlearn.cluster import ABKMeans, MiniBatchABKMeans, samples
from divlearn.datasets import make_wishart_clusters


@pytest.fixture(scope="module")
def data():
    return make_wishart_clusters(4, 500, 4, separation=6, random_state=2)


@pytest.mark.parametrize("point", [(0, 1), (1, 0)])
def test_a_stream_into_one_cluster_is_a_mean(point):
    """Arithmetic and harmonic means are exact, whatever the batches and weights."""
    rng = np.random.default_rng(0)
    X, weights = wishart(rng, 200, 3), rng.uniform(0, 2, 200)
    model = MiniBatchABKMeans(1, point, init="random", random_state=0)
    for rows in np.split(np.arange(200), [7, 30, 31, 150]):
        model.partial_fit(X[rows], sample_weight=weights[rows])
    expected = mean_abld(X, *point, weights).mean
    np.testing.assert_allclose(model.cluster_centers_[0], expected, rtol=1e-9, atol=1e-11)
    assert model.weights_[0] == pytest.approx(weights.sum())
    assert model.n_steps_ == 5


def test_a_stream_of_numbers_is_a_geometric_mean():
    x = np.exp(np.random.default_rng(1).normal(0, 2, 300))
    model = MiniBatchABKMeans(1, (0, 0), init="random", random_state=0)
    for part in np.split(x, 30):
        model.partial_fit(part[:, None, None])
    assert np.log(model.cluster_centers_[0, 0, 0]) == pytest.approx(np.log(x).mean())


@pytest.mark.parametrize("point", [(0, 0), (0.5, 0.5), (0.5, 1.5), (3, 2)], ids=str)
def test_a_stream_comes_close_to_any_mean(point):
    X = wishart(np.random.default_rng(2), 4000, 3)
    model = MiniBatchABKMeans(1, point, init="random", random_state=0)
    for part in np.split(X, 40):
        model.partial_fit(part)
    mean = mean_abld(X, *point)
    assert -model.score(X) / len(X) == pytest.approx(mean.objective, rel=1e-3)


@pytest.mark.parametrize("divergence", ["stein", "airm", (0.5, 1.5)], ids=str)
def test_nearly_as_good_as_all_at_once(data, divergence):
    X, y = data
    batches = MiniBatchABKMeans(4, divergence, batch_size=200, random_state=0).fit(X)
    whole = ABKMeans(4, divergence, random_state=0).fit(X)
    assert batches.inertia_ < 1.01 * whole.inertia_
    best = adjusted_rand_score(y, whole.labels_)
    assert adjusted_rand_score(y, batches.labels_) > best - 0.03


def test_results_agree_with_each_other(data):
    X, _ = data
    weights = np.random.default_rng(0).integers(0, 3, len(X))
    found = MiniBatchABKMeans(4, batch_size=100, random_state=0).fit(X, sample_weight=weights)
    table = pairwise_abld(X, found.cluster_centers_, alpha=0.5, beta=1.5)
    np.testing.assert_array_equal(found.labels_, table.argmin(axis=1))
    np.testing.assert_array_equal(found.predict(X), found.labels_)
    np.testing.assert_allclose(found.transform(X), table, rtol=1e-10)
    assert found.inertia_ == pytest.approx(weights @ table.min(axis=1))
    assert found.score(X, sample_weight=weights) == pytest.approx(-found.inertia_)
    assert len(found.history_["objective"]) == found.n_steps_
    assert found.weights_.sum() > 0
    names = found.get_feature_names_out().tolist()
    assert names == [f"minibatchabkmeans{z}" for z in range(4)]


def test_a_seed_decides_everything(data):
    X, _ = data
    first, second = (MiniBatchABKMeans(4, batch_size=64, random_state=3).fit(X) for _ in range(2))
    np.testing.assert_array_equal(first.cluster_centers_, second.cluster_centers_)
    other = MiniBatchABKMeans(4, batch_size=64, random_state=4).fit(X)
    assert not np.array_equal(first.cluster_centers_, other.cluster_centers_)


def test_a_congruence_changes_nothing(data):
    X, _ = data
    A = np.random.default_rng(0).standard_normal((4, 4)) + 2 * np.eye(4)
    Y = A @ X @ A.T
    model = MiniBatchABKMeans(4, batch_size=100, random_state=0)
    first, second = clone(model).fit(X), clone(model).fit(0.5 * (Y + Y.mT))
    np.testing.assert_array_equal(first.labels_, second.labels_)


def test_a_file_will_do(data, tmp_path, monkeypatch):
    """A memory map is read block by block, and never copied as a whole."""
    X, _ = data
    np.save(tmp_path / "X.npy", X.astype(np.float32))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    monkeypatch.setattr(samples, "_TABLE_ENTRIES", 1200)
    monkeypatch.setattr(samples, "_LEAST_ROWS", 1)
    model = MiniBatchABKMeans(4, batch_size=100, random_state=0)
    first, second = clone(model).fit(mapped), clone(model).fit(X.astype(np.float32))
    np.testing.assert_array_equal(first.labels_, second.labels_)
    bad = X.copy()
    bad[1307] = -np.eye(4)
    with pytest.raises(ValueError, match=r"X\[1200:2000\]\[107\] has a diagonal entry"):
        clone(model).fit(bad)


def test_a_centroid_that_gets_nothing_starts_anew(data):
    X, y = data
    init = np.stack([X[y == z][0] for z in range(4)])
    init[2] *= 1e6
    found = MiniBatchABKMeans(4, init=init, batch_size=200, random_state=0).fit(X)
    assert len(np.unique(found.labels_)) == 4
    stuck = MiniBatchABKMeans(4, init=init, batch_size=200, reassignment_ratio=0, random_state=0)
    with pytest.warns(UserWarning, match="n_found=3 distinct clusters"):
        stuck.fit(X)


def test_streams_can_be_stored_and_go_on(data):
    X, _ = data
    model = MiniBatchABKMeans(4, random_state=0).partial_fit(X[:300])
    copy = pickle.loads(pickle.dumps(model))
    model.partial_fit(X[300:600])
    copy.partial_fit(X[300:600])
    np.testing.assert_array_equal(model.cluster_centers_, copy.cluster_centers_)
    assert model.message_ == "2 batches seen"
    assert len(model.labels_) == 300
    with pytest.raises(ValueError, match="X has matrices of size 2, but MiniBatchABKMeans is"):
        model.partial_fit(X[:10, :2, :2])


def test_fit_forgets_what_was(data):
    X, _ = data
    model = MiniBatchABKMeans(4, batch_size=100, random_state=0)
    first = clone(model).fit(X)
    second = clone(model).partial_fit(1e3 * X).fit(X)
    np.testing.assert_array_equal(first.cluster_centers_, second.cluster_centers_)
    assert first.n_steps_ == second.n_steps_


def test_it_says_why_it_stopped(data, capsys, monkeypatch):
    X, _ = data
    found = MiniBatchABKMeans(4, batch_size=100, random_state=0, verbose=1).fit(X)
    assert "no improvement" in found.message_
    assert "[MiniBatchABKMeans] batch 1: mean divergence" in capsys.readouterr().out
    found = MiniBatchABKMeans(4, batch_size=500, max_iter=1, random_state=0).fit(X)
    assert found.message_ == "max_iter=1 reached"
    assert (found.n_iter_, found.n_steps_) == (1, 4)
    step, calls = MiniBatchABKMeans._step, []

    def interrupt(self, batch):
        calls.append(0)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return step(self, batch)

    monkeypatch.setattr(MiniBatchABKMeans, "_step", interrupt)
    found = MiniBatchABKMeans(4, batch_size=100, random_state=0).fit(X)
    assert found.message_ == "interrupted by the user after 2 batches"
    np.testing.assert_array_equal(found.labels_, found.predict(X))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"divergence": "learn"}, "divergence='learn' must be given here, not learned; fit ABK"),
        ({"n_clusters": 3000}, "n_clusters=3000 must be <= n_matrices=2000"),
        ({"batch_size": 0}, "batch_size=0 must be >= 1"),
        ({"max_no_improvement": 0}, "max_no_improvement=0 must be >= 1"),
        ({"reassignment_ratio": -1}, "reassignment_ratio=-1 must be a finite number >= 0"),
        ({"init": "nearest"}, "init='nearest' must be one of"),
    ],
)
def test_bad_parameters(data, options, message):
    with pytest.raises(ValueError, match=message):
        MiniBatchABKMeans(**{"n_clusters": 4} | options).fit(data[0])
