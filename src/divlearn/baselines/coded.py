"""Classifiers of codes: a dictionary, a coding by its atoms, and a linear machine on the codes."""

from __future__ import annotations

import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from itertools import product
from typing import Annotated, Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin as NamesMixin
from sklearn.base import TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from divlearn.arrays import RealArray
from divlearn.baselines.log_svm import VectorClassifier
from divlearn.checks import RandomState, check_count, check_number
from divlearn.cluster import LogEuclideanKMeans
from divlearn.cluster.runs import Run, repeat
from divlearn.engines import Prepared
from divlearn.fitting.checkpoint import draw_seed
from divlearn.fitting.labelled import check_new, fit_method
from divlearn.fitting.training import Grid, Training, choose
from divlearn.geometry import move_frames
from divlearn.kernels.classifier import Candidate, other_penalties
from divlearn.kernels.machines import couple
from divlearn.log_vectors import spread
from divlearn.optim import Problem, Trial, minimize_conjugate_gradient
from divlearn.spd import usable
from divlearn.threads import limit_blas

Parameters = dict[str, float]

_ATOMS_PER_CLASS = 5
_ROUNDING = 1e-9
_PENALTIES = (0.1, 1.0, 10.0, 100.0)  # larger ones do not help codes, and take longest
_STEPS = 5  # of conjugate gradients, for each update of the atoms


class View(ABC):
    """Features of matrices and atoms for coding; an optimiser moves points, the frames of atoms."""

    atoms: RealArray

    def span(self, atoms: RealArray) -> Self:
        """Return a view of the same matrices by other atoms."""
        other = copy(self)
        other._set_atoms(atoms)
        return other

    @abstractmethod
    def _set_atoms(self, atoms: RealArray) -> None: ...

    @abstractmethod
    def objective(self, codes: RealArray, parameters: Parameters) -> tuple[float, Any]:
        """Mean objective of codes, and a memo for `gradient`."""

    @abstractmethod
    def gradient(
        self, point: RealArray, codes: RealArray, parameters: Parameters, memo: Any
    ) -> RealArray:
        """Gradient of the objective in the point of the atoms."""

    def to_point(self, atoms: RealArray) -> RealArray:
        return np.linalg.cholesky(atoms)

    def from_point(self, point: RealArray) -> RealArray:
        return point @ point.mT

    def move(self, point: RealArray, step: RealArray) -> RealArray:
        return move_frames(point, step)


_View = TypeVar("_View", bound=View)
Code = Callable[..., RealArray]  # of a view, parameters, and initial codes


class CodedClassifier(NamesMixin, TransformerMixin, VectorClassifier, Generic[_View]):  # type: ignore[misc]
    """Codes by a dictionary, learned without labels, and a linear machine on them."""

    _nested = True

    dictionary_: Annotated[RealArray, "n_atoms d d"]
    history_: dict[str, NDArray[np.generic]]
    machine_: SVC
    n_iter_: int
    unit_: float

    n_atoms: int | str
    max_iter: int
    tol: float
    random_state: RandomState
    verbose: int

    @abstractmethod
    def _view(self, matrices: RealArray, atoms: RealArray) -> _View:
        """Return the view of matrices and atoms."""

    @abstractmethod
    def _codings(self, view: _View) -> Sequence[Parameters]:
        """Parameters to choose from, those of the strongest regularisation first."""

    @abstractmethod
    def _codes(
        self, view: _View, parameters: Parameters, start: RealArray | None = None
    ) -> RealArray:
        """Code the matrices of a view, with an objective not above that of the initial codes."""

    @fit_method
    def fit(  # type: ignore[override]
        self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None
    ) -> Self:
        """Choose parameters on held-out parts of the data, and learn from all of it.

        X has the shape (n_matrices, d, d), labels y and groups (n_matrices,). Matrices of one group
        are held out together. There are no weights of matrices.
        """
        return super().fit(X, y, None, groups)

    def _check_parameters(self) -> None:
        check_count(self.max_iter, "max_iter", least=0)
        check_number(self.tol, "tol")

    def _grid(self, training: Training) -> Grid[Candidate]:
        pairs = product(self._codings(self._first_view(training)), _PENALTIES)
        return Grid([(*coding.items(), ("C", C)) for coding, C in pairs])

    def _first_view(self, training: Training) -> _View:
        """Return the view of the matrices and the initial atoms."""
        matrices = training.data.matrices

        def start() -> _View:
            n_atoms = self._count_atoms(len(matrices), len(self.classes_))
            atoms = self._start(matrices, n_atoms, draw_seed(self.random_state))
            return self._view(matrices, atoms)

        return training.cached(("dictionary", id(self)), start)  # of this estimator only

    def _inner_grid(self, grid: Grid[Candidate]) -> Grid[Candidate]:
        """Compare codings with the middle C, then try other values of C."""
        middle = "C", _PENALTIES[len(_PENALTIES) // 2]
        refine = partial(other_penalties, penalties=_PENALTIES)
        return Grid([c for c in grid.candidates if c[-1] == middle], refine)

    def _vectors(self, training: Training, candidate: Candidate) -> RealArray:
        """Codes by the initial dictionary; by the learned one for candidates of C alone."""
        *coding, _ = candidate

        def compute() -> RealArray:
            codes = _without_rounding(self._codes(self._first_view(training), dict(coding)))
            return codes / spread(codes)

        return training.cached(("codes", id(self), *coding), compute)

    def _fit_model(self, training: Training, best: Candidate) -> None:
        """Learn the dictionary; then choose C again, for codes by it."""
        *coding, _ = best
        run = learn_dictionary(
            self._first_view(training), self._codes, dict(coding), self.max_iter, self.tol
        )
        self.dictionary_, codes = run.result
        self.n_iter_, self.message_, self.history_ = run.n_iter, run.message, run.history
        codes = _without_rounding(codes)
        self.unit_ = spread(codes)
        training.cached(("codes", id(self)), lambda: codes / self.unit_)
        grid: Grid[Candidate] = Grid([(("C", C),) for C in _PENALTIES])
        penalty = grid.candidates[0]
        if training.folds:
            chosen = choose(training, self._hold_out(training), grid, grid)
            penalty, self.calibration_ = chosen.best, chosen.calibration
        self.best_params_ = dict([*coding, *penalty])
        self.machine_, _ = self._learner(training, training.whole)(penalty)

    def _start(self, matrices: RealArray, n_atoms: int, seed: int) -> RealArray:
        means = LogEuclideanKMeans(n_atoms, random_state=seed)
        with warnings.catch_warnings():
            if isinstance(self.n_atoms, str):  # "auto": there may be fewer
                warnings.simplefilter("ignore", ConvergenceWarning)
            means.fit(matrices)
        return means.cluster_centers_[np.unique(means.labels_)]

    def transform(self, X: ArrayLike) -> RealArray:
        """Codes of matrices, shape (n_matrices, n_atoms)."""
        return self._code(check_new(self, X))

    def _code(self, matrices: RealArray) -> RealArray:
        with limit_blas(1):
            return self._codes(self._view(matrices, self.dictionary_), self.best_params_)

    def _decide_new(self, new: Prepared) -> RealArray:
        codes = self._code(new.matrices) / self.unit_
        return couple(self.machine_.decision_function(codes))

    def _count_atoms(self, n_matrices: int, n_classes: int) -> int:
        if isinstance(self.n_atoms, str) and self.n_atoms == "auto":
            return min(_ATOMS_PER_CLASS * n_classes, n_matrices)
        fix = ', the number of matrices, or "auto"'
        return check_count(self.n_atoms, "n_atoms", most=n_matrices, fix=fix)

    @property
    def _n_features_out(self) -> int:
        return len(self.dictionary_)


class AtomsProblem(Problem):
    """Minimise the mean objective over the atoms, for fixed codes."""

    def __init__(self, view: View, codes: RealArray, parameters: Parameters) -> None:
        self.view, self.codes, self.parameters = view, codes, parameters

    def trial(self, point: RealArray) -> Trial:
        atoms = self.view.from_point(point)
        if not usable(atoms):  # the step was too long
            return Trial(point, np.inf)
        view = self.view.span(atoms)
        value, memo = view.objective(self.codes, self.parameters)
        return Trial(point, value, (view, memo))

    def gradient(self, trial: Trial) -> RealArray:
        view, memo = trial.memo
        return np.ravel(view.gradient(trial.point, self.codes, self.parameters, memo))

    def move(self, point: RealArray, step: RealArray) -> RealArray:
        return self.view.move(point, step.reshape(point.shape))

    def size(self, step: RealArray) -> float:
        return float(np.linalg.norm(step.reshape(self.codes.shape[1], -1), axis=1).max())

    def improve(self) -> View:
        """Return the view of atoms with a lower objective, or the initial view."""
        start = self.trial(self.view.to_point(self.view.atoms))
        if not np.isfinite(start.value):
            raise ValueError(
                f"the objective is {start.value} at the first atoms: matrices in X are too close "
                'to singular to learn a dictionary; pass regularize="shrink"'
            )
        last = minimize_conjugate_gradient(self, start, max_iter=_STEPS, tol=0.0).trial
        improved: View = last.memo[0]
        return improved if last.value < start.value else self.view


def learn_dictionary(
    view: View, code: Code, parameters: Parameters, max_iter: int, tol: float
) -> Run[tuple[RealArray, RealArray]]:
    """Update (atoms, codes) in turn until that gains at most a share ``tol`` of the objective."""
    started, rows = time.perf_counter(), []
    codes = code(view, parameters)

    def record(iteration: int, block: str) -> float:
        value, _ = view.objective(codes, parameters)
        rows.append((iteration, block, value, time.perf_counter() - started))
        return value

    value = record(0, "start")

    def update(iteration: int) -> tuple[str, str | None]:
        nonlocal view, codes, value
        before = value
        view = AtomsProblem(view, codes, parameters).improve()
        record(iteration, "atoms")
        codes = code(view, parameters, start=codes)
        value = record(iteration, "codes")
        gain = before - value
        share = gain / abs(before) if before else 0.0
        reason = f"the objective fell by a relative {share:.2g} <= tol={tol:g}"
        return f"objective {value:.6g}", reason if gain <= tol * abs(before) else None

    n_iter, converged, message = repeat(update, max_iter)
    message = message if max_iter else "the dictionary is the initial one"
    names = "iteration", "block", "objective", "seconds"
    columns = map(np.array, zip(*rows, strict=True))
    history = dict(zip(names, columns, strict=True))
    return Run((view.atoms, codes), value, n_iter, converged, message, history)


def check_penalties(penalty: float | str, candidates: Sequence[float]) -> Sequence[float]:
    """Penalties to choose from: the candidates for "auto", or the number itself."""
    if penalty == "auto":
        return candidates
    check_number(penalty, "penalty", positive=True, word="auto")
    return [float(penalty)]


def _without_rounding(codes: RealArray) -> RealArray:
    """Return zeros if all codes are equal up to rounding."""
    equal = np.ptp(codes, axis=0).max() <= _ROUNDING * np.abs(codes).max()
    return np.zeros_like(codes) if equal else codes
