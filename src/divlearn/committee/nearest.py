"""Classes by their nearest matrices, the divergence chosen by held-out log-loss."""

from itertools import product
from typing import Annotated, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics.pairwise import euclidean_distances

from divlearn.arrays import Indices, RealArray
from divlearn.committee.held_out import Target, choose_held_out
from divlearn.engines import Engine, get_engine
from divlearn.fitting.calibration import Calibration
from divlearn.fitting.folds import Folds
from divlearn.fitting.labelled import Labelled
from divlearn.kernels.tables import Point, cross_table
from divlearn.log_vectors import log_vectors
from divlearn.tolerances import LEARNING_ACCURACY

Candidate = tuple[Point | None, int]  # None is the log-Euclidean metric; number of neighbours

_COUNTS = (1, 3)  # of neighbours in every class
_LEAST = 1e-12  # of a divergence, relative to the mean: copies are not infinitely near


class NearestClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Probabilities :math:`p_k \propto D_k^{-1/T}`, D_k the mean over the nearest of class k."""

    matrices_: Annotated[RealArray, "n_matrices d d"]
    codes_: Annotated[Indices, "n_matrices"]
    classes_: Annotated[Indices, "n_classes"]
    best_: Candidate
    calibration_: tuple[int, float]  # of a Calibration
    oof_proba_: Annotated[RealArray, "n_matrices n_classes"]

    def __init__(self, engine: str | Engine = "auto") -> None:
        self.engine = engine

    def fit(self, tables: dict[Point, RealArray], data: Labelled, folds: Folds) -> Self:
        """Choose T, a number of neighbours, and one of the tables or the log-Euclidean metric."""
        self.matrices_, self.codes_ = data.matrices, data.codes
        self.classes_ = np.arange(len(data.classes))
        logarithms = log_vectors(data.matrices)
        known: dict[Point | None, RealArray] = {None: euclidean_distances(logarithms, squared=True)}
        known |= dict(tables.items())

        def decide(candidate: Candidate, k: int) -> RealArray:
            (point, count), (train, held) = candidate, folds[k]
            return _scores(known[point][np.ix_(held, train)], data.codes[train], count)

        self.best_, calibration, self.oof_proba_ = choose_held_out(
            list(product(known, _COUNTS)), decide, Target(data.codes, data.weights), folds
        )
        self.calibration_ = calibration.form, calibration.temperature
        return self

    def predict_proba(self, X: RealArray) -> RealArray:
        point, count = self.best_
        if point is None:
            table = euclidean_distances(log_vectors(X), log_vectors(self.matrices_), squared=True)
        else:
            engine = get_engine(self.engine, accuracy=LEARNING_ACCURACY)
            table = cross_table(engine, X, self.matrices_, point)
        scores = _scores(table, self.codes_, count)
        return np.exp(Calibration(*self.calibration_).log_probabilities(scores))


def _scores(table: RealArray, codes: Indices, count: int) -> RealArray:
    """Negative logarithms of mean divergences to the nearest matrices of every class, one form."""
    classes = range(codes.max() + 1)
    means = [np.sort(table[:, codes == k], axis=1)[:, :count].mean(axis=1) for k in classes]
    distances = np.stack(means, axis=1)
    return -np.log(np.maximum(distances, _LEAST * distances.mean()))[..., None]
