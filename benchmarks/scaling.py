"""What shards and Dask cost: speed-up, overhead, bytes, and what follows for very many matrices.

    python benchmarks/scaling.py [section ...]

Sections that are named are measured anew; docs/scaling.md is written from all that are known.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import out_of_core
from scaling_tables import write_page

from divlearn.arrays import RealArray
from divlearn.engines import DaskEngine, get_engine
from divlearn.iddl import IDDLClassifier, Recipe
from divlearn.sharded import encode, open_shards

RESULTS = Path(__file__).parent / "results" / "scaling.json"
PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
D, ATOMS = 18, 50
ROUNDS = 7


def wishart(count: int, d: int) -> Any:
    half = np.random.default_rng(0).normal(size=(count, d, 2 * d))
    return half @ half.mT / (2 * d)


@contextmanager
def workers(count: int) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    options = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with LocalCluster(n_workers=count, **options) as cluster, Client(cluster) as client:
        yield client


def seconds(job: Callable[[], Any]) -> float:
    started = time.perf_counter()
    job()
    return time.perf_counter() - started


def total(block: Any, V: Any) -> float:
    return float(V.sum())


def sharded_encode(shards: Any, atoms: Any) -> Callable[[], Any]:
    """Encode where the blocks are; what comes back is one number."""
    return lambda: shards.reduce(total, parts=[encode(shards, atoms, 0.7, 1.2, gather=False)])


def measure_encode(count: int) -> dict[str, Any]:
    """Encode in one process on one thread, on one worker and on two, in turns."""
    X, atoms = wishart(count, D), wishart(ATOMS, D)
    engine = get_engine("auto", 1)
    data = engine.prepare(X)
    with workers(1) as one, workers(2) as two:
        shards = [
            open_shards(X, engine=DaskEngine(client), block_size=-(-count // 8))
            for client in (one, two)
        ]
        jobs = {"process": lambda: engine.encode(data, atoms, 0.7, 1.2)}
        jobs |= {f"workers {i + 1}": sharded_encode(s, atoms) for i, s in enumerate(shards)}
        for job in jobs.values():
            job()
        rounds = [{name: seconds(job) for name, job in jobs.items()} for _ in range(ROUNDS)]
    ratios = {
        "speed_up": median(r["workers 1"] / r["workers 2"] for r in rounds),
        "overhead": median(r["workers 1"] / r["process"] - 1 for r in rounds),
    }
    return {"n_matrices": count, "d": D, "n_atoms": ATOMS, "rounds": rounds, **ratios}


def sent(dask_worker: Any) -> int:
    """Bytes to other workers and to the client."""
    return int(dask_worker.transfer_outgoing_bytes_total)


def measure_bytes(count: int) -> dict[str, Any]:
    """Bytes and seconds per iteration of IDDL, against the number of shards."""
    X = wishart(count, D)
    y = np.arange(count) % 5
    rows = []
    with workers(2) as client:
        for n_shards in (2, 8, 32):
            size = -(-count // n_shards)
            shards = open_shards(X, y, engine=DaskEngine(client), block_size=size, accuracy=1e-6)
            for loss in ("ridge", "softmax"):
                # The difference of two fits leaves out what a fit does once.
                short, long = (fit_iterations(client, shards, X, loss, n) for n in (2, 7))
                n_iter = long["n_iter"] - short["n_iter"]
                parts = {key: (long[key] - short[key]) / n_iter for key in ("seconds", "bytes")}
                rows.append({"n_shards": n_shards, "loss": loss, **parts})
    return {
        "n_matrices": count,
        "d": D,
        "n_atoms": ATOMS,
        "n_classes": 5,
        "rows": rows,
        "data_bytes": X.nbytes,
        "code_bytes": 8 * count * ATOMS,
    }


def fit_iterations(
    client: Any, shards: Any, X: RealArray, loss: str, max_iter: int
) -> dict[str, float]:
    """Fit IDDL, and count iterations, seconds and bytes that leave workers."""
    classifier = IDDLClassifier(
        ATOMS,
        recipe=Recipe(loss=loss, penalty=1e-2, init=X[:ATOMS]),
        cv=None,
        max_iter=max_iter,
        divergence=[(1.0, 1.0)],
        random_state=0,
    )
    before = sum(client.run(sent).values())
    spent = seconds(lambda: classifier.fit(shards, None))
    after = sum(client.run(sent).values())
    return {"n_iter": classifier.n_iter_, "seconds": spent, "bytes": after - before}


def nothing(block: Any) -> float:
    return 0.0


def measure_latency(count: int) -> dict[str, Any]:
    """Seconds of a reduction in which workers have nothing to do."""
    X = wishart(count, 2)
    rows = []
    with workers(2) as client:
        for n_shards in (2, 8, 32, 128):
            shards = open_shards(X, engine=DaskEngine(client), block_size=count // n_shards)
            rounds = [seconds(lambda s=shards: s.reduce(nothing)) for _ in range(10)]
            rows.append({"n_shards": n_shards, "seconds": median(rounds)})
    return {"rows": rows}


SECTIONS: dict[str, tuple[Callable[[int], Any], int]] = {
    "encode": (measure_encode, 100_000),
    "bytes": (measure_bytes, 2_000),
    "latency": (measure_latency, 1280),
    "out_of_core": (out_of_core.measure, 5_000_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", default=list(SECTIONS), metavar="section")
    parser.add_argument("--count", type=int, help="matrices, fewer for a trial")
    given = parser.parse_args()
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in given.sections:
        measure, count = SECTIONS[name]
        machine = f"{platform.machine()}, {os.cpu_count()} cores"
        load = os.getloadavg()[0]
        found = measure(given.count or count)
        known[name] = found | {"machine": machine, "load": load}
        RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    write_page(known, PAGE)


if __name__ == "__main__":
    main()
