"""Dask: the same results as one process, whatever happens to the workers."""

from __future__ import annotations

import os
import pickle
import signal
import time
import warnings

import numpy as np
import pytest

from divlearn.cluster import ABKMeans, ABMixture
from divlearn.datasets import make_wishart_clusters
from divlearn.engines import DaskEngine, available_engines, get_engine
from divlearn.iddl import IDDLClassifier, Recipe
from divlearn.sharded import encode, open_shards

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

MINIBATCHES = Recipe(loss="ridge", solver="stochastic", penalty=1e-2)
SETTINGS = {
    "cv": None,
    "recipe": Recipe(loss="ridge", penalty=1e-2),
    "random_state": 0,
    "max_iter": 3,
    "n_atoms": 4,
    "divergence": [(1.0, 1.0)],
}
CONFIGURATION = {
    # A worker writes to disk what it holds beyond 1 % of its memory.
    "distributed.worker.memory.target": 0.01,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.comm.timeouts.connect": "60s",
    # Idle workers take no work from others, so that the bytes that travel are always the same.
    "distributed.scheduler.work-stealing": False,
    # Workers are forked from a process that has imported what they need.
    "distributed.worker.multiprocessing-method": "forkserver",
}


@pytest.fixture(scope="module")
def client():
    with dask.config.set(CONFIGURATION):
        context = distributed.utils.get_mp_context()
    context.set_forkserver_preload(["distributed", "divlearn.cluster", "divlearn.iddl"])
    with dask.config.set(CONFIGURATION), warnings.catch_warnings():
        # A busy disk is no error.
        warnings.filterwarnings("ignore", message="Creating scratch directories")
        cluster = distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            memory_limit="1GB",
            dashboard_address=":0",
            silence_logs=50,
        )
        with cluster, distributed.Client(cluster) as client:
            yield client


WEIGHTS = np.random.default_rng(0).uniform(0.5, 2, 60)


@pytest.fixture(scope="module")
def data():
    return make_wishart_clusters(3, 20, 3, separation=2, random_state=0)


def arrays(X, y, rows):
    import dask.array as da

    return da.from_array(X, chunks=(rows, 2, 3)), da.from_array(y, chunks=17)


def close(first, second):
    np.testing.assert_allclose(first, second, rtol=1e-8, atol=1e-8)


def test_without_a_client_there_is_advice(data):
    with pytest.raises(ValueError, match="finds no client"):
        open_shards(data[0], engine="dask")


def test_classifiers_are_those_of_one_process(client, data):
    """By softmax; ridge regression is in what follows."""
    X, y = data
    settings = SETTINGS | {"recipe": Recipe(loss="softmax", penalty=1e-2), "max_iter": 1}
    whole = IDDLClassifier(**settings).fit(X, y)
    lazy, labels = arrays(X, y, 25)
    parts = IDDLClassifier(engine="dask", **settings).fit(lazy, labels)
    close(whole.atoms_, parts.atoms_)
    close(whole.alpha_, parts.alpha_)
    close(whole._scores(X), parts._scores(lazy))
    assert (whole.predict(X) == parts.predict(X)).all()  # an array is cut into shards


def test_minibatches_are_those_of_one_process(client, data):
    X, y = data
    settings, name = SETTINGS | {"recipe": MINIBATCHES, "max_iter": 1}, available_engines()[0]
    here, there = (
        IDDLClassifier(**settings).fit(
            open_shards(X, y, engine=engine, block_size=25, accuracy=1e-6), None
        )
        for engine in (name, DaskEngine(client, name))
    )
    close(here.atoms_, there.atoms_)
    close(here.history_["objective"], there.history_["objective"])


def test_clusters_are_those_of_one_process(client, data):
    X, y = data
    settings = {"divergence": "likelihood", "random_state": 0, "n_init": 1, "max_iter": 1}
    whole = ABKMeans(4, **settings).fit(X, None, WEIGHTS)
    lazy, _ = arrays(X, y, 25)
    parts = ABKMeans(4, engine="dask", **settings).fit(lazy, None, 1e-6 * WEIGHTS)
    assert parts.inertia_ == pytest.approx(whole.inertia_)  # weights are divided by their mean
    close(whole.cluster_centers_, parts.cluster_centers_)
    assert (whole.labels_ == parts.labels_).all()
    assert (parts.predict(lazy) == whole.labels_).all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_mixtures_are_those_of_one_process(client, data):
    X, y = data
    settings = {"init": X[::25], "max_iter": 1}
    whole = ABMixture(3, "wishart", **settings).fit(X)
    lazy, _ = arrays(X, y, 25)
    parts = ABMixture(3, "wishart", engine="dask", **settings).fit(lazy)
    for name in ("weights_", "means_", "alpha_", "beta_", "kappa_", "lower_bound_"):
        close(getattr(whole, name), getattr(parts, name))
    assert whole.message_ == parts.message_
    assert np.array_equal(parts.predict(lazy), whole.predict(X))
    close(parts.predict_proba(X), whole.predict_proba(X))  # an array is cut into shards
    close(parts.score_samples(lazy), whole.score_samples(X))
    close([parts.score(lazy), parts.bic(lazy)], [whole.score(X), whole.bic(X)])


def test_a_killed_worker_changes_nothing(client, data):
    X, y = data
    whole = IDDLClassifier(**SETTINGS).fit(X, y, WEIGHTS)
    lazy, labels = arrays(X, y, 10)
    shards = open_shards(lazy, labels, WEIGHTS, engine="dask", accuracy=1e-6)
    reduce, calls = shards.reduce, []

    def kill_in_between(*arguments, **options):
        calls.append(arguments)
        if len(calls) == 6:
            holds = client.has_what()
            busiest = max(holds, key=lambda address: len(holds[address]))
            assert holds[busiest]
            os.kill(client.run(os.getpid)[busiest], signal.SIGKILL)
        return reduce(*arguments, **options)

    shards.reduce = kill_in_between
    parts = IDDLClassifier(**SETTINGS).fit(shards, None)
    assert len(calls) > 6
    close(whole.atoms_, parts.atoms_)
    close(whole.history_["objective"], parts.history_["objective"])
    client.wait_for_workers(2, timeout=120)


def slow_down(seconds):
    """Let all encoding on a worker take its time; 0 ends that."""
    from divlearn.engines.base import Engine

    if not hasattr(Engine, "usual"):
        Engine.usual = Engine.encode

    def encode(self, *arguments, **options):
        time.sleep(seconds)
        return Engine.usual(self, *arguments, **options)

    Engine.encode = encode if seconds else Engine.usual


def test_a_slow_worker_changes_nothing(client, data):
    X, y = data
    slow = list(client.scheduler_info()["workers"])[:1]
    client.run(slow_down, 0.2, workers=slow)
    try:
        lazy, _ = arrays(X, y, 10)
        found = encode(lazy, X[:4], 1.0, 0.5)
    finally:
        client.run(slow_down, 0, workers=slow)
    close(found, get_engine().encode(X, X[:4], 1.0, 0.5))


def count_spilled(dask_worker):
    return len(dask_worker.data.slow)


def test_less_memory_than_data(client):
    X = np.linspace(1, 2, 40_000)[:, None, None] * np.eye(10)
    shards = open_shards(X, engine=DaskEngine(client), block_size=4000)  # 96 MB, packed too
    atoms = np.stack([np.eye(10), 3 * np.eye(10)])
    found = [encode(shards, atoms, 0.0, 0.0) for _ in range(2)]
    assert sum(client.run(count_spilled).values()) > 0
    expected = get_engine().encode(X, atoms, 0.0, 0.0)
    for one in found:
        np.testing.assert_allclose(one, expected, rtol=1e-12)


def test_errors_name_the_shard_and_the_index(client, data):
    X, y = data
    bad = X.copy()
    bad[43] = -bad[43]
    with pytest.raises(ValueError, match=r"shard 2 \(X\[40:60\]\), X\[3\] has a diagonal entry"):
        open_shards(arrays(bad, y, 20)[0])
    with pytest.raises(ValueError, match=r"shard 4 \(X\[40:50\]\), X\[3\] has a diagonal entry"):
        open_shards(bad, engine="dask", block_size=10)


def sent_by_worker(dask_worker):
    """Bytes to other workers and to the client."""
    return dask_worker.transfer_outgoing_bytes_total


@pytest.mark.usefixtures("small_samples")  # which do travel: 16 kB
def test_neither_matrices_nor_divergences_travel(client):
    X, y = make_wishart_clusters(2, 3000, 8, random_state=0)
    shards = open_shards(X, y, engine="dask", block_size=1500, accuracy=1e-6)
    shards.map(len)
    before = sum(client.run(sent_by_worker).values())
    settings = SETTINGS | {"recipe": Recipe(loss="ridge", init=X[:4], penalty=1e-2), "max_iter": 3}
    classifier = IDDLClassifier(**settings).fit(shards, None)
    sent = sum(client.run(sent_by_worker).values()) - before
    V = 8 * len(X) * 4
    # Atoms, gradients and statistics of about 2 kB each, at every trial.
    assert classifier.n_iter_ == 3
    assert sent < V < X.nbytes / 10


def test_dask_arrays_are_regularized_as_data_in_memory(client, data):
    X, y = data
    settings = {"regularize": "shrink", "random_state": 0, "n_init": 1}
    whole = ABKMeans(3, **settings).fit(X, None, WEIGHTS)
    parts = ABKMeans(3, **settings).fit(arrays(X, y, 25)[0], None, WEIGHTS)
    close(parts.shrinkage_, whole.shrinkage_)
    close(parts.cluster_centers_, whole.cluster_centers_)


def test_files_and_iterators_are_read_by_workers(client, tmp_path, data):
    import zarr

    X, y = data
    files = []
    for i, rows in enumerate(np.array_split(np.arange(60), 3)):
        files.append(str(tmp_path / f"{i}.npz"))
        np.savez(files[-1], X=X[rows], y=y[rows])
    np.save(tmp_path / "all.npy", X)
    zarr.save(tmp_path / "all.zarr", X)
    sources = [
        files,
        np.load(tmp_path / "all.npy", mmap_mode="r"),
        tmp_path / "all.zarr",
        lambda: iter(np.array_split(X, 4)),
    ]
    expected = get_engine().encode(X, X[:2], 1.0, 0.5)
    for source in sources:
        close(encode(source, X[:2], 1.0, 0.5, engine="dask", block_size=15), expected)
    shards = open_shards(files, files, engine="dask")
    np.testing.assert_array_equal(np.concatenate(shards.map(lambda block: block.y)), y)


def test_engines_travel_without_their_client(client):
    engine = pickle.loads(pickle.dumps(DaskEngine(client, "reference")))
    assert (engine.client, engine.engine) == (None, "reference")
    estimator = IDDLClassifier(engine=DaskEngine(client))
    from sklearn.base import clone

    assert clone(estimator).engine is estimator.engine
    with pytest.raises(ValueError, match="works where data comes in shards"):
        get_engine("dask")
