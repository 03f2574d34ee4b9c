"""Classifiers side by side on the same folds, with what their differences are worth."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.metrics import confusion_matrix

from divlearn.folds import Folds, count_groups, fit_grouped
from divlearn.interrupts import Interrupts
from divlearn.labelled import Labelled, check_labelled
from divlearn.paired import PairedComparison, compare_paired, share_error_of
from divlearn.progress import tell
from divlearn.showing import Shown

__all__ = [
    "Evaluation", "HeldOut", "Row", "count_confusions", "default_classifiers", "evaluate",
    "held_out_predictions",
]  # fmt: skip

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
class Evaluation(Shown):
    """What classifiers predict for matrices they have not seen; `summary` says it in words.

    Attributes
    ----------
    classes : ndarray, shape (n_classes,)
    codes : ndarray of int, shape (n_matrices,), the true classes as indices, of the matrices that
        were predicted: all, unless the user stopped it.
    predictions : dict of ndarray of int, shape (n_matrices,), the predicted ones by classifier.
    seconds : dict of float
    n_folds : int
    rows : ndarray of int, shape (n_matrices,), which of the given matrices these are.
    message : str, what is through.
    groups : ndarray of int, shape (n_matrices,), or None
        What was kept together: only groups are independent, and errors know it.
    """

    classes: NDArray[Any]
    codes: NDArray[np.intp]
    predictions: dict[str, NDArray[np.intp]]
    seconds: dict[str, float]
    n_folds: int
    rows: NDArray[np.intp]
    message: str
    groups: NDArray[np.intp] | None = None

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
        return compare_paired(self.correct(first), self.correct(second), self.groups)

    def table(self) -> list[Row]:
        """Rows of all classifiers, the most accurate first."""
        rows = [self._row(name) for name in self.predictions]
        return sorted(rows, key=lambda row: -row.accuracy)

    def confusion(self, name: str) -> NDArray[np.intp]:
        """Count matrices by true class (rows) and predicted class (columns)."""
        return count_confusions(self.codes, self.predictions[name], len(self.classes))

    def disagreements(self, first: str, second: str) -> NDArray[np.intp]:
        """Find the matrices that exactly one of two classifiers gets right, as in `codes`."""
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
                f"{100 * paired.standard_error:.1f} points behind (p = {paired.p_value:.2g})."
            )
        if len(ties) == len(rows) - 1:
            return f"{text}. None of the {len(ties)} others is worse by more than noise."
        return f"{text}. Not worse by more than noise: {', '.join(ties)}."

    def _row(self, name: str) -> Row:
        correct = self.correct(name)
        error, versus = share_error_of(correct, self.groups), self.compare(self.best, name)
        return Row(name, float(correct.mean()), error, versus, self.seconds[name])


def evaluate(
    X: ArrayLike, y: ArrayLike, classifiers: Mapping[str, Any] | None = None, *, cv: Any = 5,
    groups: ArrayLike | None = None, random_state: int | None = 0,
) -> Evaluation:  # fmt: skip
    """Cross-validate classifiers on the same folds.

    All classifiers take a fold before the next: stopped by the user, they can be compared on the
    folds that are through.

    Parameters
    ----------
    X : array-like, shape (n_matrices, d, d)
    y : array-like, shape (n_matrices,)
    classifiers : dict of estimators, optional
        By name; `default_classifiers` if not given.
    cv : int, splitter, or iterable of (train, test) indices, default=5
        A number of folds is stratified and shuffled, and keeps groups together. There are no more
        folds than groups, or matrices in the largest class.
    groups : array-like, shape (n_matrices,), optional
        Matrices of one group (a patient, a sample of a material) come into one fold: otherwise a
        classifier may recognise the group in place of the class. Classifiers whose ``fit`` takes
        groups get those of the training part, for the folds they make of it.
    random_state : int or None, default=0
        Draws the folds.

    Returns
    -------
    Evaluation
        Stopped by the user it has the folds that all classifiers were through with; in the first
        fold, the classifiers that were through with that. With none it raises KeyboardInterrupt.

    Examples
    --------
    >>> from divlearn import DivergenceKernelClassifier
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 20, 4, separation=3, random_state=0)
    >>> found = evaluate(X, y, {"kernel": DivergenceKernelClassifier()}, cv=3)
    >>> print(found.summary())
    kernel is right on ...% +- ...% of 60 matrices, each predicted by a model that never saw it.
    """
    data = check_labelled(X, y, None, None, groups)
    known = default_classifiers(random_state) if classifiers is None else classifiers
    if not known:
        raise ValueError("classifiers is empty, must hold >= 1; pass some by name")
    counts = count_groups(data.codes, data.groups)
    if counts.min() < 2:
        what = "matrix" if groups is None else "group"
        raise ValueError(
            f"class {data.classes[counts.argmin()]!s} has 1 {what}, must have >= 2, one to train "
            "on and one to judge by; drop the class, or pass more of it"
        )
    folds = data.folds(cv, random_state)
    results: list[_Result] = []
    with Interrupts() as interrupts:
        try:
            for number, (name, classifier) in enumerate(len(folds) * list(known.items())):
                fold = number // len(known)
                tell("fits", number, len(folds) * len(known), f"fold {fold + 1}: {name}")
                result = _predict(classifier, data, *folds[fold])
                if interrupts.seen:  # a model that was learned in part is no fair one
                    raise KeyboardInterrupt
                results.append(result)
        except KeyboardInterrupt:
            if not results:
                raise
    return _gather(list(known), data, folds, results)


@dataclass(frozen=True, eq=False)
class _Result:
    """What one classifier says of one fold."""

    predicted: NDArray[np.intp]
    seconds: float


def _predict(
    classifier: Any, data: Labelled, train: NDArray[np.intp], test: NDArray[np.intp]
) -> _Result:
    started = time.perf_counter()
    groups = None if data.groups is None else data.groups[train]
    model = fit_grouped(clone(classifier), data.matrices[train], data.codes[train], groups)
    predicted = model.predict(data.matrices[test])
    return _Result(predicted, time.perf_counter() - started)


def _gather(
    names: Sequence[str], data: Labelled, folds: Folds, results: Sequence[_Result]
) -> Evaluation:
    """Join the folds that are through, all classifiers on the same matrices."""
    message = f"all {len(folds)} folds are through"
    if len(results) < len(folds) * len(names):
        n_through = len(results) // len(names)
        message = f"interrupted by the user: {n_through} of {len(folds)} folds are through"
    if len(results) < len(names):
        message = (
            f"interrupted by the user: {len(results)} of {len(names)} classifiers are through with "
            "the first fold"
        )
        names = names[: len(results)]
    n_folds = len(results) // len(names)
    rows = np.concatenate([test for _, test in folds[:n_folds]])
    order = np.argsort(rows)
    predictions, seconds = {}, {}
    for place, name in enumerate(names):
        own = results[place :: len(names)][:n_folds]
        predictions[name] = np.concatenate([result.predicted for result in own])[order]
        seconds[name] = sum(result.seconds for result in own)
    rows = rows[order]
    groups = None
    if data.groups is not None:
        groups = np.unique(data.groups, return_inverse=True)[1][rows]
    return Evaluation(
        data.classes, data.codes[rows], predictions, seconds, n_folds, rows, message, groups
    )


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


class HeldOut(NamedTuple):
    """What a classifier predicted for matrices it held out.

    Attributes
    ----------
    rows : ndarray of int, the matrices, ascending.
    codes, predicted : ndarray of int, true and predicted classes.
    """

    rows: NDArray[np.intp]
    codes: NDArray[np.intp]
    predicted: NDArray[np.intp]

    @property
    def accuracy(self) -> float:
        """Share that is predicted right."""
        return float((self.codes == self.predicted).mean())


def held_out_predictions(model: Any, y: NDArray[Any]) -> HeldOut | None:
    """Look up what a fitted classifier predicted for matrices it held out while learning.

    Parameters
    ----------
    model : estimator
    y : ndarray, shape (n_matrices,), the labels it was fitted to.

    Returns
    -------
    HeldOut, or None where nothing was held out.

    Examples
    --------
    >>> from divlearn import DivergenceKernelClassifier
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 20, 4, separation=9, random_state=0)
    >>> held_out_predictions(DivergenceKernelClassifier().fit(X, y), y).accuracy > 0.8
    True
    """
    said = getattr(model, "oof_proba_", None)
    rows = np.flatnonzero([] if said is None else np.isfinite(said).all(axis=1))
    if said is None or not len(rows):
        return None
    return HeldOut(rows, np.searchsorted(model.classes_, y[rows]), said[rows].argmax(axis=1))


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
