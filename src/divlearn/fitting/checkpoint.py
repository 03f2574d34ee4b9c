"""Fits that outlive their process: what is done is kept in a file, and not done again.

A fit is deterministic, so that it may be gone through again from its beginning if all that took
long is known by then. Work that ends is a stage: its result is kept. Work that goes round and round
is a loop: its state is kept, and that of the round before forgotten. Both may lie in each other,
and do nothing of that kind outside of `checkpointed`.
"""

from __future__ import annotations

import glob
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from sklearn.utils import check_random_state

from divlearn.engines import get_engine
from divlearn.engines.dask import as_dask
from divlearn.fitting.interrupts import Interrupts
from divlearn.models.storage import fingerprint, libraries, read_object, write_object
from divlearn.models.tree import Unknown

EVERY = 5.0  # seconds between two writes, at least
_SHARE = 0.05  # of the time of a fit that writing may take
_KIND = "checkpoint"
_IRRELEVANT = {"engine", "random_state", "verbose"}  # to what the result is
_T = TypeVar("_T")


@contextmanager
def resumable(path: str | os.PathLike[str] | None) -> Iterator[None]:
    """Let a fit keep its progress in a file; repeat the same call to resume a killed fit.

    The fit writes at most every five seconds, and ends with the same model, to the last bit, as if
    nothing had happened. The file is removed at the end. It stays after an error and after Ctrl-C.
    Use one block for each fit.

    Parameters
    ----------
    path : str, path-like or None
        None for no file.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from divlearn.cluster import ABKMeans
    >>> X = np.stack([np.eye(2), 2 * np.eye(2)])
    >>> with TemporaryDirectory() as folder, resumable(Path(folder) / "fit"):
    ...     ABKMeans(2, random_state=0).fit(X).n_iter_
    1
    """
    token = _path.set(None if path is None else Path(path))
    try:
        yield
    finally:
        _path.reset(token)


@contextmanager
def checkpointed(estimator: Any, **data: Any) -> Iterator[None]:
    """Let stages and loops inside resume from the file of `resumable`, and write to it."""
    # Estimator and data must be those the file was written with. A callable among the data is asked
    # for its value where there is a file. A fit inside another one is kept in the file of that.
    path = None if _current.get() is not None else _path.get()
    if path is None:
        yield
        return
    journal = _Journal(path, _describe(estimator, data))
    token = _current.set(journal)
    try:
        with journal.interrupts:
            yield
    finally:
        _current.reset(token)
    journal.close()


def stage(name: str, compute: Callable[[], _T], random: np.random.RandomState | None = None) -> _T:
    """Compute something, or return what it was before the process was killed."""
    # Results must be what a file may hold, and nobody may change them. `random` is restored, too.
    journal = _current.get()
    return compute() if journal is None else journal.stage(name, compute, random)


@contextmanager
def loop(name: str) -> Iterator[Loop]:
    """Start from ``rounds.state``, None at first; call ``rounds.save(state)`` in every round."""
    journal = _current.get()
    if journal is None:
        yield Loop()
        return
    with journal.inside(journal.next_path(name)) as scope:
        yield _KeptLoop(journal, scope)


def draw_seed(random_state: int | np.random.RandomState | None) -> int:
    """Draw a seed; after a kill, the one that was drawn before."""
    return stage(
        "seed", lambda: int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    )


class Loop:
    """A loop that nobody keeps; `state` is what was saved before the process was killed."""

    kept = False
    state: Any = None

    def save(self, state: Any) -> None:
        """Keep a state, at the beginning of a round; nobody may change it afterwards."""


@dataclass
class _Scope:
    path: str
    count: int = 0  # of stages and loops that were begun in it


class _KeptLoop(Loop):
    kept = True

    def __init__(self, journal: _Journal, scope: _Scope) -> None:
        self.state = journal.entries.get(scope.path)
        self._journal = journal
        self._scope = scope
        self._fresh = self.state is None

    def save(self, state: Any) -> None:
        # The first round after a restart has the state that is there, and what follows from it.
        if self._fresh:
            self._journal.put(self._scope.path, state)
        self._fresh, self._scope.count = True, 0


class _Journal:
    """What is known of a fit: results of stages and states of loops, by where they are in it."""

    def __init__(self, path: Path, key: dict[str, str]) -> None:
        self.entries: dict[str, Any] = {}
        self.interrupts = Interrupts()
        self._path, self._key = path, key
        self._scopes = [_Scope("")]
        self._due = time.monotonic() + EVERY
        if path.exists():
            self.entries = _read(path, key)
        elif not os.access(path.resolve().parent, os.W_OK):
            raise ValueError(
                f"checkpoint={str(path)!r} must lie in a folder that can be written to; make "
                f"{str(path.resolve().parent)!r}, or choose another"
            )

    def next_path(self, name: str) -> str:
        scope = self._scopes[-1]
        scope.count += 1
        return f"{scope.path}/{scope.count} {name}"

    @contextmanager
    def inside(self, path: str) -> Iterator[_Scope]:
        self._scopes.append(_Scope(path))
        try:
            yield self._scopes[-1]
        finally:
            self._scopes.pop()

    def stage(
        self, name: str, compute: Callable[[], _T], random: np.random.RandomState | None
    ) -> _T:
        path = self.next_path(name)
        if path in self.entries:
            known: _T
            known, drawn = self.entries[path]
            if random is not None:
                random.set_state(drawn.get_state())
            return known
        with self.inside(path):
            value = compute()
        self.put(path, (value, deepcopy(random)))
        return value

    def put(self, path: str, value: Any) -> None:
        """Keep a value, and forget what led to it."""
        if self.interrupts.seen:  # what ends from now on ends early
            return
        inner = f"{path}/"
        self.entries = {k: v for k, v in self.entries.items() if not k.startswith(inner)}
        self.entries[path] = value
        started = time.monotonic()
        if started >= self._due:
            self._write()
            ended = time.monotonic()
            self._due = ended + max(EVERY, (ended - started) / _SHARE)

    def _write(self) -> None:
        try:
            write_object({"key": self._key, "entries": self.entries}, self._path, _KIND)
        except OSError as error:
            # Hours of work are worth more than the means to save them.
            message = (
                f"checkpoint={str(self._path)!r} could not be written: {error.strerror or error}; "
                "the fit continues, and an older checkpoint, if any, is intact"
            )
            warnings.warn(message, RuntimeWarning, stacklevel=2)

    def close(self) -> None:
        """Remove the file, and what kills in the middle of writing have left of it."""
        if self.interrupts.seen:
            return
        folder, name = self._path.resolve().parent, glob.escape(self._path.name)
        for file in (self._path, *folder.glob(f".{name}.*.part")):
            with suppress(FileNotFoundError):
                file.unlink()


_current: ContextVar[_Journal | None] = ContextVar("journal", default=None)
_path: ContextVar[Path | None] = ContextVar("path", default=None)


def _describe(estimator: Any, data: Mapping[str, Any]) -> dict[str, str]:
    """All that the result of a fit depends on, by name."""
    given = estimator.get_params(deep=False)
    values = {name: value for name, value in given.items() if name not in _IRRELEVANT}
    if isinstance(given.get("random_state"), int | np.integer):
        # Generators are kept with what was drawn from them: where they stand now means nothing.
        values["random_state"] = int(estimator.random_state)
    key = {"kind of estimator": type(estimator).__name__, **libraries()}
    if hasattr(estimator, "engine"):
        dask = as_dask(estimator.engine)
        key["engine"] = get_engine(estimator.engine).name if dask is None else dask.name
    values |= {name: value() if callable(value) else value for name, value in data.items()}
    for name, value in values.items():
        try:
            key[name] = fingerprint(value)
        except Unknown as error:
            raise TypeError(
                f"{name}={value!r:.80} cannot be stored in a checkpoint: {error}; fit without one"
            ) from None
    return key


def _read(path: Path, key: dict[str, str]) -> dict[str, Any]:
    try:
        content, _ = read_object(path, _KIND, dict)
        known, entries = content["key"], content["entries"]
    except (ValueError, KeyError) as error:
        raise ValueError(
            f"checkpoint={str(path)!r} cannot be resumed: {error}; remove the file to start anew, "
            "or name another"
        ) from error
    other = sorted(name for name in key | known if key.get(name) != known.get(name))
    if other:
        raise ValueError(
            f"checkpoint={str(path)!r} belongs to another fit: {', '.join(other)} must be the "
            "same; pass the same data and parameters, remove the file to start anew, or name "
            "another"
        )
    return entries
