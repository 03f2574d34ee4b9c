"""k-means: seeds far from each other, and fits to vectors that are the same from run to run."""

import warnings
from collections.abc import Callable

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from divlearn.arrays import Indices, RealArray, beside, to_host
from divlearn.threads import one_thread


def fit_vectors(model: KMeans, vectors: RealArray, weights: RealArray | None = None) -> KMeans:
    """Fit k-means to rows with one thread: several would sum in an order that changes."""
    with one_thread(), warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        return model.fit(vectors, sample_weight=weights)


def refine_centres(
    vectors: RealArray, centres: RealArray, *, tol: float = 1e-4, max_iter: int = 300
) -> RealArray | None:
    """Do what KMeans does, wherever the vectors are; None where a cluster runs empty."""
    middle = vectors.mean(axis=0)
    vectors, centres = vectors - middle, centres - middle
    numbers = beside(np.arange(len(centres))[:, None], vectors)
    limit = tol * float(vectors.var(axis=0).mean())
    nearest = beside(np.full(len(vectors), -1), vectors)
    for _ in range(max_iter):
        before, old = nearest, centres
        nearest = ((old**2).sum(axis=1) - 2 * (vectors @ old.T)).argmin(axis=1)
        members = (nearest == numbers).astype(float)
        counts = members.sum(axis=1)
        centres = members @ vectors / np.maximum(counts, 1)[:, None]
        changes = (nearest != before).sum().astype(float), ((centres - old) ** 2).sum()
        smallest, n_changed, moved = to_host(np.stack([counts.min(), *changes]))
        if smallest == 0:
            return None
        if n_changed == 0 or moved <= limit:
            break
    return centres + middle


def greedy_seeds(
    measure: Callable[[Indices], RealArray],
    weights: RealArray,
    n_seeds: int,
    random_state: np.random.RandomState,
) -> list[int]:
    """Greedy k-means++ (Arthur and Vassilvitskii, 2007): of a few seeds drawn, the best is kept."""
    # ``measure`` turns indices of samples into a table of divergences of all samples to these.
    n_trials = 2 + int(np.log(n_seeds))
    chosen = [int(random_state.choice(len(weights), p=weights / weights.sum()))]
    nearest = measure(np.array(chosen))[:, 0]
    while len(chosen) < n_seeds:
        cumulative = np.cumsum(weights * nearest)
        drawn = random_state.uniform(size=n_trials) * cumulative[-1]
        trials = np.minimum(np.searchsorted(cumulative, drawn), len(weights) - 1)
        table = measure(trials)
        np.minimum(table, nearest[:, None], out=table)
        best = int((weights @ table).argmin())
        chosen.append(int(trials[best]))
        nearest = table[:, best]
    return chosen
