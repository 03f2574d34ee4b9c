"""Tables of the results of the benchmark of accuracy, in Markdown, and the reports they make up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from accuracy_data import EEG_COLUMNS, SETS
from accuracy_methods import BASELINES, EEG_METHODS, METHODS, RECENTERED, SINGLE
from accuracy_results import SECONDS, Cell, Estimate, Results, average
from accuracy_verdicts import eeg_verdicts, lines, verdicts

TIME = "seconds of one thread to fit and predict, mean over splits"


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [headings, ["---"] * len(headings), *rows]
    return [f"| {' | '.join(line)} |" for line in lines] + [""]


def _titles(results: Results, data: Sequence[str]) -> list[str]:
    return [results.title(name) for name in data]


def accuracy_table(results: Results) -> list[str]:
    """Accuracies; in bold the highest of every column."""
    compared = results.everywhere(results.methods)
    columns: list[dict[str, Estimate]] = [
        {m: results.accuracy(data, m) for m in results.methods if results.of(data, m)}
        for data in results.data
    ]
    headings = ["accuracy, %", *_titles(results, results.data)]
    if compared:
        columns.append({method: results.mean(method, results.data) for method in compared})
        headings.append(f"mean of {len(results.data)}")
    rows = [
        [METHODS[method].title, *(_bold_if_best(column, method) for column in columns)]
        for method in results.methods
    ]
    return _table(headings, rows)


def _bold_if_best(column: dict[str, Estimate], method: str) -> str:
    if method not in column:
        return "-"
    best = max(one.value for one in column.values())
    return f"**{column[method]}**" if column[method].value == best else str(column[method])


def gain_table(results: Results, method: str, others: Sequence[str]) -> list[str]:
    """A method against others, pair by pair; in bold where it is behind by more than the error."""
    seen = [name for name in others if name in results.methods]
    data = [name for name in results.data if results.of(name, method)]
    if not data or not seen:
        return []
    compared = results.everywhere(seen) if results.everywhere([method]) else []
    rows = []
    for other in seen:
        gains = [
            results.gain(name, method, other) if results.of(name, other) else None for name in data
        ]
        if compared:
            known = [gain for gain in gains if gain is not None]
            gains.append(average(known) if other in compared else None)
        rows.append([METHODS[other].title, *map(_bold_if_behind, gains)])
    headings = [*_titles(results, data), *([f"mean of {len(data)}"] if compared else [])]
    return _table([f"{METHODS[method].title} minus, points", *headings], rows)


def _bold_if_behind(gain: Estimate | None) -> str:
    if gain is None:
        return "-"
    return f"**{gain.signed}**" if gain.is_behind else gain.signed


def number_table(results: Results, keys: Sequence[str], heading: str, form: str) -> list[str]:
    """Means over splits."""

    def cell(data: str, method: str) -> str:
        found = results.numbers(keys, data, method)
        return format(np.mean(found), form) if found else "-"

    rows = [
        [METHODS[method].title, *(cell(data, method) for data in results.data)]
        for method in results.methods
    ]
    rows = [row for row in rows if set(row[1:]) != {"-"}]
    return _table([heading, *_titles(results, results.data)], rows) if rows else []


def cost_table(results: Results) -> list[str]:
    """Processor time of every method, summed over all its cells."""
    rows = []
    for method in results.methods:
        seconds = [s for name in results.data for s in results.numbers(SECONDS, name, method)]
        rows.append([METHODS[method].title, str(len(seconds)), f"{sum(seconds):.0f}"])
    return _table(["method", "splits", "seconds of one thread, all splits"], rows)


def member_table(results: Results) -> list[str]:
    """Accuracy on the test set and weight of the members of the committee, means over seeds."""
    data = [name for name in results.data if results.of(name, "spd")]
    cells = {name: list(results.of(name, "spd").values()) for name in data}
    members = dict.fromkeys(m for found in cells.values() for one in found for m in one["weights"])
    rows = []
    for member in members:
        row = [member]
        for name in data:
            has = [cell for cell in cells[name] if member in cell["members"]]
            right = [100 * cell["members"][member] for cell in has]
            weights = [cell["weights"][member] for cell in has]
            row.append(f"{np.mean(right):.1f}, {np.mean(weights):.2f}" if has else "-")
        rows.append(row)
    headings = ["member of SPDClassifier: accuracy in %, weight", *_titles(results, data)]
    return _table(headings, rows) if rows else []


def report(cells: Sequence[Cell], machine: str, targets: bool) -> str:
    """All tables and sentences on all data sets, in Markdown."""
    results = Results(cells, SETS, [name for name in METHODS if not METHODS[name].eeg])
    return "\n".join(
        [
            *accuracy_table(results),
            *gain_table(results, "spd", BASELINES),
            *gain_table(results, "iddl", ["iddl-start", *SINGLE]),
            *lines(verdicts(results), targets),
            "",
            *member_table(results),
            *number_table(results, ["log_loss"], "log-loss", ".3f"),
            *number_table(results, SECONDS, TIME, ".3g"),
            *cost_table(results),
            f"Measured on: {machine}.",
        ]
    )


def eeg_report(cells: Sequence[Cell], machine: str, targets: bool) -> str:
    """Tables and sentences on EEG, with and without re-centring, in Markdown."""
    recentered = list(RECENTERED.values())
    results = Results(cells, EEG_COLUMNS, [*EEG_METHODS, *recentered])
    if not results.data:
        return "Not measured yet."
    return "\n".join(
        [
            *accuracy_table(results),
            *gain_table(results, "spd", EEG_METHODS[:-1]),
            *gain_table(results, RECENTERED["spd"], recentered[:-1]),
            *lines(eeg_verdicts(results), targets),
            "",
            *number_table(results, SECONDS, TIME, ".3g"),
            *cost_table(results),
            f"Measured on: {machine}.",
        ]
    )
