"""Cells, the units of work, and the file that keeps their outcomes: one line of JSON each."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import FrameType
from typing import Any

from joblib import Parallel, delayed

from divlearn import resumable
from divlearn.datasets import Dataset

INTERRUPTED = 130  # exit code

Results = dict[str, dict[str, Any]]  # lines of a file by their keys
Done = Sequence[dict[str, Any]]  # records of cells; see `record`


@dataclass(frozen=True, eq=False)
class Cell:
    """One thing to compute, such as the accuracy of a method on a split.

    The name of the experiment is no part of the key, so that experiments share cells.
    """

    task: tuple[str, int]  # name and revision; raise the latter when outcomes change
    data: str  # name of the data in tables
    source: str  # key of the data set to load, "" for synthetic data
    method: str
    seed: int  # of the split and of the fit
    settings: Mapping[str, Any]  # all else that the outcome depends on
    compute: Callable[[Any, str], dict[str, Any]]  # from data set and engine; can be pickled
    resumes: bool = False  # whether it is one long fit, whose progress is kept

    @property
    def about(self) -> dict[str, Any]:
        """Everything that determines the outcome, but the content of the data."""
        return {
            "task": self.task,
            "data": self.data,
            "method": self.method,
            "seed": self.seed,
            "settings": self.settings,
        }

    @property
    def key(self) -> str:
        text = json.dumps(list(self.about.values()), sort_keys=True, allow_nan=False)
        return sha256(text.encode()).hexdigest()[:16]

    def __str__(self) -> str:
        return f"{self.data}, {self.method}, {self.seed}"


# --- the file -------------------------------------------------------------------------------------


def read_results(path: Path) -> Results:
    """Read a file of results; of lines with one key the last counts, damaged ones are left out."""
    found: Results = {}
    for text in path.read_text(errors="replace").splitlines() if path.exists() else ():
        try:
            line = json.loads(text)
            found[line["key"]] = line
        except (ValueError, LookupError, TypeError):
            continue  # such as the last line of a run that was killed
    return found


def merge_results(path: Path, others: Sequence[Path]) -> Results:
    """Add the lines of other files to a file, which is whole at any moment."""
    found = read_results(path)
    for other in others:
        if not other.is_file():
            raise FileNotFoundError(f"--merge {other} must be a file of results")
        found |= read_results(other)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_text("".join(json.dumps(line, sort_keys=True) + "\n" for line in found.values()))
    os.replace(part, path)
    return found


def _append(path: Path, line: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(line, sort_keys=True, allow_nan=False, default=lambda array: array.tolist())
    with open(path, "ab") as file:
        # A line that was broken off must not swallow this one.
        file.write(f"\n{text}\n".encode() if file.tell() else f"{text}\n".encode())


def record(results: Results, cell: Cell) -> dict[str, Any] | None:
    """Return what is known of a cell that is done, in one flat dict; None where it is not."""
    line = results.get(cell.key)
    if line is None:
        return None
    about = {"data": cell.data, "method": cell.method, "seed": cell.seed}
    return {
        **about,
        **cell.settings,
        **line["outcome"],
        "took": line["seconds"],
        "by": line["engine"],
    }


def where(done: Done, **wanted: Any) -> list[dict[str, Any]]:
    """Select records by their entries; None is an entry that is absent.

    Examples
    --------
    >>> where([{"data": "Virus", "atoms": 5}, {"data": "Virus"}], data="Virus", atoms=None)
    [{'data': 'Virus'}]
    """
    return [one for one in done if all(one.get(name) == value for name, value in wanted.items())]


def distinct(done: Done, name: str) -> list[Any]:
    """List the distinct values of an entry, in the order of the cells."""
    return list(dict.fromkeys(one[name] for one in done))


# --- computing ------------------------------------------------------------------------------------


def compute(
    cells: Sequence[Cell],
    data: Mapping[str, Dataset],
    path: Path,
    jobs: int = 1,
    engine: str = "auto",
) -> list[str]:
    """Compute the cells that a file of results lacks; returns what failed, in words.

    Outcomes on other matrices are computed again. A cell that fails does not stop the others.
    """
    digests = {source: dataset.digest()[:16] for source, dataset in data.items()}
    known = read_results(path)
    missing = {
        cell.key: cell
        for cell in cells
        if known.get(cell.key, {}).get("digest") != digests.get(cell.source, "synthetic")
    }
    progress = path.with_name(f"{path.name}.fits")  # of cells that resume
    # Workers share the cores: joblib limits their threads, which engines obey.
    lines = Parallel(jobs, return_as="generator_unordered")(
        delayed(_compute)(cell, data.get(cell.source), engine, progress, os.getpid())
        for cell in missing.values()
    )
    failures = []
    for done, line in enumerate(lines, 1):
        cell = missing[line["key"]]
        problem = line.get("problem", "")
        print(f"{done} of {len(missing)}: {cell}{problem}", file=sys.stderr, flush=True)
        if problem:
            failures.append(f"{cell}{problem}")
        else:
            _append(path, line | {"digest": digests.get(cell.source, "synthetic")})
    return failures


def _compute(
    cell: Cell, dataset: Dataset | None, engine: str, progress: Path, main: int
) -> dict[str, Any]:
    """Compute a cell; returns its line of results, or what is wrong with it."""
    started = time.perf_counter()
    if cell.resumes:
        progress.mkdir(parents=True, exist_ok=True)
    try:
        with (
            _ended_by_ctrl_c(os.getpid() == main),
            resumable(progress / cell.key if cell.resumes else None),
        ):
            outcome = cell.compute(dataset, engine)
    except Exception as error:
        return {"key": cell.key, "problem": f": {type(error).__name__}: {error}"}
    seconds = round(time.perf_counter() - started, 3)
    return {"key": cell.key, **cell.about, "seconds": seconds, "engine": engine, "outcome": outcome}


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
