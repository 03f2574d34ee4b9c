"""Clusterings: the cells of everything about clusters."""

import time
import warnings
from functools import partial
from typing import Any

import numpy as np

from divlearn.cluster import matched_f1_score, pairwise_f1_score
from divlearn.datasets import Dataset, make_wishart_clusters
from paper.cells import Cell
from paper.classification import draw_rows
from paper.experiment import data_cell
from paper.methods import make_clustering
from paper.protocol import Limits, Protocol

_TASK = ("clusters", 1)


def measure_clusters(X: np.ndarray, y: np.ndarray, method: str, seed: int) -> dict[str, Any]:
    """Cluster matrices, and compare with their classes; with the history of methods with blocks."""
    model = make_clustering(method, len(np.unique(y)), seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of starts that do not converge
        started = time.perf_counter()
        found = model.fit(X).predict(X)
        seconds = time.perf_counter() - started
    outcome = {
        "f1": pairwise_f1_score(y, found),
        "matched_f1": matched_f1_score(y, found),
        "seconds": seconds,
        "n": len(y),
        "n_iter": int(model.n_iter_),
    }
    history = getattr(model, "history_", {})
    if "block" not in history:
        return outcome
    blocks, spent = history["block"], np.diff(history["seconds"], prepend=0.0)
    medians = {str(block): np.median(spent[blocks == block]) for block in np.unique(blocks)}
    kept = {name: history[name] for name in ("objective", "block", "alpha", "beta")}
    return outcome | kept | {"block_seconds": medians}


def cluster_cell(source: str, method: str, seed: int, protocol: Protocol) -> Cell:
    """Make a cell that clusters a data set; other seeds are other starts."""
    limits = protocol.cluster_limit(source)
    compute = partial(_cluster_data, method=method, seed=seed, limits=limits)
    return data_cell(_TASK, source, method, seed, {}, limits, compute)


def _cluster_data(
    dataset: Dataset, engine: str, *, method: str, seed: int, limits: Limits
) -> dict[str, Any]:
    rows = np.arange(len(dataset.labels))
    if limits != Limits():
        classes, rng = dataset.classes[: limits.classes], np.random.default_rng(0)
        rows = draw_rows(dataset.labels, rows, classes, limits.train, rng)
    return measure_clusters(dataset.matrices[rows], dataset.labels[rows], method, seed)


def synthetic_cell(k: int, size: int, d: int, method: str, seed: int) -> Cell:
    """Make a cell that clusters synthetic data; other seeds are other data."""
    settings = {"clusters": k, "size": size, "d": d}
    compute = partial(_cluster_synthetic, k=k, size=size, d=d, method=method, seed=seed)
    return Cell(_TASK, "Wishart clusters", "", method, seed, settings, compute)


def _cluster_synthetic(
    _: None, engine: str, *, k: int, size: int, d: int, method: str, seed: int
) -> dict[str, Any]:
    # Around its centre a matrix spreads equally in p = d (d + 1) / 2 directions. Clusters can be
    # found from about p^(1/4) standard deviations on; three times that is as hard for every d.
    separation = 3 * (d * (d + 1) / 2) ** 0.25
    X, y = make_wishart_clusters(k, size, d, separation=separation, random_state=seed)
    return measure_clusters(X, y, method, seed)
