"""The registry of named divergences, and pyRiemann's functions as their oracles."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from conftest import EPS, wishart
from sklearn.base import clone

from divlearn import DIVERGENCES, ABDivergence, abld, get_divergence, pairwise_abld
from divlearn.divergence import for_pyriemann
from divlearn.divergence.named import MEMBERS
from divlearn.nearest import DivergenceKNN

distances = pytest.importorskip("pyriemann.geometry.distance")

# pyRiemann's function, and whether what it returns is a distance whose square is the divergence.
PEERS = {
    "airm": (distances.distance_riemann, True),
    "stein": (distances.distance_logdet, True),
    "kullback": (distances.distance_kullback, False),
    "kullback-right": (distances.distance_kullback_right, False),
    "jeffreys": (distances.distance_kullback_sym, False),
}


def data(n: int = 6, d: int = 4):
    rng = np.random.default_rng(0)
    return wishart(rng, n, d, 3 * d), wishart(rng, n, d, 3 * d)


def closeness(X, Y) -> float:
    """Peers subtract log-determinants: d eps times condition, against values of order one."""
    return 10 * X.shape[-1] * EPS * float(np.linalg.cond(X).max() * np.linalg.cond(Y).max())


@pytest.mark.parametrize("name", PEERS)
def test_against_pyriemann(name):
    X, Y = data()
    theirs, is_distance = PEERS[name]
    ours = get_divergence(name)
    plain = np.array([theirs(x, y) for x, y in zip(X, Y, strict=True)])
    textbook = plain**2 if is_distance else plain
    np.testing.assert_allclose(ours(X, Y), textbook, rtol=closeness(X, Y))
    np.testing.assert_allclose(ours(X, Y, squared=False), plain, rtol=closeness(X, Y))
    squares = [theirs(x, y, squared=True) for x, y in zip(X, Y, strict=True)]
    np.testing.assert_allclose(ours(X, Y, squared=True), squares, rtol=closeness(X, Y))


@pytest.mark.parametrize(
    ("name", "peer"), [("burg", "kullback"), ("reverse-burg", "kullback_right")]
)
def test_burg_is_twice_kullback(name, peer):
    X, Y = data()
    theirs = [2 * distances.distance(x, y, metric=peer) for x, y in zip(X, Y, strict=True)]
    np.testing.assert_allclose(get_divergence(name)(X, Y), theirs, rtol=closeness(X, Y))


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("name", PEERS)
def test_as_a_metric_of_pyriemann(name, squared):
    X, Y = data()
    metric, peer = get_divergence(name), name.replace("-", "_")
    peer = {"airm": "riemann", "stein": "logdet", "jeffreys": "kullback_sym"}.get(peer, peer)
    for first in (X, X[0]):
        ours = distances.distance(first, Y[0], metric=metric, squared=squared)
        theirs = distances.distance(first, Y[0], metric=peer, squared=squared)
        assert np.shape(ours) == np.shape(theirs)
        np.testing.assert_allclose(ours, theirs, rtol=closeness(X, Y))
    table = distances.pairwise_distance if hasattr(distances, "pairwise_distance") else None
    if table is not None:
        np.testing.assert_allclose(
            table(X, Y, metric=metric, squared=squared),
            table(X, Y, metric=peer, squared=squared),
            rtol=closeness(X, Y),
        )


@pytest.mark.parametrize(
    ("name", "peer"),
    [
        ("airm", "riemann"),
        ("stein", "logdet"),
        ("kullback", {"mean": "euclid", "distance": "kullback"}),
        ("kullback-right", {"mean": "harmonic", "distance": "kullback_right"}),
        ((-1, 0), {"mean": "euclid", "distance": get_divergence("burg")}),
        ("log-cosh", None),
        ("jeffreys", "kullback_sym"),
        ("wasserstein", "wasserstein"),
    ],
)
def test_in_estimators_of_pyriemann(name, peer):
    from pyriemann.classification import MDM, KNearestNeighbor
    from pyriemann.clustering import Kmeans

    rng = np.random.default_rng(1)
    X = np.concatenate([wishart(rng, 10, 3), wishart(rng, 10, 3) * [[[9.0]]]])
    y, weights = np.repeat([0, 1], 10), rng.uniform(0.5, 2, 20)
    metric = for_pyriemann(name)
    mdm = clone(MDM(metric=metric)).fit(X, y, sample_weight=weights)
    assert (mdm.predict(X) == y).mean() >= 0.9
    mean = mdm.covmeans_[0]
    expected = get_divergence(name)(X, mean, squared=False)
    np.testing.assert_allclose(mdm.transform(X)[:, 0], expected, rtol=closeness(X, X))
    if peer is None:  # which pyRiemann has not: nothing near the mean has a lower sum
        near = np.eye(3) + 0.01 * wishart(rng, 20, 3)
        sums = weights[:10] @ get_divergence(name).pairwise(X[:10], [mean, *(near @ mean @ near)])
        assert sums[0] == sums.min()
    else:
        theirs = MDM(metric=peer).fit(X, y, sample_weight=weights)
        np.testing.assert_allclose(mdm.covmeans_, theirs.covmeans_, rtol=1e-3)
    assert (KNearestNeighbor(3, metric=metric).fit(X, y).predict(X) == y).mean() >= 0.9
    labels = Kmeans(2, metric=metric, init=X[[0, 10]]).fit(X).labels_
    assert (labels == y).mean() >= 0.9


def test_every_name_of_pyriemann_means_the_same():
    X, Y = data()
    for name in distances.distance_functions:
        model = DivergenceKNN(1, metric=name).fit(Y, [0, 0, 0, 1, 1, 1])
        found, places = model.kneighbors(X, 6)
        expected = np.array([[distances.distance(x, y, metric=name) for y in Y] for x in X])
        expected = np.take_along_axis(expected, places, axis=1)
        np.testing.assert_allclose(found, expected, rtol=closeness(X, Y))


@pytest.mark.parametrize("divergence", MEMBERS, ids=lambda one: one.name)
def test_each_is_its_member_scaled(divergence):
    X, Y = data()
    assert DIVERGENCES[divergence.name] is divergence
    assert divergence.formula
    value = divergence.scale * abld(X, Y, divergence.alpha, divergence.beta)
    if divergence.symmetrized:
        back = divergence.scale * abld(Y, X, divergence.alpha, divergence.beta)
        value = (value + back) / 2
    np.testing.assert_allclose(divergence(X, Y), value, rtol=closeness(X, Y))
    assert divergence(X[0], Y[0]) == pytest.approx(value[0], rel=closeness(X, Y))
    np.testing.assert_allclose(
        np.diag(divergence.pairwise(X, Y)), value, rtol=closeness(X, Y), atol=0
    )
    itself = divergence.pairwise(X)
    assert (np.diag(itself) == 0).all()
    np.testing.assert_allclose(itself[0, 1], divergence(X[0], X[1]), rtol=closeness(X, X))
    assert pickle.loads(pickle.dumps(divergence)) == divergence


def test_textbook_formulas_of_the_rest():
    X, Y = data()
    d = X.shape[-1]
    quotient, inverse = X @ np.linalg.inv(Y), Y @ np.linalg.inv(X)
    trace = np.trace(quotient + inverse, axis1=1, axis2=2)
    close = closeness(X, Y)
    np.testing.assert_allclose(get_divergence("jeffreys")(X, Y), trace / 2 - d, rtol=close)
    cosh = np.linalg.slogdet((quotient + inverse) / 2)[1]
    np.testing.assert_allclose(get_divergence("log-cosh")(X, Y), cosh, rtol=close)


def test_aliases():
    for divergence in DIVERGENCES.values():
        for alias in (divergence.name, *divergence.aliases):
            assert get_divergence(alias) is divergence
            assert get_divergence(f" {alias.upper().replace('-', '_')} ") is divergence
    every = [a for d in DIVERGENCES.values() for a in (d.name, *d.aliases)]
    assert len(every) == len(set(every))
    for alias, name in (
        ("riemann", "airm"),
        ("logdet", "stein"),
        ("jbld", "stein"),
        ("kullback_sym", "jeffreys"),
        ("Kullback Right", "kullback-right"),
        ("paper burg", "log-cosh"),
    ):
        assert get_divergence(alias).name == name
    assert get_divergence("burg") is not get_divergence("iddl-burg")
    assert (get_divergence("burg").alpha, get_divergence("burg").beta) == (0, 1)
    assert (get_divergence("log-cosh").alpha, get_divergence("log-cosh").beta) == (1, 1)


def test_points_of_the_plane():
    X, Y = data()
    member = get_divergence((0.3, 0.8))
    assert (member.alpha, member.beta, member.scale) == (0.3, 0.8, 1.0)
    assert member.name == "(0.3, 0.8)"
    assert np.array_equal(member(X, Y), abld(X, Y, 0.3, 0.8))
    assert np.array_equal(member.pairwise(X, Y), pairwise_abld(X, Y, alpha=0.3, beta=0.8))
    assert get_divergence(member) is member
    assert get_divergence(np.array([0, 1])).beta == 1.0


def test_symmetrize():
    X, Y = data()
    both = get_divergence("burg").symmetrize()
    assert both.symmetrized
    np.testing.assert_allclose(both(X, Y), both(Y, X), rtol=closeness(X, Y))
    np.testing.assert_allclose(both(X, Y), get_divergence("jeffreys")(X, Y), rtol=closeness(X, Y))
    assert both.symmetrize() is both
    stein = get_divergence("stein")
    assert stein.symmetrize() is stein
    table = get_divergence((0.2, 0.9)).symmetrize().pairwise(X)
    np.testing.assert_allclose(table, table.T, rtol=closeness(X, X))


@pytest.mark.parametrize("name", ["airm", "kullback", "jeffreys"])
def test_pairwise_passes_its_options_on(name, engine):
    X, Y = data()
    divergence = get_divergence(name)
    out = np.empty((6, 6))
    table = divergence.pairwise(X, Y, engine=engine, out=out)
    np.testing.assert_allclose(
        table, [[divergence(x, y) for y in Y] for x in X], rtol=closeness(X, Y)
    )
    assert table is out
    squared = divergence.pairwise(X, Y, squared=True, engine=engine)
    expected = table if divergence.squared_distance else table**2
    np.testing.assert_allclose(squared, expected, rtol=closeness(X, Y))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("manhattan", r"divergence='manhattan' must be one of airm, riemann, .*\(alpha, beta\)"),
        ((1.0,), r"must be a name or a pair of finite numbers"),
        ((1.0, 2.0, 3.0), r"must be a name or a pair of finite numbers"),
        ((1.0, "x"), r"must be a name or a pair of finite numbers"),
        (3.0, r"must be a name or a pair of finite numbers"),
        (None, r"divergence=None must be a name or a pair of finite numbers"),
        ((np.nan, 1.0), r"pair of finite numbers"),
    ],
)
def test_errors(wrong, message):
    with pytest.raises(ValueError, match=message):
        get_divergence(wrong)


def test_divergences_are_values():
    assert ABDivergence("x", 0.0, 1.0) == ABDivergence("x", 0.0, 1.0)
    assert hash(get_divergence("stein")) == hash(get_divergence("jbld"))
    with pytest.raises(AttributeError):
        get_divergence("stein").alpha = 3.0


@pytest.mark.parametrize("name", ["airm", "burg", "jeffreys"])
@pytest.mark.parametrize("squared", [None, False, True])
def test_pairwise_leaves_its_result_in_out(name, squared):
    X = wishart(np.random.default_rng(3), 5, 3)
    out = np.empty((5, 5))
    divergence = get_divergence(name)
    assert divergence.pairwise(X, X, squared=squared, out=out) is out
    np.testing.assert_array_equal(out, divergence.pairwise(X, X, squared=squared))
