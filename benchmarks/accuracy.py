"""Accuracy of classifiers of SPD matrices, all on the same splits.

Whatever a method chooses, it chooses on the training part; every fitted model predicts its test set
once, in one thread. Results are saved after every fit, and what is there is not done again. Needs
DIVLEARN_DATA; data that is not there is left out. --pack writes all data to files, from which
--packed reads it where image files or aeon cannot be read.

    python benchmarks/accuracy.py --methods baselines --data virus kth
    python benchmarks/accuracy.py --redo spd --jobs 16
    python benchmarks/accuracy.py --summary --docs docs
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from accuracy_data import EEG, SOURCES, Problem, load, make_problem
from accuracy_methods import BASELINES, METHODS, OURS, evaluate
from accuracy_results import Cell
from accuracy_summary import eeg_report, report
from joblib import Parallel, delayed
from machine import machine, machine_line, write_between_markers
from timing import limit_threads

RESULTS = Path(__file__).with_name("results") / "accuracy.json"
GROUPS = {"all": list(METHODS), "baselines": BASELINES, "ours": OURS}


class Store:
    """Cells in a file that is whole at any moment; without a path only in memory."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        there = json.loads(path.read_text()) if path and path.exists() else {}
        self.machine: dict[str, Any] = there.get("machine", {})
        self.cells: list[Cell] = there.get("cells", [])

    def find(self, **key: Any) -> list[Cell]:
        return [cell for cell in self.cells if key.items() <= cell.items()]

    def drop(self, cells: Iterable[Cell]) -> None:
        gone = {id(cell) for cell in cells}
        self.cells = [cell for cell in self.cells if id(cell) not in gone]

    def add(self, cell: Cell) -> None:
        key = {name: cell[name] for name in ("data", "method", "seed")}
        self.drop(self.find(**key))
        self.cells.append(cell)
        self.machine = machine()
        if self.path:
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps({"machine": self.machine, "cells": self.cells}, indent=1))
            os.replace(new, self.path)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [*GROUPS, *METHODS]
    parser.add_argument("--data", nargs="+", choices=SOURCES, default=list(SOURCES))
    parser.add_argument("--methods", nargs="+", choices=names, help="default: all, or --redo's")
    parser.add_argument("--seeds", nargs="+", type=int, help="default: all of each data set")
    parser.add_argument("--redo", nargs="+", choices=names, default=[], help="do these again")
    parser.add_argument("--quick", action="store_true", help="tiny parts of the data, not saved")
    parser.add_argument("--summary", action="store_true", help="compute nothing")
    parser.add_argument("--json", type=Path, default=RESULTS, help="default: %(default)s")
    parser.add_argument("--docs", type=Path, help="folder of accuracy.md and eeg.md, to fill")
    parser.add_argument("--jobs", type=int, default=1, help="processes, one thread each")
    parser.add_argument("--pack", type=Path, help="write all data into this folder, and end")
    parser.add_argument("--packed", type=Path, help="folder of data that --pack has written")
    given = parser.parse_args()
    given.redo = {name for one in given.redo for name in GROUPS.get(one, [one])}
    wanted = {name for one in given.methods or [] for name in GROUPS.get(one, [one])}
    wanted = wanted or given.redo or set(METHODS)
    given.methods = [name for name in METHODS if name in wanted]
    return given


def leave_out_missing(methods: Iterable[str]) -> list[str]:
    """Keep the methods whose libraries are installed."""
    kept = []
    for name in methods:
        if METHODS[name].is_installed:
            kept.append(name)
        else:
            print(f"{name} is left out: {METHODS[name].needs} is not installed")
    return kept


def load_all(given: argparse.Namespace) -> dict[str, Any]:
    """Load the data sets that are there."""
    found = {}
    for name in given.data:
        try:
            found[name] = load(name, given.packed)
        except (ImportError, FileNotFoundError) as error:
            print(f"{name} is left out: {error}")
    return found


def run(given: argparse.Namespace, store: Store) -> None:
    cells = []
    given.methods = leave_out_missing(given.methods)
    for name, data in load_all(given).items():
        seeds = given.seeds or ([0] if given.quick else range(SOURCES[name].seeds))
        for seed in seeds:
            if seed < SOURCES[name].seeds:
                problem = make_problem(data, seed, given.quick)
                cells += [
                    (m, problem, name, seed) for m in missing(given, store, name, seed, problem)
                ]
    # The longest come first, so that processes end together: large problems, and the last methods.
    cells.sort(key=lambda cell: (cell[1].size, given.methods.index(cell[0])), reverse=True)
    work = Parallel(given.jobs, return_as="generator_unordered", pre_dispatch=2 * given.jobs)
    for cell in work(delayed(compute)(*cell) for cell in cells):
        title = f"{cell['data']} {cell['seed']}  {METHODS[cell['method']].title:40}"
        if "failed" in cell:
            print(f"{title} failed: {cell['failed']}", flush=True)
            continue
        store.add(cell)
        seconds = cell["fit_seconds"] + cell["predict_seconds"]
        print(f"{title} {100 * cell['accuracy']:5.1f} %  {seconds:8.1f} s", flush=True)


def missing(
    given: argparse.Namespace, store: Store, name: str, seed: int, problem: Problem
) -> list[str]:
    """Methods to run on a split; drops results on other matrices or folds."""
    stale = [cell for cell in store.find(data=name, seed=seed) if cell["mark"] != problem.mark]
    if stale:
        print(f"{name} {seed}: matrices or folds have changed; {len(stale)} results dropped")
        store.drop(stale)
    known = {cell["method"] for cell in store.find(data=name, seed=seed)} - given.redo
    return [
        method
        for method in given.methods
        if method not in known and (name in EEG or not METHODS[method].eeg)
    ]


def compute(method: str, problem: Problem, name: str, seed: int) -> Cell:
    limit_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    cell = {"data": name, "seed": seed, "method": method, "mark": problem.mark}
    try:
        return cell | evaluate(method, problem, seed)
    except Exception as error:
        # One method that fails must not stop the night's work; its cell stays empty.
        return cell | {"failed": f"{type(error).__name__}: {error}"}


def stop(*_: Any) -> None:
    # Not a KeyboardInterrupt: learning would take it as a wish to stop early, and be recorded.
    raise SystemExit("stopped; finished results are kept")


def main() -> None:
    given = parse()
    if given.pack:
        given.pack.mkdir(parents=True, exist_ok=True)
        for name, data in load_all(given).items():
            np.savez_compressed(given.pack / f"{name}.npz", **data)
        return
    signal.signal(signal.SIGINT, stop)
    store = Store(None if given.quick else given.json)
    if not given.summary:
        run(given, store)
    if not store.cells:
        print("no results yet")
        return
    for page, make in {"accuracy.md": report, "eeg.md": eeg_report}.items():
        about = machine_line(store.machine)
        print(make(store.cells, about, targets=True))
        if given.docs:
            write_between_markers(given.docs / page, make(store.cells, about, targets=False))


if __name__ == "__main__":
    main()
