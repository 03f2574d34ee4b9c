"""What classifiers of codes share: a dictionary, a way to code by it, and a linear machine."""

import time
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin as NamesMixin
from sklearn.base import TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from divlearn.arrays import Indices, RealArray
from divlearn.baselines.log_svm import (
    FOLDS,
    Machine,
    TunedClassifier,
    fit_svm,
    held_out_machines,
    spread,
)
from divlearn.checks import check_count, check_number
from divlearn.cluster import LogEuclideanKMeans
from divlearn.cluster.base import repeat
from divlearn.fitting.checkpoint import draw_seed
from divlearn.fitting.folds import Folds
from divlearn.fitting.labelled import Labelled, check_new
from divlearn.fitting.progress import say, track
from divlearn.fitting.selection import choose, nest_folds
from divlearn.optim.problem import Problem, Trial
from divlearn.threads import limit_blas

Parameters = dict[str, float]
# What was updated last ("start", "atoms" or "codes"), atoms, codes and the objective.
Stage = tuple[str, RealArray, RealArray, float]

_ATOMS_PER_CLASS = 5
_ROUNDING = 1e-9
_PENALTIES = (0.1, 1.0, 10.0, 100.0)  # codes want no larger ones, which take most of the time


class CodedClassifier(NamesMixin, TransformerMixin, TunedClassifier):  # type: ignore[misc]
    """Codes by a dictionary, learned without labels, and a linear machine on them."""

    dictionary_: Annotated[RealArray, "n_atoms d d"]
    held_out_accuracy_: float
    history_: dict[str, NDArray[np.generic]]
    machine_: SVC
    message_: str
    n_iter_: int
    parameters_: Parameters
    unit_: float

    n_atoms: int | str
    max_iter: int
    tol: float
    random_state: Any
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

    def _check_parameters(self) -> None:
        check_count(self.max_iter, "max_iter", least=0)
        check_number(self.tol, "tol")

    def _fit(self, data: Labelled) -> None:
        matrices = data.matrices
        seed = draw_seed(self.random_state)
        folds = data.folds(FOLDS, seed)
        n_atoms = self._count_atoms(len(matrices), len(data.classes))
        with limit_blas(1):
            start = self._start(matrices, n_atoms, seed)
            chosen, accuracy = self._choose(matrices, start, data.codes, folds)
            self.dictionary_, codes, self.n_iter_, self.message_, self.history_ = learn_dictionary(
                self._learn(matrices, start, chosen),
                max_iter=self.max_iter,
                tol=self.tol,
            )
            fitted = _fit_machine(codes, data.codes, folds)
        self.unit_, self.machine_ = fitted.unit, fitted.machine
        self.held_out_accuracy_ = fitted.held_out_accuracy if accuracy is None else accuracy
        self.parameters_ = chosen | {"C": self.machine_.C}

    def _start(self, matrices: RealArray, n_atoms: int, seed: int) -> RealArray:
        means = LogEuclideanKMeans(n_atoms, random_state=seed)
        with warnings.catch_warnings():
            if isinstance(self.n_atoms, str):  # then nobody asked for more than there are
                warnings.simplefilter("ignore", ConvergenceWarning)
            means.fit(matrices)
        return means.cluster_centers_[np.unique(means.labels_)]

    def _choose(
        self, matrices: RealArray, atoms: RealArray, labels: Indices, folds: Folds
    ) -> tuple[Parameters, float | None]:
        """Choose parameters, and say how accurate such a choice is; None without a choice."""
        view = self._view(matrices, atoms)
        candidates = self._candidates(view, matrices.shape[-1])
        if len(candidates) == 1 or not folds:
            return candidates[0], None

        @cache
        def codes(number: float) -> RealArray:
            found = _without_rounding(self._codes(view, candidates[int(number)]))
            return found / spread(found)

        # A machine is C, gamma, which a linear one does not have, and the number of parameters.
        held_out = held_out_machines(
            "linear", lambda one: codes(one[2]), labels, folds, nest_folds(folds, labels)
        )

        def machines(number: float) -> list[tuple[float, float, float]]:
            return [(C, 1.0, number) for C in _PENALTIES]

        def score(number: int) -> float:
            accuracy = max(map(held_out.score, machines(number)))
            chosen = candidates[number]
            named = ", ".join(f"{name}={value:g}" for name, value in chosen.items())
            say(self, f"{named}: held-out accuracy {accuracy:.3f}")
            return accuracy

        best, scores = choose(track(range(len(candidates)), "candidates"), score)
        middle = [machines(number)[len(_PENALTIES) // 2] for number in range(len(scores))]
        without = held_out.best_without_each(middle, lambda one: machines(one[2]))
        return candidates[best], float(np.concatenate(held_out.parts(without)).mean())

    def transform(self, X: ArrayLike) -> RealArray:
        """Codes of matrices, shape (n_matrices, n_atoms)."""
        matrices = check_new(self, X)
        with limit_blas(1):
            return self._codes(self._view(matrices, self.dictionary_), self.parameters_)

    def decision_function(self, X: ArrayLike) -> RealArray:
        """Scores of the classes, shape (n_matrices, n_classes), or (n_matrices,) with two."""
        codes = self.transform(X)
        return self.machine_.decision_function(codes / self.unit_)

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


def _fit_machine(codes: RealArray, labels: Indices, folds: Folds) -> Machine:
    return fit_svm(_without_rounding(codes), labels, folds, penalties=_PENALTIES)


def _without_rounding(codes: RealArray) -> RealArray:
    """Return zeros where all matrices are alike: there is nothing but rounding to fit."""
    alike = np.ptp(codes, axis=0).max() <= _ROUNDING * np.abs(codes).max()
    return np.zeros_like(codes) if alike else codes
