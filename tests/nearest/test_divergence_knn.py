"""Nearest neighbours in divergences, against brute force and peers."""

from __future__ import annotations

import numpy as np
import pytest
from pyriemann.classification import KNearestNeighbor
from scipy.spatial.distance import cdist
from sklearn.neighbors import KNeighborsClassifier

from divlearn import abld, get_divergence
from divlearn.datasets import make_wishart_clusters
from divlearn.log_vectors import log_vectors
from divlearn.nearest import DivergenceKNN, NearestClassifier


def classes(seed: int, n: int = 60, d: int = 4, separation: float = 2.0):
    X, y = make_wishart_clusters(3, n // 3, d, separation=separation, random_state=seed)
    order = np.random.default_rng(seed).permutation(n)
    return X[order], y[order]


def brute_force(X, Y, divergence):
    """Distances of every pair, one at a time."""
    if divergence == "log-euclidean":
        return cdist(log_vectors(X), log_vectors(Y))
    known = get_divergence(divergence)
    return np.array([[float(known(x, y, squared=False)) for y in Y] for x in X])


# --- neighbours


@pytest.mark.parametrize(
    "divergence",
    ["airm", "stein", "burg", "kullback-right", "jeffreys", "log-euclidean", (0.5, 1.5), (-1, 0)],
)
def test_neighbors_are_those_of_brute_force(divergence):
    X, y = classes(0)
    queries, X, y = X[55::3], X[:30], y[:30]
    table = brute_force(queries, X, divergence)
    order = np.argsort(table, axis=1, kind="stable")
    model = DivergenceKNN(5, divergence).fit(X, y)
    distances, found = model.kneighbors(queries)
    np.testing.assert_array_equal(found, order[:, :5])
    nearest = np.take_along_axis(table, order[:, :5], 1)
    np.testing.assert_allclose(distances, nearest, rtol=1e-9)
    more = model.kneighbors(queries, 30, return_distance=False)
    np.testing.assert_array_equal(more, order)


def test_the_query_comes_first():
    X, y = classes(1)
    distances, found = DivergenceKNN(1, (0.0, 1.0)).fit(X[:30], y[:30]).kneighbors(X[30:])
    nearest = X[:30][found[:, 0]]
    np.testing.assert_allclose(distances[:, 0], abld(X[30:], nearest, 0, 1), rtol=1e-10)
    assert not np.allclose(distances[:, 0], abld(nearest, X[30:], 0, 1), rtol=1e-2)


def test_blocks_of_queries_and_of_training_matrices():
    """More than 1024 of these and 4096 of those: each scalar is its own nearest neighbour."""
    values = np.linspace(-3, 3, 1100)
    model = DivergenceKNN(2).fit(numbers(*values), np.arange(1100) % 2)
    queries = np.random.default_rng(0).integers(1, 1099, 4200)
    distances, found = model.kneighbors(numbers(*values[queries] + 1e-3))
    np.testing.assert_array_equal(found, np.c_[queries, queries + 1])
    gaps = [1e-3, values[1] - values[0] - 1e-3]
    np.testing.assert_allclose(distances, np.broadcast_to(gaps, (4200, 2)), rtol=1e-9)


def test_copies_are_at_distance_zero_and_ordered():
    X, y = classes(3)
    for divergence in ("stein", "log-euclidean"):
        doubled = DivergenceKNN(2, divergence).fit(np.r_[X, X], np.r_[y, y])
        distances, found = doubled.kneighbors(X[:9])
        np.testing.assert_allclose(distances, 0, atol=1e-6)
        np.testing.assert_array_equal(np.sort(found, axis=1), np.c_[:9, 60:69])


@pytest.mark.parametrize("engine", ["reference", "auto"])
def test_engines_agree(engine):
    X, y = classes(4)
    model = DivergenceKNN(4, (0.3, 0.9), engine=engine).fit(X[:40], y[:40])
    table = brute_force(X[57:], X[:40], (0.3, 0.9))
    np.testing.assert_allclose(model.kneighbors(X[57:])[0], np.sort(table, axis=1)[:, :4])


# --- votes


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("airm", "riemann"),
        ("stein", "logdet"),
        ("log-euclidean", "logeuclid"),
        ("kullback", "kullback"),
        ("jeffreys", "kullback_sym"),
    ],
)
def test_one_neighbor_as_pyriemann(ours, theirs):
    X, y = classes(5, n=120, separation=1.0)
    model = DivergenceKNN(1, ours).fit(X[:80], y[:80])
    peer = KNearestNeighbor(1, metric=theirs).fit(X[:80], y[:80])
    np.testing.assert_array_equal(model.predict(X[80:]), peer.predict(X[80:]))


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_shares_as_scikit_learn(weights):
    X, y = classes(6, n=120, separation=1.0)
    model = DivergenceKNN(7, "log-euclidean", weights).fit(X[:80], y[:80])
    peer = KNeighborsClassifier(7, weights=weights).fit(log_vectors(X[:80]), y[:80])
    shares = model.predict_proba(X)  # of training matrices too, at distance zero
    np.testing.assert_allclose(shares, peer.predict_proba(log_vectors(X)), atol=1e-9)
    assert (shares.max(axis=1) < 1).mean() > 0.2


def numbers(*values: float) -> np.ndarray:
    """1 by 1 matrices whose log-Euclidean distances are those of the values."""
    return np.exp(np.array(values))[:, None, None]


@pytest.mark.parametrize(("ours", "theirs"), [("airm", "riemann"), ("log-euclidean", "logeuclid")])
def test_ties_go_to_the_first_class_as_in_pyriemann(ours, theirs):
    X, y = classes(5, n=120, separation=0.5)
    for k in (2, 4, 5):
        model = DivergenceKNN(k, ours).fit(X[:60], y[:60])
        peer = KNearestNeighbor(k, metric=theirs).fit(X[:60], y[:60])
        ranked = np.sort(model.predict_proba(X[60:]), axis=1)
        assert (ranked[:, -1] == ranked[:, -2]).sum() > 5
        np.testing.assert_array_equal(model.predict(X[60:]), peer.predict(X[60:]))


@pytest.mark.parametrize("divergence", ["airm", "log-euclidean"])
def test_weights_multiply_votes(divergence):
    X, y, weights = numbers(0, 1, 2, 3), ["b", "a", "b", "a"], [3.0, 1.0, 0.0, 2.0]
    model = DivergenceKNN(2, divergence).fit(X, y, weights)
    # Neighbours are 0 and 1, then 1 and 3: 2 has no weight.
    np.testing.assert_allclose(model.predict_proba(numbers(0.1, 2.1)), [[0.25, 0.75], [1, 0]])
    assert model.predict(numbers(0.9)).tolist() == ["b"]
    assert model.kneighbors(numbers(2.1), return_distance=False).tolist() == [[3, 1]]
    near = DivergenceKNN(2, divergence, "distance").fit(X, y, weights)
    np.testing.assert_allclose(near.predict_proba(numbers(0.25)), [[0.1, 0.9]])  # 1/0.75, 3/0.25
    left = DivergenceKNN(2, divergence).fit(X[:2], y[:2], [1, 1])
    right = DivergenceKNN(2, divergence).fit(X, y, [1, 1, 0, 0])
    np.testing.assert_array_equal(left.predict_proba(X), right.predict_proba(X))
    # More neighbours than there are with a weight are all of them.
    np.testing.assert_allclose(
        DivergenceKNN(4, divergence).fit(X, y, weights).predict_proba(X), np.full((4, 2), 0.5)
    )


def test_a_copy_outvotes_all_others_by_distance():
    X, y = numbers(0, 0.1, 0.2, 5), [1, 0, 0, 0]
    assert DivergenceKNN(3).fit(X, y).predict(X[:1]).tolist() == [0]
    model = DivergenceKNN(3, weights="distance").fit(X, y)
    assert model.predict(X[:1]).tolist() == [1]
    np.testing.assert_allclose(model.predict_proba(X[:1]), [[0, 1]])


def test_distances_beyond_all_range():
    X, y = numbers(-350, 0, 350), [0, 1, 1]
    model = DivergenceKNN(2, (0, 3), "distance").fit(X, y)
    shares = model.predict_proba(numbers(352.0))
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert model.predict(numbers(352.0)).tolist() == [1]


# --- among other estimators


def test_single_precision():
    X, y = classes(8)
    single = DivergenceKNN(3).fit(X[:40].astype("float32"), y[:40]).kneighbors(X[40:])
    double = DivergenceKNN(3).fit(X[:40], y[:40]).kneighbors(X[40:])
    np.testing.assert_allclose(single[0], double[0], rtol=1e-4)


# --- what is wrong is said


@pytest.mark.parametrize(
    ("parameters", "kind", "message"),
    [
        ({"n_neighbors": 0}, ValueError, r"n_neighbors=0 must be >= 1"),
        ({"n_neighbors": 1.5}, TypeError, r"n_neighbors=1.5 must be an integer"),
        ({"divergence": "near"}, ValueError, r"divergence='near' must be one of airm"),
        ({"weights": "both"}, ValueError, r"weights='both' must be one of uniform, distance"),
        ({"engine": "fast"}, ValueError, r"engine='fast' must be"),
    ],
)
def test_wrong_parameters(parameters, kind, message):
    X, y = classes(9)
    with pytest.raises(kind, match=message):
        DivergenceKNN(**parameters).fit(X, y)


def test_more_neighbors_than_matrices():
    X, y = classes(10)
    with pytest.raises(ValueError, match=r"n_neighbors=99 must be >= 1 and <= 60, the number"):
        DivergenceKNN().fit(X, y).kneighbors(X, 99)


# --- nearest matrices of every class


def test_matrices_are_classified_one_by_one():
    """One that is far off, such as a burst of noise, says nothing of the others."""
    X, y = make_wishart_clusters(3, 20, 3, separation=1.5, random_state=0)
    model = NearestClassifier(random_state=0).fit(X, y)
    assert model.best_params_["divergence"].name == "symmetrized (0, 1)"  # grows without bound
    alone = np.concatenate([model.predict_proba(one[None]) for one in X])
    together = model.predict_proba(np.concatenate([X, 1e16 * X[:1]]))[:-1]
    np.testing.assert_allclose(together, alone, atol=1e-12)


def test_messages_name_divergences():
    X, y = classes(0)
    model = NearestClassifier(random_state=0).fit(X, y)
    name = model.best_params_["divergence"].name
    assert model.message_.startswith(f"divergence = {name}, n_neighbors = ")


@pytest.mark.parametrize("size", [1.0, 1e-12, 1e200, 1e-200])
@pytest.mark.parametrize("spread", [1e-3, 1e-9])
@pytest.mark.parametrize(
    "metric", ["euclidean", "log-euclidean", "cholesky", "log-cholesky", "harmonic"]
)
def test_neighbours_of_nearly_equal_matrices_of_any_size(metric, spread, size):
    """Squares of vectors have 16 digits, their differences fewer, and may overflow."""
    random = np.random.default_rng(0)
    noise = random.normal(size=(70, 3, 3))
    X = size * (np.eye(3) + spread * (noise + noise.mT))
    X, new = X[:40], X[40:]
    distances, neighbors = DivergenceKNN(3, metric).fit(X, np.arange(40) % 2).kneighbors(new)
    embed = get_divergence(metric).embed
    unit = np.abs(embed(X)).max()
    gaps = (embed(new)[:, None] - embed(X)) / unit
    expected = np.sqrt((gaps**2).sum(axis=2))
    np.testing.assert_array_equal(neighbors, np.argsort(expected, axis=1)[:, :3])
    np.testing.assert_allclose(distances, unit * np.sort(expected, axis=1)[:, :3], rtol=1e-7)


def test_copies_are_neighbours_in_their_order():
    X = np.repeat(1e3 * np.array([np.eye(2), 2 * np.eye(2)]), 50, axis=0)
    model = DivergenceKNN(3, "log-euclidean").fit(X, np.arange(100) % 2)
    assert model.kneighbors(X[[0, 60]])[1].tolist() == [[0, 1, 2], [50, 51, 52]]
