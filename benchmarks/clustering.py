"""Clustering beside pyRiemann and scikit-learn: how fast, how much memory, and how well.

Real data needs DIVLEARN_DATA, and is left out without it; of large sets only a part is clustered.
Parts that are not asked for keep the results that are there.

    python benchmarks/clustering.py
    python benchmarks/clustering.py quality --data Virus
    python benchmarks/clustering.py --summary --docs docs/benchmarks_clustering.md
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from clustering_quality import (
    HEADINGS,
    METHODS,
    REAL,
    SYNTHETIC,
    Quality,
    describe,
    evaluate,
)
from clustering_quality import load as load_problems
from clustering_speed import (
    GOALS,
    LARGE,
    LARGE_HEADINGS,
    MODELS,
    SPEED_HEADINGS,
    Large,
    Speed,
    measure_large,
    race,
)
from machine import machine, machine_line, write_between_markers
from rich.console import Console

RESULTS = Path(__file__).with_name("results") / "clustering.json"
PARTS = ("speed", "memory", "quality")
SEPARATIONS = (6,)

Results = dict[str, Any]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--data", nargs="+", help="data sets for quality; all by default")
    parser.add_argument("--seeds", type=int, default=5, help="clusters, or starts, for quality")
    parser.add_argument("--summary", action="store_true", help="compute nothing")
    parser.add_argument("--json", type=Path, default=RESULTS, help="default: %(default)s")
    parser.add_argument("--docs", type=Path, help="put the tables between their markers there")
    given = parser.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"{unknown.pop()} must be one of {', '.join(PARTS)}")
    return given


def run_speed(results: Results, console: Console) -> None:
    results["speed"] = []
    for metric in GOALS:
        for separation in SEPARATIONS:
            results["speed"].append(asdict(race(metric, separation)))
            console.print(results["speed"][-1])


def run_memory(results: Results, console: Console) -> None:
    results["memory"] = []
    for name in MODELS:
        results["memory"].append(asdict(measure_large(name)))
        console.print(results["memory"][-1])


def run_quality(
    results: Results,
    console: Console,
    names: Sequence[str],
    seeds: int,
    save: Callable[[], None],
) -> None:
    for name in names:
        problems, rows = load_problems(name, seeds), []
        for method, make in METHODS.items():
            found = evaluate(name, problems, method, make)
            console.print(f"{name}: {' '.join(found.row())}")
            rows.append(asdict(found))
        title = describe(name, problems)
        results.setdefault("quality", {})[name] = {"title": title, "rows": rows}
        save()


def report(results: Results) -> str:
    lines = []
    if "speed" in results:
        rows = [Speed(**row).row() for row in results["speed"]]
        title = "3,000 matrices of 18, 10 clusters, one run"
        lines += table(title, SPEED_HEADINGS, rows)
    if "memory" in results:
        n, d, k = LARGE
        rows = [Large(**row).row() for row in results["memory"]]
        lines += table(f"{n:,} matrices of {d}, {k} clusters", LARGE_HEADINGS, rows)
    for part in results.get("quality", {}).values():
        lines += table(part["title"], HEADINGS, [Quality(**row).row() for row in part["rows"]])
    return "\n".join([*lines, f"Measured on: {machine_line(results['machine'])}."])


def table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [
        f"**{title}**",
        "",
        f"| {' | '.join(headings)} |",
        "|---|" + "---:|" * (len(headings) - 1),
    ]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def main() -> None:
    given, console = parse(), Console(width=140, highlight=False)
    warnings.simplefilter("ignore")  # of starts that do not converge, by peers
    results: Results = json.loads(given.json.read_text()) if given.json.exists() else {}

    def save() -> None:
        results["machine"] = machine()
        given.json.write_text(json.dumps(results, indent=1) + "\n")

    if not given.summary:
        parts = given.parts or PARTS
        if "speed" in parts:
            run_speed(results, console)
            save()
        if "memory" in parts:
            run_memory(results, console)
            save()
        if "quality" in parts:
            names = given.data or [*SYNTHETIC, *(REAL if "DIVLEARN_DATA" in os.environ else ())]
            run_quality(results, console, names, given.seeds, save)
    text = report(results)
    console.print(text, markup=False, soft_wrap=True)
    if given.docs:
        write_between_markers(given.docs, text)


if __name__ == "__main__":
    main()
