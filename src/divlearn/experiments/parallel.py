"""Cells computed by several processes at once, into the cache."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from divlearn.engines import prefer_engine
from divlearn.experiments.cache import Cache
from divlearn.experiments.cells import Cell
from divlearn.experiments.protocol import Protocol
from divlearn.experiments.running import compute_cell
from divlearn.experiments.shelf import Shelf
from divlearn.progress import tell
from divlearn.threads import available_threads, limit_blas

__all__ = ["Plan", "compute_ahead"]


@dataclass(frozen=True)
class Plan:
    """What processes are to do, told so that each can find its own cells and load its own data.

    Attributes
    ----------
    names : sequence of str
        Of experiments.
    data : Path or None
        Folder of the data.
    protocol : Protocol
    cache : Path
        Folder of the cache.
    engine : str
    """

    names: Sequence[str]
    data: Path | None
    protocol: Protocol
    cache: Path
    engine: str = "auto"

    def cells(self) -> dict[str, Cell]:
        """Cells that are not done, by their keys.

        Experiments that are about time are left out, for processes disturb each other.
        """
        from divlearn.experiments.registry import EXPERIMENTS

        cache = Cache(self.cache)
        shelf = Shelf.in_folder(self.data, cache)
        chosen = [EXPERIMENTS[name] for name in self.names if not EXPERIMENTS[name].timed]
        cells = [cell for one in chosen for cell in one.cells(shelf, self.protocol)]
        return {cell.key: cell for cell in cells if cache.read(cell) is None}


def compute_ahead(plan: Plan, jobs: int, watch: Callable[[Cell], None] = lambda cell: None) -> None:
    """Compute what is not there yet by several processes; `run` then finds it in the cache.

    Cells that fail are left out: `run` will meet them again, and say what is wrong.

    Parameters
    ----------
    plan : Plan
    jobs : int
    watch : callable
        Told of every cell that is done.
    """
    cells = plan.cells()
    threads = max(1, available_threads() // jobs)
    # Processes that begin anew: in a copy of this one, threads and GPUs would not work.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, context, _begin, (plan, threads)) as pool:
        try:
            waiting = [pool.submit(_compute, key) for key in cells]
            for done, future in enumerate(as_completed(waiting)):
                cell = cells[future.result()]
                tell("cells", done, len(cells), str(cell))
                watch(cell)
        except BaseException:
            _stop(pool)
            raise


def _stop(pool: ProcessPoolExecutor) -> None:
    """End processes in the middle of their work: cells are whole, or not there."""
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()


# Of a process that computes: its plan, and the cells in it.
_plans: list[tuple[Plan, dict[str, Cell]]] = []
_held = ExitStack()


def _begin(plan: Plan, threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who began it ends it
    _held.enter_context(limit_blas(threads))
    _held.enter_context(prefer_engine(plan.engine, threads))
    _plans[:] = [(plan, plan.cells())]


def _compute(key: str) -> str:
    ((plan, cells),) = _plans
    if key in cells:  # or another run that shares the cache was faster
        compute_cell(cells[key], Cache(plan.cache))
    return key
