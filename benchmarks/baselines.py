"""Nearest neighbours and minimum distance to mean beside pyRiemann: how fast, and how accurate.

Both fit and predict, on the same matrices, taking turns in one process. Ratios are medians over
rounds of the seconds of one over those of the other in the same round.

The part "choice" compares `DivergenceMDM("choose")` with pyRiemann's MDM in each of its metrics, on
the first splits of the data of accuracy.py (which see for --packed), by processor time in one
thread. The time to beat is that of its default metric.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from accuracy_data import SOURCES, Problem, load, make_problem
from machine import machine, machine_line
from pyriemann.classification import MDM, KNearestNeighbor
from rich.console import Console
from tables import plain_table
from timing import Array, limit_threads, wishart

from divlearn.nearest import DivergenceKNN, DivergenceMDM

TRAIN, TEST, CLASSES = 10_000, 2_500, 10
SIZES = (5, 18)  # of matrices
GOALS = {"neighbours": 10.0, "means": 5.0}
# Ours, and theirs; pyRiemann has no mean of its Kullback divergence, which is the arithmetic one.
NEIGHBORS = {"airm": "riemann", "stein": "logdet", "kullback": "kullback"}
MEANS: dict[str, Any] = {
    "airm": "riemann",
    "stein": "logdet",
    "jeffreys": "kullback_sym",
    "kullback": {"mean": "euclid", "distance": "kullback"},
    "log-euclidean": "logeuclid",
}
FIXED = MEANS | {"kullback-right": {"mean": "harmonic", "distance": "kullback_right"}}
SPLITS = 2  # of every data set, to choose a divergence on


@dataclass(frozen=True)
class Race:
    """Seconds to fit and predict, and how many predictions agree."""

    part: str
    divergence: str
    d: int
    seconds: float
    peer_seconds: float
    ratio: float
    agreement: float
    rounds: int

    def row(self) -> list[str]:
        return [
            self.divergence,
            str(self.d),
            f"{self.seconds:.3f}",
            f"{self.peer_seconds:.2f}",
            f"{self.ratio:.1f}x",
            f"{GOALS[self.part]:.0f}x",
            f"{self.agreement:.4f}",
        ]


@dataclass(frozen=True)
class Choice:
    """A split: the divergence chosen, its accuracy, and those of pyRiemann's metrics."""

    data: str
    seed: int
    chosen: str
    accuracy: float
    fixed: dict[str, float]
    behind: float  # the best of these
    standard_error: float  # of the paired difference
    seconds: float
    peer_seconds: float
    ratio: float

    def row(self) -> list[str]:
        best = max(self.fixed, key=self.fixed.__getitem__)
        return [
            SOURCES[self.data].title,
            str(self.seed),
            self.chosen,
            f"{self.accuracy:.1%}",
            f"{self.fixed[best]:.1%} ({best})",
            f"{self.fixed['airm']:.1%}",
            f"{100 * self.behind:.1f} +- {100 * self.standard_error:.1f}",
            f"{self.seconds:.2f}",
            f"{self.peer_seconds:.2f}",
            f"{self.ratio:.1f}x",
        ]


def choice(name: str, seed: int, split: Problem, rounds: int) -> Choice:
    def run(model: Any) -> tuple[np.ndarray, float]:
        start = time.process_time()
        model.fit(split.X_train, split.y_train)
        right = model.predict(split.X_test) == split.y_test
        return right, time.process_time() - start

    ours, times = DivergenceMDM("choose", cv=split.cv), []
    for _ in range(rounds):
        right, seconds = run(ours)
        times.append((seconds, run(MDM())[1]))
    peers = {mine: run(MDM(metric=theirs))[0] for mine, theirs in FIXED.items()}
    fixed = {mine: float(found.mean()) for mine, found in peers.items()}
    gaps = peers[max(fixed, key=fixed.__getitem__)].astype(float) - right
    chosen = ours.divergence_ if isinstance(ours.divergence_, str) else ours.divergence_.name
    return Choice(
        name,
        seed,
        chosen,
        float(right.mean()),
        fixed,
        float(gaps.mean()),
        float(gaps.std(ddof=1) / np.sqrt(len(gaps))),
        *(median(one) for one in zip(*times, strict=True)),
        median(other / one for one, other in times),
    )


def problem(d: int) -> tuple[Array, np.ndarray, Array]:
    """Matrices to train on, spread about the centres of classes, with labels; those to test on."""
    X = wishart(TRAIN + TEST, d, 0)
    centers = wishart(CLASSES, d, 1)
    y = np.arange(len(X)) % CLASSES
    roots = np.linalg.cholesky(centers)[y]
    X = roots @ X @ roots.mT
    X = (X + X.mT) / 2
    return X[:TRAIN], y[:TRAIN], X[TRAIN:]


def race(
    part: str,
    divergence: str,
    d: int,
    ours: Callable[[], Any],
    theirs: Callable[[], Any],
    rounds: int,
) -> Race:
    X, y, queries = problem(d)
    ours().fit(X[:100], y[:100]).predict(X[:10])  # loads what is loaded once
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        found = ours().fit(X, y).predict(queries)
        middle = time.perf_counter()
        expected = theirs().fit(X, y).predict(queries)
        times.append((middle - start, time.perf_counter() - middle))
    own, other = zip(*times, strict=True)
    ratio = median(b / a for a, b in times)
    agreement = float(np.mean(found == expected))
    return Race(part, divergence, d, median(own), median(other), ratio, agreement, rounds)


def races(part: str, sizes: Sequence[int], rounds: int) -> list[Race]:
    """All races of one part; neighbours of large matrices take pyRiemann very long."""
    if part == "means":
        return [
            race(part, mine, d, lambda m=mine: DivergenceMDM(m), lambda t=their: MDM(t), rounds)
            for d in sizes
            for mine, their in MEANS.items()
        ]
    return [
        race(
            part,
            mine,
            sizes[0],
            lambda m=mine: DivergenceKNN(1, m),
            lambda t=their: KNearestNeighbor(1, metric=t),
            1,
        )
        for mine, their in NEIGHBORS.items()
    ]


def choose_all(given: argparse.Namespace) -> list[Choice]:
    limit_threads(1)
    found = []
    for name in given.data:
        data = load(name, given.packed)
        for seed in range(SPLITS):
            split = make_problem(data, seed, quick=False)
            found.append(choice(name, seed, split, given.rounds))
            print(*found[-1].row(), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write everything here")
    parser.add_argument("--only", choices=(*GOALS, "choice"), help="one part alone")
    parser.add_argument("--rounds", type=int, default=5, help="of means; neighbours have one")
    parser.add_argument("--data", nargs="+", choices=SOURCES, default=list(SOURCES))
    parser.add_argument("--packed", type=Path, help="folder of data, as for accuracy.py")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # of means that do not converge, by peers
    console = Console(width=120)
    about = machine()
    found = []
    for part in GOALS if given.only is None else {given.only} & GOALS.keys():
        rows = races(part, SIZES, given.rounds)
        headings = ["divergence", "d", "seconds", "pyRiemann", "ratio", "goal", "agreement"]
        title = f"{part}: {TRAIN:,} matrices to train on, {TEST:,} to predict, fit and predict"
        console.print(plain_table(title, headings, [row.row() for row in rows]))
        found += rows
    choices = choose_all(given) if given.only in (None, "choice") else []
    headings = [
        "data",
        "split",
        "chosen",
        "accuracy",
        "best of pyRiemann",
        "AIRM",
        "points behind",
        "seconds",
        "pyRiemann",
        "ratio",
    ]
    console.print(plain_table("choice", headings, [one.row() for one in choices]))
    console.print(f"Measured on: {machine_line(about)}.")
    if given.json:
        results = {
            "machine": about,
            "races": [asdict(row) for row in found],
            "choices": [asdict(one) for one in choices],
        }
        given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
