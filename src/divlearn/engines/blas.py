"""How many threads BLAS may take while an engine works."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["limit_blas"]


@contextmanager
def limit_blas(n_threads: int) -> Iterator[None]:
    """Limit BLAS to ``n_threads`` inside a ``with`` block.

    Small products are not worth more than one: idle BLAS threads spin and take the cores the
    kernels need.
    """
    limit = _limits.enter(n_threads)
    try:
        yield
    finally:
        _limits.leave(limit)


class _Limits:
    """Limits in force, of all threads.

    The number of BLAS threads belongs to the process. Where work in several threads overlaps, what
    one found when it began may be the limit of another that has ended since: the last to leave goes
    back to what the first found.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._first: Any = None

    def enter(self, n_threads: int) -> Any:
        with self._lock:
            limit = _controller().limit(limits=n_threads, user_api="blas")
            if not self._count:
                self._first = limit
            self._count += 1
            return limit

    def leave(self, limit: Any) -> None:
        with self._lock:
            limit.restore_original_limits()
            self._count -= 1
            if not self._count:
                self._first.restore_original_limits()


@cache
def _controller() -> ThreadpoolController:
    # Finding the libraries takes milliseconds: once is enough.
    return ThreadpoolController()


_limits = _Limits()
