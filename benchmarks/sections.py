"""What is measured: one section per job, the methods that compete in it, and what they reached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from statistics import median
from typing import Any

import numpy as np
import peers
from timing import Effort, Measurement, Method, compare, ratios, torch, wishart

from divlearn import mean_abld, pairwise_abld
from divlearn.engines.native import NativeEngine, instruction_sets

GENERIC, AIRM, LINE, STEIN, BURG = (0.7, 1.2), (0.0, 0.0), (0.4, 0.6), (0.5, 0.5), (0.0, 1.0)
MEAN_TOLERANCE = 1e-9
GEMM_SIZE = 1024
DATA_BYTES = 1 << 25
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
                f"divlearn {name}",
                make(NativeEngine(self.threads, instruction_set=name)),
                work=work,
                threads=self.threads,
                kind="ours",
                **options,
            )
            for name in self.instruction_sets
        ]

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
            _on("pyriemann", arrays),
            peers.pyriemann_mean(X, member.peer, tolerance, convert),
            limit=1,
            work=1,
            threads=setting.threads,
        )
        for arrays, (_, convert) in setting.converters.items()
    ]


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
