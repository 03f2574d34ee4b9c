"""The compiled engine against the best that NumPy, SciPy, pyRiemann and PyTorch can do.

All methods of a section run in turn in one process, a short slice of work each, round after round;
ratios are taken within a round, over the best peer of that round, and their median is reported.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import peers
from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_info
from timing import (
    Effort,
    Measurement,
    Memory,
    Method,
    compare,
    encode_memory,
    limit_threads,
    ratios,
    torch,
    wishart,
)

from divlearn import mean_abld, pairwise_abld
from divlearn.engines.native import NativeEngine, instruction_sets

DIMENSIONS = (5, 8, 18, 23, 29, 42, 102)
GENERIC, AIRM, LINE, STEIN, BURG = (0.7, 1.2), (0.0, 0.0), (0.4, 0.6), (0.5, 0.5), (0.0, 1.0)
MEAN_TOLERANCE = 1e-9
GEMM_SIZE = 1024
DATA_BYTES = 1 << 25
SIZES = ((30_000, 500, 5), (12_000, 255, 18))  # of the memory section
FLOPS = "2 d^3 flops per pair: L_B^-1 L_X d^3/3, G G^T d^3/3, tridiagonalisation 4/3 d^3"

EngineMake = Callable[[NativeEngine], peers.Make]


@dataclass(frozen=True)
class Mean:
    """A member with a mean in pyRiemann, whose step is `step` times the gradient."""

    alpha: float
    peer: str
    step: float

    def tolerance(self, d: int) -> float:
        """Tolerance of the peer for the same gradient; ours is per root of d."""
        return self.step * MEAN_TOLERANCE * d**0.5


RIEMANN, LOGDET = Mean(0.0, "mean_riemann", 1.0), Mean(0.5, "mean_logdet", 0.5)


@dataclass(frozen=True, eq=False)
class Setting:
    """One dimension, one number of threads, the data, and who competes."""

    d: int
    threads: int
    instruction_sets: Sequence[str]
    work: peers.Workload
    across: peers.Across
    converters: dict[str, tuple[Any, Callable[[Any], Any]]] = field(default_factory=dict)

    def ours(self, make: EngineMake, work: float, **options: Any) -> list[Method]:
        step = (64 if self.d < 64 else 128) * self.threads
        options = {"limit": len(self.work.matrices), "step": step} | options
        return [
            Method(
                f"divlearn {name}", make(NativeEngine(self.threads, instruction_set=name)),
                work=work, threads=self.threads, kind="ours", **options,
            )
            for name in self.instruction_sets
        ]  # fmt: skip

    def peer(self, name: str, make: peers.Make, threads: int | None = None, **more: Any) -> Method:
        options = {"limit": len(self.work.matrices), "step": 32} | more
        n_atoms = len(self.work.atoms)
        return Method(name, make, work=n_atoms, threads=threads or self.threads, **options)

    def pipelines(self) -> dict[str, peers.Pipeline]:
        return {
            name: peers.Pipeline(xp, convert, self.work, self.across)
            for name, (xp, convert) in self.converters.items()
        }

    def pyriemann(self, make: Callable[..., peers.Make], **more: Any) -> list[Method]:
        return [
            self.peer(_on("pyriemann", name), make(self.work, convert), **more)
            for name, (_, convert) in self.converters.items()
        ]


def _on(library: str, arrays: str) -> str:
    return library if arrays == "numpy" else f"{library} on {arrays}"


@cache
def thread_pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads)


def make_setting(d: int, threads: int, sets: Sequence[str], more_atoms: int) -> Setting:
    # Many matrices per atom, as in use, so that the work on atoms alone does not count.
    atoms = more_atoms * (16 if d < 20 else 8 if d < 64 else 4)
    count = min(1 << 15, DATA_BYTES // (8 * d * d))
    cotangent = np.random.default_rng(d).uniform(0.5, 1.5, size=(count, atoms))
    work = peers.Workload(wishart(count, d, seed=0), wishart(atoms, d, seed=1), cotangent)
    converters: dict[str, tuple[Any, Callable[[Any], Any]]] = {"numpy": (np, np.ascontiguousarray)}
    if torch is not None:
        converters["torch"] = (torch, lambda x: torch.from_numpy(np.ascontiguousarray(x)))
    if threads == 1:
        return Setting(d, threads, sets, work, lambda f, xs: [f(x) for x in xs], converters)
    pool = thread_pool(threads)
    return Setting(d, threads, sets, work, lambda f, xs: list(pool.map(f, xs)), converters)


# ------------------------------------------------------------------ sections


def encode_make(work: peers.Workload, alpha: float, beta: float, engine: NativeEngine) -> Any:
    def make(count: int) -> Any:
        data = engine.prepare(work.matrices[:count])
        return lambda: (engine.encode(data, work.atoms, alpha, beta),)

    return make


def encode(setting: Setting, alpha: float, beta: float) -> list[Method]:
    return setting.ours(partial(encode_make, setting.work, alpha, beta), len(setting.work.atoms))


def spectral_values(setting: Setting, alpha: float, beta: float) -> list[Method]:
    found = encode(setting, alpha, beta)
    for name, pipeline in setting.pipelines().items():
        found.append(setting.peer(f"{name} eigvalsh", pipeline.values(alpha, beta), 1))
    found.append(setting.peer("scipy eigh loop", peers.scipy_values(setting.work, alpha, beta), 1))
    return found


def values(setting: Setting) -> list[Method]:
    return [*spectral_values(setting, *GENERIC), gemm(setting)]


def airm(setting: Setting) -> list[Method]:
    return spectral_values(setting, *AIRM) + setting.pyriemann(peers.pyriemann_airm)


def line(setting: Setting) -> list[Method]:
    found = encode(setting, *LINE)
    for name, pipeline in setting.pipelines().items():
        found.append(setting.peer(f"{name} cholesky", pipeline.logdet(*LINE), 1))
        found.append(setting.peer(f"{name} slogdet", pipeline.logdet(*LINE, lu=True), 1))
    stein = encode(setting, *STEIN)[0].make  # as far as pyRiemann goes on this line
    return found + setting.pyriemann(peers.pyriemann_stein, step=8, expected=stein)


def burg(setting: Setting) -> list[Method]:
    found = encode(setting, *BURG)
    for name, pipeline in setting.pipelines().items():
        found.append(setting.peer(f"{name} matmul", pipeline.burg()))
    return found + setting.pyriemann(peers.pyriemann_burg, step=8)


def pullback(setting: Setting) -> list[Method]:
    work = setting.work

    def engine_make(engine: NativeEngine) -> peers.Make:
        def make(count: int) -> Any:
            data, cotangent = engine.prepare(work.matrices[:count]), work.cotangent[:count]

            def job() -> tuple[Any, ...]:
                found = engine.pullback(data, work.atoms, *GENERIC, cotangent)
                return found.atoms, found.alpha, found.beta

            return job

        return make

    return setting.ours(engine_make, len(work.atoms)) + [
        setting.peer(f"{name} eigh", pipeline.pullback(*GENERIC), 1)
        for name, pipeline in setting.pipelines().items()
    ]


def pairwise(setting: Setting) -> list[Method]:
    """As `airm`, but preparing the data is part of the job."""
    work = setting.work

    def engine_make(engine: NativeEngine) -> peers.Make:
        def table(X: Any) -> tuple[Any, ...]:
            return (pairwise_abld(X, work.atoms, alpha=0, beta=0, engine=engine),)

        return lambda count: partial(table, work.matrices[:count])

    return setting.ours(engine_make, len(work.atoms)) + setting.pyriemann(peers.pyriemann_airm)


def mean(setting: Setting, member: Mean) -> list[Method]:
    X, tolerance = mean_data(setting), member.tolerance(setting.d)

    def engine_make(engine: NativeEngine) -> peers.Make:
        def job() -> tuple[Any, ...]:
            result = mean_abld(X, member.alpha, member.alpha, tol=MEAN_TOLERANCE, engine=engine)
            return (result.mean,)

        return lambda _: job

    return setting.ours(engine_make, 1, limit=1) + [
        Method(
            _on("pyriemann", arrays), peers.pyriemann_mean(X, member.peer, tolerance, convert),
            limit=1, work=1, threads=setting.threads,
        )
        for arrays, (_, convert) in setting.converters.items()
    ]  # fmt: skip


def mean_data(setting: Setting) -> Any:
    return setting.work.matrices[: 256 if setting.d < 64 else 32]


def gemm(setting: Setting) -> Method:
    left, right = np.random.default_rng(0).normal(size=(2, GEMM_SIZE, GEMM_SIZE))

    def make(count: int) -> Any:
        return lambda: tuple(left @ right for _ in range(count))

    flops = 2.0 * GEMM_SIZE**3
    return Method("dgemm", make, 1 << 10, flops, threads=setting.threads, kind="yardstick")


@dataclass(frozen=True)
class Section:
    """What is compared, on how many times the usual number of atoms."""

    key: str
    title: str
    build: Callable[[Setting], list[Method]]
    more_atoms: int = 1
    mean: Mean | None = None

    @property
    def unit(self) -> str:
        return "means/s" if self.mean else "pairs/s"


SECTIONS = (
    Section("values", "values at (0.7, 1.2)", values),
    Section("airm", "values at (0, 0), AIRM", airm),
    Section("line", "values at (0.4, 0.6), theta = 1", line),
    Section("burg", "values at (0, 1), Burg", burg, more_atoms=4),
    Section("pullback", "gradients in atoms and parameters at (0.7, 1.2)", pullback),
    Section("pairwise", "table of AIRM, data prepared each time", pairwise, more_atoms=4),
    Section("mean", "mean at (0, 0), Riemann", partial(mean, member=RIEMANN), mean=RIEMANN),
    Section(
        "mean_logdet", "mean at (0.5, 0.5), log-det", partial(mean, member=LOGDET), mean=LOGDET
    ),
)


@dataclass(frozen=True)
class Record:
    """One method in one section at one dimension and number of threads."""

    section: str
    d: int
    threads: int
    method: str
    kind: str
    unit: str
    count: int
    median: float
    best: float
    ratio: float | None = None
    best_peer: str | None = None
    share_of_dgemm: float | None = None
    iterations: int | None = None


def measure(section: Section, setting: Setting, effort: Effort) -> list[Record]:
    found = compare(section.build(setting), effort)
    rivals = [m for m in found if m.kind == "peer"]
    best_peer = max(rivals, key=lambda m: m.median).name
    peak = [m for m in found if m.kind == "yardstick"]
    taken = iterations(section.mean, setting) if section.mean else {}

    def record(m: Measurement) -> Record:
        compared: dict[str, Any] = {}
        if m.kind == "ours":
            compared = {"ratio": median(ratios(m, rivals)), "best_peer": best_peer}
            if peak:
                compared["share_of_dgemm"] = 2 * setting.d**3 * median(ratios(m, peak))
        unit = "flops/s" if m.kind == "yardstick" else section.unit
        common = section.key, setting.d, setting.threads, m.name, m.kind, unit, m.count
        return Record(*common, m.median, m.best, iterations=taken.get(m.kind), **compared)

    return [record(m) for m in found]


def iterations(member: Mean, setting: Setting) -> dict[str, int]:
    """Of our iteration and of the peer's."""
    X, alpha, engine = mean_data(setting), member.alpha, NativeEngine(1)
    return {
        "ours": mean_abld(X, alpha, alpha, tol=MEAN_TOLERANCE, engine=engine).n_iter,
        "peer": peers.pyriemann_iterations(X, member.peer, member.tolerance(setting.d)),
    }


def speed_up(d: int, threads: int, section: Section, effort: Effort) -> float:
    """All threads over one."""
    sets = instruction_sets()[:1]
    one, many = (
        section.build(make_setting(d, count, sets, section.more_atoms))[0] for count in (1, threads)
    )
    found = compare([one, many], effort)
    return median(ratios(found[1], found[:1]))


def growth(d: int, effort: Effort) -> dict[str, float]:
    """Rates of encoding as data and atoms grow, on one thread."""
    engine = NativeEngine(1)
    n_matrices, n_atoms = 4096 if d < 64 else 256, 64 if d < 64 else 16
    X, atoms = wishart(n_matrices, d, seed=0), wishart(n_atoms, d, seed=1)
    methods = []
    for rows, columns in ((4, 1), (1, 4), (1, 1)):
        part, some = engine.prepare(X[: n_matrices // rows]), atoms[: n_atoms // columns]
        name = f"{part.n_matrices} x {len(some)}"
        job = partial(_encode_once, engine, part, some)
        work = part.n_matrices * len(some)
        methods.append(Method(name, lambda _, job=job: job, limit=1, work=work, kind="yardstick"))
    return {found.name: found.median for found in compare(methods, effort)}


def _encode_once(engine: NativeEngine, data: Any, atoms: Any) -> tuple[Any, ...]:
    return (engine.encode(data, atoms, *GENERIC),)


# ------------------------------------------------------------------ reporting


def machine() -> dict[str, Any]:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    libraries = ["divlearn", "numpy", "scipy", "pyriemann"] + (["torch"] if torch else [])
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": cores(),
        "instruction_sets": list(instruction_sets()),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in libraries},
        "blas": sorted(
            f"{info['internal_api']} {info['version']} {info.get('architecture', '')}".strip()
            for info in threadpool_info()
            if info["user_api"] == "blas"
        ),
    }


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_line(about: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    return (
        f"{about['cpu']}, {about['cores']} cores, {'/'.join(about['instruction_sets'])}; "
        f"Python {about['python']}, {versions}; BLAS: {', '.join(about['blas'])}"
    )


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
        f"{memory.n_matrices} x {memory.n_atoms}, d = {memory.d}", f"{memory.seconds:.2f} s",
        *(f"{size / 1e6:.1f} MB" for size in sizes),
    ]  # fmt: skip


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


# ------------------------------------------------------------------ command line


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dims", type=int, nargs="+", help=f"default: {DIMENSIONS}")
    parser.add_argument("--seconds", type=float, help="per section and dimension; default: 0.6")
    parser.add_argument("--instruction-sets", nargs="+", choices=instruction_sets())
    parser.add_argument("--threads", nargs="+", help="numbers, or 'all'; default: 1 all")
    parser.add_argument(
        "--clock", choices=("wall", "cpu"), default="wall",
        help="cpu: count CPU time where one thread runs, for machines busy with other things",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="a look in half a minute")
    parser.add_argument("--json", type=Path, help="write everything here")
    parser.add_argument("--markdown", type=Path, help="write the README's tables here")
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
    results = {
        "machine": about,
        "settings": {"seconds": given.seconds, "clock": given.clock, "flops": FLOPS},
        "records": [asdict(record) for record in records],
        "speed_up": run_speed_up(given, console),
        "growth": run_growth(given, console),
        "memory": [asdict(memory) for memory in run_memory(given, console)],
    }
    if given.json:
        given.json.write_text(json.dumps(results, indent=1))
    if given.markdown:
        given.markdown.write_text(markdown(about, records))


if __name__ == "__main__":
    main()
