"""Fits on files beyond a memory limit, each in a fresh process that prints its peak memory."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from memory import resident

from divlearn.cluster import ABKMeans
from divlearn.iddl import IDDLClassifier, Recipe
from divlearn.sharded import open_shards

CHUNK = 100_000


def write_data(folder: Path, count: int, d: int, groups: int) -> None:
    """Wishart matrices of several groups, mixed, and the groups."""
    random = np.random.default_rng(0)
    roots = np.linalg.cholesky(np.exp(random.normal(size=(groups, 1, d))) * np.eye(d))
    X = np.lib.format.open_memmap(folder / "X.npy", "w+", np.float64, (count, d, d))
    y = random.integers(groups, size=count)
    for start in range(0, count, CHUNK):
        rows = y[start : start + CHUNK]
        half = roots[rows] @ random.normal(size=(len(rows), d, 4 * d))
        X[start : start + CHUNK] = half @ half.mT / (4 * d)
        X.flush()
    np.save(folder / "y.npy", y)


def cluster(shards: Any) -> str:
    found = ABKMeans(20, random_state=0, n_init=1, max_iter=5).fit(shards)
    return f"{found.n_iter_} iterations; {found.message_}"


def classify(shards: Any) -> str:
    classifier = IDDLClassifier(
        20,
        recipe=Recipe(loss="ridge", solver="stochastic", penalty=1e-3),
        cv=None,
        divergence=[(1.0, 1.0)],
        max_iter=1,
        random_state=0,
    ).fit(shards, None)
    objective = classifier.history_["objective"]
    return f"objective {objective[0]:.6g} to {objective[-1]:.6g}; {classifier.message_}"


JOBS = {"k-means, k = 20": cluster, "IDDL stochastic, 20 atoms": classify}


def run_job(name: str, folder: str, limit: str) -> None:
    started = time.perf_counter()
    files = [f"{folder}/{part}.npy" for part in "Xy"]
    result = JOBS[name](open_shards([files[0]], [files[1]], memory_limit=limit))
    peak = resident("VmHWM")  # of this program; rusage would count who started it
    seconds = time.perf_counter() - started
    print(json.dumps({"job": name, "seconds": seconds, "peak_bytes": peak, "result": result}))


def measure(count: int, d: int = 5, limit: str = "500MB") -> dict[str, Any]:
    """Run all jobs on so many matrices."""
    with tempfile.TemporaryDirectory(prefix="divlearn-") as folder:
        write_data(Path(folder), count, d, 20)
        done = [
            subprocess.run(
                [sys.executable, __file__, name, folder, limit],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for name in JOBS
        ]
    jobs = [json.loads(one) for one in done]
    return {"n_matrices": count, "d": d, "memory_limit": limit, "jobs": jobs}


if __name__ == "__main__":
    run_job(*sys.argv[1:])
