"""Classes by their nearest matrices, the divergence chosen by held-out log-loss."""

from itertools import product
from typing import Any, Self

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin

from divlearn.arrays import RealArray
from divlearn.engines import Engine, get_engine
from divlearn.fitting.folds import Folds
from divlearn.fitting.labelled import Labelled
from divlearn.fitting.selection import Rows, choose, predict_held_out
from divlearn.iddl.tasks import fit_temperature
from divlearn.kernels.tables import ACCURACY, Point, cross_table
from divlearn.log_vectors import log_vectors

_COUNTS = (1, 3)  # of neighbours in every class
_LEAST = 1e-12  # of a divergence, relative to the mean: copies are not infinitely near


class NearestClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Probabilities :math:`p_k \propto D_k^{-1/T}`, with :math:`D_k` the mean over neighbours.

    These are the matrices of class k that are nearest. Divergence, their number and T are chosen
    on held-out data.
    """

    def __init__(self, engine: str | Engine = "auto") -> None:
        self.engine = engine

    def fit(self, tables: dict[Point, RealArray], data: Labelled, folds: Folds) -> Self:
        """Choose among tables of symmetrised divergences and the log-Euclidean metric."""
        self.matrices_, self.codes_ = data.matrices, data.codes
        self.classes_ = np.arange(len(data.classes))
        logarithms = log_vectors(data.matrices)
        known: dict[Point | None, RealArray] = {None: squared_distances(logarithms, logarithms)}
        known |= dict(tables.items())
        tried = list(product(known, _COUNTS))
        found: list[Any] = []

        def score(candidate: tuple[Point | None, int]) -> float:
            point, count = candidate

            def predict(train: Rows, held: Rows) -> RealArray:
                return _scores(known[point][np.ix_(held, train)], data.codes[train], count)

            rows, scores = predict_held_out(predict, folds, len(data.codes))
            shares = data.weights[rows] / data.weights[rows].sum()
            temperature, loss = fit_temperature(scores, data.codes[rows], shares)
            found.append((temperature, rows, softmax(scores / temperature, axis=1)))
            return -loss

        best, _ = choose(tried, score)
        self.point_, self.n_neighbors_ = tried[best]
        self.temperature_, rows, said = found[best]
        self.oof_proba_ = np.full((len(data.codes), len(data.classes)), np.nan)
        self.oof_proba_[rows] = said
        return self

    def predict_proba(self, X: RealArray) -> RealArray:
        if self.point_ is None:
            table = squared_distances(log_vectors(X), log_vectors(self.matrices_))
        else:
            engine = get_engine(self.engine, accuracy=ACCURACY)
            table = cross_table(engine, X, self.matrices_, self.point_)
        scores = _scores(table, self.codes_, self.n_neighbors_)
        return softmax(scores / self.temperature_, axis=1)


def squared_distances(first: RealArray, second: RealArray) -> RealArray:
    """Of all vectors of the first to all of the second."""
    squares = [(vectors**2).sum(axis=1) for vectors in (first, second)]
    return np.maximum(squares[0][:, None] + squares[1] - 2 * first @ second.T, 0.0)


def _scores(table: RealArray, codes: Rows, count: int) -> RealArray:
    """Negative logarithms of mean divergences to the nearest matrices of every class."""
    parts = []
    for code in range(codes.max() + 1):
        mine = np.sort(table[:, codes == code], axis=1)[:, :count]
        parts.append(mine.mean(axis=1))
    distances = np.stack(parts, axis=1)
    return -np.log(np.maximum(distances, _LEAST * distances.mean()))
