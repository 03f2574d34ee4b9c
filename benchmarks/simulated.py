"""Simulated matrices of two or of many classes, and averages over many runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from machine import cores

from divlearn.arrays import Indices, RealArray
from divlearn.datasets import make_wishart_clusters
from divlearn.threads import one_thread

N_GROUPS, SIZE, N_MATRICES = 12, 3, 60

Row = dict[str, Any]
Claims = dict[str, float]  # of one run: whether something was claimed, or a figure


def simulate(run: Callable[..., Claims], runs: int, **setting: Any) -> Row:
    """Average the claims of many runs, each with a generator of its own; add standard errors."""

    def once(seed: int) -> Claims:
        with one_thread():
            return run(np.random.default_rng(seed), **setting)

    found = Parallel(n_jobs=cores())(delayed(once)(seed) for seed in range(runs))
    values = {name: np.array([one[name] for one in found]) for name in found[0]}
    errors = {name: float(some.std(ddof=1) / np.sqrt(runs)) for name, some in values.items()}
    return (
        setting | {name: float(some.mean()) for name, some in values.items()} | {"errors": errors}
    )


def draw_matrices(
    rng: np.random.Generator, share: float, grouped: bool, separation: float = 0.0, more: int = 0
) -> tuple[RealArray, Indices, Indices | None]:
    """Draw two classes, the first with a share of matrices, some times more; subjects move them."""
    n_first = round(share * N_MATRICES)
    codes = np.tile(np.repeat([0, 1], [n_first, N_MATRICES - n_first]), 1 + more)
    counts, seed = np.bincount(codes), int(rng.integers(1 << 31))
    n_clusters, sizes = (2, counts.tolist()) if separation else (1, len(codes))
    X, _ = make_wishart_clusters(
        n_clusters, sizes, SIZE, separation=separation or 1.0, shuffle=False, random_state=seed
    )
    X = X[np.argsort(np.argsort(codes, kind="stable"))] if separation else X
    if not grouped:
        return X, codes, None
    parts = [N_GROUPS * k + rng.permutation(N_MATRICES) % N_GROUPS for k in range(1 + more)]
    groups = np.concatenate(parts)
    return move_groups(rng, X, groups), codes, groups


def move_groups(rng: np.random.Generator, X: RealArray, groups: Indices) -> RealArray:
    """Change the matrices of every group in the same way."""
    frames = np.eye(SIZE) + 0.3 * rng.standard_normal((int(groups.max()) + 1, SIZE, SIZE))
    return frames[groups] @ X @ frames[groups].mT


def draw_many_classes(
    n: int, d: int, n_classes: int, rank: int | None = None, seed: int = 0
) -> tuple[RealArray, Indices]:
    """Draw covariances of few samples with a ridge, in classes of very different size."""
    # Every class mixes sources in its own way, and every matrix a little differently.
    rng = np.random.default_rng(seed)
    rank = max(1, 2 * d // 5) if rank is None else rank
    shares = rng.gamma(2.0, size=n_classes)
    frames = rng.standard_normal((d, d)) + 0.1 * rng.standard_normal((n_classes, d, d))
    drawn = rng.choice(n_classes, max(n - 2 * n_classes, 0), p=shares / shares.sum())
    codes = rng.permutation(np.concatenate([np.tile(np.arange(n_classes), 2), drawn]))
    sizes, X = np.exp(-0.08 * np.arange(d)), np.empty((len(codes), d, d))
    for number, code in enumerate(codes):
        mixing = (frames[code] + 0.5 * rng.standard_normal((d, d))) * sizes / np.sqrt(d)
        samples = mixing @ rng.standard_normal((d, rank))
        X[number] = samples @ samples.T / rank
        X[number] += 1e-3 * np.trace(X[number]) * np.eye(d)
    return X, codes


def run_all(run: Callable[..., Claims], settings: Sequence[Row], runs: int) -> list[Row]:
    rows = []
    for setting in settings:
        rows.append(simulate(run, runs, **setting))
        print(rows[-1], flush=True)
    return rows
