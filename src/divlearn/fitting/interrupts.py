"""Ctrl-C, known also to work whose parts have dealt with it themselves."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Self, TypeVar

_T = TypeVar("_T")


class Interrupts:
    """Learn whether the user has stopped some of the work inside, by `note_interrupt`."""

    def __init__(self) -> None:
        self.seen = False

    def __enter__(self) -> Self:
        _active.set((*_active.get(), self))
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        _active.set(_active.get()[:-1])
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.seen = True


_active: ContextVar[tuple[Interrupts, ...]] = ContextVar("interrupts", default=())


def note_interrupt() -> None:
    """Say that a KeyboardInterrupt was caught, and that what comes next should be short."""
    for one in _active.get():
        one.seen = True


def is_interrupted() -> bool:
    """Whether the user has stopped some of the work that is under way."""
    return any(one.seen for one in _active.get())


@contextmanager
def stoppable(kept: Callable[[], Any]) -> Iterator[None]:
    """Let the user stop the work inside early, unless it has nothing to keep yet."""
    try:
        yield
    except KeyboardInterrupt:
        note_interrupt()
        if not kept():
            raise


def see_through(compute: Callable[[], _T]) -> _T:
    """Compute what the result needs; start again after one interrupt, when solvers are short."""
    try:
        return compute()
    except KeyboardInterrupt:
        note_interrupt()
        return compute()
