"""What difficult spectra cost: matrices of low rank plus a ridge, and ill-conditioned ones.

Rates are compared with those on well-conditioned data, and with the best peer on the same data
whose results agree with ours: peers that form the whitened matrix lose its small eigenvalues,
those that take singular values do not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

import numpy as np
import peers
from sections import GENERIC, Setting, make_setting, pullback, spectral_values
from timing import Array, Effort, Measurement, Method, agrees, compare, ratios, wishart

DIMENSIONS = (24, 60, 90)
EASY = "well-conditioned"


def low_rank(count: int, d: int, seed: int, part: int, ridge: float) -> Array:
    rank = d // part
    samples = np.random.default_rng([seed, d]).normal(size=(count, d, rank))
    return samples @ samples.mT / rank + ridge * np.eye(d)


def rotated(count: int, d: int, seed: int, condition: float) -> Array:
    """Log-spaced eigenvalues, every matrix in a random frame of its own."""
    frame = np.linalg.qr(np.random.default_rng([seed, d]).normal(size=(count, d, d)))[0]
    product = (frame * np.geomspace(1 / condition, 1, d)) @ frame.mT
    return 0.5 * (product + product.mT)


KINDS: dict[str, Callable[[int, int, int], Array]] = {
    EASY: wishart,
    "rank d/2, ridge 1e-3": partial(low_rank, part=2, ridge=1e-3),
    "rank d/4, ridge 1e-6": partial(low_rank, part=4, ridge=1e-6),
    "condition 1e4, independent frames": partial(rotated, condition=1e4),
}


def values_methods(setting: Setting) -> list[Method]:
    found = spectral_values(setting, *GENERIC)
    for name, pipeline in setting.pipelines().items():
        found.append(setting.peer(f"{name} svdvals", pipeline.values(*GENERIC, singular=True), 1))
    return found


def pullback_methods(setting: Setting) -> list[Method]:
    found = pullback(setting)
    for name, pipeline in setting.pipelines().items():
        found.append(setting.peer(f"{name} svd", pipeline.pullback(*GENERIC, singular=True), 1))
    return found


JOBS = {"encode": values_methods, "pullback": pullback_methods}


@dataclass(frozen=True)
class SpectrumRecord:
    """One job on one kind of data, with the fastest instruction set on one thread."""

    job: str
    d: int
    kind: str
    median: float
    slowdown: float  # against well-conditioned data
    ratio: float
    best_peer: str


def measure_spectra(d: int, job: str, sets: Sequence[str], effort: Effort) -> list[SpectrumRecord]:
    setting = make_setting(d, 1, sets[:1], 1)
    count, n_atoms = len(setting.work.matrices), len(setting.work.atoms)
    methods = {
        kind: JOBS[job](
            replace(
                setting,
                work=peers.Workload(make(count, d, 0), make(n_atoms, d, 1), setting.work.cotangent),
            )
        )
        for kind, make in KINDS.items()
    }
    with np.errstate(invalid="ignore"):  # of negative eigenvalues, in results that do not agree
        methods = {kind: [m for m in some if agrees(m, some[0])] for kind, some in methods.items()}
    flat = iter(compare([m for some in methods.values() for m in some], effort, checked=()))
    found = {kind: [next(flat) for _ in some] for kind, some in methods.items()}
    return [_record(job, d, kind, some, found[EASY][0]) for kind, some in found.items()]


def _record(
    job: str, d: int, kind: str, found: Sequence[Measurement], easy: Measurement
) -> SpectrumRecord:
    ours, rivals = found[0], found[1:]
    best = max(rivals, key=lambda m: m.median).name
    slowdown = 1 / median(ratios(ours, [easy]))
    return SpectrumRecord(job, d, kind, ours.median, slowdown, median(ratios(ours, rivals)), best)
