"""Whether verdicts and figures hold what they say, on data without signal and with it.

``honesty.py verdicts`` simulates data on which `which_divergence`, `evaluate`, fits and clusters
have nothing to find, and some on which they have. ``honesty.py figures`` compares held-out
accuracies with chance and with new data, ``honesty.py numbers`` the held-out R2 of regressors. All
keep what they find in results/honesty.json and write tables to docs/reliability.md. ``--runs 20``
is for a try; all 200 take about 20, 50 and 40 minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from honesty_figures import figures_text, run_figures
from honesty_numbers import numbers_text, run_numbers
from machine import machine, machine_line, write_between_markers
from scaling_tables import table
from scipy.stats import norm
from simulated import N_GROUPS, N_MATRICES, SIZE, Claims, Row, draw_matrices, run_all
from sklearn.metrics import balanced_accuracy_score

from divlearn import ABKMeans, which_divergence
from divlearn.arrays import RealArray
from divlearn.cluster.agreement import p_agreement
from divlearn.judge import Evaluation, evaluate
from divlearn.judge.answer import LEARNED, MEAN
from divlearn.judge.evaluation import held_out_predictions
from divlearn.judge.significance import SIGNIFICANT
from divlearn.nearest import DivergenceKNN, DivergenceMDM

RESULTS = Path(__file__).parent / "results" / "honesty.json"
PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
MARKERS = {"verdicts": "verdicts", "figures": "held out", "numbers": "held-out numbers"}

# ---------------------------------------------------------------------- which_divergence


def run_which(rng: np.random.Generator, share: float, grouped: bool, separation: float) -> Claims:
    X, y, groups = draw_matrices(rng, share, grouped, separation, more=9)
    known, new = slice(N_MATRICES), slice(N_MATRICES, None)
    together = None if groups is None else groups[known]
    answer = which_divergence(X[known], y[known], groups=together, random_state=0)
    found = answer.p_chance < SIGNIFICANT
    worse = [row.p_value < SIGNIFICANT for row in answer.rules.values()]
    named = answer.best if answer.rule == LEARNED else answer.best_named
    model = DivergenceMDM(named) if answer.rule == MEAN else DivergenceKNN(1, named)
    said = model.fit(X[known], y[known]).predict(X[new])
    return {
        "recommends": found,
        "rules differ": found and any(worse),
        "learned": found and answer.rule == LEARNED,
        "figure": answer.rule_score,
        "new": balanced_accuracy_score(y[new], said),
        "highest": max(max(row.score, row.mean_score) for row in answer.named.values()),
    }


WHICH = [
    {"share": share, "grouped": grouped, "separation": 0.0}
    for share in (0.5, 0.8)
    for grouped in (False, True)
] + [
    {"share": 0.5, "grouped": False, "separation": 1.5},
    {"share": 0.8, "grouped": True, "separation": 12.0},
]


def which_section(rows: Sequence[Row]) -> str:
    head = [
        "data",
        "recommends a rule",
        "calls a rule significantly worse",
        "learned point",
        "accuracy it states",
        "accuracy on new matrices",
        "highest of its table",
    ]
    return table(head, [[say_data(row), *percent(row, *figures_of(row)[3:])] for row in rows])


def say_data(row: Row) -> str:
    share = f"classes {row['share']:.0%} and {1 - row['share']:.0%}"
    groups = f", {N_GROUPS} groups" if row["grouped"] else ""
    signal = "signal, " if row.get("separation") else "no signal, "
    return f"{signal}{share}{groups}"


# ---------------------------------------------------------------------- evaluate


def run_evaluation(
    rng: np.random.Generator, n: int, grouped: bool, correlation: float, worst: float
) -> Claims:
    """Nine classifiers with errors in common are right on 75 %, or one of them on fewer."""
    groups = np.arange(n) % N_GROUPS if grouped else None

    def noise(count: int) -> RealArray:
        alone = rng.standard_normal((count, n))
        if groups is None:
            return alone
        shared = rng.standard_normal((count, N_GROUPS))[:, groups]
        return np.sqrt(0.8) * alone + np.sqrt(0.2) * shared

    scores = np.sqrt(correlation) * noise(1) + np.sqrt(1 - correlation) * noise(9)
    wrong, codes = scores > norm.ppf([0.75] * 8 + [worst])[:, None], rng.permutation(n) % 2
    said = {f"classifier {k}": np.where(one, 1 - codes, codes) for k, one in enumerate(wrong)}
    names, seconds = list(said), dict.fromkeys(said, 0.0)
    found = Evaluation(np.arange(2), codes, said, seconds, 5, np.arange(n), "", groups)
    others = found.table()[1:]
    if worst < 0.75:
        others = [row for row in others if row.name == names[8]]
    first = found.compare(names[0], names[8])
    return {
        "adjusted": any(row.versus_best.p_value < SIGNIFICANT for row in others),
        "single": any(found.compare(found.best, row.name).p_value < SIGNIFICANT for row in others),
        "named": first.p_value < SIGNIFICANT,
    }


EVALUATIONS = [
    {"n": n, "grouped": grouped, "correlation": correlation, "worst": worst}
    for worst in (0.75, 0.65)
    for n in (60, 300)
    for grouped in (False, True)
    for correlation in (0.0, 0.5, 0.9)
    if worst == 0.75 or n == 300
]


def evaluation_section(rows: Sequence[Row]) -> str:
    head = ["classifiers", "adjusted test", "single tests", "a pair named in advance"]
    return table(
        head, [[say_classifiers(row), *percent(row, *figures_of(row)[4:])] for row in rows]
    )


def say_classifiers(row: Row) -> str:
    worst = "all equal" if row["worst"] == 0.75 else "one 10 points worse"
    groups = f", {N_GROUPS} groups" if row["grouped"] else ""
    return f"{worst}, correlation {row['correlation']:g}, {row['n']} matrices{groups}"


# ---------------------------------------------------------------------- everything else


def run_classifiers(rng: np.random.Generator, grouped: bool) -> Claims:
    """Cross-validate classifiers for which there is nothing to find, and none is better."""
    X, y, groups = draw_matrices(rng, 0.5, grouped)
    known = {
        "1-NN, AIRM": DivergenceKNN(1, "airm"),
        "1-NN, Burg": DivergenceKNN(1, "burg"),
        "mean, AIRM": DivergenceMDM("airm"),
        "mean, reverse Burg": DivergenceMDM("reverse-burg"),
        "mean, Burg": DivergenceMDM("burg"),
    }
    found = evaluate(X, y, known, groups=groups)
    return {"claim": any(row.versus_best.p_value < SIGNIFICANT for row in found.table())}


def run_fit(rng: np.random.Generator, grouped: bool) -> Claims:
    """Compare a fitted classifier with chance, as its report does."""
    X, y, groups = draw_matrices(rng, 0.8, grouped)
    model = DivergenceMDM("choose", random_state=0).fit(X, y, groups=groups)
    held_out = held_out_predictions(model, y, groups)
    assert held_out is not None
    return {"claim": held_out.p_chance < SIGNIFICANT}


def run_clusters(rng: np.random.Generator, grouped: bool) -> Claims:
    """Compare clusters with classes that they have nothing in common with."""
    X, y, groups = draw_matrices(rng, 0.5, grouped)
    if groups is not None:
        y = rng.permutation(np.arange(N_GROUPS) % 2)[groups]  # and every group has one class
    clusters = ABKMeans(3, n_init=1, random_state=0).fit(X).labels_
    return {"claim": p_agreement(y, clusters, groups) < SIGNIFICANT}


OTHERS: dict[str, Callable[..., Claims]] = {
    "`evaluate`, five cross-validated classifiers: one is significantly worse": run_classifiers,
    "report of a fit, classes 80% and 20%: better than chance": run_fit,
    "clusters: agree with classes better than chance": run_clusters,
}


def others_section(rows: Sequence[Row]) -> str:
    by_claim: dict[str, list[str]] = {}
    for row in rows:
        by_claim.setdefault(row["what"], []).extend(percent(row, "claim"))
    head = ["claim, without signal", "60 matrices", f"of {N_GROUPS} groups"]
    return table(head, [[what, *found] for what, found in by_claim.items()])


# ---------------------------------------------------------------------- verdicts


def figures_of(row: Row) -> list[str]:
    return [name for name in row if name != "errors"]


def percent(row: Row, *names: str) -> list[str]:
    return [f"{100 * row[name]:.1f}" for name in names]


def run_verdicts(runs: int) -> dict[str, Any]:
    return {
        "which": run_all(run_which, WHICH, runs),
        "evaluation": run_all(run_evaluation, EVALUATIONS, runs),
        "others": [
            {"what": what} | row
            for what, run in OTHERS.items()
            for row in run_all(run, [{"grouped": False}, {"grouped": True}], runs)
        ],
    }


def verdicts_text(known: dict[str, Any]) -> str:
    error = 100 * np.sqrt(SIGNIFICANT * (1 - SIGNIFICANT) / known["runs"])
    return "\n\n".join(
        [
            f"All figures are percentages of {known['runs']} runs, or mean accuracies in percent. "
            f"A rate of 5 % has a standard error of {error:.1f}. {machine_line(known['machine'])}.",
            f"**`which_divergence`**, {N_MATRICES} matrices of size {SIZE}:",
            which_section(known["which"]),
            "**`evaluate`**, nine classifiers that are right on 75 %: how often one is called "
            "significantly worse than the best. Where one is 10 points worse, only this one "
            "counts.",
            evaluation_section(known["evaluation"]),
            "**Other verdicts**:",
            others_section(known["others"]),
        ]
    )


def write(
    name: str,
    given: argparse.Namespace,
    run: Callable[[int], dict[str, Any]],
    text: Callable[[dict[str, Any]], str],
) -> None:
    """Simulate, keep what was found, and write it to the page."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not given.summary:
        known[name] = {"runs": given.runs} | run(given.runs) | {"machine": machine()}
        RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    print(text(known[name]))
    write_between_markers(PAGE, f"\n{text(known[name])}\n", MARKERS[name])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for name, run, text, help_text in (
        (
            "verdicts",
            run_verdicts,
            verdicts_text,
            "claims of significance, and figures beside them",
        ),
        ("figures", run_figures, figures_text, "held-out accuracies that classifiers state"),
        ("numbers", run_numbers, numbers_text, "held-out R2 that regressors state"),
    ):
        command = commands.add_parser(name, help=help_text)
        command.add_argument("--runs", type=int, default=200, help="default: %(default)s")
        command.add_argument("--summary", action="store_true", help="simulate nothing")
        command.set_defaults(parts=(name, run, text))
    given = parser.parse_args()
    name, run, text = given.parts
    write(name, given, run, text)


if __name__ == "__main__":
    main()
