"""Time and memory of fits, as matrices become more, larger, or of more classes.

Every point is measured in a process of its own, with a limit in seconds; larger points of the same
line are then skipped. Results go to a JSON file after every point, under the text of ``--machine``,
and a second run measures only what is missing. The default grid has 96 fits of at most 600 seconds
each, which is 16 hours at most; ``--quick`` takes about 250 seconds of CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from growth_tables import write_page
from machine import machine, machine_line
from memory import resident

from divlearn import SPDClassifier, which_divergence
from divlearn.arrays import Indices, RealArray
from divlearn.cluster import ABKMeans, ABMixture
from divlearn.datasets import make_wishart_clusters
from divlearn.iddl import IDDLClassifier
from divlearn.kernels import DivergenceKernelClassifier

RESULTS = Path(__file__).parent / "results" / "growth.json"
AXES = {
    "matrices": (500, 1000, 2000, 4000, 8000, 16_000, 32_000, 100_000),
    "size": (8, 16, 32, 64, 128),
    "classes": (2, 5, 10, 30, 100),
}
QUICK = {"matrices": (500, 1000, 2000), "size": (8, 16, 32), "classes": (2, 5, 10)}
# Where the other axes stand.
MIDDLE = {"matrices": 1000, "size": 16, "classes": 10}
QUICK_MIDDLE = {"matrices": 500, "size": 8, "classes": 5}
FIELDS = "estimator", "matrices", "size", "classes"


@dataclass(frozen=True)
class Point:
    """What is fitted to what."""

    estimator: str
    matrices: int
    size: int
    classes: int
    engine: str = "auto"


@dataclass(frozen=True)
class Terms:
    """How points are measured."""

    clock: str  # "wall" or "cpu"
    limit: float  # seconds of it
    threads: int


def fit_with(make: Callable[..., Any], X: RealArray, y: Indices | None, engine: str) -> None:
    make(engine=engine, random_state=0).fit(X, y)


def run_point(point: Point) -> None:
    """Fit, and print seconds by both clocks and bytes: before the fit, and at its peak."""
    each = -(-point.matrices // point.classes)
    X, y = make_wishart_clusters(
        point.classes, each, point.size, separation=point.size / 3, random_state=0
    )
    X, y = X[: point.matrices], y[: point.matrices]
    jobs: dict[str, Callable[[], object]] = {
        "SPDClassifier": partial(fit_with, SPDClassifier, X, y, point.engine),
        "IDDLClassifier": partial(fit_with, IDDLClassifier, X, y, point.engine),
        "DivergenceKernelClassifier": partial(
            fit_with, DivergenceKernelClassifier, X, y, point.engine
        ),
        "which_divergence": partial(which_divergence, X, y, engine=point.engine, random_state=0),
        "ABKMeans": partial(fit_with, partial(ABKMeans, point.classes), X, None, point.engine),
        "ABMixture": partial(fit_with, partial(ABMixture, point.classes), X, None, point.engine),
    }
    before = resident("VmRSS")
    wall, cpu = time.perf_counter(), time.process_time()
    jobs[point.estimator]()
    found = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    print(json.dumps(found | {"before": before, "peak": resident("VmHWM")}))


ESTIMATORS = (
    "SPDClassifier",
    "IDDLClassifier",
    "DivergenceKernelClassifier",
    "which_divergence",
    "ABKMeans",
    "ABMixture",
)


def measure(point: Point, terms: Terms) -> dict[str, Any]:
    """Measure a point in a new process; without figures where it takes longer than the limit."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = os.environ | dict.fromkeys(names, str(terms.threads))
    command = [sys.executable, __file__, "--point", json.dumps(asdict(point))]
    row = asdict(point) | asdict(terms)

    def limit_cpu() -> None:
        seconds = int(terms.limit) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))

    on_cpu = terms.clock == "cpu"
    try:
        ended = subprocess.run(
            command,
            env=environment,
            capture_output=True,
            text=True,
            timeout=None if on_cpu else terms.limit,
            preexec_fn=limit_cpu if on_cpu else None,
        )
    except subprocess.TimeoutExpired:
        return row | {"over": True}
    if ended.returncode < 0:  # killed at the limit of CPU time, or for memory
        return row | {"over": True}
    if ended.returncode:
        last = ended.stderr.strip().splitlines()[-1:]
        return row | {"error": last[0] if last else f"exit status {ended.returncode}"}
    return row | json.loads(ended.stdout.splitlines()[-1])


class Results:
    """Rows of one machine in a file, which is written after every point."""

    def __init__(self, path: Path, name: str) -> None:
        self._path, self._name, self._lock = path, name, threading.Lock()
        self._all = json.loads(path.read_text()) if path.exists() else {}
        about = {"about": machine_line(machine()), "rows": []}
        self.rows: list[dict[str, Any]] = self._all.setdefault(name, about)["rows"]

    def find(self, point: Point, terms: Terms) -> dict[str, Any] | None:
        """Return a row that is known; one over a lower limit is not."""
        for row in self.rows:
            same = all(row[name] == value for name, value in asdict(point).items())
            if same and not (row.get("over") and row["limit"] < terms.limit):
                return row
        return None

    def add(self, row: dict[str, Any]) -> None:
        with self._lock:
            same = [one for one in self.rows if all(one[name] == row[name] for name in FIELDS)]
            for one in same:
                self.rows.remove(one)
            self.rows.append(row)
            self._path.write_text(json.dumps(self._all, indent=1) + "\n")


def run_line(points: Sequence[Point], terms: Terms, results: Results) -> None:
    """Measure points of ascending size, up to the first that takes too long."""
    over = False
    for point in points:
        row = results.find(point, terms)
        if row is None:
            skipped = asdict(point) | asdict(terms) | {"over": True}
            row = skipped if over else measure(point, terms)
            results.add(row)
            print(json.dumps(row), flush=True)
        over = over or bool(row.get("over"))


def make_lines(quick: bool, estimators: Sequence[str], engine: str) -> list[list[Point]]:
    axes, middle = (QUICK, QUICK_MIDDLE) if quick else (AXES, MIDDLE)
    return [
        [Point(name, **(middle | {axis: value}), engine=engine) for value in values]
        for name in estimators
        for axis, values in axes.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small grid, up to 2,000 matrices")
    parser.add_argument("--machine", default="this machine", help="name of the rows in the file")
    parser.add_argument("--limit", type=float, default=600, help="seconds of a point")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="of the limit")
    parser.add_argument("--threads", type=int, default=1, help="of every fit")
    parser.add_argument("--jobs", type=int, default=1, help="lines that are measured side by side")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--estimators", nargs="+", choices=ESTIMATORS, default=ESTIMATORS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, help="page to write the tables to, and do no more")
    parser.add_argument("--point", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        run_point(Point(**json.loads(options.point)))
        return
    if options.docs:
        write_page(options.docs, json.loads(options.results.read_text()), ESTIMATORS)
        return
    terms = Terms(options.clock, options.limit, options.threads)
    results = Results(options.results, options.machine)
    lines = make_lines(options.quick, options.estimators, options.engine)
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(partial(run_line, terms=terms, results=results), lines))


if __name__ == "__main__":
    main()
