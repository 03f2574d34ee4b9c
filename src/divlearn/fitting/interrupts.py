"""Ctrl-C ends a search early and keeps the best result so far.

A search over iterations, starts, candidates, folds or members runs inside `stoppable`. Ctrl-C ends
it if it has a result to keep. From then on `is_interrupted` is true until the end of the
`user_call`, such as `fit` or `evaluate`: the searches around the stopped one end as well, later
models keep their starting values, and a checkpoint keeps the stages completed before.

Ctrl-C outside of a search, or before there is a result, raises KeyboardInterrupt. The estimator
then stays as it was.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class _Call:
    interrupted = False


_call: ContextVar[_Call | None] = ContextVar("call", default=None)


@contextmanager
def user_call() -> Iterator[None]:
    """Mark a call by the user, to which all calls inside belong."""
    if _call.get() is not None:
        yield
        return
    token = _call.set(_Call())
    try:
        yield
    finally:
        _call.reset(token)


def is_interrupted() -> bool:
    """Whether Ctrl-C was pressed in a search of the current call."""
    call = _call.get()
    return call is not None and call.interrupted


def interrupt() -> None:
    """Let searches of the current call end early."""
    call = _call.get()
    if call is not None:
        call.interrupted = True


class stoppable:
    """Let Ctrl-C end the search inside, unless it has no result to keep yet."""

    def __init__(self, has_result: Callable[[], object] = lambda: True) -> None:
        self._has_result = has_result

    def __enter__(self) -> None:
        pass

    def __exit__(self, exception: type[BaseException] | None, *_: object) -> bool:
        if exception is None or not issubclass(exception, KeyboardInterrupt):
            return False
        interrupt()
        return bool(self._has_result())
