"""Accuracy of classifiers of SPD matrices, all on the same splits.

Whatever a method chooses, it chooses on the training part; every fitted model predicts its test set
once. Results are saved after every fit, and what is there is not done again. Needs DIVLEARN_DATA;
data that is not there is left out.

    python benchmarks/accuracy.py --methods baselines --data virus kth
    python benchmarks/accuracy.py --redo spd
    python benchmarks/accuracy.py --summary --docs docs/accuracy.md
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from accuracy_data import SOURCES, Problem, load, make_problem
from accuracy_methods import BASELINES, METHODS, OURS, evaluate
from accuracy_summary import Cell, Results, report
from rich.console import Console
from tables import machine, machine_line, write_between_markers
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
    parser.add_argument("--docs", type=Path, help="put the tables between their markers there")
    parser.add_argument(
        "--vowels", type=Path, help="embeddings of load_japanese_vowels() and labels in a .npz file"
    )
    given = parser.parse_args()
    given.redo = {name for one in given.redo for name in GROUPS.get(one, [one])}
    wanted = {name for one in given.methods or [] for name in GROUPS.get(one, [one])}
    wanted = wanted or given.redo or set(METHODS)
    given.methods = [name for name in METHODS if name in wanted]
    return given


def run(given: argparse.Namespace, store: Store, console: Console) -> None:
    for name in given.data:
        try:
            data = load(name, given.vowels)
        except (ImportError, FileNotFoundError) as error:
            console.print(f"{name} is left out: {error}", markup=False, soft_wrap=True)
            continue
        seeds = given.seeds or ([0] if given.quick else range(SOURCES[name].seeds))
        for seed in seeds:
            if seed < SOURCES[name].seeds:
                run_seed(
                    given, store, console, name, seed, make_problem(name, data, seed, given.quick)
                )


def run_seed(
    given: argparse.Namespace, store: Store, console: Console, name: str, seed: int,
    problem: Problem,
) -> None:  # fmt: skip
    mark = problem.mark
    stale = [cell for cell in store.find(data=name, seed=seed) if cell["mark"] != mark]
    if stale:
        console.print(f"{name} {seed}: the matrices have changed; {len(stale)} results dropped")
        store.drop(stale)
    for method in given.methods:
        if store.find(data=name, seed=seed, method=method) and method not in given.redo:
            continue
        console.print(f"{name} {seed}  {METHODS[method].title:40}", end="")
        try:
            found = evaluate(method, problem, seed)
        except Exception as error:
            # One method that fails must not stop the night's work; its cell stays empty.
            console.print(f"failed: {type(error).__name__}: {error}", markup=False)
            continue
        store.add({"data": name, "seed": seed, "method": method, "mark": mark} | found)
        seconds = found["fit_seconds"] + found["predict_seconds"]
        console.print(f"{100 * found['accuracy']:5.1f} %  {seconds:8.1f} s")


def stop(*_: Any) -> None:
    # Not a KeyboardInterrupt: learning would take it as a wish to stop early, and be recorded.
    raise SystemExit("stopped; finished results are kept")


def main() -> None:
    given, console = parse(), Console(highlight=False)
    signal.signal(signal.SIGINT, stop)
    limit_threads(1)
    store = Store(None if given.quick else given.json)
    if not given.summary:
        run(given, store, console)
    if not store.cells:
        console.print("no results yet")
        return
    text = report(Results(store.cells), machine_line(store.machine))
    console.print(text, markup=False, soft_wrap=True)
    if given.docs:
        write_between_markers(given.docs, text)


if __name__ == "__main__":
    main()
