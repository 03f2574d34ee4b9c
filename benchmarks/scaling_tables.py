"""docs/scaling.md: figures between markers, and a model of what they mean for 10^9 matrices."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
MATRICES, WORKERS, CORES = 1e9, 1000, 8
BANDWIDTH = 1e9  # bytes per second, of ten gigabits


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines)


def encode_section(found: dict[str, Any]) -> str:
    rounds = found["rounds"]
    rows = [[name, *(f"{one[name]:.2f}" for one in rounds)] for name in rounds[0]]
    return "\n\n".join(
        [
            f"Encoding {found['n_matrices']:,} matrices, d = {found['d']}, {found['n_atoms']} "
            f"atoms, one thread per worker ({found['machine']}, load {found['load']:.1f} before), "
            "seconds in each round:",
            table(["who", *(f"round {i + 1}" for i in range(len(rounds)))], rows),
            f"Two workers are {found['speed_up']:.2f} times as fast as one (median of the rounds). "
            f"One worker takes {found['overhead']:.0%} longer than a process without Dask."
            f"{_busy(found)}",
        ]
    )


def _busy(found: dict[str, Any]) -> str:
    cores = int(found["machine"].split()[-2])
    if found["load"] <= 0.5 * cores:
        return ""
    return " The machine was busy with other work: the ratios are rough."


def _load(found: dict[str, Any]) -> str:
    return f" (load {found['load']:.1f} before)"


def bytes_section(found: dict[str, Any]) -> str:
    rows = [
        [
            str(row["n_shards"]),
            row["loss"],
            f"{row['bytes'] / 1e3:,.0f}",
            f"{row['seconds']:.2f}",
        ]
        for row in found["rows"]
    ]
    return "\n\n".join(
        [
            f"An iteration of IDDL, {found['n_matrices']:,} matrices, d = {found['d']}, "
            f"{found['n_atoms']} atoms, {found['n_classes']} classes, two workers. The matrices "
            f"are {found['data_bytes'] / 1e3:,.0f} kB and their divergences "
            f"{found['code_bytes'] / 1e3:,.0f} kB{_load(found)}.",
            table(
                ["shards", "loss", "kB that workers send", "seconds"],
                rows,
            ),
        ]
    )


def latency_section(found: dict[str, Any]) -> str:
    rows = [[str(row["n_shards"]), f"{1e3 * row['seconds']:.0f}"] for row in found["rows"]]
    return "\n\n".join(
        [
            f"A sum over shards in which workers have nothing to do{_load(found)}:",
            table(["shards", "milliseconds"], rows),
        ]
    )


def out_of_core_section(found: dict[str, Any]) -> str:
    rows = [
        [job["job"], f"{job['peak_bytes'] / 1e9:.2f}", f"{job['seconds']:,.0f}", job["result"]]
        for job in found["jobs"]
    ]
    size = found["n_matrices"] * found["d"] ** 2 * 8 / 1e9
    return "\n\n".join(
        [
            f"Out of core: {found['n_matrices']:,} matrices, d = {found['d']}, {size:.2f} GB in "
            f"one file, memory_limit={found['memory_limit']!r}; peak resident memory of "
            f"the process{_load(found)}:",
            table(["what", "GB", "seconds", "result"], rows),
        ]
    )


def model_section(known: dict[str, Any]) -> str:
    """What the figures say of 10^9 matrices on 1,000 workers."""
    encode = known["encode"]
    n, d = encode["n_atoms"], encode["d"]
    each = min(one["workers 1"] for one in encode["rounds"]) / encode["n_matrices"]
    compute = 3 * each * MATRICES / (WORKERS * CORES)  # a trial, and a gradient of twice the cost
    last = known["latency"]["rows"][-1]
    first = known["latency"]["rows"][0]
    task = (last["seconds"] - first["seconds"]) / (last["n_shards"] - first["n_shards"])
    shards = WORKERS * CORES
    scheduler = 2 * task * shards
    dictionary = 8 * n * (d * d + 2)
    statistics = 8 * (n + 5) ** 2
    # One worker after the other gets the dictionary from those that have it; sums go by eights.
    wire = 2 * (dictionary * 10 + statistics * 8 * 5) / BANDWIDTH
    memory = 3 * 8 * d * d * MATRICES / WORKERS
    rows = [
        [
            "eigenproblems",
            f"{compute:,.1f}",
            f"{each * 1e6:.1f} µs per matrix, {n} atoms, "
            f"measured; a gradient costs two encodings; {CORES} cores per worker",
        ],
        [
            "tasks through the scheduler",
            f"{scheduler:,.1f}",
            f"{task * 1e3:.2f} ms per task, measured here; {shards:,} shards, two sums",
        ],
        [
            "bytes on the wire",
            f"{wire:,.2f}",
            f"{dictionary / 1e6:.2f} MB of atoms down a tree of ten, {statistics / 1e6:.2f} MB of "
            "sums up five levels of eights, at 1 GB/s",
        ],
    ]
    names = ["the eigenproblems", "the scheduler", "the wire"]
    sizes = [compute, scheduler, wire]
    worst = names[sizes.index(max(sizes))]
    return "\n\n".join(
        [
            f"A model of one iteration of IDDL (ridge) on 10^9 matrices, d = {d}, {n} atoms, on "
            f"{WORKERS:,} workers of {CORES} cores, one shard per core:",
            table(["part", "seconds", "from"], rows),
            f"The bottleneck is {worst}. Each worker holds {memory / 1e9:,.1f} GB, packed matrices "
            f"included. Thirty iterations take about {30 * sum(sizes) / 60:,.0f} minutes, or "
            f"{30 * sum(sizes) / 3600 * WORKERS * CORES:,.0f} core hours. Softmax adds about ten "
            "sums for every trial: ten times the scheduler's part.",
        ]
    )


def write_page(known: dict[str, Any], page: Path) -> None:
    """Put the figures that are known between the markers."""
    makers = {
        "encode": encode_section,
        "bytes": bytes_section,
        "latency": latency_section,
        "out_of_core": out_of_core_section,
    }
    parts = [maker(known[name]) for name, maker in makers.items() if name in known]
    if {"encode", "latency"} <= set(known):
        parts.append(model_section(known))
    fill_page(page, parts)


def fill_page(page: Path, parts: list[str]) -> None:
    """Put paragraphs and tables between the markers of a page."""
    text = page.read_text()
    figures = f"{BEGIN}\n\n" + "\n\n".join(parts) + f"\n\n{END}"
    pattern = re.escape(BEGIN) + ".*" + re.escape(END)
    page.write_text(re.sub(pattern, lambda _: figures, text, flags=re.DOTALL))
