"""The task behind everything about clusters: cluster once, and compare with the classes."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.cluster import (
    ABKMeans,
    ABMixture,
    KarcherKMeans,
    LogEuclideanKMeans,
    matched_f1_score,
    pairwise_f1_score,
)
from divlearn.datasets import make_wishart_clusters
from divlearn.experiments.cells import Cell, Outcome, Task
from divlearn.experiments.classification import draw
from divlearn.experiments.protocol import Limits
from divlearn.experiments.shelf import Holding

__all__ = [
    "CLUSTER_METHODS", "Labelled", "cluster_cell", "data_clusters", "measure_clusters",
    "synthetic_cell", "synthetic_clusters",
]  # fmt: skip

TASK = Task("clusters", 1)
Labelled = tuple[RealArray, NDArray[np.intp]]

# By the names of the paper: log-Euclidean and Karcher k-means, alpha = beta, alpha != beta; then
# ours. All of the paper's have one start, from log-Euclidean k-means.
CLUSTER_METHODS: dict[str, Callable[[int, int], Any]] = {
    "LE": lambda k, seed: LogEuclideanKMeans(k, n_init=1, random_state=seed),
    "Karcher": lambda k, seed: KarcherKMeans(
        k, init="log-euclidean", n_init=1, random_state=seed
    ),
    "E": lambda k, seed: ABKMeans.paper(k, tied=True).set_params(random_state=seed),
    "NE": lambda k, seed: ABKMeans.paper(k).set_params(random_state=seed),
    "ABKMeans": lambda k, seed: ABKMeans(k, random_state=seed),
    "ABMixture": lambda k, seed: ABMixture(k, random_state=seed),
}  # fmt: skip


def measure_clusters(X: RealArray, y: NDArray[np.intp], method: str, seed: int) -> Outcome:
    """Cluster matrices, and say how well that agrees with their classes.

    Parameters
    ----------
    X : ndarray, shape (n_matrices, d, d)
    y : ndarray of int, shape (n_matrices,)
    method : str, of `CLUSTER_METHODS`
    seed : int

    Returns
    -------
    Outcome
        "f1" over pairs, "matched_f1", "seconds", and where the method has blocks the seconds that
        each takes per iteration, "block_seconds", and the history "objective", "block".
    """
    model = CLUSTER_METHODS[method](len(np.unique(y)), seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of starts that do not converge
        started = time.perf_counter()
        found = model.fit(X).predict(X)
        seconds = time.perf_counter() - started
    outcome = {
        "f1": pairwise_f1_score(y, found), "matched_f1": matched_f1_score(y, found),
        "seconds": seconds, "n": len(y), "n_iter": int(model.n_iter_),
    }  # fmt: skip
    history = getattr(model, "history_", {})
    return outcome | _blocks(history) if "block" in history else outcome


def _blocks(history: dict[str, NDArray[Any]]) -> Outcome:
    spent = np.diff(history["seconds"], prepend=0.0)
    blocks = history["block"]
    return {
        "block_seconds": {
            str(block): float(np.median(spent[blocks == block])) for block in np.unique(blocks)
        },
        "objective": history["objective"],
        "block": blocks,
        "alpha": history["alpha"],
        "beta": history["beta"],
    }


def data_clusters(holding: Holding, limits: Limits) -> Labelled:
    """Make what is clustered of a data set: all of it, or some matrices of every class."""
    dataset = holding.dataset
    rows = np.arange(len(dataset.labels))
    if limits != Limits():
        classes, rng = dataset.classes[: limits.classes], np.random.default_rng(0)
        rows = draw(dataset.labels, rows, classes, limits.train, rng)
    return dataset.matrices[rows], np.unique(dataset.labels[rows], return_inverse=True)[1]


def synthetic_clusters(k: int, size: int, d: int, seed: int) -> Labelled:
    """Wishart clusters as hard to tell apart in one dimension as in another.

    Around its centre a matrix spreads alike in all p = d (d + 1) / 2 directions. Clusters can be
    found from a separation of about p^(1/4) standard deviations on; it is three times that.
    """
    separation = 3 * (d * (d + 1) / 2) ** 0.25
    X, y = make_wishart_clusters(k, size, d, separation=separation, random_state=seed)
    return X, y


def cluster_cell(holding: Holding, method: str, seed: int, limits: Limits) -> Cell:
    """Make a cell that clusters a data set; other seeds are other starts."""

    def compute() -> Outcome:
        return measure_clusters(*data_clusters(holding, limits), method, seed)

    settings = {"limits": str(limits)}
    return Cell(TASK, holding.source.title, holding.digest, method, seed, settings, compute)


def synthetic_cell(k: int, size: int, d: int, method: str, seed: int) -> Cell:
    """Make a cell that clusters synthetic data; other seeds are other data."""

    def compute() -> Outcome:
        return measure_clusters(*synthetic_clusters(k, size, d, seed), method, seed)

    settings = {"clusters": k, "size": size, "d": d}
    return Cell(TASK, "Wishart clusters", "wishart 1", method, seed, settings, compute)
