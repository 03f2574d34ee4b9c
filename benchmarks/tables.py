"""How results are shown: on the terminal, and as tables for the README."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from machine import machine_line
from rich.table import Table
from sections import SECTIONS, Record, Section
from spectra import SpectrumRecord
from timing import Memory

README_SECTIONS = ("values", "airm", "line", "pullback")


def short(rate: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= size:
            return f"{rate / size:.3g}{letter}"
    return f"{rate:.3g}"


def cell(record: Record) -> str:
    if record.iterations is not None:
        return f"{1e3 / record.median:.3g} ms, {record.iterations} it"
    return f"{short(record.median)} ({short(record.best)})"


def section_table(section: Section, threads: int, records: Sequence[Record]) -> Table:
    """One row per dimension: the rate of every method, then our ratios."""
    what = "median time, iterations" if section.mean else "pairs per second: median (best)"
    table = Table(title=f"{section.title}; {_threads(threads)}; {what}")
    names = list(dict.fromkeys(record.method for record in records))
    ours = [name for name in names if name.startswith("divlearn")]
    share = any(record.share_of_dgemm for record in records)
    for heading in (
        "d",
        *names,
        *(f"x best peer, {name.split()[1]}" for name in ours),
        "best peer",
    ):
        table.add_column(heading, justify="right")
    if share:
        table.add_column("of dgemm", justify="right")
    for d in dict.fromkeys(record.d for record in records):
        row = {record.method: record for record in records if record.d == d}
        cells = [cell(row[name]) for name in names] + [f"{row[name].ratio:.1f}" for name in ours]
        cells.append(str(row[ours[0]].best_peer))
        table.add_row(str(d), *cells, *([f"{row[ours[0]].share_of_dgemm:.0%}"] if share else []))
    return table


def plain_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title)
    for heading in headings:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def memory_row(memory: Memory) -> list[str]:
    sizes = (memory.peak, memory.naive, memory.inputs, memory.output)
    return [
        f"{memory.n_matrices} x {memory.n_atoms}, d = {memory.d}",
        f"{memory.seconds:.2f} s",
        *(f"{size / 1e6:.1f} MB" for size in sizes),
    ]


def spectrum_row(record: SpectrumRecord) -> list[str]:
    return [
        record.job,
        str(record.d),
        record.kind,
        short(record.median),
        f"{record.slowdown:.2f}",
        f"{record.ratio:.1f}",
        record.best_peer,
    ]


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def markdown(about: dict[str, Any], records: Sequence[Record]) -> str:
    """Tables for the README: rate, ratio over the best peer, and which peer that was."""
    lines = [f"Measured on: {machine_line(about)}.", ""]
    for threads in dict.fromkeys(record.threads for record in records):
        mine = [r for r in records if r.threads == threads and r.kind == "ours"]
        dimensions = list(dict.fromkeys(record.d for record in mine))
        lines += [
            f"| {_threads(threads)} | {' | '.join(f'd = {d}' for d in dimensions)} |",
            f"|---|{'---|' * len(dimensions)}",
        ]
        for section in SECTIONS:
            lines += _markdown_rows(section, [r for r in mine if r.section == section.key])
        lines.append("")
    return "\n".join(lines)


def _markdown_rows(section: Section, records: Sequence[Record]) -> list[str]:
    rows = []
    for method in dict.fromkeys(record.method for record in records):
        row = [record for record in records if record.method == method]
        cells = [f"{_amount(r)}, **{r.ratio:.1f}x** {r.best_peer}" for r in row]
        rows.append(f"| {section.title}, {method.split()[1]} | {' | '.join(cells)} |")
        if row[0].share_of_dgemm:
            shares = " | ".join(f"{r.share_of_dgemm:.0%}" for r in row)
            rows.append(f"| its share of DGEMM peak | {shares} |")
    return rows


def _amount(record: Record) -> str:
    if record.iterations is not None:
        return f"{1e3 / record.median:.3g} ms"
    return f"{short(record.median)}/s"


def readme(
    about: dict[str, Any],
    records: Sequence[Record],
    memory: Sequence[Memory],
    speed_ups: Sequence[dict[str, Any]],
    spectra: Sequence[SpectrumRecord],
) -> str:
    """Short tables: one thread, every compiled instruction set; memory and threads in words."""
    mine = [r for r in records if r.threads == 1 and r.kind == "ours"]
    dimensions = list(dict.fromkeys(record.d for record in mine))
    lines = [
        f"| one thread | {' | '.join(f'd = {d}' for d in dimensions)} |",
        f"|---|{'---|' * len(dimensions)}",
    ]
    for section in SECTIONS:
        if section.key not in README_SECTIONS:
            continue
        rows = [record for record in mine if record.section == section.key]
        for method in dict.fromkeys(record.method for record in rows):
            cells = [f"{_amount(r)}, {r.ratio:.1f}x" for r in rows if r.method == method]
            lines.append(f"| {section.title}, {method.split()[1]} | {' | '.join(cells)} |")
    peaks = [f"{m.n_matrices:,} x {m.n_atoms}, d = {m.d}: {m.peak / 1e6:.0f} MB" for m in memory]
    lines += ["", f"Memory beyond inputs and output: {'; '.join(peaks)}."]
    for key, name in (("values", "values"), ("pullback", "gradients")):
        gains = sorted(found[key] for found in speed_ups)
        if gains:
            lines.append(f"All cores over one, {name}: {gains[0]:.1f}x to {gains[-1]:.1f}x.")
    return "\n".join([*lines, "", *_wide(spectra), "", f"Measured on: {machine_line(about)}."])


def _wide(spectra: Sequence[SpectrumRecord]) -> list[str]:
    """Times of difficult spectra over those of well-conditioned data, and ratios over the peer."""
    columns = list(dict.fromkeys((record.job, record.d) for record in spectra))
    lines = [
        f"| time over that of well-conditioned data, ratio over the best peer | "
        f"{' | '.join(f'{job}, d = {d}' for job, d in columns)} |",
        f"|---|{'---|' * len(columns)}",
    ]
    for kind in dict.fromkeys(record.kind for record in spectra):
        cells = [f"{r.slowdown:.1f}, {r.ratio:.1f}x" for r in spectra if r.kind == kind]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return lines
