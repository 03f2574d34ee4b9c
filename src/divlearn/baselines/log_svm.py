"""Support vector machines on logarithms of SPD matrices, and on vectors in general."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Annotated, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import linear_kernel, rbf_kernel
from sklearn.model_selection import ParameterGrid
from sklearn.svm import SVC

from divlearn.arrays import RealArray, to_host
from divlearn.checks import RandomState, check_name, check_number
from divlearn.engines import Engine, Prepared
from divlearn.fitting.selection import HeldOut
from divlearn.fitting.training import Grid, Training, coordinate_grid
from divlearn.kernels.classifier import Candidate, MachineClassifier
from divlearn.kernels.machines import SHARPNESSES, couple
from divlearn.log_vectors import log_vectors, spread

FOLDS = 5  # to choose by

# Grids for vectors with a total variance of one, so that they suit all data.
PENALTIES = {
    "linear": (0.1, 1.0, 10.0, 100.0, 1_000.0, 10_000.0),
    "rbf": (1.0, 10.0, 100.0, 1_000.0),
}
GAMMAS = (0.03, 0.1, 0.3, 1.0, 3.0)
# Steps of the solver, which takes hours if C is far too large for classes that overlap. Otherwise
# it needs a few for every vector.
_STEPS = 100_000


class VectorClassifier(MachineClassifier):
    """Base of classifiers with a machine on vectors, whose C and gamma are in a candidate."""

    cv = FOLDS
    engine: str | Engine = "auto"
    _needs_folds = False

    @abstractmethod
    def _vectors(self, training: Training, candidate: Candidate) -> RealArray:
        """Vectors of all matrices, with a total variance of one."""

    def fit_training(self, training: Training) -> Self:
        """Fit to checked data, without warnings: the solver may stop before it converges."""
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            return super().fit_training(training)

    def _choose(
        self, training: Training, held_out: HeldOut[Candidate], grid: Grid[Candidate]
    ) -> Candidate:
        """Choose a candidate; the first if nothing is held out."""
        if training.folds:
            return super()._choose(training, held_out, grid)
        first = grid.candidates[0]
        self.best_params_, self.calibration_ = self._describe(first), (len(SHARPNESSES) // 2, 1.0)
        self.oof_proba_ = np.full((len(training.data.y), len(self.classes_)), np.nan)
        self._optimistic_proba = self.oof_proba_
        self.held_out_accuracy_ = self.best_score_ = np.nan
        self.message_ = "no class has two matrices or groups, one to hold out; nothing was chosen"
        self.cv_results_ = {"params": [self.best_params_]}
        return first

    def _learner(
        self, training: Training, number: int
    ) -> Callable[[Candidate], tuple[SVC, Candidate]]:
        rows, data = training.parts[number][0], training.data
        codes, weights = data.codes[rows], data.weights[rows]

        def learn(candidate: Candidate) -> tuple[SVC, Candidate]:
            vectors, values = self._vectors(training, candidate), dict(candidate)
            # The machine of all data can be saved in a file if its kernel is not a function.
            table = number != training.whole and vectors.shape[1] > len(vectors)
            machine = make_machine(values["C"], values.get("gamma"), table=table)
            return machine.fit(vectors[rows], codes, sample_weight=weights), candidate

        return learn

    def _decide(self, model: tuple[SVC, Candidate], training: Training, number: int) -> RealArray:
        (machine, candidate), (_, held) = model, training.parts[number]
        return couple(machine.decision_function(self._vectors(training, candidate)[held]))


def make_machine(C: float, gamma: float | None, *, table: bool) -> SVC:
    """Make a machine of vectors that decides between pairs of classes; gamma: a Gaussian kernel.

    With fewer samples than features, `table` computes the kernel matrix by BLAS: it is smaller than
    the data, and many times faster than the solver.
    """
    if table:
        kernel = linear_kernel if gamma is None else partial(rbf_kernel, gamma=gamma)
    else:
        kernel = "linear" if gamma is None else "rbf"
    return SVC(
        kernel=kernel, C=C, gamma=gamma or 1.0, decision_function_shape="ovo", max_iter=_STEPS
    )


class LogEuclideanSVM(VectorClassifier):
    r"""Support vector machine on the vectors of :math:`\log X`.

    Euclidean distances of the vectors are log-Euclidean distances. With their mean L and the root s
    of their total variance, kernels are

    .. math:: K(X, Y) = \frac{\langle \log X - L, \log Y - L \rangle}{s^2} \quad\text{or}\quad
              K(X, Y) = \exp\Bigl(-\frac{\gamma}{s^2} \|\log X - \log Y\|_F^2\Bigr) ,

    and the same values of C and gamma suit all data. Machines decide between pairs of classes.

    Parameters
    ----------
    kernel : {"linear", "rbf"}, default="linear"
    C, gamma : float, optional
        Penalty of errors and parameter of the Gaussian kernel, > 0. By default chosen by
        cross-validation; the smallest of those that tie.
    random_state : int, RandomState or None
    n_jobs : int or None, default=None
        Threads that fit candidates and folds, as in scikit-learn; None for all that
        ``OMP_NUM_THREADS`` allows. The result is the same for any number.
    regularize : {"raise", "shrink"} or float, default="raise", see `Regularize`

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
    best_params_ : dict, "C" and, for the Gaussian kernel, "gamma".
    cv_results_ : dict of arrays, all candidates, as in `sklearn.model_selection.GridSearchCV`.
    oof_proba_ : ndarray, shape (n_matrices, n_classes)
        Held-out probabilities, with parameters and calibration chosen without each fold. NaN for
        matrices that no fold holds out.
    held_out_accuracy_ : float, of these probabilities.
    message_ : str, the choice and its held-out accuracy, in a sentence.
    n_features_in_ : int, size of the matrices.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, random_state=0)
    >>> model = LogEuclideanSVM(random_state=0).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2])
    1.0
    """

    deviation_: float
    _middle: Annotated[RealArray, "n_entries"]  # around it machines keep their digits in any unit
    model_: SVC

    def __init__(
        self,
        kernel: str = "linear",
        C: float | None = None,
        gamma: float | None = None,
        random_state: RandomState = None,
        *,
        n_jobs: int | None = None,
        regularize: str | float = "raise",
    ) -> None:
        self.kernel, self.C, self.gamma = kernel, C, gamma
        self.random_state, self.n_jobs, self.regularize = random_state, n_jobs, regularize

    def _check_parameters(self) -> None:
        check_name(self.kernel, "kernel", PENALTIES)
        if self.gamma is not None and self.kernel == "linear":
            raise ValueError(f"gamma={self.gamma} must be None for kernel='linear'; leave it out")
        for value, name in ((self.C, "C"), (self.gamma, "gamma")):
            if value is not None:
                check_number(value, name, positive=True)

    @property
    def _nested(self) -> bool:  # type: ignore[override]
        # Linear machines predict nearly the same for all C: their choice is hardly optimistic.
        return self.kernel == "rbf"

    def _grid(self, training: Training) -> Grid[Candidate]:
        parameters = {"C": PENALTIES[self.kernel] if self.C is None else [float(self.C)]}
        if self.kernel == "rbf":
            parameters["gamma"] = GAMMAS if self.gamma is None else [float(self.gamma)]
        return Grid([tuple(values.items()) for values in ParameterGrid(parameters)])

    def _inner_grid(self, grid: Grid[Candidate]) -> Grid[Candidate]:
        return coordinate_grid(grid.candidates) if self._nested else grid

    def _vectors(self, training: Training, candidate: Candidate) -> RealArray:
        def scale() -> RealArray:
            vectors = to_host(training.log_vectors)
            return (vectors - vectors.mean(axis=0)) / spread(vectors)

        return training.cached("scaled logarithms", scale)

    def _fit_model(self, training: Training, best: Candidate) -> None:
        self.model_, _ = self._learner(training, training.whole)(best)
        vectors = to_host(training.log_vectors)
        self.deviation_, self._middle = spread(vectors), vectors.mean(axis=0)

    def _decide_new(self, new: Prepared) -> RealArray:
        vectors = (log_vectors(new) - self._middle) / self.deviation_
        return couple(self.model_.decision_function(vectors))
