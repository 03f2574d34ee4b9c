"""Accuracy with and without `Recenter` where sessions, subjects or objects differ.

Classifiers, splits and inner folds are those of benchmarks/accuracy.py. Results are saved after
every fit, and what is there is not done again. Needs DIVLEARN_DATA, or --packed.

    python benchmarks/recenter.py --methods mdm ts-lda
    python benchmarks/recenter.py --methods spd --data "EMG sessions" "EMG subjects"
    python benchmarks/recenter.py --summary --docs docs/transfer.md
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from accuracy_data import Problem, load, make_problem
from accuracy_methods import METHODS
from machine import machine, machine_line, write_between_markers
from timing import limit_threads

from divlearn import Recenter
from divlearn.fitting.folds import fit_grouped
from divlearn.nearest import DivergenceMDM

RESULTS = Path(__file__).with_name("results") / "recenter.json"
# The file of each set of splits, and its seeds.
SPLITS = {
    "EMG sessions": ("emg", range(4)),
    "EMG subjects": ("emg", range(4, 6)),
    "UTKinect": ("utkinect", range(10)),
    "ETH-80, 5 objects": ("eth80", range(5)),
    "ETH-80, 3 objects": ("eth80", range(5, 10)),
}
HOW = {
    "none": "without",
    "whole": "training and test data each as a whole",
    "groups": "by group",
    "stretch": "by group, stretched",
}
CLASSIFIERS = {"mdm": "DivergenceMDM", "ts-lda": "tangent LDA", "spd": "SPDClassifier"}
BATCHES = (1, 2, 5, 20, 100)  # matrices of a new session that are given together
GESTURES = (1, 2, 3, 4, 5)  # that occur in a new session
Groups = tuple[np.ndarray | None, np.ndarray | None]


def recentered(problem: Problem, groups: Groups, how: str) -> tuple[np.ndarray, np.ndarray]:
    if how == "none":
        return problem.X_train, problem.X_test
    train, test = (None, None) if how == "whole" else groups
    model = Recenter(stretch=how == "stretch")
    moved = model.fit_transform(problem.X_train, problem.y_train, train)
    return moved, model.transform(problem.X_test, test)


def score(method: str, problem: Problem, seed: int, groups: Groups, how: str) -> float | str:
    """Accuracy on the test part, or why there is none."""
    try:
        train, test = recentered(problem, groups, how)
    except ValueError as error:
        return str(error)
    model = METHODS[method].make(seed, problem.cv)
    fit_grouped(model, train, problem.y_train, problem.groups)
    return float((model.predict(test) == problem.y_test).mean())


def problems(name: str, packed: Path | None) -> Iterator[tuple[int, Problem, Groups]]:
    file, seeds = SPLITS[name]
    data = load(file, packed)
    for seed in seeds:
        groups = data["group"][data[f"train_{seed}"]], data["group"][data[f"test_{seed}"]]
        yield seed, make_problem(data, seed, quick=False), groups


def run(given: argparse.Namespace, results: dict[str, Any]) -> None:
    done = {(cell["data"], cell["seed"], cell["method"], cell["how"]) for cell in results["cells"]}
    for name in given.data:
        for seed, problem, groups in problems(name, given.packed):
            if given.splits and seed - SPLITS[name][1].start >= given.splits:
                continue
            for method in given.methods:
                for how in given.how:
                    if (name, seed, method, how) in done:
                        continue
                    cell = {"data": name, "seed": seed, "method": method, "how": how}
                    found = score(method, problem, seed, groups, how)
                    results["cells"].append(cell | {"accuracy": found})
                    save(given.json, results)
                    print(*cell.values(), found, flush=True)


def run_curves(given: argparse.Namespace, results: dict[str, Any]) -> None:
    """Nearest means on a new session that comes in batches, or has some of the gestures only."""
    rng, curves = np.random.default_rng(0), {"batches": {}, "gestures": {}}
    for seed, problem, _ in problems("EMG sessions", given.packed):
        plain = DivergenceMDM().fit(problem.X_train, problem.y_train)
        recenter = Recenter()
        model = DivergenceMDM().fit(recenter.fit_transform(problem.X_train), problem.y_train)
        X, y = problem.X_test, problem.y_test
        order = rng.permutation(len(y))
        for size in BATCHES:
            n_batches = max(1, len(y) // size)  # of this size or a little more
            batch = np.empty(len(y), dtype=int)
            batch[order] = np.arange(len(y)) % n_batches
            moved = [recenter.transform(X, batch)]
            if size > 1:
                moved.append(Recenter().fit_transform(X, groups=batch))
            scores = [plain.score(X, y), *(model.score(part, y) for part in moved)]
            curves["batches"].setdefault(str(size), []).append(scores)
        for count in GESTURES:
            rows = np.isin(y, rng.permutation(np.unique(y))[:count])
            scores = [
                plain.score(X[rows], y[rows]),
                model.score(recenter.transform(X[rows]), y[rows]),
            ]
            curves["gestures"].setdefault(str(count), []).append(scores)
        print("curves", seed, flush=True)
    results["curves"] = curves
    save(given.json, results)


def save(path: Path, results: dict[str, Any]) -> None:
    path.write_text(json.dumps(results | {"machine": machine()}, indent=1))


# --- tables


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def percent(values: Sequence[float], sign: str = "") -> str:
    spread = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    mean = f"{100 * np.mean(values):{sign}.1f}"
    return mean if np.isnan(spread) else f"{mean} +- {100 * spread:.1f}"


def accuracy_rows(cells: Sequence[dict[str, Any]]) -> list[list[str]]:
    rows = []
    for name in SPLITS:
        for method, title in CLASSIFIERS.items():
            own = [c for c in cells if c["data"] == name and c["method"] == method]
            if not own:
                continue
            by = {how: {c["seed"]: c["accuracy"] for c in own if c["how"] == how} for how in HOW}
            row = [name, title, str(len(by["none"]))]
            for how in HOW:
                values = list(by[how].values())
                refused = values and isinstance(values[0], str)
                row.append("not possible" if refused else percent(values) if values else "-")
            best = "whole" if row[-2] in ("not possible", "-") else "groups"
            gains = [by[best][seed] - by["none"][seed] for seed in by["none"] if seed in by[best]]
            rows.append([*row, percent(gains, sign="+") if gains else "-"])
    return rows


def curve_cells(scores: Sequence[Sequence[float]]) -> list[str]:
    """Accuracies without and with `Recenter`, the gain, and other accuracies if there are any."""
    plain, moved, *others = zip(*scores, strict=True)
    gains = [after - before for before, after in zip(plain, moved, strict=True)]
    return [percent(plain), percent(moved), percent(gains, sign="+"), *map(percent, others)]


def report(results: dict[str, Any]) -> str:
    headings = ["data", "classifier", "splits", *HOW.values(), "gain over without"]
    parts = [
        machine_line(results["machine"]) + ".",
        "Accuracy in %, mean and standard error over splits. `DivergenceMDM` and `Recenter` use "
        "AIRM. The last column is the gain of re-centring by group, not stretched. If every group "
        "has one class, it is that of re-centring training and test data each as a whole. A dash "
        "means that it was not run.",
        table(headings, accuracy_rows(results["cells"])),
    ]
    for name, title, columns in (
        (
            "batches",
            "matrices given together",
            ("without", "Recenter", "gain", "each batch by its own mean alone"),
        ),
        ("gestures", "gestures in the new session", ("without", "Recenter", "gain")),
    ):
        curve = results.get("curves", {}).get(name, {})
        rows = [[key, *curve_cells(scores)] for key, scores in curve.items()]
        rows = [[*row, *["-"] * (len(columns) + 1 - len(row))] for row in rows]
        parts.append(f"EMG sessions, `DivergenceMDM`, by the number of {title}:")
        parts.append(table([title, *columns], rows))
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", choices=SPLITS, default=list(SPLITS))
    parser.add_argument("--methods", nargs="+", choices=CLASSIFIERS, default=[])
    parser.add_argument("--how", nargs="+", choices=HOW, default=list(HOW))
    parser.add_argument("--splits", type=int, help="the first of each set only")
    parser.add_argument("--curves", action="store_true", help="batches and missing classes")
    parser.add_argument("--summary", action="store_true", help="compute nothing")
    parser.add_argument("--json", type=Path, default=RESULTS, help="default: %(default)s")
    parser.add_argument("--docs", type=Path, help="put the tables between their markers there")
    parser.add_argument("--packed", type=Path, help="folder of data; see benchmarks/accuracy.py")
    given = parser.parse_args()
    limit_threads(1)
    results = json.loads(given.json.read_text()) if given.json.exists() else {"cells": []}
    if not given.summary:
        run(given, results)
        if given.curves:
            run_curves(given, results)
    text = report(json.loads(given.json.read_text()))
    print(text)
    if given.docs:
        write_between_markers(given.docs, text)


if __name__ == "__main__":
    main()
