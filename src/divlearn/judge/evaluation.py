"""Cross-validation of several classifiers on the same folds, with paired differences."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone, is_regressor
from sklearn.metrics import confusion_matrix

from divlearn.arrays import Indices, Labels, RealArray
from divlearn.checks import check_name
from divlearn.datasets.dataset import find_copies
from divlearn.descriptors import Regularize
from divlearn.fitting.folds import (
    Fold,
    Folds,
    Splitter,
    find_dependent,
    fit_grouped,
    number_units,
)
from divlearn.fitting.labelled import Labelled, label
from divlearn.fitting.progress import is_interrupted, notify, print_progress, stoppable, user_call
from divlearn.fitting.targets import locate_errors
from divlearn.hermitian import is_complex, real_form
from divlearn.judge import significance
from divlearn.judge.answer import Summarised, say_how_many
from divlearn.judge.significance import SIGNIFICANT, PairedComparison
from divlearn.spd import check_spd
from divlearn.text import counted, say_p

_FoldResult = tuple[Indices, float]  # held-out predictions of a fold, and seconds


@dataclass(frozen=True)
class Row:
    """Accuracy of one classifier among others.

    Attributes
    ----------
    name : str
    accuracy, standard_error : float, of held-out predictions.
    versus_best : PairedComparison, the best classifier minus this one. The best is selected on
        these matrices, so the p-value is adjusted for the comparison of all pairs, and is at least
        `Evaluation.p_chance`.
    seconds : float, to fit and predict all folds.
    """

    name: str
    accuracy: float
    standard_error: float
    versus_best: PairedComparison
    seconds: float


@dataclass(frozen=True, eq=False)
class Evaluation(Summarised):
    """Held-out predictions of several classifiers; `summary` says which one to use.

    Attributes
    ----------
    classes : ndarray, shape (n_classes,)
    codes : ndarray of int, shape (n_matrices,), true classes as indices, of the predicted matrices:
        all, unless the user interrupted.
    predictions : dict of ndarray of int, shape (n_matrices,), predicted classes by classifier.
    seconds : dict of float
    n_folds : int, completed folds.
    rows : ndarray of int, shape (n_matrices,), indices of these matrices in the given data.
    message : str, how many folds were completed.
    groups : ndarray of int, shape (n_matrices,), or None
        Only different groups are independent; standard errors and p-values account for it. A matrix
        that ``cv`` holds out several times is a group.
    """

    classes: Labels
    codes: Indices
    predictions: dict[str, Indices]
    seconds: dict[str, float]
    n_folds: int
    rows: Indices
    message: str
    groups: Indices | None = None

    def correct(self, name: str) -> NDArray[np.bool_]:
        """Whether each matrix is classified right, shape (n_matrices,)."""
        check_name(name, "name", self.predictions)
        return self.predictions[name] == self.codes

    def accuracy(self, name: str) -> float:
        """Share of matrices that are classified right."""
        return float(self.correct(name).mean())

    @property
    def n_matrices(self) -> int:
        """Number of matrices that were held out, each counted once."""
        return len(np.unique(self.rows))

    @property
    def best(self) -> str:
        """Name of the classifier of the highest accuracy, the first of those that tie."""
        return max(self.predictions, key=self.accuracy)

    def compare(self, first: str, second: str) -> PairedComparison:
        """Compare two classifiers on the same matrices; the p-value holds for one such pair."""
        return significance.compare_paired(self.correct(first), self.correct(second), self.groups)

    @property
    def test(self) -> str:
        """Name of the test of the p-values in `table`."""
        units = significance.name_units(self.groups, self.rows)
        if len(self.predictions) < 3:
            return f"exact sign-flip test over {units}"
        return f"max-T sign-flip test over {units}, adjusted for all pairs"

    @cached_property
    def p_chance(self) -> float:
        """P-value of no classifier being better than chance (Bonferroni over the classifiers)."""
        # By t-tests of balanced accuracies.
        flags = map(self.correct, self.predictions)
        least = min(significance.p_above_chance(right, self.codes, self.groups) for right in flags)
        return min(1.0, len(self.predictions) * least)

    @cached_property
    def _p_values(self) -> dict[frozenset[str], float]:
        correct = {name: self.correct(name) for name in self.predictions}
        p_values = significance.compare_all(correct, self.groups)
        return {pair: max(p, self.p_chance) for pair, p in p_values.items()}

    def table(self) -> list[Row]:
        """Rows of all classifiers, the most accurate first."""
        best, rows = self.best, []
        for name, seconds in self.seconds.items():
            error = significance.standard_error(self.correct(name), self.groups)
            p_value = self._p_values.get(frozenset((best, name)), 1.0)
            paired = replace(self.compare(best, name), p_value=p_value)
            rows.append(Row(name, self.accuracy(name), error, paired, seconds))
        return sorted(rows, key=lambda row: -row.accuracy)

    def confusion(self, name: str) -> Indices:
        """Count matrices by true class (rows) and predicted class (columns)."""
        labels = np.arange(len(self.classes))
        counts = confusion_matrix(self.codes, self.predictions[name], labels=labels)
        return np.asarray(counts, dtype=np.intp)

    def summary(self) -> str:
        """Say which classifier is best and how sure that is."""
        best, *others = self.table()
        text = (
            f"{best.name} has an accuracy of {best.accuracy:.1%} +- {best.standard_error:.1%} on "
            f"{self.n_matrices} held-out matrices"
        )
        if not others:
            return f"{text}."
        text += f", the highest of {len(self.predictions)} and therefore optimistic."
        if self.p_chance >= SIGNIFICANT:
            units = significance.name_units(self.groups, self.rows)
            least = significance.least_above_chance(self.codes, self.groups)
            return (
                f"{text} No classifier is significantly better than chance ("
                f"{say_p(self.p_chance)} by t-tests of balanced accuracies)."
                f"{significance.say_too_few(len(self.predictions) * least, units)}"
            )
        ties = [row.name for row in others if row.versus_best.p_value >= SIGNIFICANT]
        if not ties:
            paired = others[0].versus_best
            verdict = (
                f"All others are significantly worse. The next is {others[0].name}, "
                f"{100 * paired.difference:.1f} +- {100 * paired.standard_error:.1f} points behind "
                f"({say_p(paired.p_value)})"
            )
        elif len(ties) == len(others):
            verdict = "No other is significantly worse"
        else:
            verdict = f"Not significantly worse: {'; '.join(ties)}"
        few = significance.say_too_few_flips(self.groups, self.rows)
        return f"{text} {verdict} ({self.test}).{few}"


def evaluate(
    X: ArrayLike,
    y: ArrayLike,
    classifiers: Mapping[str, BaseEstimator] | None = None,
    *,
    cv: Splitter = 5,
    groups: ArrayLike | None = None,
    random_state: int | None = 0,
    regularize: str | float = "raise",
    verbose: int = 0,
) -> Evaluation:
    """Cross-validate classifiers on the same folds.

    Parameters
    ----------
    X, y : array-like, shape (n_matrices, d, d) and (n_matrices,)
    classifiers : dict of estimators by name, optional, `default_classifiers` by default.
    cv : int, splitter, or iterable of (train, test) indices, default=5
        An int is the largest number of folds, which are stratified, shuffled, and keep groups
        together; at most as many as there are groups, or matrices in the largest class.
    groups : array-like, shape (n_matrices,), optional
        Matrices of one group (a patient, a sample of a material) are held out together. Classifiers
        whose ``fit`` takes groups get those of the training part, for their inner folds.
    random_state : int or None, default=0
    regularize : {"raise", "shrink"} or float, default="raise", as in `Regularize`, for each fold.
    verbose : int, default=0, 1 prints progress.

    Returns
    -------
    Evaluation
        After an interrupt it has the folds that all classifiers completed, or, in the first fold,
        the classifiers that completed it. KeyboardInterrupt is raised if there are none.

    Examples
    --------
    >>> from divlearn.nearest import DivergenceMDM
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 20, 4, separation=3, random_state=0)
    >>> print(evaluate(X, y, {"nearest mean": DivergenceMDM("airm")}, cv=3).summary())
    nearest mean has an accuracy of ...% +- ...% on 60 held-out matrices.
    """
    classifiers = default_classifiers(random_state) if classifiers is None else classifiers
    if not isinstance(classifiers, Mapping) or not classifiers:
        raise ValueError(f"classifiers={classifiers!r} must be a dict of >= 1 estimators by name")
    for name, classifier in classifiers.items():
        check_classifier(classifier, f"classifiers[{name!r}]")
    data = check_folded(X, y, groups, regularize)
    with user_call(), print_progress("evaluate", verbose):
        return _cross_validate(classifiers, data, data.folds(cv, random_state), regularize)


def check_classifier(estimator: object, name: str) -> None:
    """Raise if an estimator predicts numbers, of which none would be right."""
    if isinstance(estimator, BaseEstimator) and is_regressor(estimator):
        raise ValueError(
            f"{name} is a {type(estimator).__name__}, which predicts numbers, must predict "
            "classes; judge regressors by "
            'sklearn.model_selection.cross_validate(model, X, y, scoring="r2")'
        )


def check_folded(
    X: ArrayLike, y: ArrayLike, groups: ArrayLike | None, regularize: str | float
) -> Labelled:
    """Check and label matrices, which are regularized later, by each fold."""
    check_spd(real_form(X), regularize=regularize, ndim=3)
    dtype: Any = np.complex128 if is_complex(X) else np.float64
    matrices = np.asarray(X, dtype=dtype)
    data = label(matrices, y, np.ones(len(matrices)), None, groups)
    data.require_two("drop the class, or pass more of it")
    warn_of_copies(data)
    return data


def warn_of_copies(data: Labelled) -> None:
    """Warn if copies of a matrix may be in training and test data."""
    groups = np.arange(len(data.y)) if data.groups is None else data.groups
    apart = [
        rows for rows in find_copies(data.matrices) if len(set(groups[list(rows)].tolist())) > 1
    ]
    if apart:
        first, second, *_ = apart[0]
        warnings.warn(
            f"X repeats {counted(len(apart), 'matrices')}, such as X[{first}] in X[{second}]: with "
            "copies in training and test data accuracies are too high and p-values too small; drop "
            "copies, or pass groups that keep them together",
            UserWarning,
            stacklevel=3,
        )


def _cross_validate(
    classifiers: Mapping[str, BaseEstimator], data: Labelled, folds: Folds, regularize: str | float
) -> Evaluation:
    """Fit every classifier to every fold, until all are done or the user interrupts."""
    results: dict[str, list[_FoldResult]] = {name: [] for name in classifiers}
    steps = list(product(range(len(folds)), classifiers))
    with stoppable(lambda: any(results.values())):
        for number, (fold, name) in enumerate(steps):
            notify("fits", number, len(steps), f"fold {fold + 1}: {name}")
            part = f"{len(folds[fold][0])} of {len(data.y)} matrices"
            with locate_errors(f"{name}, fitted to {part}"):
                result = _predict(classifiers[name], data, regularize, folds[fold])
            if is_interrupted():  # comparing with an unfinished fit would be unfair
                raise KeyboardInterrupt
            results[name].append(result)
    return _gather(results, data, folds)


def _predict(
    classifier: BaseEstimator, data: Labelled, regularize: str | float, fold: Fold
) -> _FoldResult:
    started = time.perf_counter()
    train, test = regularize_fold(data, fold, regularize)
    predicted = fit_fold(classifier, data, fold, train).predict(test)
    return _encode(predicted, data.classes), time.perf_counter() - started


def regularize_fold(
    data: Labelled, fold: Fold, regularize: str | float
) -> tuple[RealArray, RealArray]:
    """Regularize both parts of a fold, with a shrinkage learned from the training part."""
    train, test = (data.matrices[rows] for rows in fold)
    regularizer = Regularize(regularize).fit(train)
    return regularizer.transform(train), regularizer.transform(test)


def fit_fold(
    classifier: BaseEstimator, data: Labelled, fold: Fold, train: RealArray
) -> BaseEstimator:
    """Fit a clone to the matrices of the training part, with its labels and groups."""
    rows, _ = fold
    groups = None if data.groups is None else data.groups[rows]
    return fit_grouped(clone(classifier), train, data.y[rows], groups)


def _encode(labels: Labels, classes: Labels) -> Indices:
    """Return the indices of labels among classes, -1 for labels that are not classes."""
    codes = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    return np.where(classes[codes] == labels, codes, -1)


def _gather(results: Mapping[str, list[_FoldResult]], data: Labelled, folds: Folds) -> Evaluation:
    """Join the folds that all classifiers completed."""
    done = {name: folds_done for name, folds_done in results.items() if folds_done}
    n_folds = min(map(len, done.values()))
    message = say_how_many(n_folds, len(folds), "folds", "completed")
    if len(done) < len(results):
        message = say_how_many(len(done), len(results), "classifiers", "completed the first fold")
    rows = np.concatenate([test for _, test in folds[:n_folds]])
    order = np.argsort(rows)
    predictions, seconds = {}, {}
    for name, folds_done in done.items():
        parts, times = zip(*folds_done[:n_folds], strict=True)
        predictions[name], seconds[name] = np.concatenate(parts)[order], sum(times)
    rows = rows[order]
    groups = find_dependent(rows, data.groups)
    return Evaluation(
        data.classes, data.codes[rows], predictions, seconds, n_folds, rows, message, groups
    )


def held_out_predictions(
    model: BaseEstimator, y: Labels, groups: Labels | None = None
) -> Evaluation | None:
    """Return the held-out predictions of a fitted classifier for labels y; None if it has none."""
    proba = getattr(model, "oof_proba_", None)
    rows = np.flatnonzero([] if proba is None else np.isfinite(proba).all(axis=1))
    if proba is None or not len(rows):
        return None
    name, codes = type(model).__name__, np.searchsorted(model.classes_, y[rows])
    return Evaluation(
        classes=model.classes_,
        codes=codes,
        predictions={name: proba[rows].argmax(axis=1)},
        seconds={name: math.nan},
        n_folds=0,
        rows=rows,
        message="held out by the classifier itself",
        groups=None if groups is None else number_units(rows, groups),
    )


def default_classifiers(random_state: int | None = 0) -> dict[str, BaseEstimator]:
    """Make the classifiers that `evaluate` compares by default, by name."""
    from divlearn.baselines import LogEuclideanSVM
    from divlearn.committee import SPDClassifier
    from divlearn.iddl import IDDLClassifier
    from divlearn.kernels import DivergenceKernelClassifier
    from divlearn.nearest import DivergenceKNN, DivergenceMDM

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
