"""What wrappers of a user's estimator share: it is fitted to parts of the data as it is."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from divlearn.arrays import RealArray
from divlearn.checks import RandomState
from divlearn.engines import Engine, Prepared
from divlearn.fitting.folds import Splitter, fit_grouped
from divlearn.fitting.held_out import Folded, Grid


class Wrapped:
    """An estimator without candidates to choose from."""

    estimator_: Any  # of any class that a file may hold
    engine: str | Engine = "auto"

    def __init__(
        self,
        estimator: BaseEstimator,
        *,
        cv: Splitter = 4,
        random_state: RandomState = None,
        n_jobs: int | None = 1,
        regularize: str | float = "raise",
    ) -> None:
        self.estimator, self.cv = estimator, cv
        self.random_state, self.n_jobs, self.regularize = random_state, n_jobs, regularize

    @abstractmethod
    def _answer(self, model: BaseEstimator, matrices: RealArray) -> RealArray:
        """Return scores of classes, or standardised numbers."""

    def _grid(self, training: Folded) -> Grid[tuple[()]]:
        return Grid([()])

    def _learner(self, training: Folded, number: int) -> Callable[[tuple[()]], BaseEstimator]:
        data, rows = training.data, training.parts[number][0]
        groups = data.kept_groups

        def learn(_: tuple[()]) -> BaseEstimator:
            return fit_grouped(
                clone(self.estimator),
                data.matrices[rows],
                data.y[data.kept[rows]],
                None if groups is None else groups[rows],
                None if np.ptp(data.weights) == 0 else data.weights[rows],
            )

        return learn

    def _fit_model(self, training: Folded, best: tuple[()]) -> None:
        self.estimator_ = self._learner(training, training.whole)(best)

    def _decide(self, model: BaseEstimator, training: Folded, number: int) -> RealArray:
        return self._answer(model, training.data.matrices[training.parts[number][1]])

    def _decide_new(self, new: Prepared) -> RealArray:
        return self._answer(self.estimator_, new.matrices)
