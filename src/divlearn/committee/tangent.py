"""Classifiers on tangent vectors of SPD matrices, with what they say of held-out data."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ParameterGrid
from sklearn.svm import SVC

from divlearn.arrays import RealArray
from divlearn.fitting.folds import Folds
from divlearn.fitting.selection import choose, predict_held_out
from divlearn.geometry import invsqrtm
from divlearn.kernels.coupling import couple, fit_coupling, log_probabilities
from divlearn.log_vectors import log_vectors
from divlearn.means import mean_abld

Rows = NDArray[np.intp]
Space = tuple[RealArray, float]  # whitener G^(-1/2), shape (d, d), and deviation
# Vectors of the training part and of the held-out part of every fold; the space of all matrices,
# and their vectors.
Features = tuple[list[tuple[RealArray, RealArray]], Space, RealArray]

_LEAST = np.log(1e-4)  # of logarithms in the loss: no single matrix decides
_GAMMAS = [0.1, 0.3, 1.0, 3.0]
_MODELS: dict[str, tuple[Any, dict[str, list[Any]]]] = {
    "logistic": (LogisticRegression(max_iter=1000), {"C": [1.0, 10.0, 100.0, 1000.0]}),
    "rbf": (SVC(decision_function_shape="ovo"), {"C": [1.0, 10.0, 100.0], "gamma": _GAMMAS}),
    "lda": (LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"), {}),
}


def fit_space(X: RealArray, at: str) -> Space:
    """Find the tangent space at the affine-invariant "mean" of matrices, or at the "identity"."""
    base = mean_abld(X, 0.0, 0.0, tol=1e-6).mean if at == "mean" else np.eye(X.shape[-1])
    whitener = invsqrtm(base)
    deviation = float(np.sqrt(log_vectors(X, whitener).var(axis=0).sum()))
    return whitener, deviation if deviation > 0 else 1.0


def tangent_vectors(X: RealArray, space: Space) -> RealArray:
    """Vectors of log(G^(-1/2) X G^(-1/2)), of total variance one on the training data."""
    whitener, deviation = space
    return log_vectors(X, whitener) / deviation


def tangent_features(X: RealArray, folds: Folds, at: str) -> Features:
    """Compute once what all classifiers of tangent vectors learn from: a mean for every fold."""
    parts = []
    for train, held in folds:
        space = fit_space(X[train], at)
        parts.append((tangent_vectors(X[train], space), tangent_vectors(X[held], space)))
    space = fit_space(X, at)
    return parts, space, tangent_vectors(X, space)


class TangentClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of tangent vectors, its parameters chosen by held-out log-loss."""

    def __init__(self, model: str) -> None:
        self.model = model

    def fit(self, features: Features, y: Rows, sample_weight: RealArray, folds: Folds) -> Self:
        """Choose on folds, and fit on everything; labels y are 0 to n_classes - 1."""
        parts, self.space_, vectors = features
        n_classes = int(y.max()) + 1
        grid = list(ParameterGrid(_MODELS[self.model][1]))
        found: list[Any] = []

        def score(parameters: dict[str, Any]) -> float:
            turn = iter(parts)

            def decide(train: Rows, held: Rows) -> RealArray:
                seen, unseen = next(turn)
                return _decide(self._fit(seen, y[train], sample_weight[train], parameters), unseen)

            rows, decisions = predict_held_out(decide, folds, len(y))
            coupling = None
            if self.model == "rbf":
                coupling = fit_coupling(decisions, y[rows], n_classes, sample_weight[rows])
            said = _log_probabilities(decisions, n_classes, coupling)
            found.append((coupling, rows, said))
            true = np.maximum(said[np.arange(len(rows)), y[rows]], _LEAST)
            return float(np.average(true, weights=sample_weight[rows]))

        best, _ = choose(grid, score)
        self.best_params_ = grid[best]
        self.coupling_, rows, said = found[best]
        self.oof_proba_ = np.full((len(y), n_classes), np.nan)
        self.oof_proba_[rows] = np.exp(said)
        self.classes_ = np.arange(n_classes)
        self.model_ = self._fit(vectors, y, sample_weight, self.best_params_)
        return self

    def predict_proba(self, X: RealArray) -> RealArray:
        decisions = _decide(self.model_, tangent_vectors(X, self.space_))
        return np.exp(_log_probabilities(decisions, len(self.classes_), self.coupling_))

    def _fit(
        self, vectors: RealArray, y: Rows, weights: RealArray, parameters: dict[str, Any]
    ) -> Any:
        model = clone(_MODELS[self.model][0]).set_params(**parameters)
        if self.model == "lda":  # which takes no weights of samples
            shares = np.bincount(y, weights)
            return model.set_params(priors=shares / shares.sum()).fit(vectors, y)
        return model.fit(vectors, y, weights)


def _decide(model: Any, vectors: RealArray) -> RealArray:
    """Decisions between pairs of classes, or logarithms of probabilities where a model has them."""
    if isinstance(model, SVC):
        return np.asarray(model.decision_function(vectors))
    with np.errstate(divide="ignore"):
        return np.asarray(model.predict_log_proba(vectors))


def _log_probabilities(
    decisions: RealArray, n_classes: int, coupling: tuple[float, float] | None
) -> RealArray:
    if coupling is None:
        return log_softmax(np.maximum(decisions, np.log(1e-12)), axis=1)
    sharpness, temperature = coupling
    return log_probabilities(couple(decisions, n_classes, sharpness), temperature)
