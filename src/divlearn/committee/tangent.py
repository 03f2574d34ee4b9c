"""Classifiers on tangent vectors of SPD matrices, with what they say of held-out data."""

from collections.abc import Callable
from typing import Annotated, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import ParameterGrid
from sklearn.svm import SVC

from divlearn.arrays import Indices, RealArray
from divlearn.baselines.discriminants import RDA, fit_lda, rda_scores, span
from divlearn.committee.held_out import Target, choose_held_out
from divlearn.engines import get_engine
from divlearn.fitting.calibration import Calibration
from divlearn.fitting.folds import Folds
from divlearn.fitting.selection import nest_folds
from divlearn.geometry import invsqrtm
from divlearn.kernels.coupling import couple_all
from divlearn.kernels.tables import decay
from divlearn.log_vectors import log_vectors
from divlearn.means import mean_abld
from divlearn.tolerances import LEARNING_ACCURACY

Space = tuple[Annotated[RealArray, "d d"], float]  # whitener G^(-1/2), shape (d, d), and deviation
# Vectors of the training part and of the held-out part of every fold; the space of all matrices,
# and their vectors.
Features = tuple[list[tuple[RealArray, RealArray]], Space, RealArray]
Model = dict[str, Any]
Learn = Callable[..., Model]  # of parameters
Candidate = tuple[tuple[str, float], ...]  # names of parameters, and values


def tangent_vectors(X: RealArray, space: Space) -> RealArray:
    """Vectors of log(G^(-1/2) X G^(-1/2)), of total variance one on the training data."""
    whitener, deviation = space
    return log_vectors(X, whitener) / deviation


def tangent_features(X: RealArray, folds: Folds, at: str) -> Features:
    """Compute once what all classifiers of tangent vectors learn from."""
    # The space is at the affine-invariant "mean", one of every fold, or at the "identity".
    whitener = _whitener(X) if at == "mean" else np.eye(X.shape[-1])
    everywhere = log_vectors(X, whitener)
    space = whitener, _deviation(everywhere)
    parts = []
    for train, held in folds:
        vectors = everywhere
        if at == "mean":
            vectors = log_vectors(X, _whitener(X[train], near=whitener))
        vectors = vectors / _deviation(vectors[train])
        parts.append((vectors[train], vectors[held]))
    return parts, space, everywhere / space[1]


def _whitener(X: RealArray, near: RealArray | None = None) -> RealArray:
    """Whiten with the mean; roughly where the search starts near it, as for the part of a fold."""
    start, tolerance = (None, 1e-6) if near is None else (np.linalg.inv(near @ near), 1e-3)
    engine = get_engine(accuracy=LEARNING_ACCURACY)
    return invsqrtm(mean_abld(X, 0.0, 0.0, init=start, tol=tolerance, engine=engine).mean)


def _deviation(vectors: RealArray) -> float:
    deviation = float(np.sqrt(vectors.var(axis=0).sum()))
    return deviation if deviation > 0 else 1.0


class TangentClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of tangent vectors, its parameters chosen by calibrated held-out log-loss."""

    space_: Space
    classes_: Annotated[Indices, "n_classes"]
    best_params_: dict[str, float]
    calibration_: tuple[int, float]  # of a Calibration
    model_: Model
    oof_proba_: Annotated[RealArray, "n_matrices n_classes"]

    def __init__(self, model: str) -> None:
        self.model = model

    def fit(self, features: Features, y: Indices, sample_weight: RealArray, folds: Folds) -> Self:
        """Choose on folds, and fit on everything; labels y are 0 to n_classes - 1."""
        parts, self.space_, vectors = features
        prepare, decide, parameters = _MODELS[self.model]
        nest = nest_folds(folds, y) if self.model == "rbf" else None
        everything = list(folds)
        if nest is not None:
            # The space of all matrices knows no labels: what is chosen in it is not optimistic.
            everything += nest.folds
            parts = [*parts, *((vectors[train], vectors[held]) for train, held in nest.folds)]
        learners = [
            prepare(seen, y[train], sample_weight[train])
            for (seen, _), (train, _) in zip(parts, everything, strict=True)
        ]
        candidates: list[Candidate] = [tuple(one.items()) for one in ParameterGrid(parameters)]

        def neighbours(candidate: Candidate) -> list[Candidate]:
            """Return the candidates that differ in one parameter at most."""
            return [one for one in candidates if len(set(one) - set(candidate)) < 2]

        best, calibration, self.oof_proba_ = choose_held_out(
            candidates,
            lambda chosen, k: decide(learners[k](**dict(chosen)), parts[k][1]),
            Target(y, sample_weight),
            folds,
            nest,
            neighbours if nest else None,
        )
        self.best_params_ = dict(best)
        self.calibration_ = calibration.form, calibration.temperature
        self.classes_ = np.arange(int(y.max()) + 1)
        self.model_ = prepare(vectors, y, sample_weight)(**self.best_params_)
        return self

    def predict_proba(self, X: RealArray) -> RealArray:
        scores = _MODELS[self.model][1](self.model_, tangent_vectors(X, self.space_))
        return np.exp(Calibration(*self.calibration_).log_probabilities(scores))


def _shares(y: Indices, weights: RealArray) -> RealArray:
    shares = np.bincount(y, weights)
    return shares / shares.sum()


def _lda(vectors: RealArray, y: Indices, weights: RealArray) -> Learn:
    found = fit_lda(vectors, y, _shares(y, weights))
    return lambda: found


def _rda(vectors: RealArray, y: Indices, weights: RealArray) -> Learn:
    return RDA(vectors, y, _shares(y, weights)).learn


def _logistic(vectors: RealArray, y: Indices, weights: RealArray) -> Learn:
    basis = span(vectors)  # where coefficients lie
    inside = vectors if basis is None else vectors @ basis
    machine = LogisticRegression(max_iter=1000, warm_start=True)

    def learn(C: float) -> Model:
        machine.set_params(C=C).fit(inside, y, weights)
        coefficients, offsets = machine.coef_, machine.intercept_
        if len(coefficients) == 1:  # of the second class of two
            coefficients = np.concatenate([0 * coefficients, coefficients])
            offsets = np.append(0.0, offsets)
        return {
            "coefficients": coefficients if basis is None else coefficients @ basis.T,
            "offsets": offsets,
        }

    return learn


def _linear_scores(model: Model, vectors: RealArray) -> RealArray:
    return (vectors @ model["coefficients"].T + model["offsets"])[..., None]


def _rbf(vectors: RealArray, y: Indices, weights: RealArray) -> Learn:
    table = euclidean_distances(vectors, squared=True)

    def learn(C: float, gamma: float) -> Model:
        machine = SVC(C=C, kernel="precomputed", decision_function_shape="ovo")
        return {
            "machine": machine.fit(decay(table, gamma), y, weights),
            "gamma": gamma,
            "vectors": vectors,
        }

    return learn


def _rbf_decisions(model: Model, vectors: RealArray) -> RealArray:
    table = euclidean_distances(vectors, model["vectors"], squared=True)
    machine = model["machine"]
    decisions = np.asarray(machine.decision_function(decay(table, model["gamma"])))
    return couple_all(decisions, len(machine.classes_))


def _rda_scores(model: Model, vectors: RealArray) -> RealArray:
    return rda_scores(model, vectors)[..., None]


# What is learned once for all parameters, then for each; scores of a model, (n_samples, n_classes,
# n_forms); the parameters.
_MODELS: dict[str, tuple[Callable[..., Learn], Callable[..., RealArray], dict[str, Any]]] = {
    "lda": (_lda, _linear_scores, {}),
    "rda": (_rda, _rda_scores, {"pool": [0.1, 0.5, 0.9], "shrink": [0.01, 0.03, 0.1, 0.3, 0.6]}),
    "logistic": (_logistic, _linear_scores, {"C": [1.0, 10.0, 100.0, 1000.0]}),
    "rbf": (_rbf, _rbf_decisions, {"C": [1.0, 10.0, 100.0], "gamma": [0.1, 0.3, 1.0, 3.0]}),
}
