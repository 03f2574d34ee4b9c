"""The joint solver beside the paper's block-coordinate descent, on the authors' KTH-TIPS2 matrices.

Both minimise the paper's ridge objective from the same start; what counts is what it takes the
joint solver to come below where block-coordinate descent stops. Needs DIVLEARN_DATA.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine, machine_line
from paper_data import load_kth_tips2_authors, load_virus
from rich.console import Console
from tables import plain_table

from divlearn.iddl import IDDLClassifier

BCD_ITERATIONS, JOINT_ITERATIONS = 6, 30
ATOMS, PENALTY = 22, 1e-3


def fit(solver: str, X: np.ndarray, y: np.ndarray, n_atoms: int, max_iter: int) -> IDDLClassifier:
    classifier = IDDLClassifier.paper(solver=solver, penalty=PENALTY).set_params(
        n_atoms=n_atoms, max_iter=max_iter, random_state=0
    )
    return classifier.fit(X, y)


def trace(history: dict[str, Any]) -> list[dict[str, Any]]:
    names = ("block", "objective", "eigenproblems", "seconds")
    return [
        dict(zip(names, row, strict=True))
        for row in zip(*(history[n].tolist() for n in names), strict=True)
    ]


def compare(console: Console) -> dict[str, Any]:
    data = load_kth_tips2_authors()
    train, test = data.splits()[0]
    X, y = data.matrices[train], data.labels[train]
    traces, scores = {}, {}
    for solver, max_iter in (("bcd", BCD_ITERATIONS), ("joint", JOINT_ITERATIONS)):
        fitted = fit(solver, X, y, ATOMS, max_iter)
        traces[solver] = trace(fitted.history_)
        scores[solver] = fitted.score(data.matrices[test], data.labels[test])
    end = traces["bcd"][-1]
    reached = next((row for row in traces["joint"] if row["objective"] <= end["objective"]), None)
    for solver, rows in traces.items():
        shown = [row for row in rows if row["block"] in ("start", "head", "joint")]
        table = [
            [f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()] for row in shown
        ]
        console.print(
            plain_table(f"{solver}, test accuracy {scores[solver]:.1%}", list(shown[0]), table)
        )
    if reached is None:
        console.print("the joint solver did not come below block-coordinate descent")
        return {"traces": traces, "scores": scores}
    ratios = {name: end[name] / reached[name] for name in ("eigenproblems", "seconds")}
    console.print(
        f"to {end['objective']:.4g}: {ratios['eigenproblems']:.1f}x fewer eigenproblems, "
        f"{ratios['seconds']:.1f}x less time"
    )
    return {"traces": traces, "scores": scores, "ratios": ratios}


def full_size(console: Console) -> dict[str, Any]:
    data = load_virus()
    train, test = data.splits()[0]
    started = time.perf_counter()
    fitted = fit("joint", data.matrices[train], data.labels[train], 75, JOINT_ITERATIONS)
    seconds = time.perf_counter() - started
    score = fitted.score(data.matrices[test], data.labels[test])
    console.print(
        f"Virus, {len(train)} x 75, d = {data.matrices.shape[-1]}, {JOINT_ITERATIONS} joint "
        f"iterations with the paper's preset: {seconds:.1f} s, test accuracy {score:.1%}"
    )
    return {"seconds": seconds, "score": score}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write everything here")
    given = parser.parse_args()
    console = Console()
    about = machine()
    results = {"machine": about, "kth": compare(console), "virus": full_size(console)}
    console.print(f"Measured on: {machine_line(about)}.")
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
