"""Ctrl-C, known also to work whose parts have dealt with it themselves."""

from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Self, TypeVar

_T = TypeVar("_T")


class Interrupts:
    """Learn whether the user has stopped some of the work inside.

    A loop that catches KeyboardInterrupt keeps its best so far and calls `note_interrupt`.
    """

    def __init__(self) -> None:
        self.seen = False
        self._outer: Interrupts | None = None
        self._token: Token[Interrupts | None] | None = None

    def __enter__(self) -> Self:
        self._outer = _innermost.get()
        self._token = _innermost.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._token is not None
        _innermost.reset(self._token)
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            self.seen = True


_innermost: ContextVar[Interrupts | None] = ContextVar("interrupts", default=None)


def note_interrupt() -> None:
    """Say that a KeyboardInterrupt was caught, and that what comes next should be short."""
    current = _innermost.get()
    while current is not None:
        current.seen = True
        current = current._outer


def is_interrupted() -> bool:
    """Whether the user has stopped some of the work that is under way."""
    current = _innermost.get()
    while current is not None:
        if current.seen:
            return True
        current = current._outer
    return False


def see_through(compute: Callable[[], _T]) -> _T:
    """Compute what the result needs; start again after one interrupt, when solvers are short."""
    try:
        return compute()
    except KeyboardInterrupt:
        note_interrupt()
        return compute()
