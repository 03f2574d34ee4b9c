"""How many threads work may take, and limits on those of BLAS and OpenMP."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any

from threadpoolctl import ThreadpoolController


def available_threads(runtime: Callable[[], int] | None = None) -> int:
    """Threads that work may take now, counted as scikit-learn does.

    An OpenMP runtime knows the limits of threadpoolctl and of joblib's workers, and
    OMP_NUM_THREADS as it was when it was loaded. ``runtime`` asks the one that does the work. Other
    work has none; limits for the whole process are then seen in the least limited runtime, since
    one may be left at fewer threads by the library it belongs to. Where OMP_NUM_THREADS is not set,
    the number is at most that of the CPUs that affinity and cgroup leave to the process.
    """
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()  # a list is for nested work
    given = int(asked) if asked.isdecimal() else 0
    if runtime is None:
        limits = [int(library.num_threads) for library in _libraries("openmp")]
        limit = max(limits, default=given or _cpu_count())
    else:
        limit = runtime()
    return limit if given else min(_cpu_count(), limit)


@contextmanager
def limit_blas(n_threads: int) -> Iterator[None]:
    """Limit BLAS to at most ``n_threads`` inside a ``with`` block.

    Small products are not worth more than one: idle BLAS threads spin and take the cores the
    kernels need. A lower limit that is in force stays.
    """
    found = _limits.enter(n_threads)
    try:
        yield
    finally:
        _limits.leave(found)


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS and OpenMP to one thread inside a ``with`` block."""
    with limit_blas(1), _controller(len(sys.modules)).limit(limits=1, user_api="openmp"):
        yield


class _Limits:
    """Limits in force, of all threads.

    The number of BLAS threads belongs to the process. Where work in several threads overlaps, what
    one found when it began may be the limit of another that has ended since: the last to leave goes
    back to what was found first.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._first: dict[str, tuple[Any, int]] = {}  # by file: the library and its threads

    def enter(self, n_threads: int) -> list[tuple[Any, int]]:
        with self._lock:
            found = [(library, library.num_threads) for library in _libraries("blas")]
            for library, before in found:
                self._first.setdefault(library.filepath, (library, before))
                library.set_num_threads(min(before, n_threads))
            self._count += 1
            return found

    def leave(self, found: list[tuple[Any, int]]) -> None:
        with self._lock:
            self._count -= 1
            for library, before in found if self._count else self._first.values():
                library.set_num_threads(before)
            if not self._count:
                self._first.clear()


@cache
def _cpu_count() -> int:
    from joblib import cpu_count  # a tenth of a second, which small work need not wait for

    return int(cpu_count())


def _libraries(api: str) -> list[Any]:
    controllers = _controller(len(sys.modules)).lib_controllers
    return [library for library in controllers if library.user_api == api]


@lru_cache(maxsize=1)
def _controller(n_modules: int) -> ThreadpoolController:
    # Finding the libraries takes milliseconds. They come with modules: a new search is needed only
    # where some were imported since the last one.
    return ThreadpoolController()


_limits = _Limits()
