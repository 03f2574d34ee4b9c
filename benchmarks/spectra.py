"""What difficult spectra cost: matrices of low rank plus a ridge, and ill-conditioned ones.

Rates are compared with those on well-conditioned data and with the best peer on the same data.
Peers form the whitened matrix, which loses eigenvalues below eps times the largest; how wrong
their results are is reported beside how fast they come.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

import numpy as np
import peers
from sections import GENERIC, Setting, make_setting, pullback, spectral_values
from timing import Array, Effort, Measurement, Method, compare, difference, ratios, wishart

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
JOBS: dict[str, Callable[[Setting], list[Method]]] = {
    "encode": lambda setting: spectral_values(setting, *GENERIC),
    "pullback": pullback,
}


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
    peer_error: float  # of that peer, relative to the largest result


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
    found: dict[str, list[Measurement]] = {kind: [] for kind in KINDS}
    kinds = [kind for kind, some in methods.items() for _ in some]
    flat = [method for some in methods.values() for method in some]
    with np.errstate(invalid="ignore"):  # peers take logarithms of negative eigenvalues
        measured = compare(flat, effort, checked=methods[EASY])
        for kind, one in zip(kinds, measured, strict=True):
            found[kind].append(one)
        return [_record(job, d, kind, found[kind], found[EASY][0], methods[kind]) for kind in KINDS]


def _record(
    job: str, d: int, kind: str, found: Sequence[Measurement], easy: Measurement,
    methods: Sequence[Method],
) -> SpectrumRecord:  # fmt: skip
    ours, rivals = found[0], found[1:]
    best = max(rivals, key=lambda m: m.median)
    peer = next(method for method in methods if method.name == best.name)
    return SpectrumRecord(
        job, d, kind, ours.median, 1 / median(ratios(ours, [easy])), median(ratios(ours, rivals)),
        best.name, difference(peer, methods[0]),
    )  # fmt: skip
