"""A fit that is killed goes on, and ends where the uninterrupted one ends, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from resuming import Killed, assert_resumes, comparable, writes
from same import assert_same

import divlearn
from divlearn.cluster import pairwise_f1_score
from divlearn.datasets import make_wishart_clusters


@pytest.fixture(scope="module")
def data():
    return make_wishart_clusters(3, 6, 2, separation=3, random_state=0)


IDDL = {
    "several models, two losses": {"cv": 2, "max_iter": 1},
    "one model": {"cv": None, "loss": "softmax", "max_iter": 3},
    "blocks": {"solver": "bcd", "cv": None, "loss": "ridge", "divergence": "N", "max_iter": 2},
    "minibatches": {"solver": "stochastic", "cv": 2, "loss": "ridge", "max_iter": 3},
    "hinge": {"loss": "hinge", "gamma": 1e-2, "cv": None, "max_iter": 1},
}


@pytest.mark.parametrize("name", IDDL)
def test_iddl_classifier(data, tmp_path, monkeypatch, name):
    model = divlearn.IDDLClassifier(n_atoms=2, random_state=0, **IDDL[name])
    assert_resumes(model, tmp_path / "fit", monkeypatch, *data)


@pytest.mark.parametrize("solver", ["joint", "bcd", "stochastic"])
def test_listeners_hear_of_iterations_before_the_kill(data, tmp_path, monkeypatch, solver):
    model = divlearn.IDDLClassifier(
        n_atoms=2, solver=solver, cv=None, loss="ridge", gamma=1e-2, max_iter=3, random_state=0
    )

    def events(last=None):
        told = []
        hear = divlearn.fitting.listen(lambda *news: told.append(news))
        with writes(monkeypatch, last) as done, divlearn.resumable(tmp_path / "fit"), hear:
            try:
                divlearn_clone(model).fit(*data)
            except Killed:
                assert last is not None
        return len(done), [news for news in told if news[0] == "iterations"]

    n_writes, whole = events()
    assert 0 < len(events(n_writes - 1)[1]) < len(whole)
    assert events()[1] == whole


def test_minibatches_in_the_middle_of_an_epoch(tmp_path, monkeypatch):
    X, y = make_wishart_clusters(2, 160, 2, separation=2, random_state=0)
    model = divlearn.IDDLClassifier(
        n_atoms=2,
        solver="stochastic",
        cv=None,
        loss="ridge",
        gamma=1e-2,
        max_iter=2,
        random_state=0,
    )
    assert_resumes(model, tmp_path / "fit", monkeypatch, X, y, shares=(0.7,))


def test_iddl_regressor(data, tmp_path, monkeypatch):
    X, _ = data
    model = divlearn.IDDLRegressor(n_atoms=3, cv=2, max_iter=2, random_state=0)
    assert_resumes(model, tmp_path / "fit", monkeypatch, X, np.linalg.slogdet(X)[1])


def test_iddl_transformer(data, tmp_path, monkeypatch):
    model = divlearn.IDDLTransformer(n_atoms=3, loss="ridge", cv=2, max_iter=2, random_state=0)
    assert_resumes(model, tmp_path / "fit", monkeypatch, *data, shares=(0.5,))


@pytest.mark.usefixtures("short_fits")
def test_committee(data, tmp_path, monkeypatch):
    members = ("start softmax", "iddl softmax", "tangent lda")
    model = divlearn.SPDClassifier(members, cv=2, random_state=0)
    assert_resumes(model, tmp_path / "fit", monkeypatch, *data, shares=(0.05, 0.9))


CLUSTERING = {
    "k-means": divlearn.ABKMeans(3, n_init=2, tol=0, random_state=0),
    "k-means, learned": divlearn.ABKMeans(3, "learn", n_init=2, random_state=0),
    "k-means, of the paper": divlearn.ABKMeans.paper(3).set_params(random_state=0),
    "mixture": divlearn.ABMixture([1, 2], "wishart", random_state=0),
    "mixture, learned": divlearn.ABMixture(2, share="divergence", random_state=1),
}


@pytest.fixture
def short_mixtures(monkeypatch):
    """A few iterations tell whether they go on."""
    monkeypatch.setattr("divlearn.cluster.mixture.TOLERANCE", 1e-2)


@pytest.mark.usefixtures("short_mixtures")
@pytest.mark.parametrize("name", CLUSTERING)
def test_clusters(data, tmp_path, monkeypatch, name):
    model = CLUSTERING[name]
    assert_resumes(model, tmp_path / "fit", monkeypatch, data[0])


def test_a_mixture_that_moves(tmp_path, monkeypatch):
    """Moves draw at random, and remember what was drawn."""
    X, _ = make_wishart_clusters(4, 8, 2, separation=6, random_state=3)
    model = divlearn.ABMixture(4, "wishart", init="random", random_state=5)
    assert_resumes(model, tmp_path / "fit", monkeypatch, X, shares=(0.7,))


@pytest.mark.parametrize("random_state", [None, np.random.RandomState(3)])
@pytest.mark.parametrize(
    "model",
    [
        divlearn.ABKMeans(3, init="random", n_init=3),
        divlearn.IDDLClassifier(n_atoms=3, loss="ridge", cv=2, max_iter=1, init="samples"),
    ],
    ids=lambda model: type(model).__name__,
)
def test_what_was_drawn_is_not_drawn_again(data, tmp_path, monkeypatch, model, random_state):
    """Whatever the generator does after the kill, the fit ends as it had begun."""
    model.set_params(random_state=random_state)
    path = tmp_path / "fit"
    (random_state or np.random.mtrand._rand).seed(0)
    with writes(monkeypatch) as done, divlearn.resumable(path):
        whole = comparable(divlearn_clone(model).fit(*data))
    (random_state or np.random.mtrand._rand).seed(0)
    with (
        writes(monkeypatch, round(0.6 * len(done))),
        pytest.raises(Killed),
        divlearn.resumable(path),
    ):
        divlearn_clone(model).fit(*data)
    with divlearn.resumable(path):
        resumed = comparable(divlearn_clone(model).fit(*data))
    for key in ("_random", "random_state"):  # these stand where others left them
        whole.pop(key, None)
        resumed.pop(key, None)
    assert_same(resumed, whole)


def divlearn_clone(model):
    """Like `sklearn.clone`, with the same generator."""
    return type(model)(**model.get_params())


# ---------------------------------------------------------------------- shards


SHARDED = {
    "k-means": divlearn.ABKMeans(3, n_init=2, tol=0, random_state=0),
    "mixture": divlearn.ABMixture(2, random_state=1),
    "joint": divlearn.IDDLClassifier(
        n_atoms=3, cv=None, loss="softmax", gamma=1e-2, max_iter=3, random_state=0
    ),
    "stochastic": divlearn.IDDLRegressor(
        n_atoms=3, cv=None, gamma=1e-2, solver="stochastic", max_iter=3, random_state=0
    ),
}


@pytest.mark.usefixtures("short_mixtures")
@pytest.mark.parametrize("name", SHARDED)
def test_shards(data, tmp_path, monkeypatch, name):
    X, y = data
    folder = tmp_path / "shards"
    folder.mkdir()
    for start in (0, 6, 12):
        part = slice(start, start + 6)
        np.savez(folder / f"{start:02}.npz", X=X[part], y=y[part])
    (tmp_path / "work").mkdir()
    files = sorted(folder.iterdir())
    model = SHARDED[name]
    targets = (files,) if hasattr(model, "class_weight") or "Regressor" in repr(model) else ()
    assert_resumes(model, tmp_path / "work" / "fit", monkeypatch, files, *targets)
    path = tmp_path / "work" / "fit"
    with writes(monkeypatch, 2), pytest.raises(Killed), divlearn.resumable(path):
        divlearn_clone(model).fit(files, *targets)
    np.savez(files[1], X=2 * X[6:12], y=y[6:12])
    with (
        pytest.raises(ValueError, match="belongs to another fit: X must be"),
        divlearn.resumable(path),
    ):
        divlearn_clone(model).fit(files, *targets)


def test_memory_maps(tmp_path, monkeypatch):
    X, y = make_wishart_clusters(3, 40, 2, separation=6, random_state=0)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    (tmp_path / "work").mkdir()
    model = divlearn.ABKMeans(3, n_init=2, random_state=0)
    assert_resumes(model, tmp_path / "work" / "fit", monkeypatch, mapped)
    assert pairwise_f1_score(y, model.fit(mapped).labels_) > 0.9
