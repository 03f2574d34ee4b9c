"""Classifiers side by side on the same folds, with what their differences are worth."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from divlearn.labelled import check_labelled
from divlearn.paired import PairedComparison, compare_paired

__all__ = [
    "Evaluation", "Row", "count_confusions", "default_classifiers", "evaluate",
    "held_out_predictions",
]  # fmt: skip

Folds = tuple[tuple[NDArray[np.intp], NDArray[np.intp]], ...]

_SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Row:
    """One classifier among others.

    Attributes
    ----------
    name : str
    accuracy, standard_error : float, over all matrices, predicted by models that never saw them.
    versus_best : PairedComparison, the best one minus this one.
    seconds : float, to fit and predict all folds.
    """

    name: str
    accuracy: float
    standard_error: float
    versus_best: PairedComparison
    seconds: float


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What classifiers predict for matrices they have not seen; `summary` says it in words.

    Attributes
    ----------
    classes : ndarray, shape (n_classes,)
    codes : ndarray of int, shape (n_matrices,), the true classes as indices.
    predictions : dict of ndarray of int, shape (n_matrices,), the predicted ones by classifier.
    seconds : dict of float
    n_folds : int
    interrupted : bool, whether the user stopped it before all classifiers were through.
    """

    classes: NDArray[Any]
    codes: NDArray[np.intp]
    predictions: dict[str, NDArray[np.intp]]
    seconds: dict[str, float]
    n_folds: int
    interrupted: bool = False

    def correct(self, name: str) -> NDArray[np.bool_]:
        """Whether each matrix is classified right, shape (n_matrices,)."""
        flags: NDArray[np.bool_] = self.predictions[name] == self.codes
        return flags

    @property
    def best(self) -> str:
        """Name of the classifier of the highest accuracy, the first of those that tie."""
        return max(self.predictions, key=lambda name: float(self.correct(name).mean()))

    def compare(self, first: str, second: str) -> PairedComparison:
        """Compare two classifiers on the same matrices."""
        return compare_paired(self.correct(first), self.correct(second))

    def table(self) -> list[Row]:
        """Rows of all classifiers, the most accurate first."""
        rows = [self._row(name) for name in self.predictions]
        return sorted(rows, key=lambda row: -row.accuracy)

    def confusion(self, name: str) -> NDArray[np.intp]:
        """Count matrices by true class (rows) and predicted class (columns)."""
        return count_confusions(self.codes, self.predictions[name], len(self.classes))

    def disagreements(self, first: str, second: str) -> NDArray[np.intp]:
        """Find the matrices that exactly one of two classifiers gets right."""
        return np.flatnonzero(self.correct(first) != self.correct(second))

    def summary(self) -> str:
        """Say which classifier to take and how sure that is."""
        rows = self.table()
        best = rows[0]
        text = (
            f"{best.name} is right on {best.accuracy:.1%} +- {best.standard_error:.1%} of "
            f"{len(self.codes)} matrices, each predicted by a model that never saw it"
        )
        if len(rows) == 1:
            return f"{text}."
        ties = [row.name for row in rows[1:] if row.versus_best.p_value >= _SIGNIFICANT]
        if not ties:
            paired = rows[1].versus_best
            return (
                f"{text}: better than all {len(rows) - 1} others by more than noise. Next comes "
                f"{rows[1].name}, {100 * paired.difference:.1f} +- "
                f"{100 * paired.standard_error:.1f} points behind (McNemar p = "
                f"{paired.p_value:.2g})."
            )
        if len(ties) == len(rows) - 1:
            return f"{text}. None of the {len(ties)} others is worse by more than noise."
        return f"{text}. Not worse by more than noise: {', '.join(ties)}."

    def _row(self, name: str) -> Row:
        correct = self.correct(name)
        accuracy = float(correct.mean())
        error = float(np.sqrt(accuracy * (1 - accuracy) / len(correct)))
        versus = self.compare(self.best, name)
        return Row(name, accuracy, error, versus, self.seconds[name])


def evaluate(
    X: ArrayLike, y: ArrayLike, classifiers: Mapping[str, Any] | None = None, *, n_folds: int = 5,
    groups: ArrayLike | None = None, random_state: int | None = 0,
    watch: Callable[[str, int, int], None] = lambda name, fold, n_folds: None,
) -> Evaluation:  # fmt: skip
    """Cross-validate classifiers on the same folds.

    Parameters
    ----------
    X : array-like, shape (n_matrices, d, d)
    y : array-like, shape (n_matrices,)
    classifiers : dict of estimators, optional
        By name; `default_classifiers` if not given.
    n_folds : int, default=5
    groups : array-like, shape (n_matrices,), optional
        Matrices of one group (a patient, a sample of a material) come into one fold: otherwise a
        classifier may recognise the group in place of the class.
    random_state : int or None, default=0
        Draws the folds.
    watch : callable, optional
        Told the name of a classifier, the fold and the number of folds before each fit.

    Returns
    -------
    Evaluation
        Stopped by the user it has the classifiers that were through; with none it raises.

    Examples
    --------
    >>> from divlearn import DivergenceKernelClassifier
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 20, 4, separation=3, random_state=0)
    >>> found = evaluate(X, y, {"kernel": DivergenceKernelClassifier()}, n_folds=3)
    >>> print(found.summary())
    kernel is right on ...% +- ...% of 60 matrices, each predicted by a model that never saw it.
    """
    data = check_labelled(X, y, None, None)
    known = default_classifiers(random_state) if classifiers is None else classifiers
    if not known:
        raise ValueError("classifiers is empty, must hold >= 1; pass some by name")
    folds = _make_folds(data.codes, data.choose(groups), n_folds, random_state)
    predictions: dict[str, NDArray[np.intp]] = {}
    seconds: dict[str, float] = {}
    interrupted = False
    try:
        for name, classifier in known.items():
            started, predicted = time.perf_counter(), np.empty_like(data.codes)
            for fold, (train, test) in enumerate(folds, start=1):
                watch(name, fold, n_folds)
                model = clone(classifier).fit(data.matrices[train], data.codes[train])
                predicted[test] = model.predict(data.matrices[test])
            predictions[name], seconds[name] = predicted, time.perf_counter() - started
    except KeyboardInterrupt:
        if not predictions:
            raise
        interrupted = True
    return Evaluation(data.classes, data.codes, predictions, seconds, n_folds, interrupted)


def count_confusions(
    codes: NDArray[np.intp], predicted: NDArray[np.intp], n_classes: int
) -> NDArray[np.intp]:
    """Count matrices by true class (rows) and predicted class (columns).

    Examples
    --------
    >>> count_confusions(np.array([0, 1, 1]), np.array([0, 0, 1]), 2)
    array([[1, 0],
           [1, 1]])
    """
    counts: NDArray[np.intp] = confusion_matrix(codes, predicted, labels=np.arange(n_classes))
    return counts


def held_out_predictions(
    model: Any, y: NDArray[Any]
) -> tuple[NDArray[np.intp], NDArray[np.intp]] | None:
    """Look up what a fitted classifier predicted for matrices it held out while learning.

    Parameters
    ----------
    model : estimator
    y : ndarray, shape (n_matrices,), the labels it was fitted to.

    Returns
    -------
    codes, predicted : ndarray of int, true and predicted classes; None where nothing was held out.

    Examples
    --------
    >>> from divlearn import DivergenceKernelClassifier
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 20, 4, separation=9, random_state=0)
    >>> codes, predicted = held_out_predictions(DivergenceKernelClassifier().fit(X, y), y)
    >>> bool((codes == predicted).mean() > 0.8)
    True
    """
    said = getattr(model, "oof_proba_", None)
    known = np.zeros(0, dtype=bool) if said is None else np.isfinite(said).all(axis=1)
    if said is None or not known.any():
        return None
    return np.searchsorted(model.classes_, y[known]), said[known].argmax(axis=1)


def default_classifiers(random_state: int | None = 0) -> dict[str, Any]:
    """Make what `evaluate` compares: the estimators of divlearn beside the usual baselines.

    Examples
    --------
    >>> list(default_classifiers())[0]
    'SPDClassifier'
    """
    from divlearn.baselines import DivergenceKNN, DivergenceMDM, LogEuclideanSVM
    from divlearn.committee import SPDClassifier
    from divlearn.iddl import IDDLClassifier
    from divlearn.kernels import DivergenceKernelClassifier

    return {
        "SPDClassifier": SPDClassifier(random_state=random_state),
        "IDDLClassifier": IDDLClassifier(random_state=random_state),
        "DivergenceKernelClassifier": DivergenceKernelClassifier(random_state=random_state),
        "RBF SVM, log-Euclidean": LogEuclideanSVM("rbf", random_state=random_state),
        "linear SVM, log-Euclidean": LogEuclideanSVM("linear", random_state=random_state),
        "nearest mean, AIRM": DivergenceMDM("airm"),
        "1-NN, AIRM": DivergenceKNN(1, "airm"),
        "1-NN, Stein": DivergenceKNN(1, "stein"),
        "1-NN, log-Euclidean": DivergenceKNN(1, "log-euclidean"),
    }


def _make_folds(
    codes: NDArray[np.intp], groups: NDArray[Any] | None, n_folds: int, random_state: int | None
) -> Folds:
    if isinstance(n_folds, bool) or not isinstance(n_folds, int) or n_folds < 2:
        raise ValueError(f"n_folds={n_folds!r} must be an integer >= 2")
    smallest = int(np.bincount(codes).min())
    if groups is None and smallest < n_folds:
        raise ValueError(
            f"n_folds={n_folds} must be <= {smallest}, the size of the smallest class; lower "
            "n_folds, or drop classes with few matrices"
        )
    splitter = StratifiedKFold if groups is None else StratifiedGroupKFold
    folds = splitter(n_folds, shuffle=True, random_state=random_state)
    return tuple(folds.split(np.zeros(len(codes)), codes, groups))
