"""How things are measured: rates of interleaved methods, and the peak memory of a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController, threadpool_limits

try:
    import torch
except ImportError:
    torch = None

Array = NDArray[np.float64]
Job = Callable[[], tuple[Any, ...]]

AGREEMENT = 1e-8
_CHECKED = 8  # matrices on which methods must agree before they are timed
_LEAST_ROUNDS = 3
_TRIES = 4  # more of a job, to find how large it should be
_LONG = 0.1  # seconds from which one try is enough
_LONGEST = 2.0  # times the seconds asked for, where jobs cannot be made short


@dataclass(frozen=True)
class Method:
    """One way to do a job. ``make(count)`` returns the job on the first `count` matrices."""

    name: str
    make: Callable[[int], Job]
    limit: int  # matrices there are
    work: float  # units of work per matrix
    step: int = 1  # matrices come in multiples of this
    threads: int = 1  # of BLAS and PyTorch, while it runs
    kind: str = "peer"  # "ours", "peer" or "yardstick"
    expected: Callable[[int], Job] | None = None  # if not what the first method returns


@dataclass(frozen=True)
class Effort:
    """Seconds of a comparison, rounds, and whether to count CPU time instead of wall time."""

    seconds: float
    rounds: int = 7
    cpu: bool = False


@dataclass(frozen=True)
class Measurement:
    """Rates of one method, one per round, in units of work per second."""

    name: str
    kind: str
    count: int
    rates: list[float]

    @property
    def median(self) -> float:
        return median(self.rates)

    @property
    def best(self) -> float:
        return max(self.rates)


@lru_cache(maxsize=32)
def wishart(count: int, d: int, seed: int) -> Array:
    """Random SPD matrices, 2d + 5 degrees of freedom, made in blocks to save memory."""
    generator = np.random.default_rng([seed, d])
    out = np.empty((count, d, d))
    for start in range(0, count, 1024):
        samples = generator.normal(size=(min(1024, count - start), d, 2 * d + 5))
        np.matmul(samples, samples.mT / (2 * d + 5), out=out[start : start + 1024])
    return out


# ------------------------------------------------------------------ time


def limit_threads(threads: int) -> None:
    """Limit BLAS and PyTorch for good."""
    threadpool_limits(threads, user_api="blas")
    if torch is not None:
        torch.set_num_threads(threads)


class Clock:
    """Time of a job with BLAS and PyTorch limited to a number of threads."""

    def __init__(self, cpu: bool) -> None:
        self.cpu = cpu
        self.controller = ThreadpoolController()

    def __call__(self, job: Job, threads: int) -> float:
        if torch is not None:
            torch.set_num_threads(threads)
        now = time.process_time if self.cpu else time.perf_counter
        with self.controller.limit(limits=threads, user_api="blas"):
            start = now()
            job()
            return now() - start


def compare(
    methods: Sequence[Method], effort: Effort, checked: Sequence[Method] | None = None
) -> list[Measurement]:
    """Check that methods agree, all of them or those given; run rounds of every method once."""
    check_agreement(methods if checked is None else checked)
    seconds, rounds = effort.seconds, effort.rounds
    share = seconds / (rounds * len(methods))
    clock = Clock(effort.cpu)
    sized = [_sized(method, share, clock) for method in methods]
    whole = sum(elapsed for _, _, elapsed in sized)
    rounds = max(min(_LEAST_ROUNDS, rounds), min(rounds, int(_LONGEST * seconds / whole)))
    rates: list[list[float]] = [[] for _ in methods]
    for _ in range(rounds):
        for method, (job, count, _elapsed), found in zip(methods, sized, rates, strict=True):
            found.append(method.work * count / clock(job, method.threads))
    return [
        Measurement(method.name, method.kind, count, found)
        for method, (_, count, _elapsed), found in zip(methods, sized, rates, strict=True)
    ]


def check_agreement(methods: Sequence[Method]) -> None:
    """Raise if a method's results differ from the first one's, relative to the largest."""
    for method in methods:
        if method.kind != "yardstick" and not agrees(method, methods[0]):
            raise AssertionError(f"{method.name} differs from {methods[0].name}")


def agrees(method: Method, right: Method) -> bool:
    """Whether a method's results are those expected, up to a share of the largest."""
    count = min(_CHECKED, method.limit)
    pairs = zip(method.make(count)(), (method.expected or right.make)(count)(), strict=True)
    arrays = [(np.asarray(one), np.asarray(other)) for one, other in pairs]
    return all(np.abs(x - y).max() <= AGREEMENT * np.abs(y).max() for x, y in arrays)


def ratios(measurement: Measurement, others: Sequence[Measurement]) -> list[float]:
    """Rate over the best of the others, round by round."""
    best = [max(rates) for rates in zip(*(other.rates for other in others), strict=True)]
    return [own / other for own, other in zip(measurement.rates, best, strict=True)]


def _sized(method: Method, share: float, clock: Clock) -> tuple[Job, int, float]:
    """Return a job of about `share` seconds, its count and its time."""
    count = min(method.step, method.limit)
    while True:
        job = method.make(count)
        elapsed = clock(job, method.threads)
        if elapsed < _LONG:  # one try may be slow: for being the first, or disturbed
            elapsed = min(elapsed, *(clock(job, method.threads) for _ in range(_TRIES)))
        if elapsed > share / 2 or count == method.limit:
            return job, count, elapsed
        steps = int(count * min(16.0, share / elapsed) / method.step)
        count = min(method.limit, max(2 * count, steps * method.step))


# ------------------------------------------------------------------ memory


@dataclass(frozen=True)
class Memory:
    """What encoding took beyond its inputs and its output."""

    d: int
    n_matrices: int
    n_atoms: int
    seconds: float
    inputs: int
    output: int
    peak: int
    naive: int


def encode_memory(n_matrices: int, n_atoms: int, d: int) -> Memory:
    """Peak memory of one encoding in a fresh process that has loaded nothing else."""
    script = Path(__file__).with_name("memory.py")
    command = [sys.executable, str(script), *(str(size) for size in (n_matrices, n_atoms, d))]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return Memory(d, n_matrices, n_atoms, **found, naive=8 * n_matrices * n_atoms * d**2)
