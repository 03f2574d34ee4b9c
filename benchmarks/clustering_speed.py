"""How fast k-means is beside pyRiemann's, and how much memory many matrices take."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from memory import resident
from pyriemann.clustering import Kmeans
from sklearn.metrics import adjusted_rand_score

from divlearn.cluster import ABKMeans, KarcherKMeans, LogEuclideanKMeans
from divlearn.datasets import make_wishart_clusters

ROUNDS = 3
ENOUGH = 30.0  # seconds, after which no round follows
TOLERANCE = 1e-3  # share of the assignments
GOALS = {"riemann": 20, "logdet": 20, "logeuclid": 100}
LARGE = (100_000, 10, 20)  # matrices, their size, clusters
MODELS = {model.__name__: model for model in (ABKMeans, KarcherKMeans, LogEuclideanKMeans)}
SPEED_HEADINGS = (
    "metric",
    "seconds",
    "pyRiemann",
    "ratio",
    "goal",
    "iterations",
    "agreement",
)
LARGE_HEADINGS = ("method", "seconds", "beyond the data", "iterations", "inertia")


@dataclass(frozen=True)
class Speed:
    """One run from the same start until less than 0.1 % of the assignments change, medians."""

    metric: str
    seconds: float
    peer_seconds: float
    ratio: float
    goal: float
    iterations: int
    agreement: float  # adjusted Rand index between the two

    def row(self) -> list[str]:
        return [
            self.metric,
            f"{self.seconds:.3f}",
            f"{self.peer_seconds:.2f}",
            f"{self.ratio:.0f}x",
            f"{self.goal:.0f}x",
            str(self.iterations),
            f"{self.agreement:.3f}",
        ]


def ours(metric: str, n_clusters: int, init: np.ndarray) -> Any:
    if metric == "logeuclid":
        return LogEuclideanKMeans(n_clusters, init=init, tol=0)  # no other stopping rule is alike
    divergence = {"riemann": "airm", "logdet": "stein"}[metric]
    return ABKMeans(n_clusters, divergence, init=init, tol=TOLERANCE)


def race(metric: str, separation: float) -> Speed:
    X, _ = make_wishart_clusters(10, 300, 18, separation=separation, random_state=0)
    init = X[np.random.default_rng(0).choice(len(X), 10, replace=False)]
    times: list[tuple[float, float]] = []
    while len(times) < ROUNDS and sum(map(sum, times)) < ENOUGH:
        start = time.perf_counter()
        found = ours(metric, 10, init).fit(X)
        middle = time.perf_counter()
        peer = Kmeans(10, metric=metric, init=init, tol=TOLERANCE).fit(X)
        times.append((middle - start, time.perf_counter() - middle))
    own, other = np.transpose(times)
    return Speed(
        f"{metric}, separation {separation:g}",
        float(np.median(own)),
        float(np.median(other)),
        float(np.median(other / own)),
        GOALS[metric],
        found.n_iter_,
        adjusted_rand_score(peer.labels_, found.labels_),
    )


@dataclass(frozen=True)
class Large:
    method: str
    seconds: float
    peak: int  # bytes beyond the data
    n_iter: int
    inertia: float

    def row(self) -> list[str]:
        return [
            self.method,
            f"{self.seconds:.1f}",
            f"{self.peak / 1e6:.0f} MB",
            str(self.n_iter),
            f"{self.inertia:.6g}",
        ]


def cluster_many(method: str) -> Large:
    """Cluster many matrices, in a process of its own."""
    n, d, k = LARGE
    X, _ = make_wishart_clusters(k, n // k, d, separation=4, random_state=0)
    model: Any = MODELS[method](k, n_init=1, random_state=0)
    type(model)(2, random_state=0).fit(X[:64])  # loads what is loaded once
    before, started = resident("VmRSS"), time.perf_counter()
    model.fit(X)
    seconds = time.perf_counter() - started
    peak = max(0, resident("VmHWM") - before)
    return Large(method, seconds, peak, model.n_iter_, model.inertia_)


def measure_large(method: str) -> Large:
    done = subprocess.run(
        [sys.executable, __file__, method], capture_output=True, text=True, check=True
    )
    return Large(**json.loads(done.stdout))


if __name__ == "__main__":
    print(json.dumps(asdict(cluster_many(sys.argv[1]))))
