"""Running experiments: cell by cell, with a cache, so that nothing is done twice."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from divlearn.experiments.cache import Cache, Stored
from divlearn.experiments.cells import Cell, Outcomes
from divlearn.experiments.experiment import Experiment
from divlearn.experiments.protocol import Protocol
from divlearn.experiments.result import Result
from divlearn.experiments.shelf import Shelf
from divlearn.progress import tell

__all__ = ["Interrupted", "Step", "cells_left", "compute_cell", "run", "stoppable"]


class Interrupted(BaseException):
    """The user wants to stop.

    Not a KeyboardInterrupt: learners take that as a wish to make do with what they have, and an
    outcome of that kind must not be kept.
    """


@dataclass(frozen=True)
class Step:
    """A cell of an experiment that is about to be computed: the index of all of its cells."""

    experiment: Experiment
    cell: Cell
    index: int
    n_cells: int


def run(
    experiment: Experiment, shelf: Shelf, protocol: Protocol, cache: Cache, *,
    compute: bool = True, watch: Callable[[Step], None] = lambda step: None,
) -> Result:  # fmt: skip
    """Run an experiment, or what is left of it to do.

    Parameters
    ----------
    experiment : Experiment
    shelf : Shelf
    protocol : Protocol
    cache : Cache
    compute : bool, default=True
        Whether to compute what is not there yet.
    watch : callable
        Told of every cell before it is computed.

    Returns
    -------
    Result
        A cell that fails is named in it, and leaves its place empty.
    """
    cells = list({cell.key: cell for cell in experiment.cells(shelf, protocol)}.values())
    done, seconds = [], 0.0
    failures: list[str] = []
    for index, cell in enumerate(cells):
        tell("cells", index, len(cells), str(cell))
        stored = cache.read(cell)
        if stored is None and compute:
            watch(Step(experiment, cell, index, len(cells)))
            stored = compute_cell(cell, cache, failures.append)
        if stored is not None:
            done.append((cell, stored.outcome))
            seconds += stored.seconds
    return experiment.collect(
        shelf, protocol, Outcomes(done), n_cells=len(cells), seconds=seconds, failures=failures
    )


def compute_cell(
    cell: Cell, cache: Cache, fail: Callable[[str], None] = lambda text: None
) -> Stored | None:
    """Compute a cell and keep its outcome; one that fails is told of, and is None.

    One method that fails must not cost the results of all others.
    """
    started, used = time.perf_counter(), time.process_time()
    try:
        outcome = cell.compute()
    except Exception as error:
        fail(f"{cell}: {type(error).__name__}: {error}")
        return None
    return cache.write(
        cell, outcome, seconds=time.perf_counter() - started,
        cpu_seconds=time.process_time() - used,
    )  # fmt: skip


@contextmanager
def stoppable() -> Iterator[None]:
    """Let Ctrl-C raise `Interrupted` inside a ``with`` block."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only there signals can be handled
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def cells_left(
    experiments: Sequence[Experiment], shelf: Shelf, protocol: Protocol, cache: Cache
) -> dict[str, tuple[int, int]]:
    """Count cells that are not done and all cells, by experiment; what is shared counts once.

    Returns
    -------
    dict of str to (int, int)
    """
    counted: set[str] = set()
    left = {}
    for experiment in experiments:
        cells = {cell.key: cell for cell in experiment.cells(shelf, protocol)}
        own = [cell for key, cell in cells.items() if key not in counted]
        counted |= set(cells)
        left[experiment.name] = sum(cache.read(cell) is None for cell in own), len(own)
    return left
