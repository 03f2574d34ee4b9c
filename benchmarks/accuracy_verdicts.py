"""Sentences that compare the results of the benchmark of accuracy.

Some have a target, which was set after the results of version 0.2 and before those of the next one.
The terminal shows whether it is met; the manual has the comparisons only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from accuracy_methods import BASELINES, METHODS, OURS, RECENTERED, SINGLE
from accuracy_results import SECONDS, Results

MAY_BE_BEHIND = 1  # data sets on which IDDL may be behind a rival by more than the standard error
AHEAD = {"spd": 5, "iddl": 6}  # data sets on which it should be ahead of every rival
GAIN = {"spd": 1.5, "iddl": 2.5}  # points over the best baseline, and over RBF on tangent vectors
LEARNED = 3.0  # points that learned atoms should gain on the mean
COST = 10.0  # times an RBF SVM on tangent vectors that the committee may take
EEG_AHEAD = 3  # columns in which the committee should be ahead by more than the standard error


class Verdict(NamedTuple):
    """A comparison of results, and whether it meets its target, if it has one."""

    comparison: str
    target: str = ""


def lines(verdicts: Sequence[Verdict], targets: bool) -> list[str]:
    """Items of a Markdown list; with or without targets."""
    return [
        f"- {comparison}; {target}." if targets and target else f"- {comparison}."
        for comparison, target in verdicts
    ]


def verdicts(results: Results) -> list[Verdict]:
    """Compare the committee and IDDL with their rivals on all data sets."""
    return [
        *_standing(results, "spd", BASELINES, 0),
        *_mean(results, "spd", _best_baseline(results)),
        *_cost(results),
        *_learned(results, "iddl", "IDDLClassifier"),
        *_learned(results, "iddl-linear", "With linear heads alone, it"),
        *_standing(results, "iddl", SINGLE, MAY_BE_BEHIND),
        *_mean(results, "iddl", "ts-rbf"),
    ]


def _standing(
    results: Results, method: str, rivals: Sequence[str], may_be_behind: int
) -> list[Verdict]:
    """Count the data sets on which a method is behind a rival, and those where it is the best."""
    title = METHODS[method].title
    seen = [name for name in rivals if name in results.methods]
    everywhere = results.everywhere(seen)
    data = results.common([method, *everywhere])
    if not data or not everywhere:
        return [Verdict(f"{title} against its rivals: not measured yet")]
    gains = {
        name: {
            rival: results.gain(name, method, rival)
            for rival in seen
            if results.is_complete(name, rival)
        }
        for name in data
    }
    sentences = []
    for name, found in gains.items():
        behind = {rival: gain for rival, gain in found.items() if gain.is_behind}
        if behind:
            shown = ", ".join(f"{METHODS[r].title} ({gain.signed})" for r, gain in behind.items())
            sentences.append(
                Verdict(
                    f"{results.title(name)}: {title} is behind {shown}, by more than one standard "
                    "error"
                )
            )
    n_level, target = len(data) - len(sentences), len(data) - may_be_behind
    n_ahead = sum(all(gain.value > 0 for gain in found.values()) for found in gains.values())
    sentences += [
        Verdict(
            f"{title} is ahead of every rival, or within one standard error of it, on {n_level} of "
            f"{len(data)} data sets",
            _target(f">= {target}", n_level >= target, results, data),
        ),
        Verdict(
            f"It is ahead of every rival on {n_ahead} of {len(data)} data sets",
            _target(f">= {AHEAD[method]}", n_ahead >= AHEAD[method], results, data),
        ),
    ]
    if partly := [METHODS[name].title for name in seen if name not in everywhere]:
        sentences.append(Verdict(f"Not run on all data: {', '.join(partly)}"))
    return sentences


def _best_baseline(results: Results) -> str | None:
    others = results.everywhere([name for name in BASELINES if name in results.methods])
    return max(others, key=lambda name: results.mean(name, results.data).value, default=None)


def _mean(results: Results, method: str, rival: str | None) -> list[Verdict]:
    data = results.common([method, rival]) if rival else []
    if rival is None or not data:
        return []
    gain, target = results.mean_gain(method, rival, data), GAIN[method]
    return [
        Verdict(
            f"Mean of {len(data)} data sets: {METHODS[method].title} "
            f"{results.mean(method, data).value:.1f}, {METHODS[rival].title} "
            f"{results.mean(rival, data).value:.1f}, difference {gain.signed}",
            _target(f">= {target:g}", gain.value >= target, results, data),
        )
    ]


def _learned(results: Results, method: str, subject: str) -> list[Verdict]:
    start = f"{method}-start"
    data = results.common([method, start])
    if not data:
        return []
    gains = [results.gain(name, method, start) for name in data]
    n_above = sum(gain.value > 0 for gain in gains)
    gain = results.mean_gain(method, start, data)
    n_lower = sum(
        np.mean(results.numbers(["log_loss"], name, method))
        < np.mean(results.numbers(["log_loss"], name, start))
        for name in data
    )
    return [
        Verdict(
            f"{subject} is more accurate with learned atoms than with initial ones on {n_above} of "
            f"{len(data)} data sets",
            _target(f"{len(data)}", n_above == len(data), results, data),
        ),
        Verdict(
            f"The mean difference is {gain.signed} points",
            _target(f">= {LEARNED:g}", gain.value >= LEARNED, results, data),
        ),
        Verdict(
            f"With learned atoms, its log-loss is lower on {n_lower} of {len(data)} data sets",
            _target(f">= {len(data) - 1}", n_lower >= len(data) - 1, results, data),
        ),
    ]


def _cost(results: Results) -> list[Verdict]:
    data = results.common(["spd", "ts-rbf"])
    ratios = {
        name: np.mean(results.numbers(SECONDS, name, "spd"))
        / np.mean(results.numbers(SECONDS, name, "ts-rbf"))
        for name in data
    }
    shown = ", ".join(f"{results.title(name)} {ratio:.1f}" for name, ratio in ratios.items())
    cheap = all(ratio <= COST for ratio in ratios.values())
    if not data:
        return []
    return [
        Verdict(
            f"Seconds of SPDClassifier over those of an RBF SVM on tangent vectors: {shown}",
            _target(f"<= {COST:g}", cheap, results, data),
        )
    ]


def eeg_verdicts(results: Results) -> list[Verdict]:
    """Compare the committee with the best rival of every column, both re-centred or neither."""
    rivals = [name for name in results.methods if name not in OURS]
    sentences, gains = [], []
    for name in results.data:
        best = max(
            (rival for rival in rivals if results.is_complete(name, rival)),
            key=lambda rival: results.accuracy(name, rival).value,
            default=None,
        )
        ours = RECENTERED["spd"] if best and METHODS[best].recentered else "spd"
        if best is None or not results.is_complete(name, ours):
            continue
        gains.append(results.gain(name, ours, best))
        sentences.append(
            Verdict(
                f"{results.title(name)}: {METHODS[ours].title} minus the best rival "
                f"({METHODS[best].title}) {gains[-1].signed}"
            )
        )
    n_first, n_clear = sum(gain.value > 0 for gain in gains), sum(gain.is_ahead for gain in gains)
    n_columns = len(gains) + len(results.not_in(results.data))
    if gains:
        met = n_first == n_columns and n_clear >= EEG_AHEAD
        sentences.append(
            Verdict(
                f"SPDClassifier is ahead in {n_first} of {len(gains)} columns, in {n_clear} by "
                "more than one standard error",
                _target(f"all and >= {EEG_AHEAD}", met, results, results.data),
            )
        )
    return [*sentences, *_filters(results)]


def _filters(results: Results) -> list[Verdict]:
    """Compare IDDL with spatial filters, both re-centred or neither."""
    pairs = [("iddl", "csp-lda"), (RECENTERED["iddl"], RECENTERED["csp-lda"])]
    sentences = []
    for ours, filters in pairs:
        gains = {
            name: results.gain(name, ours, filters) for name in results.common([ours, filters])
        }
        if gains:
            shown = ", ".join(f"{results.title(name)} {g.signed}" for name, g in gains.items())
            met = not any(g.is_behind for g in gains.values())
            sentences.append(
                Verdict(
                    f"{METHODS[ours].title} minus {METHODS[filters].title}: {shown}",
                    _target("nowhere behind by more than one error", met, results, list(gains)),
                )
            )
    return sentences


def _target(wanted: str, met: bool, results: Results, data: Collection[str]) -> str:
    """Say what should be, and whether it is."""
    said = f"should be {wanted}: {'met' if met else '**missed**'}"
    missing = results.not_in(list(data))
    return f"{said}, with {', '.join(missing)} still to be measured" if missing else said
