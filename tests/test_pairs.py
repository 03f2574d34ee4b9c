"""A divergence called for one pair of matrices after the other gives the same numbers."""

import copy
import pickle

import numpy as np
import pytest
from conftest import wishart

from divlearn import DivergenceKNN, get_divergence
from divlearn.divergence import for_pyriemann

distances = pytest.importorskip("pyriemann.geometry.distance")
datasets = pytest.importorskip("pyriemann.datasets")


def compute_directly(name, X, Y, squared=False):
    divergence = get_divergence(name)
    return np.array([[divergence(x, y, squared=squared) for y in Y] for x in X])


@pytest.mark.parametrize("name", ["log-cosh", "kullback", "jeffreys", "wasserstein", "thompson"])
@pytest.mark.parametrize("squared", [False, True])
def test_tables_of_pyriemann(name, squared):
    rng = np.random.default_rng(0)
    X, Y = wishart(rng, 9, 4), wishart(rng, 5, 4)
    distance = for_pyriemann(name)["distance"]
    table = distances.pairwise_distance(X, Y, metric=distance, squared=squared)
    np.testing.assert_allclose(table, compute_directly(name, X, Y, squared), rtol=1e-10)
    triangle = distances.pairwise_distance(X, metric=distance, squared=squared)
    upper = np.triu(compute_directly(name, X, X, squared), 1)
    np.testing.assert_allclose(triangle, upper + upper.T, rtol=1e-10)


@pytest.mark.parametrize("n_rows", [1, 100])
def test_any_order_of_pairs(monkeypatch, n_rows):
    monkeypatch.setattr("divlearn.divergence.pairs._FIRST_PRODUCTS", n_rows * 8 * 3**3)
    rng = np.random.default_rng(1)
    X = wishart(rng, 8, 3)
    X[5] = X[2]  # found by its contents twice
    expected = compute_directly("kullback", X, X)
    distance = for_pyriemann("kullback")["distance"]
    every = [(i, j) for i in range(8) for j in range(8)]
    for pairs in (every, rng.permutation(every), [(j, i) for i, j in every], every[::-1]):
        values = [distance(X[i], X[j], squared=False) for i, j in pairs]
        rows, columns = np.transpose(pairs)
        np.testing.assert_allclose(values, expected[rows, columns], rtol=1e-10, atol=1e-12)


def test_arrays_that_change_between_calls():
    rng = np.random.default_rng(2)
    X = wishart(rng, 6, 3)
    distance = for_pyriemann("log-cosh")["distance"]
    for scale in (1.0, 2.0, 3.0):
        X[3] = scale * np.eye(3)
        table = distances.pairwise_distance(X, X, metric=distance)
        np.testing.assert_allclose(table, compute_directly("log-cosh", X, X), atol=1e-12)


def test_a_few_calls_compute_a_table():
    """Or else every pair costs a check of two matrices."""
    calls = []

    def compare(A, B):
        calls.append(len(A))
        return ((A - B) ** 2).sum(axis=(1, 2))

    X = wishart(np.random.default_rng(3), 40, 3)
    distances.pairwise_distance(X, metric=for_pyriemann(compare)["distance"])
    assert len(calls) < 50  # of 780 pairs: 40 columns of one table, and the first pair alone


def count_divergences(monkeypatch, X, Y, pairs):
    """Ask for pairs one by one, check the values, and count what is computed in between."""
    count, pairwise = 0, type(get_divergence("kullback")).pairwise

    def counted(self, *arrays, **keywords):
        nonlocal count
        table = pairwise(self, *arrays, **keywords)
        count += table.size
        return table

    distance = for_pyriemann("kullback")["distance"]
    with monkeypatch.context() as patched:
        patched.setattr(type(get_divergence("kullback")), "pairwise", counted)
        values = [distance(X[i], Y[j], squared=False) for i, j in pairs]
    direct = [get_divergence("kullback")(X[i], Y[j], squared=False) for i, j in pairs]
    np.testing.assert_allclose(values, direct, rtol=1e-5, atol=1e-6)
    return count


def test_pairs_at_random_compute_no_tables(monkeypatch):
    X, rng = wishart(np.random.default_rng(5), 500, 2), np.random.default_rng(6)
    pairs = [(2 * i, 2 * i + 1) for i in range(100)]
    assert count_divergences(monkeypatch, X, X, pairs) == 0
    monkeypatch.setattr("divlearn.divergence.pairs._FIRST_PRODUCTS", 20 * 500 * 2**3)
    pairs = rng.integers(500, size=(100, 2))
    assert count_divergences(monkeypatch, X, X, pairs) < 100 * 2 / 500 * 10_000 * 3


def test_arrays_of_different_types_share_one_table(monkeypatch):
    rng = np.random.default_rng(7)
    X = wishart(rng, 6, 3)
    hermitian = datasets.make_matrices(5, 3, "hpd", 0)
    for Y in (wishart(rng, 5, 3).astype(np.float32), hermitian):
        for first, second in ((X, Y), (Y, X)):
            pairs = [(i, j) for i in range(len(first)) for j in range(len(second))]
            assert count_divergences(monkeypatch, first, second, pairs) == len(pairs)


def test_what_is_no_entry_of_an_array():
    X = datasets.make_matrices(4, 3, "hpd", 0)
    direct, distance = get_divergence("stein"), for_pyriemann("stein")["distance"]
    for A, B in ((X, X[0]), (X[0], X[1]), (X[1], X[0]), (X[0].tolist(), np.eye(3)), (X[:1], X[1])):
        np.testing.assert_allclose(distance(A, B), direct(A, B), rtol=1e-12)
    real = np.stack([np.eye(3), 2 * np.eye(3), np.zeros((3, 3))])
    for dtype in (np.float64, np.float32, np.int64):
        pairs = real.astype(dtype)
        for i, j in ((0, 1), (1, 0), (0, 1)):
            value = distance(pairs[i], pairs[j], squared=False)
            np.testing.assert_allclose(value, direct(real[0], real[1], squared=False), rtol=1e-6)
        with pytest.raises(ValueError, match="Y has a diagonal entry 0"):
            distance(pairs[0], pairs[2])


def test_copies_and_estimators_here():
    X = wishart(np.random.default_rng(4), 8, 3)
    metric = for_pyriemann("stein")
    distances.pairwise_distance(X, metric=metric["distance"])
    for twin in (copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        assert twin["distance"](X[0], X[1]) == get_divergence("stein")(X[0], X[1])
    assert get_divergence(metric["distance"]) == get_divergence("stein")
    expected = DivergenceKNN(2, "stein").fit(X, np.arange(8) % 2).kneighbors(X)[0]
    neighbors = DivergenceKNN(2, metric["distance"]).fit(X, np.arange(8) % 2)
    np.testing.assert_array_equal(neighbors.kneighbors(X)[0], expected)


def test_its_own_divergence_again():
    assert get_divergence(for_pyriemann("stein")) == get_divergence("stein")
