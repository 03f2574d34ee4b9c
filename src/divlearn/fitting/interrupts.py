"""Ctrl-C ends a search early and keeps the best result so far.

A search goes through iterations, starts, candidates, folds or members, inside `stoppable`. Ctrl-C
there ends the search if it has a result to keep. From then on `is_interrupted` is true until the
end of the `user_call`, such as `fit` or `evaluate`: searches around the one that was stopped end as
well, later models are not improved beyond their start, and a checkpoint keeps the stages that were
completed before.

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
    """Mark the extent of a call by the user; calls inside belong to it."""
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

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        if kind is None or not issubclass(kind, KeyboardInterrupt):
            return False
        interrupt()
        return bool(self._has_result())
