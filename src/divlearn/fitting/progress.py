"""How far long work has come, told to listeners, and what ``verbose`` estimators print."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

Listener = Callable[[str, int, int, str], None]  # what is done, steps done, all steps, news

_T = TypeVar("_T")
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


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


def tell(what: str, done: int, total: int, news: str = "") -> None:
    """Tell the listener how many steps are done; work inside other work has another name."""
    listener = _listener.get()
    if listener is not None:
        listener(what, done, total, news)


def track(steps: Sequence[_T], what: str) -> Iterator[_T]:
    """Yield steps, and tell after each how many are done; see `tell`."""
    tell(what, 0, len(steps))
    for done, step in enumerate(steps, start=1):
        yield step
        tell(what, done, len(steps))


def say(estimator: Any, text: str, level: int = 1) -> None:
    """Print a sentence if an estimator is that verbose."""
    if estimator.verbose >= level:
        print(f"[{type(estimator).__name__}] {text}")
