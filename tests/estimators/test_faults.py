"""What happens around the work: threads, forks, Ctrl-C and full disks."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from engine_calls import ActingEngine
from interrupting import press_ctrl_c
from same import assert_same
from sklearn.base import clone
from threadpoolctl import threadpool_info, threadpool_limits

import divlearn
from divlearn.datasets import make_wishart_clusters
from divlearn.engines import get_engine
from divlearn.engines.pencil import decompose
from divlearn.fitting.progress import is_interrupted, stoppable, user_call
from divlearn.iddl import Recipe
from divlearn.threads import limit_blas

pytestmark = pytest.mark.usefixtures("small_grids_everywhere")

HANGS = 900  # seconds: far beyond what the busiest machine needs
FITS = {
    "IDDL": divlearn.IDDLClassifier(
        3, recipe=Recipe(loss="softmax"), rank="full", cv=2, max_iter=2
    ),
    "committee": divlearn.SPDClassifier(("tangent logistic", "tangent lda"), cv=2),
    "k-means": divlearn.ABKMeans(3, "likelihood", n_init=1, max_iter=2),
    "mixture": divlearn.ABMixture(2, "wishart"),
}


@pytest.fixture(scope="module")
def data():
    return make_wishart_clusters(3, 8, 2, separation=3, random_state=0)


def learned(model):
    for one in (model, *getattr(model, "members_", {}).values()):
        getattr(one, "history_", {}).pop("seconds", None)
    return vars(model)


def test_many_fits_at_once_in_threads(data, tmp_path):
    """Each is what it is alone, whatever runs beside it; checkpoints do not meet."""
    X, y = data
    names = [*FITS, *FITS]  # the first of each without a checkpoint
    alone = {
        name: learned(clone(model).set_params(random_state=0).fit(X, y))
        for name, model in FITS.items()
    }

    def fit(number: int):
        path = tmp_path / str(number) if number >= len(FITS) else None
        model = clone(FITS[names[number]]).set_params(random_state=0)
        with divlearn.resumable(path):
            return learned(model.fit(X, y))

    with ThreadPoolExecutor(8) as pool:
        for name, found in zip(names, pool.map(fit, range(len(names))), strict=True):
            assert_same(found, alone[name])
    assert not list(tmp_path.iterdir())


def test_limits_of_blas_that_overlap_end_where_they_began():
    with threadpool_limits(2, "blas"):
        before = blas_threads()
        first, second = limit_blas(1), limit_blas(1)
        first.__enter__()
        second.__enter__()
        assert blas_threads() == {1}
        first.__exit__(None, None, None)
        second.__exit__(None, None, None)
        assert blas_threads() == before != {1}


def blas_threads():
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def test_an_interrupt_is_for_one_thread():
    """Work in another goes on: nobody has asked it to stop."""
    with user_call():
        with stoppable():
            press_ctrl_c()
        assert is_interrupted()
        with ThreadPoolExecutor(1) as pool:
            assert not pool.submit(is_interrupted).result()


FORK = """
import os, sys
import numpy as np
import divlearn
from divlearn.datasets import make_wishart_clusters
from divlearn.engines import available_engines, get_engine
X, y = make_wishart_clusters(2, 10_000, 5, random_state=0)  # work for two threads

def work(engine, some):
    encoded = engine.encode(some, X[:2], 0.5, 0.7)
    back = engine.pullback(some, X[:2], 0.5, 0.7, np.ones_like(encoded))
    kmeans = divlearn.ABKMeans(3, n_init=1, max_iter=2, random_state=0, engine=engine)
    centers = kmeans.fit(X[::1000]).cluster_centers_
    return encoded.tobytes() + back.atoms.tobytes() + centers.tobytes()

def works_in_a_fork(engine, some, expected):
    child = os.fork()
    if not child:
        os._exit(0 if work(engine, some) == expected or expected is None else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

rows = {name: X[::100] if name == "reference" else X for name in available_engines()}
for name, some in rows.items():
    if not works_in_a_fork(get_engine(name, 2), some, None):
        sys.exit(f"a fork of an unused {name} engine fails")
for name, some in rows.items():
    engine = get_engine(name, 2)
    prepared = engine.prepare(some)
    expected = work(engine, prepared)
    if not works_in_a_fork(engine, prepared, expected):  # threads are there by now
        sys.exit(f"a fork of a used {name} engine fails")
    if work(engine, prepared) != expected:
        sys.exit(f"a {name} engine differs after a fork")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_works_on():
    """A child has none of its parent's threads: before an engine was used, and after."""
    done = subprocess.run(
        [sys.executable, "-c", FORK], timeout=HANGS, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_reference_engine_works_in_small_parts(monkeypatch):
    """Python looks at the keyboard between any two of them, so none may take long."""
    sizes = []

    def noted(whitened, *given):
        sizes.append(whitened.size)
        return decompose(whitened, *given)

    monkeypatch.setattr("divlearn.engines.reference.decompose", noted)
    X = np.broadcast_to(np.eye(32), (3000, 32, 32))
    get_engine("reference", 1).encode(X, X[:3], 0.7, 1.2)
    assert max(sizes) <= 2**20 < X.size


SMALL = {"cv": 2, "max_iter": 1, "n_atoms": 3, "rank": "full"}
STOPPED = FITS | {
    "IDDL": divlearn.IDDLClassifier(**SMALL),
    "committee": divlearn.SPDClassifier(("iddl", "tangent lda"), cv=2),
    **{
        solver: divlearn.IDDLClassifier(
            3, cv=None, recipe=Recipe(loss="ridge", solver=solver), max_iter=2
        )
        for solver in ("joint", "bcd", "stochastic")
    },
}
# The others still fit the heads of all their models to the best atoms so far.
PROMPT = ("k-means", "mixture", "joint", "bcd", "stochastic")


@pytest.mark.usefixtures("short_fits")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", STOPPED)
def test_ctrl_c_at_any_time_leaves_a_model_once_there_is_one(data, name):
    """Pressed at one call of the engine after the other: none finds a fit half done."""
    X, y = data
    engine = ActingEngine(press_ctrl_c)
    options = {"engine": engine, "random_state": 0}
    clone(STOPPED[name]).set_params(**options).fit(X, y)
    n_calls, kept = engine.count, []
    for call in [*range(1, n_calls, max(1, n_calls // 2)), n_calls]:
        engine.act_at(call)
        model = clone(STOPPED[name]).set_params(**options)
        try:
            model.fit(X, y)
        except KeyboardInterrupt:
            assert not any(kept), "what was there by an earlier call is lost by a later one"
            kept.append(False)
        else:
            assert np.isin(model.predict(X), [*y, 0, 1, 2]).all()
            kept.append(True)
        if name in PROMPT:
            assert engine.count - call <= 4, "work went on"
    assert kept[-1]


def test_a_disk_that_is_full_leaves_the_old_model(tmp_path, limit_files):
    """Files may not grow beyond a limit: the kernel refuses to write more of them."""
    path = tmp_path / "model"
    divlearn.save(divlearn.ABKMeans(3), path)
    limit_files(20_000)
    with pytest.raises(OSError, match="File too large"):
        divlearn.save(divlearn.ABKMeans(4, init=np.zeros(9000)), path)
    assert divlearn.load(path).n_clusters == 3
    assert os.listdir(tmp_path) == ["model"]
