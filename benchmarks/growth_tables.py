"""Tables of growth.py: seconds and peak memory of fits, and exponents fitted to them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from machine import write_between_markers

AXES = {"matrices": "n", "size": "d", "classes": "classes"}
LEAST_SECONDS, LEAST_BYTES = 0.05, 1 << 22  # below which nothing is seen of growth

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
            text.append(_table(axis, lines))
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


def _table(axis: str, lines: dict[str, list[Row]]) -> str:
    values = sorted({row[axis] for line in lines.values() for row in line})
    one = next(iter(lines.values()))[0]
    others = ", ".join(f"{AXES[name]} = {one[name]:,}" for name in AXES if name != axis)
    head = " | ".join(f"{AXES[axis]} = {value:,}" for value in values)
    text = [
        f"Seconds and peak memory, {others}; exponents of {AXES[axis]} in both:",
        "",
        f"| | {head} | time | memory |",
        "|---" * (len(values) + 3) + "|",
    ]
    for name, line in lines.items():
        known = {row[axis]: row for row in line}
        cells = [_cell(known.get(value)) for value in values]
        text.append(f"| `{name}` | {' | '.join(cells)} | {' | '.join(_exponents(line, axis))} |")
    return "\n".join(text)


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    if row.get("over"):
        return "over the limit"
    if "error" in row:
        return "error"
    return f"{row[row['clock']]:.2g} s, {row['peak'] / 2**20:.0f} MB"


def _exponents(line: list[Row], axis: str) -> list[str]:
    known = [row for row in line if "peak" in row]
    sizes = [row[axis] for row in known]
    seconds = [row[row["clock"]] for row in known]
    grown = [row["peak"] - row["before"] for row in known]
    return [_exponent(sizes, seconds, LEAST_SECONDS), _exponent(sizes, grown, LEAST_BYTES)]


def _exponent(sizes: list[int], figures: list[float], least: float) -> str:
    """Fit the slope of a line to logarithms of figures that are large enough."""
    seen = [(size, figure) for size, figure in zip(sizes, figures, strict=True) if figure > least]
    if len(seen) < 2:
        return "-"
    x, y = np.log(np.array(seen, float)).T
    return f"{np.polyfit(x, y, 1)[0]:.1f}"
