"""Tables of growth.py: seconds and peak memory of fits, and exponents fitted to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from machine import write_between_markers

AXES = {"matrices": "n", "size": "d", "classes": "classes"}
LEAST_SECONDS, LEAST_MEGABYTES = 0.05, 4  # below which nothing is seen of growth

Row = dict[str, Any]


def write_page(path: Path, results: dict[str, Any], estimators: Sequence[str]) -> None:
    parts = [_section(name, found, estimators) for name, found in results.items()]
    write_between_markers(path, "\n\n".join(parts), "growth")


def _section(name: str, found: dict[str, Any], estimators: Sequence[str]) -> str:
    rows = found["rows"]
    first = rows[0]
    clock = {"cpu": "CPU time", "wall": "wall time"}[first["clock"]]
    limits = sorted({row["limit"] for row in rows})
    text = [
        f"## {name}",
        f"{found['about']}. {first['threads']} thread{'s' * (first['threads'] > 1)}, "
        f'engine="{first["engine"]}", {clock}, limit of a fit {limits[-1]:g} s.',
    ]
    for axis in AXES:
        if lines := _lines(rows, axis, estimators):
            text += [_table("Seconds", _seconds, axis, lines, LEAST_SECONDS)]
            text += [_table("Peak memory in MB", _megabytes, axis, lines, LEAST_MEGABYTES)]
    return "\n\n".join(text)


def _lines(rows: list[Row], axis: str, estimators: Sequence[str]) -> dict[str, list[Row]]:
    """Rows of every estimator that differ in one axis, those others being where most rows are."""
    others = [name for name in AXES if name != axis]
    places = [tuple(row[name] for name in others) for row in rows]
    lengths = {place: len({row[axis] for row in _at(rows, others, place)}) for place in places}
    place = max(lengths, key=lambda one: lengths[one])
    some = sorted(_at(rows, others, place), key=lambda row: row[axis])
    lines = {name: [row for row in some if row["estimator"] == name] for name in estimators}
    return {name: line for name, line in lines.items() if line}


def _at(rows: list[Row], names: Sequence[str], place: tuple[int, ...]) -> list[Row]:
    return [row for row in rows if tuple(row[name] for name in names) == place]


def _table(
    what: str,
    figure: Callable[[Row], tuple[float, float]],
    axis: str,
    lines: dict[str, list[Row]],
    least: float,
) -> str:
    """Figures along an axis, with exponents fitted to the part that has grown."""
    values = sorted({row[axis] for line in lines.values() for row in line})
    first = next(iter(lines.values()))[0]
    others = ", ".join(f"{AXES[name]} = {first[name]:,}" for name in AXES if name != axis)
    head = " | ".join(f"{value:,}" for value in values)
    text = [
        f"{what}, {others}:",
        "",
        f"| {AXES[axis]} | {head} | exponent |",
        "|---" + "|---:" * (len(values) + 1) + "|",
    ]
    for name, line in lines.items():
        known = {row[axis]: row for row in line}
        cells = [_cell(known.get(value), figure) for value in values]
        measured = [row for row in line if "peak" in row]
        sizes = [row[axis] for row in measured]
        exponent = _exponent(sizes, [figure(row)[1] for row in measured], least)
        text.append(f"| `{name}` | {' | '.join(cells)} | {exponent} |")
    return "\n".join(text)


def _seconds(row: Row) -> tuple[float, float]:
    seconds = row[row["clock"]]
    return seconds, seconds


def _megabytes(row: Row) -> tuple[float, float]:
    return row["peak"] / 2**20, (row["peak"] - row["before"]) / 2**20


def _cell(row: Row | None, figure: Callable[[Row], tuple[float, float]]) -> str:
    if row is None:
        return ""
    if row.get("over"):
        return "over"
    if "error" in row:
        return "error"
    shown = figure(row)[0]
    return f"{shown:,.0f}" if shown >= 100 else f"{shown:.2g}"


def _exponent(sizes: list[int], figures: list[float], least: float) -> str:
    """Fit the slope of a line to logarithms of figures that are large enough."""
    seen = [(size, figure) for size, figure in zip(sizes, figures, strict=True) if figure > least]
    if len(seen) < 2:
        return "-"
    x, y = np.log(np.array(seen, float)).T
    return f"{np.polyfit(x, y, 1)[0]:.1f}"
