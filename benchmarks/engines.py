"""The compiled engine against the best that NumPy, SciPy, pyRiemann and PyTorch can do.

All methods of a section run in turn in one process, a short slice of work each, round after round;
ratios are taken within a round, over the best peer of that round, and their median is reported.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from machine import cores, machine, machine_line, write_between_markers
from rich.console import Console
from sections import FLOPS, GEMM_SIZE, SECTIONS, Record, growth, make_setting, measure, speed_up
from spectra import DIMENSIONS as SPECTRA_DIMENSIONS
from spectra import JOBS, SpectrumRecord, measure_spectra
from tables import markdown, memory_row, plain_table, readme, section_table, short, spectrum_row
from timing import Effort, Memory, encode_memory, limit_threads, torch

from divlearn.engines.native import instruction_sets

DIMENSIONS = (5, 8, 18, 23, 29, 42, 102)
SIZES = ((30_000, 500, 5), (12_000, 255, 18))  # of the memory section


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dims", type=int, nargs="+", help=f"default: {DIMENSIONS}")
    parser.add_argument("--seconds", type=float, help="per section and dimension; default: 0.6")
    parser.add_argument("--instruction-sets", nargs="+", choices=instruction_sets())
    parser.add_argument("--threads", nargs="+", help="numbers, or 'all'; default: 1 all")
    parser.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="cpu: count CPU time where one thread runs, for machines busy with other things",
    )
    parser.add_argument("--quick", action="store_true", help="a look in half a minute")
    parser.add_argument("--json", type=Path, help="write everything here")
    parser.add_argument("--markdown", type=Path, help="write all tables here")
    parser.add_argument("--readme", type=Path, help="put the short table between its markers")
    given = parser.parse_args()
    given.dims = given.dims or ((5, 18) if given.quick else DIMENSIONS)
    given.seconds = given.seconds or (0.25 if given.quick else 0.6)
    compiled = [name for name in instruction_sets() if name != "baseline"] or ["baseline"]
    given.instruction_sets = given.instruction_sets or compiled
    wanted = given.threads or (["1"] if given.quick else ["1", "all"])
    given.threads = list(dict.fromkeys(cores() if t == "all" else int(t) for t in wanted))
    return given


def effort(given: argparse.Namespace, threads: int) -> Effort:
    return Effort(given.seconds, cpu=given.clock == "cpu" and threads == 1)


def run_sections(given: argparse.Namespace, console: Console) -> list[Record]:
    records: list[Record] = []
    for threads in given.threads:
        for section in SECTIONS:
            part: list[Record] = []
            for d in given.dims:
                setting = make_setting(d, threads, given.instruction_sets, section.more_atoms)
                part += measure(section, setting, effort(given, threads))
            console.print(section_table(section, threads, part))
            records += part
    return records


def run_speed_up(given: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    threads = cores()
    if threads == 1:
        return []
    chosen = [section for section in SECTIONS if section.key in ("values", "pullback")]
    found = [
        {"d": d} | {s.key: speed_up(d, threads, s, effort(given, threads)) for s in chosen}
        for d in given.dims
    ]
    rows = [[str(f["d"]), *(f"{f[s.key]:.2f}" for s in chosen)] for f in found]
    headings = ["d", *(section.key for section in chosen)]
    console.print(plain_table(f"{threads} threads over one", headings, rows))
    return found


def run_growth(given: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    found = [{"d": d, "rates": growth(d, effort(given, 1))} for d in given.dims]
    rows = [
        [str(f["d"]), *(f"{size}: {short(rate)}" for size, rate in f["rates"].items())]
        for f in found
    ]
    headings = ["d", "a quarter of the data", "a quarter of the atoms", "all"]
    console.print(plain_table("encode, pairs per second as the job grows", headings, rows))
    return found


def run_spectra(given: argparse.Namespace, console: Console) -> list[SpectrumRecord]:
    found = [
        record
        for job in JOBS
        for d in (SPECTRA_DIMENSIONS[:1] if given.quick else SPECTRA_DIMENSIONS)
        for record in measure_spectra(d, job, given.instruction_sets, effort(given, 1))
    ]
    headings = [
        "job",
        "d",
        "data",
        "pairs per second",
        "x slower than well-conditioned",
        "x best peer",
        "best peer",
    ]
    rows = [spectrum_row(record) for record in found]
    console.print(plain_table("difficult spectra; 1 thread", headings, rows))
    return found


def run_memory(given: argparse.Namespace, console: Console) -> list[Memory]:
    part = 10 if given.quick else 1
    found = [encode_memory(rows // part, columns, d) for rows, columns, d in SIZES]
    headings = ["encode", "time", "peak above", "naive N n d^2", "inputs", "output"]
    console.print(plain_table("memory", headings, [memory_row(memory) for memory in found]))
    return found


def main() -> None:
    given, console = parse(), Console(width=220)
    limit_threads(1)  # of whatever is not timed
    about = machine()
    console.print(machine_line(about))
    if torch is None:
        console.print("torch is not installed: left out")
    console.print(f"share of dgemm: {FLOPS}; dgemm is numpy's, {GEMM_SIZE} x {GEMM_SIZE}")
    records = run_sections(given, console)
    speed_ups, grown = run_speed_up(given, console), run_growth(given, console)
    spectra, memory = run_spectra(given, console), run_memory(given, console)
    results = {
        "machine": about,
        "settings": {"seconds": given.seconds, "clock": given.clock, "flops": FLOPS},
        "records": [asdict(record) for record in records],
        "speed_up": speed_ups,
        "growth": grown,
        "spectra": [asdict(record) for record in spectra],
        "memory": [asdict(found) for found in memory],
    }
    if given.json:
        given.json.write_text(json.dumps(results, indent=1))
    if given.markdown:
        given.markdown.write_text(markdown(about, records))
    if given.readme:
        write_between_markers(given.readme, readme(about, records, memory, speed_ups, spectra))


if __name__ == "__main__":
    main()
