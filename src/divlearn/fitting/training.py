"""Training on folds: fit candidates, choose one by held-out data, calibrate it, fit it again."""

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
from divlearn.checks import ClassWeight, RandomState
from divlearn.engines import Engine, get_engine
from divlearn.fitting.calibration import (
    SCORES,
    Calibration,
    Forms,
    calibrate,
    calibrate_by,
    fit_temperature,
)
from divlearn.fitting.folds import Fold, Folds, Splitter
from divlearn.fitting.labelled import (
    Labelled,
    MatrixClassifierMixin,
    check_labelled,
    check_new,
    fit_method,
)
from divlearn.fitting.progress import say
from divlearn.fitting.selection import HeldOut, Nest, average_held_out, nest_folds
from divlearn.log_vectors import log_vectors
from divlearn.threads import count_jobs, limit_blas
from divlearn.tolerances import LEARNING_ACCURACY

_T = TypeVar("_T", bound=Hashable)
_P = TypeVar("_P", bound=tuple[Hashable, ...])  # values of parameters
_F = TypeVar("_F")
Model = Any  # whatever `_decide` of a classifier understands
Judge = Callable[[Sequence[RealArray], Sequence[Indices]], RealArray]  # see `HeldOut`

_LEAST = np.log(1e-4)  # of logarithms in the loss: no single matrix decides


class Memo:
    """Results by key, each computed once: threads that need one wait for it."""

    def __init__(self) -> None:
        self._known: dict[Hashable, object] = {}
        self._locks: dict[Hashable, RLock] = {}

    def once(self, key: Hashable, compute: Callable[[], _F]) -> _F:
        """Return what was computed before under this key, or compute it."""
        with self._locks.setdefault(key, RLock()):
            if key not in self._known:
                self._known[key] = compute()
        return cast(_F, self._known[key])


class Training(Memo):
    """Checked matrices, their classes and folds, and features that classifiers share."""

    def __init__(self, data: Labelled, folds: Folds, engine: Engine) -> None:
        super().__init__()
        self.data, self.folds, self.engine = data, list(folds), engine

    @cached_property
    def nest(self) -> Nest:
        return nest_folds(self.folds, self.data.codes)

    @cached_property
    def parts(self) -> list[Fold]:
        """The folds, those of the nest, and last everything, which holds out nothing."""
        everything = np.arange(len(self.data.codes))
        return [*self.folds, *self.nest.folds, (everything, everything[:0])]

    @cached_property
    def tested(self) -> Indices:
        """Rows that some fold holds out, ascending."""
        return np.unique(np.concatenate([held for _, held in self.folds]))

    @property
    def log_vectors(self) -> RealArray:
        """Logarithms of all matrices as vectors."""
        return self.once("log vectors", lambda: log_vectors(self.data.matrices))

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


class Chosen(NamedTuple, Generic[_T]):
    """A candidate, and the held-out figures of such a choice.

    For every fold the candidate and its calibration are chosen without the fold.
    """

    best: _T
    calibration: Calibration  # of the best
    rows: Indices  # that some fold holds out
    probabilities: RealArray  # of these rows
    decisions: RealArray  # likewise
    optimistic: RealArray  # probabilities by the best and its calibration, which know the labels


def choose(
    training: Training, held_out: HeldOut[_T], grid: Grid[_T], inner: Grid[_T], forms: Forms
) -> Chosen[_T]:
    """Choose from a grid; without each fold, from the inner one, which may be cheaper."""
    folds, codes, weights = training.folds, training.data.codes, training.data.weights
    best = held_out.best(*grid)
    rows, decisions = average_held_out(held_out.decisions([best] * len(folds)), folds, len(codes))
    scores = forms.all(decisions)
    calibration = calibrate(scores, codes[rows], weights[rows])
    optimistic = np.exp(calibration.log_probabilities(scores))
    chosen = [held_out.best(*inner, without=number) for number in range(len(folds))]
    parts = held_out.decisions(chosen)
    probabilities = []
    for number, (one, own) in enumerate(zip(chosen, parts, strict=True)):
        others, where = held_out.without(one, number)
        place = np.concatenate([rows[:0], *where])
        scores = forms.all(np.concatenate([own[:0], *others]))
        probabilities.append(calibrate_by(forms.all(own), scores, codes[place], weights[place]))
    rows, averaged = average_held_out(probabilities, folds, len(codes))
    decisions = average_held_out(parts, folds, len(codes))[1]
    return Chosen(best, calibration, rows, averaged, decisions, optimistic)


def shares_of(rows: Sequence[Indices], weights: RealArray) -> RealArray:
    """Shares of rows in a mean over folds of weighted means, fold by fold."""
    return np.concatenate([weights[one] / weights[one].sum() / len(rows) for one in rows])


def judge_accuracy(training: Training, forms: Forms) -> Judge:
    """Make a function to shares of rows in the mean over folds of the accuracy."""
    codes, weights = training.data.codes, training.data.weights

    def judge(parts: Sequence[RealArray], rows: Sequence[Indices]) -> RealArray:
        scores = forms.middle(np.concatenate(parts))
        right = scores.argmax(axis=1) == codes[np.concatenate(rows)]
        return right * shares_of(rows, weights)

    return judge


def judge_likelihood(training: Training, forms: Forms) -> Judge:
    """Make a function to shares in the mean over folds of the calibrated log-likelihood."""
    codes, weights = training.data.codes, training.data.weights

    def judge(parts: Sequence[RealArray], rows: Sequence[Indices]) -> RealArray:
        where = np.concatenate(rows)
        scores = forms.middle(np.concatenate(parts))
        shares = shares_of(rows, weights)
        temperature, _ = fit_temperature(scores, codes[where], shares)
        known = Calibration(0, temperature).log_probabilities(scores[..., None])
        return shares * np.maximum(known[np.arange(len(where)), codes[where]], _LEAST)

    return judge


_JUDGES = {"accuracy": judge_accuracy, "likelihood": judge_likelihood}


class HeldOutClassifier(MatrixClassifierMixin, BaseEstimator, Generic[_T]):  # type: ignore[misc]
    """Base of classifiers that choose their parameters on held-out data.

    A subclass says what its candidates are (`_grid`), how one is fitted to a part of the training
    data (`_learner`), and how a model decides on what is held out and on new matrices. Candidates
    are hashable; a model is whatever `_decide` understands.
    """

    _nested: ClassVar[bool] = False  # whether the choice needs models of the nest
    _needs_folds: ClassVar[bool] = True  # or take the first candidate if nothing can be held out
    _forms: ClassVar[Forms] = SCORES
    _criterion: ClassVar[str] = "likelihood"  # or "accuracy", of held-out matrices

    cv: Splitter
    engine: str | Engine
    random_state: RandomState
    class_weight: ClassWeight
    n_jobs: int | None = 1  # threads that fit candidates to parts; None for those of the engine
    verbose: int = 0
    regularize: str | float

    best_params_: dict[str, Any]
    calibration_: tuple[int, float]  # form and temperature of a `Calibration`
    oof_proba_: Annotated[RealArray, "n_matrices n_classes"]
    _optimistic_proba: Annotated[RealArray, "n_matrices n_classes"]
    held_out_accuracy_: float
    best_score_: float
    message_: str
    cv_results_: dict[str, Any]
    model_: Model

    @abstractmethod
    def _grid(self, training: Training) -> Grid[_T]:
        """Candidates to choose from."""

    @abstractmethod
    def _learner(self, training: Training, number: int) -> Callable[[_T], Model]:
        """Prepare a part of the training data, and return a function from candidates to models."""

    @abstractmethod
    def _decide(self, model: Model, training: Training, number: int) -> RealArray:
        """Decide on what a part holds out."""

    @abstractmethod
    def _decide_new(self, matrices: RealArray) -> RealArray:
        """Decide on new matrices by the model of everything, ``model_``."""

    def _inner_grid(self, grid: Grid[_T]) -> Grid[_T]:
        """Candidates to choose from without each fold."""
        return grid

    def _describe(self, candidate: _T) -> dict[str, Any]:
        """Name the parameters of a candidate."""
        named = getattr(candidate, "_asdict", None)
        return dict(candidate) if named is None else named()  # type: ignore[call-overload]

    def _check_parameters(self) -> None:
        """Check parameters of the estimator."""

    @fit_method
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Choose parameters on held-out parts of the data, and learn from all of it.

        X has the shape (n_matrices, d, d), the others (n_matrices,). Only ratios of weights matter;
        zero leaves a matrix out. Matrices of one group are held out together.
        """
        self._check_parameters()
        engine = get_engine(self.engine, accuracy=LEARNING_ACCURACY)
        class_weight = self.get_params(deep=False).get("class_weight")
        data = check_labelled(self, X, y, sample_weight, class_weight, groups)
        return self.fit_training(Training(data, data.folds(self.cv, self.random_state), engine))

    def fit_training(self, training: Training) -> Self:
        """Fit to data that was checked, and to features that were computed before."""
        data = training.data
        self.classes_, self.n_features_in_ = data.classes, data.matrices.shape[-1]
        if not training.folds and self._needs_folds:
            raise ValueError(
                "every class has 1 matrix or group, but some must have >= 2, one to train on and "
                "one to test on; pass more matrices"
            )
        with limit_blas(1):
            held_out, grid = self._hold_out(training), self._grid(training)
            if training.folds:
                chosen = choose(training, held_out, grid, self._inner_grid(grid), self._forms)
                self._keep(training, held_out, grid, chosen)
                best = chosen.best
            else:
                best = grid.candidates[0]
                self._keep_first(training, best)
            self._fit_model(training, best)
        return self

    def _keep_first(self, training: Training, first: _T) -> None:
        self.best_params_ = self._describe(first)
        self.calibration_ = self._forms.n_forms // 2, 1.0
        self.oof_proba_ = np.full((len(training.data.y), len(self.classes_)), np.nan)
        self._optimistic_proba = self.oof_proba_
        self.held_out_accuracy_ = self.best_score_ = np.nan
        self.message_ = "no class has two matrices or groups, one to hold out; nothing was chosen"
        self.cv_results_ = {"params": [self.best_params_]}

    def _fit_model(self, training: Training, best: _T) -> None:
        """Fit the best candidate to everything."""
        self.model_ = self._learner(training, training.whole)(best)

    def _hold_out(self, training: Training) -> HeldOut[_T]:
        learners = Memo()

        def decide(candidate: _T, number: int) -> RealArray:
            learn = learners.once(number, lambda: self._learner(training, number))
            return self._decide(learn(candidate), training, number)

        judge = _JUDGES[self._criterion](training, self._forms)
        return HeldOut(
            decide,
            judge,
            training.folds,
            training.nest,
            nested=self._nested,
            n_jobs=count_jobs(self.n_jobs, training.engine.n_threads),
        )

    def _keep(
        self, training: Training, held_out: HeldOut[_T], grid: Grid[_T], chosen: Chosen[_T]
    ) -> None:
        data = training.data
        self.best_params_ = self._describe(chosen.best)
        self.calibration_ = chosen.calibration.form, chosen.calibration.temperature
        self.oof_proba_ = data.spread(chosen.rows, chosen.probabilities)
        self._optimistic_proba = data.spread(chosen.rows, chosen.optimistic)
        right = chosen.probabilities.argmax(axis=1) == data.codes[chosen.rows]
        self.held_out_accuracy_ = float(np.average(right, weights=data.weights[chosen.rows]))
        tried = list(dict.fromkeys([*grid.candidates, chosen.best, *grid.refine(chosen.best)]))
        self.cv_results_ = self._tabulate(training, held_out, tried)
        self.best_score_ = float(self.cv_results_["mean_test_score"].max())
        named = ", ".join(f"{name} = {_short(one)}" for name, one in self.best_params_.items())
        self.message_ = (
            f"{named or type(self).__name__}: held-out accuracy {self.held_out_accuracy_:.3f} over "
            f"{len(training.folds)} folds"
        )
        if len(tried) > 1:
            self.message_ += f", with the best of {len(tried)} combinations chosen without each"
        say(self, self.message_)

    def _tabulate(
        self, training: Training, held_out: HeldOut[_T], tried: Sequence[_T]
    ) -> dict[str, Any]:
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

    def predict_log_proba(self, X: ArrayLike) -> RealArray:
        """Logarithms of `predict_proba`, exact where probabilities underflow."""
        scores = self._forms.all(self._decide_new(check_new(self, X)))
        return Calibration(*self.calibration_).log_probabilities(scores)

    def predict_proba(self, X: ArrayLike) -> RealArray:
        """Probabilities of the classes, shape (n_matrices, n_classes), by held-out calibration."""
        return np.exp(self.predict_log_proba(X))


def _column(values: Sequence[object]) -> Labels:
    if all(isinstance(one, int | float) for one in values):
        return np.array(values)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
