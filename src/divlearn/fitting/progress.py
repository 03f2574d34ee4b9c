"""Progress of long work, reported to listeners, and printed if ``verbose``."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import takewhile
from typing import TypeVar

from sklearn.base import BaseEstimator

Listener = Callable[[str, int, int, str], None]  # name of the steps, steps done, all steps, news

_T = TypeVar("_T")
_INTERVAL = 2.0  # seconds between lines, and before the first
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)
clock = time.monotonic  # tests have their own


@contextmanager
def listen(listener: Listener | None) -> Iterator[None]:
    """Let a callable hear of all work inside; None for silence.

    Examples
    --------
    >>> with listen(lambda what, done, total, news: print(f"{what}: {done} of {total}")):
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

    def tell_and_check(what: str, done: int, total: int, news: str) -> None:
        if listener is not None:
            listener(what, done, total, news)
        check()

    with listen(tell_and_check):
        yield


def tell(what: str, done: int, total: int, news: str = "") -> None:
    """Tell the listener how many of the steps ``what`` are done; inner work needs another name."""
    listener = _listener.get()
    if listener is not None:
        listener(what, done, total, news)


def track(steps: Sequence[_T], what: str) -> Iterator[_T]:
    """Yield steps, and tell after each how many are done; see `tell`."""
    tell(what, 0, len(steps))
    for done, step in enumerate(steps, start=1):
        yield step
        tell(what, done, len(steps))


@contextmanager
def print_progress(name: str, verbose: int) -> Iterator[None]:
    """Print progress of the work inside unless something listens; of every step if verbose > 1."""
    if not verbose > 0 or _listener.get() is not None:
        yield
        return
    began, due, text = clock(), _INTERVAL, ""
    parts: dict[str, str] = {}  # from outer to inner work; new work is inside the current one

    def narrate(what: str, done: int, total: int, news: str) -> None:
        nonlocal due, parts, text
        parts = dict(takewhile(lambda part: part[0] != what, parts.items()))
        parts[what] = f"{done} of {total} {what}" + f", {news}" * bool(news)
        seconds, text = clock() - began, "; ".join(parts.values())
        if verbose > 1 or seconds >= due:
            print(f"[{name}] {seconds:.0f} s: {text}", flush=True)
            due, text = 1.1 * seconds + _INTERVAL, ""  # long work prints few lines

    with listen(narrate):
        yield
    if text:
        print(f"[{name}] {clock() - began:.0f} s: {text}", flush=True)


def say(estimator: BaseEstimator, text: str) -> None:
    if estimator.verbose > 0:
        print(f"[{type(estimator).__name__}] {text}", flush=True)
