"""Fits that resume: results of completed stages are kept in a file, and not computed again.

A stage is a part of a fit that ends with a result: a member, a fold, a start, a number of
components. A fit that is killed loses the stage that was under way. The same call then takes the
completed stages from the file and computes the rest. A fit is deterministic, so that it ends with
the same result, bit for bit. Stages may contain stages. Outside of `checkpointed` they are
ordinary calls.
"""

from __future__ import annotations

import glob
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Any, TypeVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from divlearn.checks import RandomState
from divlearn.engines import get_engine
from divlearn.engines.dask import as_dask
from divlearn.fitting.progress import is_interrupted
from divlearn.models.storage import fingerprint, libraries, read_object, write_object
from divlearn.models.tree import Unknown

_KIND = "checkpoint"
_IRRELEVANT = {"engine", "n_jobs", "random_state", "verbose"}  # parameters that are not in the key
_T = TypeVar("_T")


@contextmanager
def resumable(path: str | os.PathLike[str] | None) -> Iterator[None]:
    """Let a fit keep its progress in a file; repeat the same call to resume a killed fit.

    The file holds the completed stages: members of a committee, models of folds, starts, numbers of
    components. The resumed fit ends with the same model, bit for bit. The file is removed at the
    end. It stays after an error and after Ctrl-C. Use one block for each fit: the later fits of a
    block, such as those of a search, have no file, and a warning says so.

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
    token = _block.set(None if path is None else _Block(Path(path)))
    try:
        yield
    finally:
        _block.reset(token)


@contextmanager
def checkpointed(estimator: BaseEstimator, **data: object) -> Iterator[None]:
    """Take completed stages from the file of `resumable`, and add new ones to it."""
    # Estimator and data must be those the file was written with. Callables among the data are
    # called only if there is a file. A fit inside another fit shares the file of the outer fit.
    block = _block.get()
    if _current.get() is not None or block is None:
        yield
        return
    block.n_fits += 1
    if block.n_fits > 1:
        if block.n_fits == 2:
            message = (
                f"checkpoint={str(block.path)!r} keeps the first fit of its block only; this one "
                "and later ones would begin again after a kill; use a block and a file for each fit"
            )
            warnings.warn(message, RuntimeWarning, stacklevel=3)
        yield
        return
    try:
        with _keeping(_Checkpoint(block.path, _describe(estimator, data))):
            yield
    except BaseException:
        block.n_fits = 0  # the same fit may be tried again
        raise


@contextmanager
def _keeping(checkpoint: _Checkpoint) -> Iterator[None]:
    """Keep stages in a checkpoint, and remove its file unless the work was interrupted."""
    token = _current.set(checkpoint)
    try:
        yield
    finally:
        _current.reset(token)
    if not is_interrupted():
        checkpoint.remove()


def stage(name: str, compute: Callable[[], _T], random: np.random.RandomState | None = None) -> _T:
    """Compute a result and store it, or return the one that was stored before a kill.

    Stages of the same name are numbered in their order. ``random`` is the generator that the stage
    draws from; its state after the stage is restored. The result must not be changed, and must be
    of types that model files hold.
    """
    return staged(name, compute, random)()


def staged(
    name: str, compute: Callable[[], _T], random: np.random.RandomState | None = None
) -> Callable[[], _T]:
    """Return a stage to be computed later, possibly on another thread."""
    checkpoint = _current.get()
    return compute if checkpoint is None else checkpoint.stage(name, compute, random)


def draw_seed(random_state: RandomState) -> int:
    """Draw a seed; a resumed fit gets the seed of the killed one."""
    return stage(
        "seed", lambda: int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    )


@dataclass
class _Block:
    """A block of `resumable`, whose first fit has the file."""

    path: Path
    n_fits: int = 0


class _Checkpoint:
    """Results of completed stages, by their places in the fit, and the file that holds them."""

    def __init__(self, path: Path, key: dict[str, str]) -> None:
        self._path, self._key = path, key
        self._results: dict[str, Any] = {}
        self._lock = RLock()
        self._counts: Counter[str] = Counter()
        if path.exists():
            self._results = _read(path, key)
        elif not os.access(path.resolve().parent, os.W_OK):
            raise ValueError(
                f"checkpoint={str(path)!r} must lie in a folder that can be written to; make "
                f"{str(path.resolve().parent)!r}, or choose another"
            )

    def stage(
        self, name: str, compute: Callable[[], _T], random: np.random.RandomState | None
    ) -> Callable[[], _T]:
        place = f"{_inside.get()}/{name}"
        self._counts[place] += 1
        place = f"{place} {self._counts[place]}"

        def result() -> _T:
            if place in self._results:
                stored: _T
                stored, generator = self._results[place]
                if random is not None:
                    random.set_state(generator.get_state())
                return stored
            token = _inside.set(place)
            try:
                computed = compute()
            finally:
                _inside.reset(token)
            if not is_interrupted():  # after Ctrl-C the result is incomplete
                self._keep(place, (computed, deepcopy(random)))
            return computed

        return result

    def _keep(self, place: str, result: tuple[object, np.random.RandomState | None]) -> None:
        inner = f"{place}/"  # stages inside this one are not needed any more
        with self._lock:
            before = self._results
            self._results = {k: v for k, v in before.items() if not k.startswith(inner)}
            self._results[place] = result
            try:
                self._write()
            # Hours of work are worth more than the file: the fit continues.
            except OSError as error:
                self._warn(
                    f"could not be written: {error.strerror or error}; the fit continues, and an "
                    "older checkpoint, if any, is intact"
                )
            except Unknown as error:
                self._results = before
                self._warn(
                    f"cannot hold the result of {place[1:]!r}: {error}; the fit continues, and "
                    "computes this part again after a kill"
                )

    def _write(self) -> None:
        write_object({"key": self._key, "results": self._results}, self._path, _KIND)

    def _warn(self, trouble: str) -> None:
        warnings.warn(f"checkpoint={str(self._path)!r} {trouble}", RuntimeWarning, stacklevel=3)

    def remove(self) -> None:
        """Remove the file, and partly written ones that kills have left."""
        folder, name = self._path.resolve().parent, glob.escape(self._path.name)
        for file in (self._path, *folder.glob(f".{name}.*.part")):
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                self._warn(
                    f"could not be removed: {error.strerror or error}; the fit is complete, remove "
                    f"{str(file)!r} yourself"
                )


_current: ContextVar[_Checkpoint | None] = ContextVar("checkpoint", default=None)
_block: ContextVar[_Block | None] = ContextVar("block", default=None)
_inside: ContextVar[str] = ContextVar("inside", default="")  # the stage that is under way


def _describe(estimator: BaseEstimator, data: Mapping[str, object]) -> dict[str, str]:
    """All that the result of a fit depends on, by name."""
    parameters = estimator.get_params(deep=False)
    values = {name: value for name, value in parameters.items() if name not in _IRRELEVANT}
    if isinstance(parameters.get("random_state"), int | np.integer):
        # A seed is in the key; states of generators are stored with the stages that drew from them.
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
        stored, results = content["key"], content["results"]
    except (ValueError, KeyError) as error:
        raise ValueError(
            f"checkpoint={str(path)!r} cannot be resumed: {error}; remove the file to start anew, "
            "or name another"
        ) from error
    changed = sorted(name for name in key | stored if key.get(name) != stored.get(name))
    if changed:
        raise ValueError(
            f"checkpoint={str(path)!r} belongs to another fit: {', '.join(changed)} must be the "
            "same; pass the same data and parameters, remove the file to start anew, or name "
            "another"
        )
    return results
