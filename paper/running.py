"""Computing cells, by one process or several, into the cache."""

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from joblib import Parallel, delayed

from paper import cache
from paper.cache import Cell

INTERRUPTED = 130  # exit code


def compute(cells: Sequence[Cell], folder: Path, jobs: int = 1) -> list[str]:
    """Compute the cells that the cache lacks; returns what failed, in words.

    A cell that fails leaves its place empty and does not stop the others.
    """
    missing = {cell.key: cell for cell in cells if cache.read(folder, cell) is None}
    # Workers share the cores: joblib limits their threads, which engines obey.
    problems = Parallel(jobs, return_as="generator_unordered")(
        delayed(_compute)(cell, folder, os.getpid()) for cell in missing.values()
    )
    failures = []
    for done, (cell, problem) in enumerate(problems, 1):
        print(f"{done} of {len(missing)}: {cell}{problem}", file=sys.stderr, flush=True)
        if problem:
            failures.append(f"{cell}{problem}")
    return failures


def _compute(cell: Cell, folder: Path, main: int) -> tuple[str, str]:
    """Compute a cell and keep its outcome; returns its name, and what is wrong with it."""
    started = time.perf_counter()
    try:
        with _ended_by_ctrl_c(os.getpid() == main):
            outcome = cell.compute()
    except Exception as error:
        return str(cell), f": {type(error).__name__}: {error}"
    cache.write(folder, cell, outcome, time.perf_counter() - started)
    return str(cell), ""


@contextmanager
def _ended_by_ctrl_c(main: bool) -> Iterator[None]:
    """Let Ctrl-C end the process at once.

    A fit takes KeyboardInterrupt as a request to return the best it has so far, and that must not
    be kept as the outcome. Workers ignore the signal: the main process ends them.
    """
    before = signal.signal(signal.SIGINT, _end if main else signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(number: int, frame: FrameType | None) -> None:
    print("interrupted; repeat the command to resume", file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)
