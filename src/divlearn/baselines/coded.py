"""What classifiers of codes share: a dictionary, a way to code by it, and a linear machine."""

import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin as NamesMixin
from sklearn.base import TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from divlearn.arrays import RealArray
from divlearn.baselines import log_svm
from divlearn.baselines.log_svm import FOLDS, fit_vectors, spread
from divlearn.checks import RandomState, check_count, check_number
from divlearn.cluster import LogEuclideanKMeans
from divlearn.cluster.base import repeat
from divlearn.fitting.checkpoint import draw_seed
from divlearn.fitting.labelled import check_new, fit_method
from divlearn.fitting.training import Grid, HeldOutClassifier, Training, choose
from divlearn.kernels.machines import COUPLED, class_scores
from divlearn.optim.problem import Problem, Trial
from divlearn.threads import limit_blas

Parameters = dict[str, float]
# What was updated last ("start", "atoms" or "codes"), atoms, codes and the objective.
Stage = tuple[str, RealArray, RealArray, float]

_ATOMS_PER_CLASS = 5
_ROUNDING = 1e-9
_PENALTIES = (0.1, 1.0, 10.0, 100.0)  # codes want no larger ones, which take most of the time


class Candidate(NamedTuple):
    """Parameters of codes, with names, and of the machine."""

    coding: tuple[tuple[str, float], ...]
    C: float


_LEARNED = ()  # instead of parameters, for codes by the dictionary that was learned with the best


class CodedClassifier(NamesMixin, TransformerMixin, HeldOutClassifier[Candidate]):  # type: ignore[misc]
    """Codes by a dictionary, learned without labels, and a linear machine on them."""

    cv = FOLDS
    engine: Any = "auto"
    _needs_folds = False
    _nested = True
    _forms = COUPLED
    _criterion = "accuracy"

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
    def _view(self, matrices: RealArray, atoms: RealArray) -> Any:
        """Compute what codes by any parameters need to know of matrices and atoms."""

    @abstractmethod
    def _candidates(self, view: Any, d: int) -> Sequence[Parameters]:
        """Parameters to choose from, those of the strongest regularisation first."""

    @abstractmethod
    def _codes(self, view: Any, parameters: Parameters) -> RealArray:
        """Code matrices, given what `_view` says of them."""

    @abstractmethod
    def _learn(
        self, matrices: RealArray, atoms: RealArray, parameters: Parameters
    ) -> Iterator[Stage]:
        """Yield the start, then atoms and codes in turn, without end where there is learning."""

    @fit_method
    def fit(  # type: ignore[override]
        self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None
    ) -> Self:
        """Choose parameters on held-out parts of the data, and learn from all of it.

        X has the shape (n_matrices, d, d), labels y and groups (n_matrices,). Matrices of one group
        are held out together. A dictionary knows no weights of matrices.
        """
        return super().fit(X, y, None, groups)

    def _check_parameters(self) -> None:
        check_count(self.max_iter, "max_iter", least=0)
        check_number(self.tol, "tol")

    def _grid(self, training: Training) -> Grid[Candidate]:
        _, view = self._first_dictionary(training)
        codings = self._candidates(view, training.data.matrices.shape[-1])
        named = [tuple(one.items()) for one in codings]
        return Grid([Candidate(*one) for one in product(named, _PENALTIES)])

    def _first_dictionary(self, training: Training) -> tuple[RealArray, Any]:
        """Return the initial atoms, and a view of the matrices by them."""
        matrices = training.data.matrices

        def start() -> tuple[RealArray, Any]:
            n_atoms = self._count_atoms(len(matrices), len(self.classes_))
            atoms = self._start(matrices, n_atoms, draw_seed(self.random_state))
            return atoms, self._view(matrices, atoms)

        return training.once(("dictionary", id(self)), start)  # no other has the same

    def _inner_grid(self, grid: Grid[Candidate]) -> Grid[Candidate]:
        """Take the middle C for all codings, then other values of C."""
        middle = _PENALTIES[len(_PENALTIES) // 2]

        def refine(best: Candidate) -> list[Candidate]:
            return [best._replace(C=C) for C in _PENALTIES if best.C != C]

        return Grid([one for one in grid.candidates if middle == one.C], refine)

    def _describe(self, candidate: Candidate) -> dict[str, float]:
        return dict(candidate.coding) | {"C": candidate.C}

    def _known_codes(self, training: Training, coding: tuple[tuple[str, float], ...]) -> RealArray:
        def compute() -> RealArray:
            _, view = self._first_dictionary(training)
            codes = _without_rounding(self._codes(view, dict(coding)))
            return codes / spread(codes)

        return training.once(("codes", id(self), coding), compute)

    def _learner(self, training: Training, number: int) -> Callable[[Candidate], Any]:
        rows, data = training.parts[number][0], training.data

        def learn(candidate: Candidate) -> tuple[SVC, Candidate]:
            codes = self._known_codes(training, candidate.coding)[rows]
            machine = log_svm.Candidate(candidate.C)
            table = number != training.whole and codes.shape[1] > len(codes)
            found = fit_vectors(codes, data.codes[rows], data.weights[rows], machine, table=table)
            return found, candidate

        return learn

    def _decide(self, model: tuple[SVC, Candidate], training: Training, number: int) -> RealArray:
        machine, candidate = model
        codes = self._known_codes(training, candidate.coding)[training.parts[number][1]]
        return np.asarray(machine.decision_function(codes))

    def _fit_model(self, training: Training, best: Candidate) -> None:
        """Learn the dictionary; then choose C again, for codes by it."""
        matrices = training.data.matrices
        start, _ = self._first_dictionary(training)
        self.dictionary_, codes, self.n_iter_, self.message_, self.history_ = learn_dictionary(
            self._learn(matrices, start, dict(best.coding)), max_iter=self.max_iter, tol=self.tol
        )
        codes = _without_rounding(codes)
        self.unit_ = spread(codes)
        training.once(("codes", id(self), _LEARNED), lambda: codes / self.unit_)
        grid = Grid([Candidate(_LEARNED, C) for C in _PENALTIES])
        last = grid.candidates[0]
        if training.folds:
            chosen = choose(training, self._hold_out(training), grid, grid, self._forms)
            last, (form, temperature) = chosen.best, chosen.calibration
            self.calibration_ = form, temperature
        self.best_params_ = dict(best.coding) | {"C": last.C}
        self.machine_, _ = self._learner(training, training.whole)(last)

    def _start(self, matrices: RealArray, n_atoms: int, seed: int) -> RealArray:
        means = LogEuclideanKMeans(n_atoms, random_state=seed)
        with warnings.catch_warnings():
            if isinstance(self.n_atoms, str):  # then nobody asked for more than there are
                warnings.simplefilter("ignore", ConvergenceWarning)
            means.fit(matrices)
        return means.cluster_centers_[np.unique(means.labels_)]

    def transform(self, X: ArrayLike) -> RealArray:
        """Codes of matrices, shape (n_matrices, n_atoms)."""
        return self._code(check_new(self, X))

    def _code(self, matrices: RealArray) -> RealArray:
        with limit_blas(1):
            return self._codes(self._view(matrices, self.dictionary_), self.best_params_)

    def _decide_new(self, matrices: RealArray) -> RealArray:
        return np.asarray(self.machine_.decision_function(self._code(matrices) / self.unit_))

    def decision_function(self, X: ArrayLike) -> RealArray:
        """Scores of the classes, shape (n_matrices, n_classes), or (n_matrices,) with two."""
        return class_scores(self._decide_new(check_new(self, X)), self.calibration_[0])

    def _count_atoms(self, n_matrices: int, n_classes: int) -> int:
        if isinstance(self.n_atoms, str) and self.n_atoms == "auto":
            return min(_ATOMS_PER_CLASS * n_classes, n_matrices)
        fix = ', the number of matrices, or "auto"'
        return check_count(self.n_atoms, "n_atoms", most=n_matrices, fix=fix)

    @property
    def _n_features_out(self) -> int:
        return len(self.dictionary_)


class AtomsProblem(Problem):
    """Lower an objective by moving the atoms, codes held."""

    codes: RealArray

    def start(self, point: RealArray) -> Trial:
        """Compute the objective of the first atoms, if there is anything to start from."""
        trial = self.trial(point)
        if not np.isfinite(trial.value):
            raise ValueError(
                f"the objective is {trial.value} at the first atoms: matrices in X are too close "
                'to singular to learn a dictionary; pass regularize="shrink"'
            )
        return trial

    def size(self, step: RealArray) -> float:
        return float(np.linalg.norm(step.reshape(self.codes.shape[1], -1), axis=1).max())


def learn_dictionary(
    stages: Iterator[Stage], *, max_iter: int, tol: float
) -> tuple[RealArray, RealArray, int, str, dict[str, NDArray[np.generic]]]:
    """Update atoms and codes in turn until that gains at most a share ``tol`` of the objective."""
    started = time.perf_counter()
    stage = next(stages)
    rows = [(0, stage[0], stage[-1], time.perf_counter() - started)]

    def turn(iteration: int) -> tuple[str, str | None]:
        nonlocal stage
        before = stage[-1]
        for _ in range(2):  # atoms, codes
            stage = next(stages)
            rows.append((iteration, stage[0], stage[-1], time.perf_counter() - started))
        fall = before - stage[-1]
        share = fall / abs(before) if before else 0.0
        fell = f"the objective fell by a relative {share:.2g} <= tol={tol:g}"
        return f"objective {stage[-1]:.6g}", fell if fall <= tol * abs(before) else None

    n_iter, _, message = repeat(turn, max_iter)
    message = message if max_iter else "the dictionary is the initial one"
    names = "iteration", "block", "objective", "seconds"
    columns = zip(*rows, strict=True)
    history = {name: np.array(column) for name, column in zip(names, columns, strict=True)}
    return stage[1], stage[2], n_iter, message, history


def check_penalties(penalty: Any, candidates: Sequence[float]) -> Sequence[float]:
    """Penalties to choose from: those given as candidates, or the one number that is wanted."""
    if isinstance(penalty, str) and penalty == "auto":
        return candidates
    check_number(penalty, "penalty", positive=True, word="auto")
    return [float(penalty)]


def _without_rounding(codes: RealArray) -> RealArray:
    """Return zeros where all matrices are alike: there is nothing but rounding to fit."""
    alike = np.ptp(codes, axis=0).max() <= _ROUNDING * np.abs(codes).max()
    return np.zeros_like(codes) if alike else codes
