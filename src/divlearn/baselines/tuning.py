"""How baselines choose their parameters: by accuracy on held-out parts of the training data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import linear_kernel, rbf_kernel
from sklearn.model_selection import ParameterGrid
from sklearn.svm import SVC

from divlearn.arrays import RealArray
from divlearn.fitting.folds import Folds

__all__ = ["FOLDS", "GAMMAS", "PENALTIES", "Choice", "VectorMachine", "choose", "fit_svm"]

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


@dataclass(frozen=True)
class Choice:
    """Parameters, and how all that were tried did.

    Attributes
    ----------
    parameters : dict
    score : float
        Accuracy on what was held out, NaN where nothing could be.
    tried : list of dict
        All parameters, in the order of the grid.
    scores : list of float
    """

    parameters: dict[str, Any]
    score: float
    tried: list[dict[str, Any]]
    scores: list[float]


def choose(
    make: Callable[..., Any], grid: Sequence[dict[str, Any]], X: NDArray[Any], y: NDArray[Any],
    folds: Folds,
) -> Choice:  # fmt: skip
    """Choose parameters by the pooled accuracy on held-out parts of the training data.

    Parameters
    ----------
    make : callable
        Makes a classifier of the parameters, which are passed by name.
    grid : sequence of dict
        Parameters to try, those of the strongest regularisation first: they win ties.
    X : ndarray, shape (n_samples, ...)
    y : ndarray, shape (n_samples,)
    folds : sequence of (train, held out)
        See `divlearn.fitting.folds.make_folds`.

    Returns
    -------
    Choice

    Examples
    --------
    >>> from sklearn.svm import SVC
    >>> X, y = np.arange(20.0)[:, None], np.repeat([0, 1], 10)
    >>> from divlearn.fitting.folds import make_folds
    >>> folds = make_folds(2, 20, y, random_state=0)
    >>> choose(SVC, [{"C": 0.1}, {"C": 1.0}], X, y, folds).parameters
    {'C': 0.1}
    """
    tried = [dict(parameters) for parameters in grid]
    if len(tried) == 1 or not folds:
        return Choice(tried[0], np.nan, tried, [np.nan] * len(tried))
    scores = []
    for parameters in tried:
        right = [
            make(**parameters).fit(X[train], y[train]).predict(X[held]) == y[held]
            for train, held in folds
        ]
        scores.append(float(np.concatenate(right).mean()))
    best = int(np.argmax(scores))  # the first of several
    return Choice(tried[best], scores[best], tried, scores)


@dataclass(frozen=True, eq=False)
class VectorMachine:
    """A support vector machine of vectors that are divided by one number.

    Attributes
    ----------
    unit : float
        Root of the total variance of the training vectors.
    machine : SVC
    choice : Choice
        C, and gamma of a Gaussian kernel.
    """

    unit: float
    machine: SVC
    choice: Choice

    @property
    def exact(self) -> bool:
        """Whether the solver came to its end: it is stopped where C is far too large."""
        return int(self.machine.fit_status_) == 0

    def decide(self, vectors: RealArray) -> RealArray:
        """Scores of the classes, shape (n_samples, n_classes), or (n_samples,) with two."""
        scores: RealArray = self.machine.decision_function(vectors / self.unit)
        return scores

    def predict(self, vectors: RealArray) -> NDArray[Any]:
        """Labels, shape (n_samples,)."""
        labels: NDArray[Any] = self.machine.predict(vectors / self.unit)
        return labels


def fit_svm(
    vectors: RealArray, y: NDArray[Any], folds: Folds, *, kernel: str = "linear",
    penalties: Sequence[float] | None = None, gammas: Sequence[float] | None = None,
) -> VectorMachine:  # fmt: skip
    """Fit a support vector machine to vectors, such as codes; parameters are chosen by `choose`.

    Parameters
    ----------
    vectors : ndarray, shape (n_samples, n_features)
        They are divided by one number, which keeps their proportions and makes their variances add
        up to one.
    y : ndarray, shape (n_samples,)
    folds : sequence of (train, held out)
        See `choose`.
    kernel : {"linear", "rbf"}
    penalties, gammas : sequence of float, optional
        Values of C and, for a Gaussian kernel, of gamma to try, ascending; those of `PENALTIES` and
        `GAMMAS` by default. A single one is taken as it is.

    Returns
    -------
    VectorMachine
        Fitted on everything.

    Examples
    --------
    >>> from divlearn.fitting.folds import make_folds
    >>> vectors, y = np.arange(20.0)[:, None], np.repeat([0, 1], 10)
    >>> machine = fit_svm(vectors, y, make_folds(5, 20, y, random_state=0))
    >>> machine.choice.parameters, machine.predict(np.array([[3.0], [17.0]])).tolist()
    ({'C': 0.1}, [0, 1])
    """
    unit = float(np.sqrt(vectors.var(axis=0).sum()))
    if unit <= _ROUNDING * float(np.abs(vectors).max(initial=0)):
        unit = 1.0  # the vectors are all the same
    scaled = vectors / unit
    # With fewer samples than features a table of kernels is smaller than the data, and BLAS makes
    # it many times faster than the solver would.
    whole = scaled.shape[1] > len(scaled)
    make = partial(_make_machine, kernel, whole)
    axes = {"C": PENALTIES[kernel] if penalties is None else penalties}
    if kernel == "rbf":
        axes["gamma"] = GAMMAS if gammas is None else gammas
    choice = choose(make, list(ParameterGrid(axes)), scaled, y, folds)
    # Without a function for a kernel, so that the machine can be kept in a file.
    machine = _make_machine(kernel, False, **choice.parameters)
    return VectorMachine(unit, machine.fit(scaled, y), choice)


class QuietSVC(SVC):  # type: ignore[misc]
    """A machine whose solver is stopped in silence where it takes too long."""

    def fit(self, X: RealArray, y: NDArray[Any], sample_weight: RealArray | None = None) -> Self:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            super().fit(X, y, sample_weight)
        return self


def _make_machine(kernel: str, whole: bool, C: float, gamma: float = 1.0) -> SVC:
    function: Any = kernel
    if whole:
        function = linear_kernel if kernel == "linear" else partial(rbf_kernel, gamma=gamma)
    # Without break_ties votes that tie go to the first class, whatever the scores are.
    return QuietSVC(kernel=function, C=C, gamma=gamma, break_ties=True, max_iter=_STEPS)
