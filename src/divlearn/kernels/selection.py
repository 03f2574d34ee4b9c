"""Support vector machines on folds for a grid of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.svm import SVC

from divlearn.arrays import RealArray
from divlearn.fitting.folds import Fold
from divlearn.kernels.tables import Point, decay

__all__ = ["Machine", "Search"]


@dataclass(frozen=True, eq=False)
class Machine:
    """Support vector machines on some of the training matrices.

    Attributes
    ----------
    labels : ndarray, shape (n_matrices,)
    weights : ndarray, shape (n_matrices,)
    """

    labels: NDArray[Any]
    weights: RealArray

    def fit(self, kernel: RealArray, C: float, train: NDArray[np.intp] | None = None) -> SVC:
        """Fit on the kernel between the training matrices, or between some of them."""
        some = slice(None) if train is None else train
        machine = SVC(C=C, kernel="precomputed", decision_function_shape="ovo")
        return machine.fit(kernel, self.labels[some], sample_weight=self.weights[some])

    def accuracies(
        self, table: RealArray, scale: float, Cs: Sequence[float], fold: Fold
    ) -> list[float]:
        """Fit on one fold for every C; accuracy on its test part."""
        train, test = fold
        inner, outer = _kernels(table, scale, fold)
        labels, weights = self.labels[test], self.weights[test]
        predictions = (self.fit(inner, C, train).predict(outer) for C in Cs)
        return [float(np.average(one == labels, weights=weights)) for one in predictions]

    def decide(self, table: RealArray, scale: float, C: float, folds: Sequence[Fold]) -> RealArray:
        """Decide out of fold, shape (n_matrices,) for two classes, else (n_matrices, n_pairs).

        The mean over all folds that test a matrix, NaN if none does.
        """
        n, n_classes = len(self.labels), len(np.unique(self.labels))
        pairs = () if n_classes == 2 else (n_classes * (n_classes - 1) // 2,)
        total, count = np.zeros((n, *pairs)), np.zeros(n)
        for fold in folds:
            train, test = fold
            inner, outer = _kernels(table, scale, fold)
            total[test] += self.fit(inner, C, train).decision_function(outer)
            count[test] += 1
        with np.errstate(invalid="ignore"):
            mean: RealArray = (total.T / count).T
        return mean


def _kernels(table: RealArray, scale: float, fold: Fold) -> tuple[RealArray, RealArray]:
    """Kernels of a fold: between its training matrices, and of its test matrices to them."""
    train, test = fold
    return decay(table[np.ix_(train, train)], scale), decay(table[np.ix_(test, train)], scale)


class Search:
    """Accuracy of divergences, scales and C over folds.

    Parameters
    ----------
    machine : Machine
    folds : list of (training, test) indices
    Cs : sequence of float
    n_threads : int
    """

    def __init__(
        self, machine: Machine, folds: Sequence[Fold], Cs: Sequence[float], n_threads: int
    ) -> None:
        self.machine = machine
        self.folds = folds
        self.Cs = Cs
        self.n_threads = n_threads
        self.tried: list[tuple[float, ...]] = []  # alpha, beta, scale, C
        self.accuracies: list[RealArray] = []  # of every fold

    def add(self, point: Point, table: RealArray, scales: Sequence[float]) -> float:
        """Try all scales and C with one divergence; return the highest accuracy."""
        # Threads: the solver of support vector machines runs without Python's lock.
        found = Parallel(n_jobs=self.n_threads, prefer="threads")(
            delayed(self.machine.accuracies)(table, scale, self.Cs, fold)
            for scale in scales
            for fold in self.folds
        )
        accuracies = np.reshape(found, (len(scales), len(self.folds), len(self.Cs)))
        accuracies = accuracies.transpose(0, 2, 1).reshape(-1, len(self.folds))
        self.accuracies += list(accuracies)
        self.tried += [(*point, scale, C) for scale in scales for C in self.Cs]
        return float(accuracies.mean(axis=1).max())

    def results(self) -> dict[str, Any]:
        """Return what was tried and how it did, as `sklearn.model_selection.GridSearchCV` does."""
        names = ("alpha", "beta", "scale", "C")
        columns, accuracies = np.array(self.tried).T, np.array(self.accuracies)
        mean = accuracies.mean(axis=1)
        return {
            **{f"param_{name}": column for name, column in zip(names, columns, strict=True)},
            "params": [dict(zip(names, row, strict=True)) for row in self.tried],
            **{f"split{k}_test_score": column for k, column in enumerate(accuracies.T)},
            "mean_test_score": mean,
            "std_test_score": accuracies.std(axis=1),
            "rank_test_score": rankdata(-mean, method="min").astype(np.int32),
        }
