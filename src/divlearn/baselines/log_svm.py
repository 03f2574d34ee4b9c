"""Support vector machines on logarithms of SPD matrices, and on vectors in general."""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import linear_kernel, rbf_kernel
from sklearn.svm import SVC

from divlearn.arrays import Indices, RealArray
from divlearn.checks import check_number
from divlearn.fitting import labelled
from divlearn.fitting.folds import Folds
from divlearn.fitting.interrupts import is_interrupted
from divlearn.fitting.labelled import Labelled, check_labelled, check_new
from divlearn.fitting.selection import HeldOut, Nest, choose, nest_folds
from divlearn.log_vectors import log_vectors

FOLDS = 5  # to choose by
Candidate = tuple[float, ...]  # C, and gamma of a Gaussian kernel

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


class TunedClassifier(labelled.MatrixClassifierMixin, BaseEstimator):  # type: ignore[misc]
    @labelled.fit_method
    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Choose parameters on held-out parts of the data, and learn from all of it.

        X has the shape (n_matrices, d, d), labels y and groups (n_matrices,). Matrices of one group
        are held out together.
        """
        self._check_parameters()
        self._fit(check_labelled(self, X, y, None, None, groups))
        return self

    @abstractmethod
    def _check_parameters(self) -> None: ...

    @abstractmethod
    def _fit(self, data: Labelled) -> None: ...


class LogEuclideanSVM(TunedClassifier):
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
    C_, gamma_ : float, the latter only for the Gaussian kernel.
    history_ : dict of arrays
        Candidates "C" and, where there is one, "gamma", and their held-out "accuracy"; NaN where
        nothing had to be chosen, or an interrupt came before. The highest is optimistic.
    held_out_accuracy_ : float, with parameters chosen for every fold without the fold, or NaN.
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

    C_: float
    gamma_: float
    history_: dict[str, RealArray]
    held_out_accuracy_: float
    message_: str
    _unit: float
    _machine: SVC

    def __init__(
        self,
        kernel: str = "linear",
        C: float | None = None,
        gamma: float | None = None,
        random_state: int | np.random.RandomState | None = None,
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

    def _fit(self, data: Labelled) -> None:
        self._unit, self._machine, self.history_, self.held_out_accuracy_ = fit_svm(
            log_vectors(data.matrices),
            data.codes,
            data.folds(FOLDS, self.random_state),
            kernel=self.kernel,
            penalties=None if self.C is None else [float(self.C)],
            gammas=None if self.gamma is None else [float(self.gamma)],
        )
        accuracy = self.history_["accuracy"]
        names = [name for name in self.history_ if name != "accuracy"]
        for name in names:
            setattr(self, f"{name}_", getattr(self._machine, name))
        chosen = ", ".join(f"{name} = {getattr(self._machine, name):g}" for name in names)
        n_scored, given = int(np.isfinite(accuracy).sum()), len(accuracy) == 1
        how = "as given" if given else "no class has two matrices or groups, one to hold out"
        if n_scored:
            how = (
                f"held-out accuracy {self.held_out_accuracy_:.3f}, with the best of {n_scored} "
                "chosen without each fold"
            )
        if is_interrupted():
            how += "; interrupted by the user"
        if self._machine.fit_status_:
            how += "; the solver was stopped, for classes overlap"
        self.message_ = f"{chosen}: {how}"

    def decision_function(self, X: ArrayLike) -> RealArray:
        """Scores of the classes, shape (n_matrices, n_classes), or (n_matrices,) with two."""
        vectors = log_vectors(check_new(self, X))
        return self._machine.decision_function(vectors / self._unit)


class Machine(NamedTuple):
    """A support vector machine, and how its parameters were chosen."""

    unit: float  # root of the total variance, by which vectors are divided
    machine: SVC
    history: dict[str, RealArray]  # of candidates; NaN where nothing was held out or reached
    held_out_accuracy: float  # with parameters chosen without each fold; NaN likewise


def fit_svm(
    vectors: RealArray,
    y: NDArray[Any],
    folds: Folds,
    *,
    kernel: str = "linear",
    penalties: Sequence[float] | None = None,
    gammas: Sequence[float] | None = None,
) -> Machine:
    """Fit a support vector machine; C, and gamma of a Gaussian kernel, by held-out accuracy."""
    # A single candidate is taken as it is, and the first where nothing can be held out.
    unit = spread(vectors)
    scaled = vectors / unit
    axes = {"C": PENALTIES[kernel] if penalties is None else penalties}
    if kernel == "rbf":
        axes["gamma"] = GAMMAS if gammas is None else gammas
    grid = list(product(*axes.values()))
    best, scores, accuracy = grid[0], np.full(len(grid), np.nan), np.nan
    if len(grid) > 1 and folds:
        # Linear machines with different C predict nearly the same: their choice is hardly
        # optimistic.
        nest = nest_folds(folds, y) if kernel == "rbf" else None
        held_out = held_out_machines(kernel, lambda _: scaled, y, folds, nest)
        place, known = choose(grid, held_out.score)
        best, scores[: len(known)] = grid[place], known
        accuracy = _honest_accuracy(held_out, grid[: len(known)])
    history = {name: np.array([one[k] for one in grid]) for k, name in enumerate(axes)}
    # Without a function for a kernel, so that the machine can be kept in a file.
    machine = _fit(kernel, False, scaled, y, *best)
    return Machine(unit, machine, history | {"accuracy": scores}, accuracy)


def spread(vectors: RealArray) -> float:
    """Root of the total variance; 1 where the vectors are all the same."""
    unit = float(np.sqrt(vectors.var(axis=0).sum()))
    return 1.0 if unit <= _ROUNDING * float(np.abs(vectors).max(initial=0)) else unit


def held_out_machines(
    kernel: str,
    vectors: Callable[[Candidate], RealArray],
    y: NDArray[Any],
    folds: Folds,
    nest: Nest | None,
) -> HeldOut[Candidate]:
    """Judge machines by held-out accuracy; candidates are C, and gamma of a Gaussian kernel."""
    everything = [*folds, *(nest.folds if nest else ())]

    def decide(candidate: Candidate, number: int) -> RealArray:
        (train, held), X = everything[number], vectors(candidate)
        # With fewer samples than features a table of kernels is smaller than the data, and BLAS
        # makes it many times faster than the solver would.
        machine = _fit(kernel, X.shape[1] > len(X), X[train], y[train], *candidate[:2])
        return machine.predict(X[held]) == y[held]

    def judge(parts: Sequence[RealArray], _: Sequence[Indices]) -> RealArray:
        right = np.concatenate(parts)
        return right / len(right)

    return HeldOut(decide, judge, folds, nest)


def _honest_accuracy(held_out: HeldOut[Candidate], grid: Sequence[Candidate]) -> float:
    """Held-out accuracy with parameters that are chosen without each fold."""
    # The width of a kernel is what its choice is optimistic about: one C serves all widths.
    middle = grid[len(grid) // 2][0]
    some = grid if len(grid[0]) == 1 else [one for one in grid if one[0] == middle]
    chosen = held_out.best_without_each(some, lambda _: [])
    return float(np.concatenate(held_out.parts(chosen)).mean())


def _fit(
    kernel: str, whole: bool, X: RealArray, y: NDArray[Any], C: float, gamma: float = 1.0
) -> SVC:
    function: Any = kernel
    if whole:
        function = linear_kernel if kernel == "linear" else partial(rbf_kernel, gamma=gamma)
    # Without break_ties votes that tie go to the first class, whatever the scores are.
    machine = SVC(kernel=function, C=C, gamma=gamma, break_ties=True, max_iter=_STEPS)
    # It is stopped on purpose.
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        return machine.fit(X, y)
