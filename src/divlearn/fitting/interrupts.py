"""Ctrl-C, noticed also by work whose parts have dealt with it themselves."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Self, TypeVar

__all__ = ["Interrupts", "is_interrupted", "see_through"]

_open: list[Interrupts] = []
_T = TypeVar("_T")


class Interrupts:
    """Notice whether the user has asked to stop.

    A solver that is interrupted keeps its best so far and returns as if nothing had happened. What
    runs several one after the other has to know, lest it goes on with the next.

    Attributes
    ----------
    seen : bool
    thread : int
        The one whose work it is.

    Examples
    --------
    >>> with Interrupts() as interrupts:
    ...     try:
    ...         signal.raise_signal(signal.SIGINT)
    ...     except KeyboardInterrupt:
    ...         pass  # a part keeps what it has
    >>> interrupts.seen
    True
    """

    def __init__(self) -> None:
        self.seen = False
        self.thread = threading.get_ident()
        self._before: Any = None

    def __enter__(self) -> Self:
        # Signals reach the main thread only; others are never interrupted.
        if threading.current_thread() is threading.main_thread():
            self._before = signal.getsignal(signal.SIGINT)
            if callable(self._before):
                signal.signal(signal.SIGINT, self._note)
        _open.append(self)
        return self

    def __exit__(self, *problem: object) -> None:
        _open.remove(self)
        if callable(self._before):
            signal.signal(signal.SIGINT, self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.seen = True
        self._before(number, frame)


def is_interrupted() -> bool:
    """Whether the user has asked to stop the work that is under way in this thread."""
    here = threading.get_ident()
    return any(one.seen for one in list(_open) if one.thread == here)


def see_through(compute: Callable[[], _T]) -> _T:
    """Compute the little that what was learned before is of no use without.

    Where the user interrupts it, it is begun again: solvers make it short by then. Who asks twice
    means it.

    Examples
    --------
    >>> from functools import partial
    >>> see_through(partial(sum, [1, 2]))
    3
    """
    try:
        return compute()
    except KeyboardInterrupt:
        return compute()
