"""How many threads BLAS may take while an engine works."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

__all__ = ["limit_blas"]


@cache
def _controller() -> ThreadpoolController:
    # Finding the libraries takes milliseconds: once is enough.
    return ThreadpoolController()


def limit_blas(n_threads: int) -> AbstractContextManager[Any]:
    """Limit BLAS to ``n_threads`` inside a ``with`` block.

    Small products are not worth more than one: idle BLAS threads spin and take the cores the
    kernels need.
    """
    limits: AbstractContextManager[Any] = _controller().limit(limits=n_threads, user_api="blas")
    return limits
