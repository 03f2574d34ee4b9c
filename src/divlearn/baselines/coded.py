"""What classifiers of codes share: a dictionary, a way to code by it, and a linear machine."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.base import ClassNamePrefixFeaturesOutMixin as NamesMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import RealArray
from divlearn.baselines.coding import Coder, learn_dictionary
from divlearn.baselines.tuning import FOLDS, VectorMachine, fit_svm
from divlearn.checks import check_count, check_number
from divlearn.cluster import LogEuclideanKMeans
from divlearn.fitting.folds import Folds
from divlearn.fitting.labelled import MatricesMixin, all_or_nothing, check_labelled
from divlearn.spd import check_spd
from divlearn.threads import limit_blas

__all__ = ["CodedClassifier", "check_penalties"]

_ATOMS_PER_CLASS = 5
_ROUNDING = 1e-9
_PENALTIES = (0.1, 1.0, 10.0, 100.0)  # codes want no larger ones, which take most of the time


class CodedClassifier(NamesMixin, TransformerMixin, ClassifierMixin, MatricesMixin, BaseEstimator):  # type: ignore[misc]
    """Codes of matrices by a dictionary, classified by a linear support vector machine.

    The dictionary starts at centroids of log-Euclidean k-means. With it, the parameters of the
    coding are chosen by the accuracy of the machine on data held out; then the dictionary is
    learned, without labels, and the machine is fitted to the final codes.
    """

    n_atoms: int | str
    max_iter: int
    tol: float
    random_state: Any
    verbose: int

    classes_: NDArray[Any]
    coder_: Coder
    dictionary_: RealArray
    history_: dict[str, NDArray[np.generic]]
    machine_: VectorMachine
    message_: str
    n_features_in_: int
    n_iter_: int
    parameters_: dict[str, Any]

    @abstractmethod
    def _view(self, matrices: RealArray, atoms: RealArray) -> Any:
        """Say what all coders need to know of matrices and atoms."""

    @abstractmethod
    def _coders(self, view: Any, d: int) -> Sequence[Coder]:
        """Coders to choose from, those of the strongest regularisation first."""

    @all_or_nothing
    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Learn a dictionary, and a machine for codes by it.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)
            SPD matrices.
        y : array-like, shape (n_matrices,)
        groups : array-like, shape (n_matrices,), optional
            Matrices of one group are held out together.

        Returns
        -------
        self
        """
        self._check_parameters()
        data = check_labelled(X, y, None, None, groups)
        matrices, labels = data.matrices, data.classes[data.codes]
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        folds = data.folds(FOLDS, seed)
        n_atoms = self._count_atoms(len(matrices), len(data.classes))
        with limit_blas(1):
            start = self._start(matrices, n_atoms, seed)
            self.coder_ = self._choose(matrices, start, labels, folds)
            learned = learn_dictionary(
                self.coder_, matrices, start, max_iter=self.max_iter, tol=self.tol, tell=self._tell
            )
            self.machine_ = _fit_machine(learned.stage.codes, labels, folds)
        self.classes_, self.n_features_in_ = data.classes, matrices.shape[-1]
        self.dictionary_, self.history_ = learned.stage.atoms, learned.history
        self.n_iter_, self.message_ = learned.n_iter, learned.message
        self.parameters_ = self.coder_.parameters | self.machine_.choice.parameters
        self._tell(1, f"{self.n_iter_} iterations; {self.message_}")
        return self

    def _start(self, matrices: RealArray, n_atoms: int, seed: int) -> RealArray:
        """Atoms to begin with."""
        means = LogEuclideanKMeans(n_atoms, random_state=seed)
        with warnings.catch_warnings():
            if isinstance(self.n_atoms, str):  # then nobody asked for more than there are
                warnings.simplefilter("ignore", ConvergenceWarning)
            means.fit(matrices)
        return means.cluster_centers_[np.unique(means.labels_)]

    def _choose(
        self, matrices: RealArray, atoms: RealArray, labels: NDArray[Any], folds: Folds
    ) -> Coder:
        view = self._view(matrices, atoms)
        coders = self._coders(view, matrices.shape[-1])
        if len(coders) == 1:
            return coders[0]
        scores = []
        try:
            for coder in coders:
                score = _fit_machine(coder.codes(view), labels, folds).choice.score
                scores.append(score)
                self._tell(1, f"{_join(coder.parameters)}: accuracy {score:.3f} on data held out")
        except KeyboardInterrupt:
            self._tell(1, "interrupted by the user: the best so far is taken")
        return coders[int(np.argmax(scores)) if scores else 0]  # the first of several

    def transform(self, X: ArrayLike) -> RealArray:
        """Code matrices.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d)

        Returns
        -------
        ndarray, shape (n_matrices, n_atoms)
        """
        check_is_fitted(self)
        matrices = check_spd(X, ndim=3, dtype=np.float64)
        if matrices.shape[-1] != self.n_features_in_:
            raise ValueError(
                f"X has matrices of size {matrices.shape[-1]}, but {type(self).__name__} is "
                f"expecting {self.n_features_in_}"
            )
        with limit_blas(1):
            return self.coder_.codes(self._view(matrices, self.dictionary_))

    def decision_function(self, X: ArrayLike) -> RealArray:
        """Scores of the classes, shape (n_matrices, n_classes), or (n_matrices,) with two."""
        return self.machine_.decide(self.transform(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Classes, shape (n_matrices,)."""
        return self.machine_.predict(self.transform(X))

    def _check_parameters(self) -> None:
        check_count(self.max_iter, "max_iter", least=0)
        check_number(self.tol, "tol")

    def _count_atoms(self, n_matrices: int, n_classes: int) -> int:
        if isinstance(self.n_atoms, str) and self.n_atoms == "auto":
            return min(_ATOMS_PER_CLASS * n_classes, n_matrices)
        if isinstance(self.n_atoms, bool) or not isinstance(self.n_atoms, int | np.integer):
            raise TypeError(f'n_atoms={self.n_atoms!r} must be "auto" or an integer')
        if not 1 <= self.n_atoms <= n_matrices:
            raise ValueError(
                f"n_atoms={self.n_atoms} must be >= 1 and <= n_matrices={n_matrices}; change "
                "n_atoms or pass more data"
            )
        return int(self.n_atoms)

    def _tell(self, level: int, text: str) -> None:
        if self.verbose >= level:
            print(f"[{type(self).__name__}] {text}")

    @property
    def _n_features_out(self) -> int:
        return len(self.dictionary_)


def check_penalties(penalty: Any, candidates: Sequence[float]) -> Sequence[float]:
    """Penalties to choose from: those given as candidates, or the one number that is wanted.

    Examples
    --------
    >>> check_penalties(0.5, [1.0])
    [0.5]
    >>> check_penalties("small", [1.0])
    Traceback (most recent call last):
    ValueError: penalty='small' must be "auto" or a finite number > 0
    """
    if isinstance(penalty, str) and penalty == "auto":
        return candidates
    number = isinstance(penalty, float | int | np.floating | np.integer)
    if isinstance(penalty, bool) or not number or not 0 < penalty < np.inf:
        raise ValueError(f'penalty={penalty!r} must be "auto" or a finite number > 0')
    return [float(penalty)]


def _fit_machine(codes: RealArray, labels: NDArray[Any], folds: Folds) -> VectorMachine:
    if np.ptp(codes, axis=0).max() <= _ROUNDING * np.abs(codes).max():
        codes = np.zeros_like(codes)  # all matrices are alike: there is nothing but rounding to fit
    return fit_svm(codes, labels, folds, penalties=_PENALTIES)


def _join(parameters: dict[str, float]) -> str:
    return ", ".join(f"{name}={value:g}" for name, value in parameters.items())
