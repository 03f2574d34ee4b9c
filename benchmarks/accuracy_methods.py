"""The classifiers that the benchmark of accuracy compares: usual ones, and those of divlearn.

Nearest means and tangent vectors are those of divlearn, which a test compares with pyRiemann's.
Methods of accuracy_rivals.py need another library, and are left out where it is not installed.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np
from accuracy_data import Problem
from accuracy_rivals import make_csp, make_fgmdm, make_spdnet
from joblib import Memory
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.svm import SVC

from divlearn.baselines import LEML, RSPDL, KernelLLC, KernelSparseCoding
from divlearn.committee import SPDClassifier
from divlearn.fitting.folds import Folds, fit_grouped
from divlearn.geometry import invsqrtm
from divlearn.iddl import IDDLClassifier, Recipe
from divlearn.kernels import DivergenceKernelClassifier
from divlearn.log_vectors import log_vectors, spread
from divlearn.means import mean_abld
from divlearn.nearest import DivergenceKNN, DivergenceMDM

# Of vectors with a total variance of one, so that the same grids suit all data.
PENALTIES = (0.1, 1.0, 10.0, 100.0, 1_000.0, 10_000.0)
GAUSSIAN = {"model__C": PENALTIES[1:5], "model__gamma": (0.03, 0.1, 0.3, 1.0, 3.0)}
LINEAR = {"model__C": PENALTIES}
_folder = TemporaryDirectory()
CACHE = Memory(_folder.name, verbose=0)  # vectors of a fold, for all parameters tried on them


class TangentVectors(TransformerMixin, BaseEstimator):
    """Vectors in the tangent space at the "mean" or at the "identity", of total variance one."""

    def __init__(self, at: str = "mean") -> None:
        self.at = at

    def fit(self, X: np.ndarray, y: Any = None) -> Self:
        whitener = invsqrtm(mean_abld(X, 0, 0).mean) if self.at == "mean" else None
        self.whitener_, self.deviation_ = whitener, spread(log_vectors(X, whitener))
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        return log_vectors(X, self.whitener_) / self.deviation_


def searched(at: str, model: Any, grid: dict[str, Any], folds: Folds) -> GridSearchCV:
    """A classifier of vectors whose parameters cross-validation on the training part chooses."""
    steps = [("vectors", TangentVectors(at)), ("model", model)]
    return GridSearchCV(Pipeline(steps, memory=CACHE), grid, cv=folds)


@dataclass(frozen=True)
class Method:
    title: str
    make: Callable[[int, Folds], Any]  # of the seed and the inner folds
    ours: bool = False
    needs: str | None = None  # a library that may not be installed
    eeg: bool = False  # whether it runs on EEG only
    recentered: bool = False  # whether the means of sessions or subjects are moved first

    @property
    def is_installed(self) -> bool:
        return self.needs is None or find_spec(self.needs) is not None


def _logistic() -> LogisticRegression:
    return LogisticRegression(max_iter=2_000)


def _lda() -> LinearDiscriminantAnalysis:
    return LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")


def make_linear(seed: int, folds: Folds) -> IDDLClassifier:
    """IDDL without discriminants: linear heads on divergences to atoms."""
    return IDDLClassifier(recipe=Recipe(loss="softmax"), cv=folds, random_state=seed)


METHODS = {
    "nn-le": Method("1-NN, log-Euclidean", lambda *_: DivergenceKNN(1, "log-euclidean")),
    "nn-airm": Method("1-NN, AIRM", lambda *_: DivergenceKNN(1, "airm")),
    "nn-stein": Method("1-NN, Stein", lambda *_: DivergenceKNN(1, "stein")),
    "mdm": Method("MDM, AIRM", lambda *_: DivergenceMDM("airm")),
    "svm-le": Method(
        "linear SVM, log-Euclidean vectors",
        lambda _, cv: searched("identity", SVC(kernel="linear"), LINEAR, cv),
    ),
    "rbf-le": Method(
        "RBF SVM, log-Euclidean vectors",
        lambda _, cv: searched("identity", SVC(), GAUSSIAN, cv),
    ),
    "ts-lr": Method(
        "logistic regression, tangent vectors",
        lambda _, cv: searched("mean", _logistic(), LINEAR, cv),
    ),
    "ts-rbf": Method(
        "RBF SVM, tangent vectors", lambda _, cv: searched("mean", SVC(), GAUSSIAN, cv)
    ),
    "ts-lda": Method(
        "shrinkage LDA, tangent vectors", lambda *_: make_pipeline(TangentVectors(), _lda())
    ),
    "ts-svm": Method(
        "linear SVM, tangent vectors",
        lambda _, cv: searched("mean", SVC(kernel="linear"), LINEAR, cv),
        eeg=True,
    ),
    "fgmdm": Method("FgMDM", lambda *_: make_fgmdm(), needs="pyriemann", eeg=True),
    "csp-lda": Method("CSP and LDA", lambda *_: make_csp(), needs="pyriemann", eeg=True),
    "spdnet": Method("SPDNet", lambda seed, _: make_spdnet(seed), needs="spd_learn"),
    "leml": Method("LEML", lambda seed, _: LEML(random_state=seed)),
    "ksp-le": Method(
        "kernel sparse coding, log-Euclidean",
        lambda seed, _: KernelSparseCoding(kernel="log-euclidean", random_state=seed),
    ),
    "ksp-stein": Method(
        "kernel sparse coding, Stein",
        lambda seed, _: KernelSparseCoding(kernel="stein", random_state=seed),
    ),
    "kllc": Method("kernel LLC", lambda seed, _: KernelLLC(random_state=seed)),
    "rspdl": Method("RSPDL", lambda seed, _: RSPDL(random_state=seed)),
    "iddl": Method(
        "IDDLClassifier", lambda seed, cv: IDDLClassifier(cv=cv, random_state=seed), ours=True
    ),
    "iddl-learn": Method(
        "IDDLClassifier, alpha and beta learned",
        lambda seed, cv: IDDLClassifier(divergence="learn", cv=cv, random_state=seed),
        ours=True,
    ),
    "iddl-start": Method(
        "IDDLClassifier, nothing learned but the head",
        lambda seed, cv: IDDLClassifier(max_iter=0, cv=cv, random_state=seed),
        ours=True,
    ),
    "iddl-linear": Method("IDDLClassifier, linear heads alone", make_linear, ours=True),
    "iddl-linear-start": Method(
        "IDDLClassifier, linear heads on initial atoms alone",
        lambda seed, cv: make_linear(seed, cv).set_params(max_iter=0),
        ours=True,
    ),
    "mdm-chosen": Method(
        "MDM, divergence chosen", lambda _, cv: DivergenceMDM("choose", cv=cv), ours=True
    ),
    "kernel": Method(
        "DivergenceKernelClassifier",
        lambda seed, cv: DivergenceKernelClassifier(cv=cv, random_state=seed),
        ours=True,
    ),
    "spd": Method(
        "SPDClassifier", lambda seed, cv: SPDClassifier(cv=cv, random_state=seed), ours=True
    ),
}
EEG_METHODS = [
    "mdm",
    "fgmdm",
    "csp-lda",
    "ts-lr",
    "ts-svm",
    "ts-rbf",
    "spdnet",
    "mdm-chosen",
    "iddl",
    "spd",
]
RECENTERED = {name: f"{name}-recentered" for name in EEG_METHODS}
METHODS |= {
    RECENTERED[name]: replace(
        METHODS[name], title=f"{METHODS[name].title}, re-centred", eeg=True, recentered=True
    )
    for name in EEG_METHODS
}
BASELINES = [name for name, method in METHODS.items() if not method.ours]
OURS = [name for name, method in METHODS.items() if method.ours]
SINGLE = [*(name for name in BASELINES if not METHODS[name].eeg), "kernel"]  # rivals of IDDL


def evaluate(name: str, problem: Problem, seed: int) -> dict[str, Any]:
    """Fit on the training part, predict the test part once."""
    method = METHODS[name]
    model = method.make(seed, problem.cv)
    CACHE.clear(warn=False)  # so that none profits from the work of another
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        started = time.process_time()
        if method.recentered:
            problem = problem.recentered()
        fit_grouped(model, problem.X_train, problem.y_train, problem.groups)
        fitted = time.process_time()
        # Labels are those of the highest probability, as `predict` of all these classifiers says.
        probabilities = (
            model.predict_proba(problem.X_test) if hasattr(model, "predict_proba") else None
        )
        labels = (
            model.predict(problem.X_test)
            if probabilities is None
            else model.classes_[probabilities.argmax(axis=1)]
        )
        predicted = time.process_time()
    right = labels == problem.y_test
    found = {
        "accuracy": float(right.mean()),
        "fit_seconds": round(fitted - started, 3),
        "predict_seconds": round(predicted - fitted, 3),
        "correct": "".join(map(str, right.astype(int))),
    }
    if probabilities is not None:
        found["log_loss"] = float(log_loss(problem.y_test, probabilities, labels=model.classes_))
    if caught:
        found["warnings"] = Counter(warning.category.__name__ for warning in caught)
    return found | details(model, problem)


def details(model: Any, problem: Problem) -> dict[str, Any]:
    """What was chosen, and how the members of a committee do on their own."""
    if isinstance(model, GridSearchCV):
        return {"chosen": {name: str(value) for name, value in model.best_params_.items()}}
    if not isinstance(model, SPDClassifier):
        return {"message": model.message_} if hasattr(model, "message_") else {}
    codes = np.searchsorted(model.classes_, problem.y_test)
    members = {
        name: float((member.predict_proba(problem.X_test).argmax(axis=1) == codes).mean())
        for name, member in model.members_.items()
    }
    return {"members": members, "weights": model.weights_, "summary": model.summary()}
