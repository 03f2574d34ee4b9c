"""What classifiers of codes share: a dictionary, a way to code by it, and a linear machine."""

import time
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin as NamesMixin
from sklearn.base import TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from divlearn.arrays import Indices, RealArray
from divlearn.baselines.log_svm import FOLDS, TunedClassifier, fit_svm, was_interrupted
from divlearn.checks import check_count, check_number
from divlearn.cluster import LogEuclideanKMeans
from divlearn.cluster.base import repeat
from divlearn.fitting.checkpoint import draw_seed
from divlearn.fitting.folds import Folds
from divlearn.fitting.labelled import Labelled, check_new
from divlearn.fitting.progress import say, track
from divlearn.fitting.selection import choose
from divlearn.optim.problem import Problem
from divlearn.threads import limit_blas

Parameters = dict[str, float]
# What was updated last ("start", "atoms" or "codes"), atoms, codes and the objective.
Stage = tuple[str, RealArray, RealArray, float]

_ATOMS_PER_CLASS = 5
_ROUNDING = 1e-9
_PENALTIES = (0.1, 1.0, 10.0, 100.0)  # codes want no larger ones, which take most of the time


class CodedClassifier(NamesMixin, TransformerMixin, TunedClassifier):  # type: ignore[misc]
    """Codes by a dictionary, learned without labels, and a linear machine on them."""

    best_score_: float
    dictionary_: Annotated[RealArray, "n_atoms d d"]
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
            chosen = self._choose(matrices, start, data.codes, folds)
            self.dictionary_, codes, self.n_iter_, self.message_, self.history_ = learn_dictionary(
                self._learn(matrices, start, chosen), max_iter=self.max_iter, tol=self.tol,
            )  # fmt: skip
            self.unit_, self.machine_, history = _fit_machine(codes, data.codes, folds)
        self.best_score_ = float(np.fmax.reduce(history["accuracy"]))
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
    ) -> Parameters:
        view = self._view(matrices, atoms)
        candidates = self._candidates(view, matrices.shape[-1])
        if len(candidates) == 1:
            return candidates[0]

        def score(parameters: Parameters) -> float:
            _, _, history = _fit_machine(self._codes(view, parameters), labels, folds)
            if was_interrupted(history):
                raise KeyboardInterrupt
            accuracy = float(history["accuracy"].max())
            named = ", ".join(f"{name}={value:g}" for name, value in parameters.items())
            say(self, f"{named}: held-out accuracy {accuracy:.3f}")
            return accuracy

        return candidates[choose(track(candidates, "candidates"), score)[0]]

    def transform(self, X: ArrayLike) -> RealArray:
        """Codes of matrices, shape (n_matrices, n_atoms)."""
        matrices = check_new(self, X)
        with limit_blas(1):
            return self._codes(self._view(matrices, self.dictionary_), self.parameters_)

    def decision_function(self, X: ArrayLike) -> RealArray:
        """Scores of the classes, shape (n_matrices, n_classes), or (n_matrices,) with two."""
        codes = self.transform(X)
        return self.machine_.decision_function(codes / self.unit_)

    def _predict_codes(self, X: ArrayLike) -> Indices:
        codes = self.transform(X)
        return self.machine_.predict(codes / self.unit_)

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

    n_iter, _, _, message = repeat(turn, lambda _: None, 0, max_iter)
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


def _fit_machine(
    codes: RealArray, labels: Indices, folds: Folds
) -> tuple[float, SVC, dict[str, RealArray]]:
    if np.ptp(codes, axis=0).max() <= _ROUNDING * np.abs(codes).max():
        codes = np.zeros_like(codes)  # all matrices are alike: there is nothing but rounding to fit
    return fit_svm(codes, labels, folds, penalties=_PENALTIES)
