"""Kernel ridge regression whose divergence, scale and penalty are chosen by cross-validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product, starmap
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh

from divlearn.arrays import RealArray, to_host
from divlearn.checks import RandomState
from divlearn.divergence import (
    LOG_EUCLIDEAN,
    Divergence,
    DivergenceLike,
    get_divergence,
    get_member,
)
from divlearn.engines import Engine, Prepared
from divlearn.fitting.folds import Splitter
from divlearn.fitting.held_out import Grid, Memo
from divlearn.fitting.labelled import engine_of
from divlearn.fitting.training import HeldOutRegressor, NumberedTraining
from divlearn.heads.discriminants import Linear
from divlearn.kernels.classifier import POINTS, check_positive
from divlearn.kernels.machines import on_landmarks
from divlearn.kernels.tables import (
    are_many,
    cut,
    decay,
    find_copies,
    median_scale,
    shared_columns,
    shared_matrices,
    shared_table,
    training_table,
)
from divlearn.tolerances import LEARNING_ACCURACY

SCALES = (0.03, 0.1, 0.3, 1.0)
PENALTIES = tuple(10.0**power for power in range(-5, 4))  # to choose from
_MOST = 1500  # matrices: eigenvectors of larger kernels take minutes


class Candidate(NamedTuple):
    divergence: Divergence
    scale: float
    penalty: float


def usual_divergences() -> list[Divergence]:
    """Return log-Euclidean and the symmetrised divergences of `POINTS`."""
    return [LOG_EUCLIDEAN, *(get_member(point).symmetrize() for point in POINTS)]


class KernelRidge:
    r"""Minimise :math:`\sum_i w_i (y_i - b - f(X_i))^2 + \lambda \|f\|^2` for any penalty.

    b is the weighted mean of y. Kernels of some divergences are not positive definite: directions
    of negative eigenvalues are left out.
    """

    def __init__(self, kernel: RealArray, numbers: RealArray, weights: RealArray) -> None:
        self._roots = np.sqrt(weights)
        self._offset = float(np.average(numbers, weights=weights))
        values, vectors = eigh(self._roots[:, None] * kernel * self._roots, driver="evd")
        self._values, self._vectors = values[values > 0], vectors[:, values > 0]
        self._projected = (self._roots * (numbers - self._offset)) @ self._vectors

    def learn(self, penalty: float) -> Linear:
        shrunk = self._projected / (self._values + penalty)
        coefficients = self._roots * (self._vectors @ shrunk)
        return Linear(coefficients[None], np.array([self._offset]))


class DivergenceKernelRegressor(HeldOutRegressor[Candidate]):
    r"""Kernel ridge regression with the kernel of a divergence, all chosen by cross-validation.

    .. math:: f(X) = b + \sum_i c_i \exp\bigl(-s\, \tilde D(X, X_i)\bigr)

    with :math:`\tilde D` the mean of both directions; see `DivergenceKernel`. With more than 1,500
    matrices, :math:`X_i` are 500 of them, evenly spaced in their order.

    Parameters
    ----------
    divergences : sequence of divergences, optional
        Arguments of `divlearn.get_divergence`. By default log-Euclidean and those of
        `divlearn.kernels.POINTS`.
    scales : array-like, default=(0.03, 0.1, 0.3, 1)
        Values of s > 0, in units of one over the median of :math:`\tilde D` over all pairs of
        training matrices that differ.
    penalties : array-like, default=(1e-5, 1e-4, ..., 1e3)
        Factors > 0 of the squared norm of f in the loss.
    cv, random_state, engine, n_jobs, regularize : as in `TangentClassifier`

    Attributes
    ----------
    best_params_ : dict, "divergence", "scale" (s itself) and "penalty".
    cv_results_ : dict, "params" and their held-out "mean_test_score", an R2.
    oof_prediction_ : ndarray, shape (n_matrices,)
        Held-out predictions, with parameters chosen without each fold.
    held_out_r2_, held_out_mae_ : float, of these predictions.
    n_features_in_ : int, size of the matrices.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, _ = make_wishart_clusters(1, 120, 3, random_state=0)
    >>> y = np.linalg.slogdet(X)[1]
    >>> regressor = DivergenceKernelRegressor(random_state=0).fit(X[::2], y[::2])
    >>> bool(regressor.score(X[1::2], y[1::2]) > 0.9)
    True
    """

    _names = Candidate._fields

    model_: Linear  # of kernels with the training matrices
    matrices_: Annotated[RealArray, "n_kept d d"]

    def __init__(
        self,
        divergences: Sequence[DivergenceLike] | None = None,
        scales: ArrayLike = SCALES,
        penalties: ArrayLike = PENALTIES,
        *,
        cv: Splitter = 4,
        random_state: RandomState = None,
        engine: str | Engine = "auto",
        n_jobs: int | None = None,
        regularize: str | float = "raise",
    ) -> None:
        self.divergences, self.scales, self.penalties = divergences, scales, penalties
        self.cv, self.random_state = cv, random_state
        self.engine, self.n_jobs, self.regularize = engine, n_jobs, regularize

    def _check_parameters(self) -> None:
        self._divergences()
        check_positive(self.scales, "scales")
        check_positive(self.penalties, "penalties")

    def _divergences(self) -> list[Divergence]:
        if self.divergences is None:
            return usual_divergences()
        return [self._for_checked(get_divergence(divergence)) for divergence in self.divergences]

    def _grid(self, training: NumberedTraining) -> Grid[Candidate]:
        rows = shared_columns(training, _MOST)
        copies, weights = find_copies(training.data.matrices[rows]), training.data.weights[rows]
        penalties = check_positive(self.penalties, "penalties")
        candidates: list[Candidate] = []
        for divergence in self._divergences():
            unit = median_scale(to_host(_table(training, divergence)[rows]), copies, weights)
            scales = [unit * multiple for multiple in check_positive(self.scales, "scales")]
            candidates += starmap(Candidate, product([divergence], scales, penalties))
        grid = Grid(candidates)
        return self._inner_grid(grid) if are_many(training, _MOST) else grid

    def _inner_grid(self, grid: Grid[Candidate]) -> Grid[Candidate]:
        """Compare divergences at their middle scales, then try all scales of the best: faster."""
        scales: dict[Divergence, list[float]] = {}
        for divergence, scale, _ in grid.candidates:
            scales.setdefault(divergence, []).append(scale)
        middles = {divergence: values[len(values) // 2] for divergence, values in scales.items()}

        def refine(best: Candidate) -> list[Candidate]:
            same = [c for c in grid.candidates if c.divergence == best.divergence]
            return [*same, *grid.refine(best)]

        return Grid([c for c in grid.candidates if c.scale == middles[c.divergence]], refine)

    def _learner(
        self, training: NumberedTraining, number: int
    ) -> Callable[[Candidate], tuple[Linear, Candidate]]:
        if are_many(training, _MOST):
            return self._on_landmarks(training, number)
        rows, data = training.parts[number][0], training.data

        @lru_cache(maxsize=1)  # candidates that differ in their penalty follow each other
        def decompose(divergence: Divergence, scale: float) -> KernelRidge:
            table = cut(_table(training, divergence), rows, rows)
            return KernelRidge(decay(table, scale), data.numbers[rows], data.weights[rows])

        return lambda c: (decompose(c.divergence, c.scale).learn(c.penalty), c)

    def _on_landmarks(
        self, training: NumberedTraining, number: int
    ) -> Callable[[Candidate], tuple[Linear, Candidate]]:
        problems, targets = Memo(), training.data.numbers[:, None]
        part = training, number, shared_columns(training, _MOST)

        def learn(candidate: Candidate) -> tuple[Linear, Candidate]:
            divergence, scale, penalty = candidate
            table = _table(training, divergence)
            prepare = lambda: on_landmarks(*part, table, targets, divergence)  # noqa: E731
            problem = problems.cached(divergence, prepare)
            return Linear(*problem.learn(1 / penalty, scale)), candidate

        return learn

    def _fit_model(self, training: NumberedTraining, best: Candidate) -> None:
        self.model_, _ = self._learner(training, training.whole)(best)
        self.matrices_ = shared_matrices(training, _MOST)

    def _decide(
        self, model: tuple[Linear, Candidate], training: NumberedTraining, number: int
    ) -> RealArray:
        (linear, (divergence, scale, _)), (train, held) = model, training.parts[number]
        table = _table(training, divergence)
        table = table[held] if are_many(training, _MOST) else cut(table, held, train)
        return to_host(linear.decide(decay(table, scale)))[:, 0]

    def _decide_new(self, new: Prepared) -> RealArray:
        divergence, scale, _ = self.best_params_.values()
        engine = engine_of(self, LEARNING_ACCURACY)
        table = training_table(self, divergence, engine, new)
        return to_host(self.model_.decide(decay(table, scale)))[:, 0]


def count_cubes(training: NumberedTraining) -> float:
    """Sum of the cubes of the sizes of all kernels whose eigenvectors a default fit computes."""
    if are_many(training, _MOST):
        return 0.0
    n_kernels = len(usual_divergences()) * len(SCALES)
    return float(n_kernels * sum(float(len(train)) ** 3 for train, _ in training.parts[:-1]))


def _table(training: NumberedTraining, divergence: Divergence) -> RealArray:
    return shared_table(training, divergence, POINTS, shared_columns(training, _MOST))
