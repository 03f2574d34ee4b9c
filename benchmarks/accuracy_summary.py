"""What the results say: means with standard errors, paired differences, and targets met or missed.

Standard errors are over splits. Where all seeds share one split they are those of its test set: of
a share for an accuracy, of the mean over test matrices for a paired difference.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from accuracy_data import SOURCES
from accuracy_methods import BASELINES, METHODS

AHEAD, GAIN = 5, 1.5  # data sets on which, and points by which the committee should be ahead
COST = 10.0  # times an RBF SVM on tangent vectors that it may take
NEAR = 2.0  # points that IDDL may lie below the best baseline on the mean
LEARNED = 1.5  # points that learned atoms should gain on the mean
SECONDS = ("fit_seconds", "predict_seconds")
Cell = dict[str, Any]


@dataclass(frozen=True)
class Estimate:
    """A percentage, or a difference of two, and its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.1f} +- {self.error:.1f}"

    @property
    def signed(self) -> str:
        return f"{self.value:+.1f} +- {self.error:.1f}"

    @property
    def is_behind(self) -> bool:
        """Whether a difference is below zero by more than its standard error."""
        return self.value < -self.error


def average(estimates: Sequence[Estimate]) -> Estimate:
    values, errors = np.transpose([(one.value, one.error) for one in estimates])
    return Estimate(float(values.mean()), float(np.sqrt((errors**2).sum()) / len(errors)))


def _over(values: np.ndarray) -> Estimate:
    error = values.std(ddof=1) / len(values) ** 0.5
    return Estimate(100 * float(values.mean()), 100 * float(error))


class Results:
    """The cells of a file of results, and what follows from them."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._cells = {(cell["data"], cell["method"], cell["seed"]): cell for cell in cells}
        there = {key[:2] for key in self._cells}
        self.data = [name for name in SOURCES if any(name == data for data, _ in there)]
        self.methods = [name for name in METHODS if any(name == method for _, method in there)]

    def of(self, data: str, method: str) -> dict[int, Cell]:
        seeds = range(SOURCES[data].seeds)
        return {s: self._cells[data, method, s] for s in seeds if (data, method, s) in self._cells}

    def is_complete(self, data: str, *methods: str) -> bool:
        """Whether methods have results of all seeds that any method has results of."""
        seeds = max(len(self.of(data, method)) for method in self.methods)
        return all(len(self.of(data, method)) == seeds for method in methods)

    def common(self, methods: Sequence[str]) -> list[str]:
        """Data sets that all these methods have finished."""
        return [data for data in self.data if self.is_complete(data, *methods)]

    def everywhere(self, methods: Sequence[str]) -> list[str]:
        """Methods that have finished all data sets there are results of."""
        return [method for method in methods if self.is_complete_on(self.data, method)]

    def is_complete_on(self, data: Sequence[str], method: str) -> bool:
        return all(self.is_complete(name, method) for name in data)

    def accuracy(self, data: str, method: str) -> Estimate:
        cells = self.of(data, method).values()
        values = np.array([cell["accuracy"] for cell in cells])
        if len(values) > 1 and not SOURCES[data].single:
            return _over(values)
        share = float(values.mean())
        n_test = min(len(cell["correct"]) for cell in cells)
        return Estimate(100 * share, 100 * (share * (1 - share) / n_test) ** 0.5)

    def gain(self, data: str, method: str, other: str) -> Estimate:
        """How much better a method is than another one on the same test sets."""
        ours, theirs = self.of(data, method), self.of(data, other)
        seeds = sorted(ours.keys() & theirs.keys())
        tables = [_right(ours[seed]) - _right(theirs[seed]) for seed in seeds]
        if len(seeds) > 1 and not SOURCES[data].single:
            return _over(np.array([table.mean() for table in tables]))
        return _over(np.mean(tables, axis=0))

    def mean(self, method: str, data: Sequence[str]) -> Estimate:
        return average([self.accuracy(name, method) for name in data])

    def mean_sum(self, keys: Sequence[str], data: str, method: str) -> float:
        """Mean over seeds of a number, or of the sum of several; NaN where there is none."""
        cells = self.of(data, method).values()
        found = [sum(cell[key] for key in keys) for cell in cells if keys[0] in cell]
        return float(np.mean(found)) if found else np.nan


def _right(cell: Cell) -> np.ndarray:
    return np.array(list(cell["correct"]), dtype=float)


# ------------------------------------------------------------------ tables


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [headings, ["---"] * len(headings), *rows]
    return [f"| {' | '.join(line)} |" for line in lines] + [""]


def _titles(data: Sequence[str]) -> list[str]:
    return [SOURCES[name].title for name in data]


def accuracy_table(results: Results) -> list[str]:
    """Accuracies; in bold the highest of every column."""
    compared = results.everywhere(results.methods)
    common = results.data if compared else []
    columns: list[dict[str, Estimate]] = [
        {m: results.accuracy(data, m) for m in results.methods if results.of(data, m)}
        for data in results.data
    ]
    if common:
        columns.append({method: results.mean(method, common) for method in compared})
    headings = [*_titles(results.data), *([f"mean of {len(common)}"] if common else [])]
    rows = [
        [METHODS[method].title, *(_bold_if_best(column, method) for column in columns)]
        for method in results.methods
    ]
    return _table(["accuracy, %", *headings], rows)


def _bold_if_best(column: dict[str, Estimate], method: str) -> str:
    if method not in column:
        return "-"
    best = max(one.value for one in column.values())
    return f"**{column[method]}**" if column[method].value == best else str(column[method])


def gain_table(results: Results) -> list[str]:
    """The committee against every baseline; in bold where it is behind by more than the error."""
    others = [name for name in BASELINES if name in results.methods]
    data = [name for name in results.data if results.of(name, "spd")]
    if not data or not others:
        return []
    compared = results.everywhere(others) if results.is_complete_on(results.data, "spd") else []
    common = results.data if compared else []
    rows = []
    for other in others:
        gains = {name: results.gain(name, "spd", other) for name in data if results.of(name, other)}
        shown = list(gains.items())
        if other in compared:
            shown.append(("mean", average([gains[name] for name in common])))
        cells = {name: f"**{g.signed}**" if g.is_behind else g.signed for name, g in shown}
        names = [*data, *(["mean"] if common else [])]
        rows.append([METHODS[other].title, *(cells.get(name, "-") for name in names)])
    headings = [*_titles(data), *([f"mean of {len(common)}"] if common else [])]
    return _table(["SPDClassifier minus, points", *headings], rows)


def number_table(results: Results, keys: Sequence[str], heading: str, form: str) -> list[str]:
    def cell(data: str, method: str) -> str:
        found = results.mean_sum(keys, data, method)
        return "-" if np.isnan(found) else format(found, form)

    rows = [
        [METHODS[method].title, *(cell(data, method) for data in results.data)]
        for method in results.methods
    ]
    rows = [row for row in rows if set(row[1:]) != {"-"}]
    return _table([heading, *_titles(results.data)], rows) if rows else []


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
    headings = ["member of SPDClassifier: accuracy in %, weight", *_titles(data)]
    return _table(headings, rows) if rows else []


# ------------------------------------------------------------------ verdicts


def verdicts(results: Results) -> list[str]:
    """Say of every target whether it is met, and where it is not."""
    said = []
    for judge in (_committee, _cost, _learned):
        said += [f"- {sentence}" for sentence in judge(results)]
    return said


def _committee(results: Results) -> list[str]:
    seen = [name for name in BASELINES if name in results.methods]
    others = results.everywhere(seen)
    data = results.common(["spd", *others])
    if not data or not others:
        return ["SPDClassifier against the baselines: not measured yet."]
    behind = {
        name: {
            other: gain
            for other in seen
            if results.is_complete(name, other)
            and (gain := results.gain(name, "spd", other)).is_behind
        }
        for name in data
    }
    sentences = [
        f"{SOURCES[name].title}: SPDClassifier is behind "
        + ", ".join(f"{METHODS[other].title} ({gain.signed})" for other, gain in found.items())
        + ", by more than one standard error."
        for name, found in behind.items()
        if found
    ]
    n_level = sum(not found for found in behind.values())
    sentences.append(
        f"SPDClassifier is within one standard error of every baseline, or ahead, on {n_level} of "
        f"{len(data)} data sets: {_met(n_level == len(data), data)}."
    )
    if partly := [METHODS[name].title for name in seen if name not in others]:
        sentences.append(f"Not run on all data, and left out of means: {', '.join(partly)}.")
    n_ahead = sum(
        all(results.gain(name, "spd", other).value > 0 for other in seen if results.of(name, other))
        for name in data
    )
    sentences.append(
        f"It is ahead of every baseline on {n_ahead}, should be >= {AHEAD}: "
        f"{_met(n_ahead >= AHEAD, data)}."
    )
    best = _best_baseline(results, others, data)
    gain = average([results.gain(name, "spd", best) for name in data])
    sentences.append(
        f"Mean of {len(data)} data sets: SPDClassifier {results.mean('spd', data).value:.1f}, the "
        f"best baseline ({METHODS[best].title}) {results.mean(best, data).value:.1f}, difference "
        f"{gain.signed}, should be >= {GAIN:g}: {_met(gain.value >= GAIN, data)}."
    )
    return sentences


def _learned(results: Results) -> list[str]:
    others = results.everywhere([name for name in BASELINES if name in results.methods])
    sentences = []
    if data := results.common(["iddl", "iddl-start"]):
        gains = {name: results.gain(name, "iddl", "iddl-start") for name in data}
        shown = ", ".join(f"{SOURCES[name].title} {g.signed}" for name, g in gains.items())
        gain = average(list(gains.values()))
        sentences.append(
            f"IDDLClassifier minus its own start: {shown}; mean {gain.signed}, should be >= "
            f"{LEARNED:g}: {_met(gain.value >= LEARNED, data)}."
        )
        losses = {
            name: [results.mean_sum(["log_loss"], name, one) for one in ("iddl", "iddl-start")]
            for name in data
        }
        n_lower = sum(learned < start for learned, start in losses.values())
        sentences.append(
            f"Its log-loss is lower than that of the start on {n_lower} of {len(data)} data sets: "
            f"{_met(n_lower >= len(data) - 1, data)}."
        )
    if others and (data := results.common(["iddl", *others])):
        best = _best_baseline(results, others, data)
        gain = average([results.gain(name, "iddl", best) for name in data])
        sentences.append(
            f"Mean of {len(data)} data sets: IDDLClassifier minus the best baseline "
            f"({METHODS[best].title}) {gain.signed}, should be >= {-NEAR:g}: "
            f"{_met(gain.value >= -NEAR, data)}."
        )
    return sentences or ["IDDLClassifier: not measured yet."]


def _cost(results: Results) -> list[str]:
    data = results.common(["spd", "ts-rbf"])
    ratios = {
        name: results.mean_sum(SECONDS, name, "spd") / results.mean_sum(SECONDS, name, "ts-rbf")
        for name in data
    }
    shown = ", ".join(f"{SOURCES[name].title} {ratio:.1f}" for name, ratio in ratios.items())
    cheap = all(ratio <= COST for ratio in ratios.values())
    return (
        [
            f"Seconds of SPDClassifier over those of an RBF SVM on tangent vectors with its grid: "
            f"{shown}, should be <= {COST:g}: {_met(cheap, data)}."
        ]
        if data
        else []
    )


def _best_baseline(results: Results, others: Sequence[str], data: Sequence[str]) -> str:
    return max(others, key=lambda name: results.mean(name, data).value)


def _met(yes: bool, data: Collection[str]) -> str:
    missing = [source.title for name, source in SOURCES.items() if name not in data]
    said = "met" if yes else "**missed**"
    return f"{said}, with {', '.join(missing)} still to be measured" if missing else said


def report(results: Results, machine: str) -> str:
    """All tables and sentences, in Markdown."""
    return "\n".join(
        [
            *accuracy_table(results),
            *gain_table(results),
            *verdicts(results),
            "",
            *member_table(results),
            *number_table(results, ["log_loss"], "log-loss", ".3f"),
            *number_table(results, SECONDS, "seconds to fit and predict", ".3g"),
            f"Measured on: {machine}.",
        ]
    )
