"""Estimators that fit candidates on folds, choose one by held-out data, and fit it again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from threading import RLock
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, Self, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata
from sklearn.base import BaseEstimator

from divlearn.arrays import Indices, Labels, RealArray
from divlearn.checks import RandomState
from divlearn.divergence import Divergence
from divlearn.engines import Engine, Prepared
from divlearn.fitting.folds import Fold, Folds, Splitter, split_by_fold
from divlearn.fitting.labelled import Checked, engine_of, fit_method
from divlearn.fitting.progress import say
from divlearn.fitting.selection import Criterion, HeldOut, Nest, nest_folds
from divlearn.log_vectors import log_vectors
from divlearn.text import counted
from divlearn.threads import count_jobs, limit_blas
from divlearn.tolerances import LEARNING_ACCURACY

_T = TypeVar("_T", bound=Hashable)
_P = TypeVar("_P", bound=tuple[Hashable, ...])  # values of parameters
_A = TypeVar("_A")
_F = TypeVar("_F")
Model = Any  # its type depends on the estimator


class Memo:
    """Cache of results by key, each computed once: other threads that need it wait.

    It drops the oldest results beyond `size`; zero is no limit.
    """

    def __init__(self, size: int = 0) -> None:
        self._size = size
        self._results: dict[Hashable, object] = {}
        self._locks: dict[Hashable, RLock] = {}

    def cached(self, key: Hashable, compute: Callable[[], _F]) -> _F:
        """Return the result of this key, computed at the first call."""
        with self._locks.setdefault(key, RLock()):
            try:
                return cast(_F, self._results[key])
            except KeyError:
                result = self._results[key] = compute()
        for oldest in list(self._results)[: -self._size] if self._size else []:
            self._results.pop(oldest, None)
        return result


# A learned attribute of each estimator, and its form for predictions. It is no attribute of the
# estimators: pickles, files and clones are without it.
_prepared: WeakKeyDictionary[Any, tuple[object, object]] = WeakKeyDictionary()


def prepare_once(estimator: object, array: _A, prepare: Callable[[_A], _F]) -> _F:
    """Return the prepared form of a learned attribute, computed again after another fit."""
    cached = _prepared.get(estimator)
    if cached is None or cached[0] is not array:
        cached = _prepared[estimator] = array, prepare(array)
    return cast(_F, cached[1])


class FoldedData(Memo):
    """Checked matrices, their folds, and features that estimators share."""

    def __init__(self, data: Checked, folds: Folds, engine: Engine) -> None:
        super().__init__()
        self.data, self.folds, self.engine = data, list(folds), engine

    @cached_property
    def nest(self) -> Nest:
        return nest_folds(self.folds, self.data.strata)

    @cached_property
    def parts(self) -> list[Fold]:
        """The folds, those of the nest, and last all data, which holds out nothing."""
        all_rows = np.arange(len(self.data.matrices))
        return [*self.folds, *self.nest.folds, (all_rows, all_rows[:0])]

    @cached_property
    def tested(self) -> Indices:
        """Rows that some fold holds out, ascending."""
        return np.unique(np.concatenate([held for _, held in self.folds]))

    @property
    def device_matrices(self) -> RealArray:
        """All matrices in the memory of the engine, on the host or on a device."""
        return self.cached("matrices", lambda: self.engine.send(self.data.matrices))

    @property
    def log_vectors(self) -> RealArray:
        """Logarithms of all matrices as vectors, in the memory of the engine."""
        return self.cached("log vectors", lambda: log_vectors(self.device_matrices))

    @property
    def whole(self) -> int:
        """Number of the part with all data."""
        return len(self.parts) - 1


class Grid(NamedTuple, Generic[_T]):
    """Candidates, and a function that refines the best of them to further ones."""

    candidates: Sequence[_T]
    refine: Callable[[_T], Sequence[_T]] = lambda _: ()


def coordinate_grid(candidates: Sequence[_P]) -> Grid[_P]:
    """Candidates that vary the last parameter, others in the middle; then refine the others."""
    middle = candidates[len(candidates) // 2]
    return Grid(
        [c for c in candidates if c[:-1] == middle[:-1]],
        lambda best: [c for c in candidates if c[-1:] == best[-1:] and c != best],
    )


def shares_of(folds_rows: Sequence[Indices], weights: RealArray) -> RealArray:
    """Shares of rows in a mean over folds of weighted means, fold by fold."""
    n = len(folds_rows)
    return np.concatenate([weights[rows] / weights[rows].sum() / n for rows in folds_rows])


_D = TypeVar("_D", bound=FoldedData)


class HeldOutEstimator(BaseEstimator, Generic[_T, _D]):  # type: ignore[misc]
    """Base of estimators that choose their parameters on held-out data.

    A subclass defines the candidates (`_grid`), how to fit a candidate to a part of the training
    data (`_learner`), and the decisions of a model on held-out (`_decide`) and on new matrices
    (`_decide_new`). Candidates are hashable; only the subclass knows the type of its models.
    """

    _nested: ClassVar[bool] = False  # whether the choice needs models of the nest
    _names: ClassVar[tuple[str, ...]] = ()  # of parameters; none if candidates are named pairs
    _training: ClassVar[type[FoldedData]]

    cv: Splitter
    engine: str | Engine
    random_state: RandomState
    n_jobs: int | None = 1  # threads that fit candidates to parts; None for those of the engine
    verbose: int = 0
    regularize: str | float

    n_features_in_: Annotated[int, "d"]
    best_params_: dict[str, Any]
    best_score_: float
    message_: str
    cv_results_: dict[str, Any]
    model_: Model

    @abstractmethod
    def _grid(self, training: _D) -> Grid[_T]:
        """Candidates to choose from."""

    @abstractmethod
    def _learner(self, training: _D, number: int) -> Callable[[_T], Model]:
        """Prepare a part of the training data, and return a function from candidates to models."""

    @abstractmethod
    def _decide(self, model: Model, training: _D, number: int) -> RealArray:
        """Return decisions on the matrices that a part holds out.

        Those of classifiers are scores, (n_matrices, n_classes), or several forms of them on a last
        axis, of which one is chosen.
        """

    @abstractmethod
    def _decide_new(self, new: Prepared) -> RealArray:
        """Return decisions on ``new.matrices`` by ``model_``, which is fitted to all data."""

    def _inner_grid(self, grid: Grid[_T]) -> Grid[_T]:
        """Candidates for the choices that leave out a fold."""
        return grid

    def _describe(self, candidate: _T) -> dict[str, Any]:
        """Return the parameters of a candidate by name."""
        values: Any = candidate
        return dict(zip(self._names, values, strict=True) if self._names else values)

    def _check_parameters(self) -> None:
        """Check parameters of the estimator."""

    @abstractmethod
    def _make_criterion(self, training: _D) -> Criterion:
        """Return a function to the shares of rows in a score, the higher the better."""

    @abstractmethod
    def _choose(self, training: _D, held_out: HeldOut[_T], grid: Grid[_T]) -> _T:
        """Choose a candidate, and set attributes with its held-out figures."""

    @abstractmethod
    def _check_data(
        self,
        X: ArrayLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None,
        groups: ArrayLike | None,
    ) -> Checked:
        """Check the data to learn from."""

    @fit_method
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Choose parameters on held-out parts of the data, and learn from all of it.

        X has the shape (n_matrices, d, d), the others (n_matrices,). Only ratios of weights matter;
        zero leaves a matrix out. Matrices of one group are held out together.
        """
        self._check_parameters()
        engine = engine_of(self, LEARNING_ACCURACY)
        data = self._check_data(X, y, sample_weight, groups)
        folds = data.folds(self.cv, self.random_state)
        return self.fit_training(cast(_D, self._training(data, folds, engine)))

    def fit_training(self, training: _D) -> Self:
        """Fit to data that was checked, and to features that were computed before."""
        self.n_features_in_ = training.data.matrices.shape[-1]
        with limit_blas(1):
            held_out, grid = self._hold_out(training), self._grid(training)
            self._fit_model(training, self._choose(training, held_out, grid))
        return self

    def _fit_model(self, training: _D, best: _T) -> None:
        """Fit the best candidate to all data."""
        self.model_ = self._learner(training, training.whole)(best)

    def _hold_out(self, training: _D) -> HeldOut[_T]:
        learners = Memo()

        def decide(candidate: _T, number: int) -> RealArray:
            learn = learners.cached(number, lambda: self._learner(training, number))
            return self._decide(learn(candidate), training, number)

        return HeldOut(
            decide,
            self._make_criterion(training),
            training.folds,
            training.nest,
            nested=self._nested,
            n_jobs=count_jobs(self.n_jobs, training.engine.n_threads),
        )

    def _keep_tried(
        self, training: _D, held_out: HeldOut[_T], grid: Grid[_T], best: _T, figure: str
    ) -> None:
        """Set the table of candidates, and the message with a held-out figure of the best."""
        self.best_params_ = self._describe(best)
        tried = list(dict.fromkeys([*grid.candidates, best, *grid.refine(best)]))
        self.cv_results_ = self._tabulate(training, held_out, tried)
        self.best_score_ = float(self.cv_results_["mean_test_score"].max())
        choice = ", ".join(f"{k} = {_short(value)}" for k, value in self.best_params_.items())
        self.message_ = (
            f"{choice or type(self).__name__}: held-out {figure} over "
            f"{counted(len(training.folds), 'folds')}"
        )
        if len(tried) > 1:
            self.message_ += f"; each has the best of {len(tried)} combinations on the other folds"
        say(self, self.message_)

    def _tabulate(self, training: _D, held_out: HeldOut[_T], tried: Sequence[_T]) -> dict[str, Any]:
        """Tabulate the candidates, as `sklearn.model_selection.GridSearchCV` does."""
        n_folds = len(training.folds)
        shares = [split_by_fold(held_out.shares(candidate), training.folds) for candidate in tried]
        scores = np.array([[n_folds * fold.sum() for fold in folds] for folds in shares]).round(12)
        mean = scores.mean(axis=1)
        params = [self._describe(candidate) for candidate in tried]
        return {
            **{f"param_{name}": _column([values[name] for values in params]) for name in params[0]},
            "params": params,
            **{f"split{fold}_test_score": column for fold, column in enumerate(scores.T)},
            "mean_test_score": mean,
            "std_test_score": scores.std(axis=1),
            "rank_test_score": rankdata(-mean, method="min").astype(np.int32),
        }


def _column(values: Sequence[object]) -> Labels:
    if all(isinstance(value, int | float) for value in values):
        return np.array(values)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _short(value: object) -> str:
    if isinstance(value, Divergence):
        return value.name
    return f"{value:.4g}" if isinstance(value, float) else str(value)
