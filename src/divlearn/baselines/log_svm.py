"""Support vector machines on logarithms of SPD matrices, and on vectors in general."""

import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import linear_kernel, rbf_kernel
from sklearn.svm import SVC

from divlearn.arrays import Indices, RealArray
from divlearn.checks import RandomState, check_number
from divlearn.fitting.labelled import check_new
from divlearn.fitting.training import (
    Grid,
    HeldOutClassifier,
    Training,
    near_the_middle,
)
from divlearn.kernels.machines import COUPLED, class_scores
from divlearn.log_vectors import log_vectors

FOLDS = 5  # to choose by

# Of vectors with a total variance of one, so that the same grids suit all data.
PENALTIES = {
    "linear": (0.1, 1.0, 10.0, 100.0, 1_000.0, 10_000.0),
    "rbf": (1.0, 10.0, 100.0, 1_000.0),
}
GAMMAS = (0.03, 0.1, 0.3, 1.0, 3.0)
_ROUNDING = 1e-12
# Steps of the solver of a machine, which takes hours where C is far too large for classes that
# overlap. Others need a few for every vector.
_STEPS = 100_000


class Candidate(NamedTuple):
    """Parameters of a machine; gamma of a Gaussian kernel."""

    C: float
    gamma: float | None = None


class LogEuclideanSVM(HeldOutClassifier[Candidate]):
    r"""Support vector machine on the vectors of :math:`\log X`.

    The vectors, whose Euclidean distances are the log-Euclidean ones, are divided by one number,
    the root s of their total variance. So kernels are

    .. math:: K(X, Y) = \frac{\langle \log X, \log Y \rangle}{s^2} \quad\text{or}\quad
              K(X, Y) = \exp\Bigl(-\frac{\gamma}{s^2} \|\log X - \log Y\|_F^2\Bigr) ,

    and the same values of C and gamma suit all data. Classes are told apart two by two.

    Parameters
    ----------
    kernel : {"linear", "rbf"}, default="linear"
    C, gamma : float, optional
        Penalty of errors and parameter of the Gaussian kernel, > 0. By default chosen by
        cross-validation; the smallest of those that tie.
    random_state : int, RandomState or None
    regularize : {"raise", "shrink"} or float, default="raise", see `Regularize`

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
    best_params_ : dict, "C" and, for the Gaussian kernel, "gamma".
    cv_results_ : dict of arrays, all that was tried, as in `sklearn.model_selection.GridSearchCV`.
    oof_proba_ : ndarray, shape (n_matrices, n_classes)
        Held-out probabilities, with parameters and calibration chosen without each fold. NaN for
        matrices that no fold holds out.
    held_out_accuracy_ : float, of these probabilities.
    message_ : str, what was chosen, in a sentence.
    n_features_in_ : int, size of the matrices.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, random_state=0)
    >>> model = LogEuclideanSVM(random_state=0).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2])
    1.0
    """

    cv = FOLDS
    engine = "auto"
    _needs_folds = False
    _forms = COUPLED
    _criterion = "accuracy"

    deviation_: float
    model_: SVC

    def __init__(
        self,
        kernel: str = "linear",
        C: float | None = None,
        gamma: float | None = None,
        random_state: RandomState = None,
        *,
        regularize: str | float = "raise",
    ) -> None:
        self.kernel, self.C, self.gamma = kernel, C, gamma
        self.random_state, self.regularize = random_state, regularize

    def _check_parameters(self) -> None:
        if self.kernel not in PENALTIES:
            raise ValueError(f"kernel={self.kernel!r} must be one of {', '.join(PENALTIES)}")
        if self.gamma is not None and self.kernel == "linear":
            raise ValueError(f"gamma={self.gamma} must be None for kernel='linear'; leave it out")
        for value, name in ((self.C, "C"), (self.gamma, "gamma")):
            if value is not None:
                check_number(value, name, positive=True)

    @property
    def _nested(self) -> bool:  # type: ignore[override]
        # Linear machines with different C predict nearly the same: their choice is hardly
        # optimistic.
        return self.kernel == "rbf"

    def _grid(self, training: Training) -> Grid[Candidate]:
        penalties = PENALTIES[self.kernel] if self.C is None else [float(self.C)]
        gammas: Any = [None]
        if self.kernel == "rbf":
            gammas = GAMMAS if self.gamma is None else [float(self.gamma)]
        return Grid([Candidate(*one) for one in product(penalties, gammas)])

    def _inner_grid(self, grid: Grid[Candidate]) -> Grid[Candidate]:
        return near_the_middle(grid) if self._nested else grid

    def _describe(self, candidate: Candidate) -> dict[str, float]:
        return {name: one for name, one in candidate._asdict().items() if one is not None}

    def _vectors(self, training: Training) -> RealArray:
        return training.once(
            "scaled logarithms", lambda: training.log_vectors / spread(training.log_vectors)
        )

    def _learner(self, training: Training, number: int) -> Callable[[Candidate], SVC]:
        rows, data = training.parts[number][0], training.data
        vectors = self._vectors(training)
        # Without a function for a kernel, so that the machine can be kept in a file.
        table = number != training.whole and vectors.shape[1] > len(vectors)
        seen, codes, weights = vectors[rows], data.codes[rows], data.weights[rows]
        return lambda candidate: fit_vectors(seen, codes, weights, candidate, table=table)

    def _decide(self, model: SVC, training: Training, number: int) -> RealArray:
        held = training.parts[number][1]
        return np.asarray(model.decision_function(self._vectors(training)[held]))

    def _fit_model(self, training: Training, best: Candidate) -> None:
        super()._fit_model(training, best)
        self.deviation_ = spread(training.log_vectors)

    def _decide_new(self, matrices: RealArray) -> RealArray:
        return np.asarray(self.model_.decision_function(log_vectors(matrices) / self.deviation_))

    def decision_function(self, X: ArrayLike) -> RealArray:
        """Scores of the classes, shape (n_matrices, n_classes), or (n_matrices,) with two."""
        return class_scores(self._decide_new(check_new(self, X)), self.calibration_[0])


def fit_vectors(
    X: RealArray, codes: Indices, weights: RealArray, candidate: Candidate, *, table: bool
) -> SVC:
    """Fit a machine to vectors.

    With fewer samples than features a table of kernels is smaller than the data, and BLAS makes it
    many times faster than the solver would.
    """
    C, gamma = candidate
    kernel: Any = "linear" if gamma is None else "rbf"
    if table:
        kernel = linear_kernel if gamma is None else partial(rbf_kernel, gamma=gamma)
    machine = SVC(
        kernel=kernel, C=C, gamma=gamma or 1.0, decision_function_shape="ovo", max_iter=_STEPS
    )
    # It is stopped on purpose.
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        return machine.fit(X, codes, sample_weight=weights)


def spread(vectors: RealArray) -> float:
    """Root of the total variance; 1 where the vectors are all the same."""
    unit = float(np.sqrt(vectors.var(axis=0).sum()))
    return 1.0 if unit <= _ROUNDING * float(np.abs(vectors).max(initial=0)) else unit
