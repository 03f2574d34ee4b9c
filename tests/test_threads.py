"""How many threads work takes: as many as scikit-learn would, at every call."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextvars import ContextVar
from threading import Barrier, Event

import numpy as np
import pytest
from engine_problems import has_native
from joblib import Parallel, cpu_count, delayed, parallel_config
from threadpoolctl import threadpool_info, threadpool_limits

from divlearn.engines import available_engines, get_engine
from divlearn.threads import limit_blas, side_by_side

ENGINES = available_engines()


def blas_threads() -> set[int]:
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}


def run_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("asked", ["many", "0"])
def test_nonsense_in_the_environment_is_ignored(monkeypatch, asked):
    """Then there are as many as cores, however many the runtime would start."""
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    with threadpool_limits(cpu_count() + 2, "openmp"):
        assert get_engine("reference").n_threads == cpu_count()


@pytest.fixture(scope="module")
def limited():
    """Numbers of threads under limits, in a process of its own.

    What other work has done to the runtimes is no concern there. One process serves all tests,
    for importing scikit-learn takes most of the time.
    """
    code = f"""
import json
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits
from divlearn.engines import get_engine
from divlearn.threads import limit_blas, one_thread
with limit_blas(1):
    pass
import scipy.linalg
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads as expected
engines = [get_engine(name) for name in {ENGINES!r}]
found = {{}}

def count(key):
    libraries = [(one["user_api"], one["num_threads"]) for one in threadpool_info()]
    counts = [engine.n_threads for engine in engines]
    found[key] = libraries, counts, expected(only_physical_cores=False)

count("before")
with limit_blas(1):
    count("blas")
with one_thread():
    count("one")
with threadpool_limits(2):
    count("two")
    with threadpool_limits(1):
        count("one in two")
count("after")
for library in ThreadpoolController().lib_controllers:
    if library.user_api == "openmp" and "site-packages" in library.filepath:
        library.set_num_threads(1)
count("others")
print(json.dumps(found))
"""
    # A list is for nested work; its first number holds where nothing else limits.
    return json.loads(run_python(code, OPENBLAS_NUM_THREADS="2", OMP_NUM_THREADS="3,1"))


@pytest.mark.parametrize(
    ("limit", "n_threads"), [("before", 3), ("two", 2), ("one in two", 1), ("after", 3)]
)
def test_limits_hold_for_engines_made_before(limited, limit, n_threads):
    _, counts, expected = limited[limit]
    assert counts == [n_threads] * len(ENGINES)
    assert expected == n_threads


@pytest.mark.skipif(not has_native, reason="the native engine is not installed or switched off")
def test_limits_of_other_runtimes_are_no_concern(limited):
    """Libraries bring OpenMP runtimes of their own, and may leave them at one thread."""
    libraries, counts, _ = limited["others"]
    if ["openmp", 1] not in libraries:
        pytest.skip("scikit-learn uses the runtime of the system")
    assert counts[ENGINES.index("native")] == 3


def test_limits_reach_libraries_that_were_loaded_later(limited):
    before = limited["before"][0]
    assert {tuple(one) for one in before} == {("blas", 2), ("openmp", 3)}
    assert {number for api, number in limited["blas"][0] if api == "blas"} == {1}
    assert {number for _, number in limited["one"][0]} == {1}
    assert limited["after"][0] == before


@pytest.mark.parametrize("name", ENGINES)
def test_a_number_that_was_given_holds(name):
    engine = get_engine(name, n_threads=3)
    with threadpool_limits(1):
        assert engine.n_threads == 3
    assert repr(engine).startswith(f"{type(engine).__name__}(n_threads=3, ")


@pytest.mark.skipif(not has_native, reason="the native engine is not installed or switched off")
def test_kernels_are_told_the_limit(monkeypatch):
    from divlearn.engines import native

    seen = []

    def encode(*arguments):
        seen.append(arguments[-2])
        return kernel(*arguments)

    kernel = native._native.encode
    monkeypatch.setattr(native._native, "encode", encode)
    X = np.stack([np.diag(np.arange(1.0, 41)) * i for i in range(1, 51)])  # work for 20 threads
    with threadpool_limits(1):
        get_engine("native").encode(X, X, 0.3, 0.4)
    get_engine("native", 2).encode(X, X, 0.3, 0.4)
    assert seen == [1, 2]


def test_workers_of_joblib_share_the_cores():
    """By OMP_NUM_THREADS, which joblib sets for them; a share that no environment here gives."""
    with parallel_config("loky", n_jobs=2, inner_max_num_threads=3):
        found = Parallel()(delayed(lambda: get_engine().n_threads)() for _ in range(2))
    assert found == [3, 3]


def test_a_limit_of_blas_never_raises_a_lower_one():
    with threadpool_limits(1, "blas"):
        with limit_blas(2):
            assert blas_threads() == {1}
        assert blas_threads() == {1}


def test_calls_side_by_side_share_the_threads():
    engine, meet, name = get_engine("reference", 6), Barrier(2, timeout=60), ContextVar("name")

    def count() -> tuple[int, str, list[int]]:
        meet.wait()  # both run at once
        inner = side_by_side([lambda: engine.n_threads] * 3, engine.n_threads)
        return engine.n_threads, name.get(), list(inner)

    name.set("known to all")
    found = list(side_by_side([count, count], 2))
    assert found == [(3, "known to all", [1, 1, 1])] * 2
    assert engine.n_threads == 6


def test_ctrl_c_is_passed_on_to_calls_side_by_side():
    stopped, begun = Event(), []

    def wait() -> None:
        begun.append(stopped.wait(60))

    def press() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(side_by_side([press, wait], 2, stopped.set))
    assert begun in ([True], [])
