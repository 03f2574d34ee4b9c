"""How well clusters agree with classes, on synthetic and real data."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from paper_data import (
    CLUSTERS,
    load_brodatz,
    load_jhmdb_joints,
    load_kth_tips2_authors,
    load_virus,
    make_clustering,
)
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from divlearn.cluster import ABKMeans, matched_f1_score, pairwise_f1_score
from divlearn.datasets import (
    make_inverse_wishart_clusters,
    make_riemannian_gaussian_clusters,
    make_wishart_clusters,
)

# F1 scores of the paper: log-Euclidean, Karcher, alpha = beta, alpha != beta.
PAPER = {
    name: tuple(CLUSTERS[published].values())
    for name, published in (("Virus", "VIRUS"), ("Brodatz", "BRODATZ"), ("KTH-TIPS2", "KTH TIPS"))
}
SCORES = (
    pairwise_f1_score,
    matched_f1_score,
    adjusted_rand_score,
    normalized_mutual_info_score,
)
HEADINGS = ("", "F1", "+-", "matched F1", "ARI", "NMI", "seconds")

Data = tuple[np.ndarray, np.ndarray]


def subset(data: Any, per_class: int) -> Data:
    labels = np.unique(data.labels, return_inverse=True)[1]
    rng = np.random.default_rng(0)
    rows = np.concatenate(
        [
            rng.permutation(np.flatnonzero(labels == label))[:per_class]
            for label in np.unique(labels)
        ]
    )
    return data.matrices[rows], labels[rows]


# By the seed: other clusters each time.
SYNTHETIC: dict[str, Callable[[int], Data]] = {
    "Wishart, d = 5": lambda seed: make_wishart_clusters(
        15, 50, 5, separation=6, random_state=seed
    ),
    "Wishart, d = 15, 18 degrees of freedom": lambda seed: make_wishart_clusters(
        15, 50, 15, dof=18, separation=8, random_state=seed
    ),
    "inverse Wishart, d = 8": lambda seed: make_inverse_wishart_clusters(
        15, 50, 8, separation=8, random_state=seed
    ),
    "Riemannian Gaussian, d = 6": lambda seed: make_riemannian_gaussian_clusters(
        15, 50, 6, separation=8, random_state=seed
    ),
}
# The same matrices each time, other starts.
REAL: dict[str, Callable[[], Data]] = {
    "Virus": lambda: subset(load_virus(), 100),
    "Brodatz": lambda: subset(load_brodatz(), 20),
    "KTH-TIPS2": lambda: subset(load_kth_tips2_authors(), 1000),
    "JHMDB joints": lambda: subset(load_jhmdb_joints(), 1000),
}

METHODS: dict[str, Callable[[int, int], Any]] = {
    "log-Euclidean": partial(make_clustering, "LE"),
    "Karcher": partial(make_clustering, "Karcher"),
    "(0.5, 1.5), 1 start": lambda k, seed: ABKMeans(k, n_init=1, random_state=seed),
    "ABKMeans": partial(make_clustering, "ABKMeans"),
    "likelihood": lambda k, seed: ABKMeans(k, "likelihood", random_state=seed),
    "mixture": partial(make_clustering, "ABMixture"),
}


@dataclass(frozen=True)
class Quality:
    data: str
    method: str
    pairwise_f1: list[float]
    matched_f1: list[float]
    ari: list[float]
    nmi: list[float]
    seconds: float

    def row(self) -> list[str]:
        scores = (self.pairwise_f1, self.matched_f1, self.ari, self.nmi)
        cells = [f"{np.mean(values):.3f}" for values in scores]
        error = np.std(self.pairwise_f1, ddof=1) / len(self.pairwise_f1) ** 0.5
        return [self.method, cells[0], f"{error:.3f}", *cells[1:], f"{self.seconds:.2f}"]


def load(name: str, seeds: int) -> list[Data]:
    if name in SYNTHETIC:
        return [SYNTHETIC[name](seed) for seed in range(seeds)]
    return [REAL[name]()] * seeds


def evaluate(
    data: str, problems: Sequence[Data], method: str, make: Callable[[int, int], Any]
) -> Quality:
    scores, seconds = [], []
    for seed, (X, y) in enumerate(problems):
        model = make(int(y.max()) + 1, seed)
        started = time.perf_counter()
        labels = model.fit(X).predict(X)
        seconds.append(time.perf_counter() - started)
        scores.append([score(y, labels) for score in SCORES])
    return Quality(data, method, *np.transpose(scores).tolist(), float(np.median(seconds)))


def describe(name: str, problems: Sequence[Data]) -> str:
    X, y = problems[0]
    text = f"{name}, {len(X):,} matrices of {X.shape[-1]}, {y.max() + 1} classes"
    if name not in PAPER:
        return text
    figures = ", ".join(f"{value:.3f}" for value in PAPER[name])
    return f"{text}; the paper's F1, on all of it: {figures}"
