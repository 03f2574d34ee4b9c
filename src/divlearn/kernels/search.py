"""The search of `DivergenceKernelClassifier`: divergences and scales first, then C."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata
from sklearn.svm import SVC

from divlearn.arrays import Indices, RealArray
from divlearn.fitting.folds import Folds
from divlearn.fitting.labelled import Labelled
from divlearn.fitting.selection import HeldOut, nest_folds
from divlearn.kernels import coupling
from divlearn.kernels.tables import Point, decay


class Candidate(NamedTuple):
    """Parameters of a machine and of its kernel."""

    alpha: float
    beta: float
    scale: float
    C: float


class Search:
    """Candidates, judged by the accuracy of held-out matrices; `scores` has their decisions."""

    def __init__(
        self,
        known: dict[Point, RealArray],
        Cs: Sequence[float],
        data: Labelled,
        folds: Folds,
        n_threads: int,
    ) -> None:
        self.folds, self._known, self._Cs, self._data = folds, known, Cs, data
        self._tried: list[Candidate] = []
        self._scales: dict[Point, Sequence[float]] = {}
        # Threads: the solver of support vector machines runs without Python's lock.
        nest = nest_folds(folds, data.codes)
        self._all_folds = [*folds, *nest.folds]
        self._held_out = HeldOut(self._correct, self._judge, folds, nest, n_threads)
        self.scores = HeldOut(self._coupled, self._judge, folds, nest, n_threads)

    def try_scales(self, point: Point, scales: Sequence[float]) -> float:
        """Try scales of a divergence with the middle C; return the highest accuracy."""
        middle = self._Cs[(len(self._Cs) - 1) // 2]
        some = [Candidate(*point, scale, middle) for scale in scales]
        self._held_out.compute(some, range(len(self.folds)))
        self._held_out.compute([some[len(some) // 2]])
        self._tried += some
        self._scales[point] = scales
        return max(map(self._held_out.score, some))

    def best(self) -> Candidate:
        """Return the candidate of the highest accuracy over all folds."""
        return self._held_out.best(self._tried, self._refine)

    def best_without_each(self) -> list[Candidate]:
        """Return for every fold the candidate that is chosen without it.

        To save time, these have the middle scale first; then other scales and C are tried.
        """
        middles = [scales[len(scales) // 2] for scales in self._scales.values()]
        first = [one for one in self._tried if one.scale in middles]

        def refine(best: Candidate) -> list[Candidate]:
            scales = self._scales[best.alpha, best.beta]
            others = [best._replace(scale=scale) for scale in scales if scale != best.scale]
            return [*others, *self._refine(best)]

        return self._held_out.best_without_each(first, refine)

    def results(self) -> dict[str, Any]:
        """Tabulate what was tried, as `sklearn.model_selection.GridSearchCV` does."""
        tried = [*self._tried, *self._refine(self.best())]
        accuracies = np.array([self._accuracies(one) for one in tried]).round(12)
        mean = accuracies.mean(axis=1)
        columns = zip(Candidate._fields, np.array(tried).T, strict=True)
        return {
            **{f"param_{name}": column for name, column in columns},
            "params": [one._asdict() for one in tried],
            **{f"split{k}_test_score": column for k, column in enumerate(accuracies.T)},
            "mean_test_score": mean,
            "std_test_score": accuracies.std(axis=1),
            "rank_test_score": rankdata(-mean, method="min").astype(np.int32),
        }

    def _refine(self, candidate: Candidate) -> list[Candidate]:
        return [candidate._replace(C=C) for C in self._Cs if C != candidate.C]

    def _fit(self, candidate: Candidate, number: int) -> tuple[SVC, RealArray]:
        """Fit the machine of a training part; return also the kernel of what is held out to it."""
        (train, held), data = self._all_folds[number], self._data
        table = self._known[candidate.alpha, candidate.beta]
        inner = decay(table[np.ix_(train, train)], candidate.scale)
        machine = fit_svc(inner, candidate.C, data.codes[train], data.weights[train])
        return machine, decay(table[np.ix_(held, train)], candidate.scale)

    def _correct(self, candidate: Candidate, number: int) -> RealArray:
        machine, outer = self._fit(candidate, number)
        return machine.predict(outer) == self._data.codes[self._all_folds[number][1]]

    def _coupled(self, candidate: Candidate, number: int) -> RealArray:
        machine, outer = self._fit(candidate, number)
        return coupling.couple_all(machine.decision_function(outer), len(self._data.classes))

    def _accuracies(self, candidate: Candidate) -> list[float]:
        parts = self._held_out.parts([candidate] * len(self.folds))
        pairs = zip(parts, self.folds, strict=True)
        return [float(self._judge([part], [held]).sum()) for part, (_, held) in pairs]

    def _judge(self, parts: Sequence[RealArray], rows: Sequence[Indices]) -> RealArray:
        """Share of every matrix in the mean over folds of the accuracy."""
        weights = [self._data.weights[row] for row in rows]
        pairs = zip(parts, weights, strict=True)
        return np.concatenate([part * own / own.sum() for part, own in pairs]) / len(parts)


def fit_svc(kernel: RealArray, C: float, codes: Indices, weights: RealArray) -> SVC:
    machine = SVC(C=C, kernel="precomputed", decision_function_shape="ovo")
    return machine.fit(kernel, codes, sample_weight=weights)
