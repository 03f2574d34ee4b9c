"""Estimators that fit candidates on folds, choose one by held-out data, and fit it again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from threading import RLock
from typing import Annotated, Any, ClassVar, Generic, NamedTuple, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata
from sklearn.base import BaseEstimator

from divlearn.arrays import Indices, Labels, RealArray
from divlearn.checks import RandomState
from divlearn.divergence import Divergence
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.fitting.folds import Fold, Folds, Splitter
from divlearn.fitting.labelled import Checked, fit_method
from divlearn.fitting.progress import say
from divlearn.fitting.selection import HeldOut, Nest, nest_folds
from divlearn.log_vectors import log_vectors
from divlearn.threads import count_jobs, limit_blas
from divlearn.tolerances import LEARNING_ACCURACY

_T = TypeVar("_T", bound=Hashable)
_P = TypeVar("_P", bound=tuple[Hashable, ...])  # values of parameters
_F = TypeVar("_F")
Model = Any  # whatever `_decide` of an estimator understands
Judge = Callable[[Sequence[RealArray], Sequence[Indices]], RealArray]  # see `HeldOut`


class Memo:
    """Results by key, each computed once: threads that need one wait for it.

    Of more than `most`, if that is not zero, the oldest are forgotten.
    """

    def __init__(self, most: int = 0) -> None:
        self._most = most
        self._known: dict[Hashable, object] = {}
        self._locks: dict[Hashable, RLock] = {}

    def once(self, key: Hashable, compute: Callable[[], _F]) -> _F:
        """Return what was computed before under this key, or compute it."""
        with self._locks.setdefault(key, RLock()):
            try:
                return cast(_F, self._known[key])
            except KeyError:
                found = self._known[key] = compute()
        for old in list(self._known)[: -self._most] if self._most else []:
            self._known.pop(old, None)
        return found


class Folded(Memo):
    """Checked matrices, their folds, and features that estimators share."""

    def __init__(self, data: Checked, folds: Folds, engine: Engine) -> None:
        super().__init__()
        self.data, self.folds, self.engine = data, list(folds), engine

    @cached_property
    def nest(self) -> Nest:
        return nest_folds(self.folds, self.data.strata)

    @cached_property
    def parts(self) -> list[Fold]:
        """The folds, those of the nest, and last everything, which holds out nothing."""
        everything = np.arange(len(self.data.matrices))
        return [*self.folds, *self.nest[0], (everything, everything[:0])]

    @cached_property
    def tested(self) -> Indices:
        """Rows that some fold holds out, ascending."""
        return np.unique(np.concatenate([held for _, held in self.folds]))

    @property
    def there(self) -> RealArray:
        """All matrices where the engine works, on the host or on a device."""
        return self.once("there", lambda: self.engine.send(self.data.matrices))

    @property
    def log_vectors(self) -> RealArray:
        """Logarithms of all matrices as vectors, where the engine works."""
        return self.once("log vectors", lambda: log_vectors(self.there))

    @property
    def whole(self) -> int:
        """Number of the part that is everything."""
        return len(self.parts) - 1


class Grid(NamedTuple, Generic[_T]):
    """Candidates, and more of them, to be tried next to the best."""

    candidates: Sequence[_T]
    refine: Callable[[_T], Sequence[_T]] = lambda _: ()


def in_turn(candidates: Sequence[_P]) -> Grid[_P]:
    """Values of the last parameter with the others in the middle, then the others with the best."""
    middle = candidates[len(candidates) // 2]
    return Grid(
        [one for one in candidates if one[:-1] == middle[:-1]],
        lambda best: [one for one in candidates if one[-1:] == best[-1:] and one != best],
    )


def shares_of(rows: Sequence[Indices], weights: RealArray) -> RealArray:
    """Shares of rows in a mean over folds of weighted means, fold by fold."""
    return np.concatenate([weights[one] / weights[one].sum() / len(rows) for one in rows])


_D = TypeVar("_D", bound=Folded)


class HeldOutEstimator(BaseEstimator, Generic[_T, _D]):  # type: ignore[misc]
    """Base of estimators that choose their parameters on held-out data.

    A subclass says what its candidates are (`_grid`), how one is fitted to a part of the training
    data (`_learner`), and how a model decides on what is held out and on new matrices. Candidates
    are hashable; a model is whatever `_decide` understands.
    """

    _nested: ClassVar[bool] = False  # whether the choice needs models of the nest
    _names: ClassVar[tuple[str, ...]] = ()  # of values of candidates, unless these have them
    _training: ClassVar[type[Folded]]

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
        """Decide on what a part holds out."""

    @abstractmethod
    def _decide_new(self, new: Prepared) -> RealArray:
        """Decide on ``new.matrices`` by the model of everything, ``model_``."""

    def _inner_grid(self, grid: Grid[_T]) -> Grid[_T]:
        """Candidates to choose from without each fold."""
        return grid

    def _describe(self, candidate: _T) -> dict[str, Any]:
        """Name the parameters of a candidate."""
        values: Any = candidate
        return dict(zip(self._names, values, strict=True) if self._names else values)

    def _check_parameters(self) -> None:
        """Check parameters of the estimator."""

    @abstractmethod
    def _judge(self, training: _D) -> Judge:
        """Make a function to shares of rows in a score, the higher the better."""

    @abstractmethod
    def _choose(self, training: _D, held_out: HeldOut[_T], grid: Grid[_T]) -> _T:
        """Choose a candidate, and keep what is known of it."""

    @abstractmethod
    def _check_data(
        self,
        X: ArrayLike,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None,
        groups: ArrayLike | None,
    ) -> Checked:
        """Check what to learn from."""

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
        engine = get_engine(self.engine, accuracy=LEARNING_ACCURACY)
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
        """Fit the best candidate to everything."""
        self.model_ = self._learner(training, training.whole)(best)

    def _hold_out(self, training: _D) -> HeldOut[_T]:
        learners = Memo()

        def decide(candidate: _T, number: int) -> RealArray:
            learn = learners.once(number, lambda: self._learner(training, number))
            return self._decide(learn(candidate), training, number)

        return HeldOut(
            decide,
            self._judge(training),
            training.folds,
            training.nest,
            nested=self._nested,
            n_jobs=count_jobs(self.n_jobs, training.engine.n_threads),
        )

    def _keep_tried(
        self, training: _D, held_out: HeldOut[_T], grid: Grid[_T], best: _T, figure: str
    ) -> None:
        """Keep what was tried and chosen, in a table and in a sentence with a held-out figure."""
        self.best_params_ = self._describe(best)
        tried = list(dict.fromkeys([*grid.candidates, best, *grid.refine(best)]))
        self.cv_results_ = self._tabulate(training, held_out, tried)
        self.best_score_ = float(self.cv_results_["mean_test_score"].max())
        named = ", ".join(f"{name} = {_short(one)}" for name, one in self.best_params_.items())
        self.message_ = (
            f"{named or type(self).__name__}: held-out {figure} over {len(training.folds)} folds"
        )
        if len(tried) > 1:
            self.message_ += f", with the best of {len(tried)} combinations chosen without each"
        say(self, self.message_)

    def _tabulate(self, training: _D, held_out: HeldOut[_T], tried: Sequence[_T]) -> dict[str, Any]:
        """Tabulate what was tried, as `sklearn.model_selection.GridSearchCV` does."""
        n_folds = len(training.folds)
        ends = np.cumsum([len(held) for _, held in training.folds])[:-1]
        shares = [np.split(held_out.shares(one), ends) for one in tried]
        splits = np.array([[n_folds * part.sum() for part in one] for one in shares]).round(12)
        mean = splits.mean(axis=1)
        params = [self._describe(one) for one in tried]
        return {
            **{f"param_{name}": _column([one[name] for one in params]) for name in params[0]},
            "params": params,
            **{f"split{number}_test_score": one for number, one in enumerate(splits.T)},
            "mean_test_score": mean,
            "std_test_score": splits.std(axis=1),
            "rank_test_score": rankdata(-mean, method="min").astype(np.int32),
        }


def _column(values: Sequence[object]) -> Labels:
    if all(isinstance(one, int | float) for one in values):
        return np.array(values)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _short(value: object) -> str:
    if isinstance(value, Divergence):
        return value.name
    return f"{value:.4g}" if isinstance(value, float) else str(value)
