"""The number of threads that work may take, and limits on those of BLAS and OpenMP."""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache, lru_cache, partial
from numbers import Integral
from typing import TypeVar

from threadpoolctl import LibController, ThreadpoolController

Result = TypeVar("Result")

# The number of BLAS threads belongs to the process. When limits overlap, the number that one of
# them saved may be that of another; the last to end restores the numbers before the first.
_lock = threading.Lock()
_depth = 0  # limits in force, of all threads
_initial: dict[str, tuple[LibController, int]] = {}  # by file: library, threads before limits
_sharing: ContextVar[int] = ContextVar("sharing", default=1)  # calls that share the threads


def available_threads(runtime: Callable[[], int] | None = None) -> int:
    """Threads that work may take now, counted as scikit-learn does."""
    # ``runtime`` returns the limit of the OpenMP runtime that does the work. Without it the largest
    # limit of all runtimes counts, since a library may have lowered that of its own runtime.
    text = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # a list is for nested work
    requested = int(text) if text.isdecimal() else 0
    if runtime is None:
        limits = [int(library.num_threads) for library in _libraries("openmp")]
        limit = max(limits, default=requested or _cpu_count())
    else:
        limit = runtime()
    return share(limit if requested else min(_cpu_count(), limit))


def share(n_threads: int) -> int:
    """Threads for one of the calls that run side by side."""
    return max(1, n_threads // _sharing.get())


def check_jobs(n_jobs: object) -> None:
    """Raise unless ``n_jobs`` is valid in scikit-learn."""
    is_integer = isinstance(n_jobs, Integral) and not isinstance(n_jobs, bool)
    if n_jobs is not None and not (is_integer and n_jobs):
        raise ValueError(f"n_jobs={n_jobs!r} must be an integer >= 1, -1 for all threads, or None")


def count_jobs(n_jobs: int | None, most: int) -> int:
    """Threads to fit models with, as in scikit-learn, but None stands for ``most``."""
    from joblib import effective_n_jobs  # late, as in `_cpu_count`

    check_jobs(n_jobs)
    n_threads = int(effective_n_jobs(n_jobs))  # of None: what `joblib.parallel_config` says, or 1
    if n_jobs is None and n_threads == 1:
        return min(most, int(effective_n_jobs(-1)))
    return n_threads


@contextmanager
def limit_blas(n_threads: int) -> Iterator[None]:
    """Limit BLAS inside a block: its idle threads would spin on cores that kernels need."""
    global _depth
    with _lock:
        counts = [(library, library.num_threads) for library in _libraries("blas")]
        limited = [(library, n_before) for library, n_before in counts if n_before > n_threads]
        for library, n_before in limited:
            _initial.setdefault(library.filepath, (library, n_before))
            library.set_num_threads(n_threads)
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            for library, n_before in limited if _depth else _initial.values():
                library.set_num_threads(n_before)
            if not _depth:
                _initial.clear()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS and OpenMP to one thread inside a ``with`` block."""
    with limit_blas(1), _controller(len(sys.modules)).limit(limits=1, user_api="openmp"):
        yield


def side_by_side(
    calls: Sequence[Callable[[], Result]],
    n_threads: int,
    interrupt: Callable[[], None] = lambda: None,
) -> Iterator[Result]:
    """Run calls in threads that share those available, and yield their results in order.

    Ctrl-C calls ``interrupt``, which may let running calls end early; others do not begin.
    """
    n_workers = min(n_threads, len(calls))
    if n_workers <= 1:
        yield from (call() for call in calls)
        return
    from sklearn import config_context, get_config  # late, as joblib in `_cpu_count`

    n_sharing, config = n_workers * _sharing.get(), get_config()

    def run(call: Callable[[], Result]) -> Result:
        _sharing.set(n_sharing)
        with config_context(**config):  # not part of the copied context
            return call()

    with ThreadPoolExecutor(n_workers) as pool:
        futures = [pool.submit(copy_context().run, run, call) for call in calls]
        try:
            yield from (future.result() for future in futures)
        except KeyboardInterrupt:
            interrupt()
            raise
        finally:  # also after an error
            pool.shutdown(cancel_futures=True)


def map_rows(function: Callable[[slice], Result], n_rows: int, step: int) -> list[Result]:
    """Call a function for slices of rows in threads, for which NumPy releases the GIL.

    Slices, and so sums over the results, do not depend on the number of threads.
    """
    parts = [slice(start, start + step) for start in range(0, n_rows, step)]
    if len(parts) == 1:  # a thread would take longer to start
        return [function(parts[0])]
    from joblib import effective_n_jobs  # late, as in `_cpu_count`

    n_threads = min(effective_n_jobs(-1), available_threads())
    return list(side_by_side([partial(function, part) for part in parts], n_threads))


@cache
def _cpu_count() -> int:
    from joblib import cpu_count  # the import takes a tenth of a second

    return int(cpu_count())


def _libraries(api: str) -> list[LibController]:
    controllers = _controller(len(sys.modules)).lib_controllers
    return [library for library in controllers if library.user_api == api]


@lru_cache(maxsize=1)
def _controller(n_modules: int) -> ThreadpoolController:
    # Finding the libraries takes milliseconds. They come with modules: a new search is needed only
    # where some were imported since the last one.
    return ThreadpoolController()
