"""Folds, and support vector machines on them for a grid of kernels."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, check_cv
from sklearn.svm import SVC
from sklearn.utils.validation import check_consistent_length, column_or_1d

from divlearn.arrays import RealArray
from divlearn.kernels.tables import Point, decay

__all__ = ["Fold", "Machine", "Search", "make_folds"]

Fold = tuple[NDArray[np.intp], NDArray[np.intp]]


def make_folds(
    cv: Any, X: RealArray, labels: NDArray[Any], weights: RealArray, groups: Any, random_state: Any
) -> list[Fold]:
    """Split the matrices that have a weight into (training, test) parts, every class in the former.

    Parameters
    ----------
    cv : int, splitter or iterable of pairs of indices
        A number of folds is stratified and shuffled, and keeps groups together where there are
        some; it is lowered to the number of groups, or to the size of the largest class.
    X : ndarray, shape (n_matrices, d, d)
    labels, weights : ndarray, shape (n_matrices,)
    groups : array-like, shape (n_matrices,), or None
    random_state : int, RandomState or None

    Returns
    -------
    list of pairs of indices, into the matrices that have a weight

    Examples
    --------
    >>> X, labels = np.broadcast_to(np.eye(2), (6, 2, 2)), np.array([0, 0, 0, 1, 1, 1])
    >>> folds = make_folds(3, X, labels, np.ones(6), None, random_state=0)
    >>> [test.tolist() for _, test in folds]
    [[2, 4], [1, 5], [0, 3]]
    """
    groups = None if groups is None else column_or_1d(groups)
    check_consistent_length(X, groups)
    kept = weights > 0
    if isinstance(cv, int | np.integer) and not isinstance(cv, bool):
        known = None if groups is None else groups[kept]
        folds = _stratified(int(cv), labels[kept], known, random_state)
    elif cv is None or isinstance(cv, bool):
        raise ValueError(f"cv={cv!r} must be an integer >= 2, a splitter, or pairs of indices")
    else:
        place = np.cumsum(kept) - 1
        folds = [
            tuple(place[part[kept[part]]] for part in map(np.asarray, pair))
            for pair in check_cv(cv).split(X, labels, groups)
        ]
    folds = [(train, test) for train, test in folds if len(test)]
    if not folds:
        raise ValueError(f"cv={cv!r} tests no matrix; pass another")
    for k, (train, _) in enumerate(folds):
        missing = np.setdiff1d(labels[kept], labels[kept][train])
        if missing.size:
            raise ValueError(
                f"fold {k} trains without class {missing[0]!s}, but every class must be in every "
                "training part; pass more matrices (or groups) of it, or another cv"
            )
    return folds


def _stratified(
    n_splits: int, labels: NDArray[Any], groups: NDArray[Any] | None, random_state: Any
) -> list[Fold]:
    if n_splits < 2:
        raise ValueError(f"cv={n_splits} must be >= 2, for out-of-fold decisions need two folds")
    n_splits = min(n_splits, int(np.unique(labels, return_counts=True)[1].max()))
    kind = StratifiedKFold
    if groups is not None:
        kind, n_groups = StratifiedGroupKFold, len(np.unique(groups))
        if n_groups < 2:
            raise ValueError("groups has 1 group, but must have >= 2 to make folds of them")
        n_splits = min(n_splits, n_groups)
    with warnings.catch_warnings():
        # A class with fewer members than folds is missing from some test parts only.
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        splitter = kind(n_splits, shuffle=True, random_state=random_state)
        return list(splitter.split(labels, labels, groups))


@dataclass(frozen=True, eq=False)
class Machine:
    """Support vector machines on some of the training matrices.

    Attributes
    ----------
    labels : ndarray, shape (n_matrices,)
    weights : ndarray, shape (n_matrices,)
    class_weight : dict, "balanced" or None
    """

    labels: NDArray[Any]
    weights: RealArray
    class_weight: Any

    def fit(self, kernel: RealArray, C: float, train: NDArray[np.intp] | None = None) -> SVC:
        """Fit on the kernel between the training matrices, or between some of them."""
        some = slice(None) if train is None else train
        machine = SVC(
            C=C, kernel="precomputed", class_weight=self.class_weight,
            decision_function_shape="ovo",
        )  # fmt: skip
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
