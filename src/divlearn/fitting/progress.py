"""Progress of long work, reported to listeners and printed if ``verbose``; and Ctrl-C.

A search over iterations, starts, candidates, folds or members runs inside `stoppable`. Ctrl-C ends
it early if it has a result to keep. From then on `is_interrupted` is true until the end of the
`user_call`, such as `fit` or `evaluate`: the searches around the stopped one end as well, later
models keep their starting values, and a checkpoint keeps the stages completed before.

Ctrl-C outside of a search, or before there is a result, raises KeyboardInterrupt. The estimator
then stays as it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import takewhile
from typing import TypeVar

from sklearn.base import BaseEstimator

from divlearn.text import harmless

Listener = Callable[[str, int, int, str], None]  # name of the steps, steps done, all steps, message

_T = TypeVar("_T")
_INTERVAL = 2.0  # seconds between lines, and before the first
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)
clock = time.monotonic  # replaced in tests


@contextmanager
def listen(listener: Listener | None) -> Iterator[None]:
    """Call a listener with the progress of all work inside; None for silence.

    Examples
    --------
    >>> with listen(lambda steps, done, total, message: print(f"{steps}: {done} of {total}")):
    ...     for fold in track("ab", "folds"):
    ...         pass
    folds: 0 of 2
    folds: 1 of 2
    folds: 2 of 2
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def on_progress(check: Callable[[], None]) -> Iterator[None]:
    """Call a function whenever work inside reports progress; an error ends the work."""
    listener = _listener.get()

    def notify_and_check(steps: str, done: int, total: int, message: str) -> None:
        if listener is not None:
            listener(steps, done, total, message)
        check()

    with listen(notify_and_check):
        yield


def notify(steps: str, done: int, total: int, message: str = "") -> None:
    """Tell the listener how many of some steps are done; inner work needs another name."""
    listener = _listener.get()
    if listener is not None:
        listener(steps, done, total, message)


def track(items: Sequence[_T], steps: str) -> Iterator[_T]:
    """Yield items, and tell the listener after each how many are done; see `notify`."""
    notify(steps, 0, len(items))
    for done, item in enumerate(items, start=1):
        yield item
        notify(steps, done, len(items))


@contextmanager
def print_progress(name: str, verbose: int) -> Iterator[None]:
    """Print progress of the work inside unless something listens; of every step if verbose > 1."""
    if not verbose > 0 or _listener.get() is not None:
        yield
        return
    began, due, text = clock(), _INTERVAL, ""
    parts: dict[str, str] = {}  # from outer to inner work; new work is inside the current one

    def print_step(steps: str, done: int, total: int, message: str) -> None:
        nonlocal due, parts, text
        parts = dict(takewhile(lambda part: part[0] != steps, parts.items()))
        parts[steps] = f"{done} of {total} {steps}" + f", {message}" * bool(message)
        seconds, text = clock() - began, "; ".join(parts.values())
        if verbose > 1 or seconds >= due:
            _print(name, f"{seconds:.0f} s: {text}")
            due, text = 1.1 * seconds + _INTERVAL, ""  # long work prints few lines

    with listen(print_step):
        yield
    if text:
        _print(name, f"{clock() - began:.0f} s: {text}")


def say(estimator: BaseEstimator, text: str) -> None:
    if estimator.verbose > 0:
        _print(type(estimator).__name__, text)


def _print(name: str, text: str) -> None:
    print(f"[{name}] {harmless(text)}", flush=True)


# --- Ctrl-C ---------------------------------------------------------------------------------------


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
