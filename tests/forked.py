"""Work in a copy of this process, which has imported all: it may change what it likes, or end."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable

import pytest


def in_a_fork(work: Callable[..., object], *arguments: object) -> int:
    """Call a function in a child; its exit code, 1 after an error, or less the signal's number."""
    if not hasattr(os, "fork"):
        pytest.skip("there is no fork here")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the threads of pytest-xdist sleep
        child = os.fork()
    if not child:
        code = 1
        try:
            code = int(work(*arguments) or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
