"""Classifiers of tangent vectors of SPD matrices."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.model_selection import ParameterGrid
from sklearn.svm import SVC

from divlearn.arrays import Indices, RealArray
from divlearn.checks import ClassWeight, RandomState
from divlearn.engines import Engine, Prepared
from divlearn.fitting.calibration import SCORES, Forms
from divlearn.fitting.folds import Splitter
from divlearn.fitting.training import Grid, HeldOutClassifier, Training, near_the_middle
from divlearn.geometry import invsqrtm
from divlearn.kernels.machines import COUPLED, fit_svc
from divlearn.kernels.tables import decay
from divlearn.log_vectors import log_vectors
from divlearn.means import mean_abld
from divlearn.tangent.discriminants import RDA, Linear, Quadratic, fit_lda, span

Candidate = tuple[tuple[str, float], ...]  # names of parameters, and values


@dataclass(frozen=True, eq=False)
class Machine:
    """A support vector machine with a Gaussian kernel, and the vectors it was fitted to."""

    machine: SVC
    gamma: float
    vectors: Annotated[RealArray, "n_vectors n_entries"]

    def decide(self, vectors: RealArray) -> RealArray:
        table = euclidean_distances(vectors, self.vectors, squared=True)
        return np.asarray(self.machine.decision_function(decay(table, self.gamma)))


Model = Linear | Quadratic | Machine
Learn = Callable[..., Model]  # of parameters

_POINTS = ("mean", "identity")


class TangentClassifier(HeldOutClassifier[Candidate]):
    r"""Classify SPD matrices by a standard method on their tangent vectors.

    The vectors are the upper triangles of :math:`\log(G^{-1/2} X G^{-1/2})`, with off-diagonal
    entries times :math:`\sqrt 2`, divided by one number, so that their total variance is one.

    Parameters
    ----------
    model : {"lda", "logistic", "rda", "rbf"}, default="lda"
        Linear discriminants with the shrinkage of Ledoit and Wolf, logistic regression, Friedman's
        regularised discriminant analysis, or a support vector machine with a Gaussian kernel.
        Their parameters are chosen by the held-out likelihood.
    at : {"mean", "identity"}, default="mean"
        G, the point of tangency: the AIRM mean of the training matrices, or the identity, where
        vectors are those of log X.
    cv : int or splitter, default=4
    class_weight : dict, "balanced" or None, default=None
    random_state : int, RandomState or None, default=None
    engine : str or Engine, default="auto"
    regularize : {"raise", "shrink"} or float, default="raise", see `Regularize`

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
    best_params_ : dict, the parameters that were chosen.
    cv_results_ : dict, "params" and their held-out "mean_test_score", the mean log-likelihood.
    oof_proba_ : ndarray, shape (n_matrices, n_classes)
        Held-out probabilities, with parameters and calibration chosen without each fold.
    held_out_accuracy_ : float, of these probabilities.
    n_features_in_ : int, size of the matrices.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, random_state=0)
    >>> model = TangentClassifier("rda", random_state=0).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2])
    1.0
    """

    model_: Model
    whitener_: Annotated[RealArray, "d d"]
    deviation_: float

    def __init__(
        self,
        model: str = "lda",
        *,
        at: str = "mean",
        cv: Splitter = 4,
        class_weight: ClassWeight = None,
        random_state: RandomState = None,
        engine: str | Engine = "auto",
        regularize: str | float = "raise",
    ) -> None:
        self.model, self.at, self.cv, self.class_weight = model, at, cv, class_weight
        self.random_state, self.engine, self.regularize = random_state, engine, regularize

    def _check_parameters(self) -> None:
        if self.model not in _METHODS:
            raise ValueError(f"model={self.model!r} must be one of {', '.join(_METHODS)}")
        if self.at not in _POINTS:
            raise ValueError(f"at={self.at!r} must be one of {', '.join(_POINTS)}")

    @property
    def _method(self) -> "_Method":
        return _METHODS[self.model]

    @property
    def _nested(self) -> bool:  # type: ignore[override]
        return self._method.nested

    @property
    def _forms(self) -> Forms:  # type: ignore[override]
        return self._method.forms

    def _grid(self, training: Training) -> Grid[Candidate]:
        return Grid([tuple(one.items()) for one in ParameterGrid(self._method.parameters)])

    def _inner_grid(self, grid: Grid[Candidate]) -> Grid[Candidate]:
        return near_the_middle(grid) if self._nested else grid

    def _learner(self, training: Training, number: int) -> Callable[[Candidate], Model]:
        rows, data = training.parts[number][0], training.data
        vectors = self._vectors(training, number, rows)
        learn = self._method.prepare(vectors, data.codes[rows], data.weights[rows])
        if number == training.whole:
            self.whitener_ = _whitener(training, self.at, number)
            self.deviation_ = _deviation(training, self.at, number)
        return lambda candidate: learn(**dict(candidate))

    def _vectors(self, training: Training, number: int, rows: Indices) -> RealArray:
        deviation = _deviation(training, self.at, number)
        return _tangent_vectors(training, self.at, number)[rows] / deviation

    def _decide(self, model: Model, training: Training, number: int) -> RealArray:
        held = training.parts[number][1]
        return model.decide(self._vectors(training, number, held))

    def _decide_new(self, matrices: RealArray) -> RealArray:
        vectors = log_vectors(matrices, self.whitener_) / self.deviation_
        return self.model_.decide(vectors)


# --- features, shared by all classifiers of a training ------------------------------------------


def _place(training: Training, at: str, number: int) -> int:
    """Return the part whose mean is the point of tangency."""
    # The mean of everything knows no labels: what is chosen at it is not optimistic.
    return number if at == "mean" and number < len(training.folds) else training.whole


def _whitener(training: Training, at: str, number: int) -> RealArray:
    X = training.data.matrices
    if at == "identity":
        return np.eye(X.shape[-1])
    place = _place(training, at, number)

    def whiten() -> RealArray:
        start, tolerance = None, 1e-6
        if place != training.whole:  # near the mean of everything, and not needed as exactly
            near = _whitener(training, at, training.whole)
            start, tolerance = np.linalg.inv(near @ near), 1e-3
        some = Prepared.checked(X[training.parts[place][0]])
        found = mean_abld(some, 0.0, 0.0, init=start, tol=tolerance, engine=training.engine)
        return invsqrtm(found.mean)

    return training.once(("whitener", place), whiten)


def _tangent_vectors(training: Training, at: str, number: int) -> RealArray:
    """Vectors of all matrices, before they are divided by a deviation."""
    if at == "identity":
        return training.log_vectors
    whitener, place = _whitener(training, at, number), _place(training, at, number)
    matrices = training.data.matrices
    return training.once(("tangent vectors", place), lambda: log_vectors(matrices, whitener))


def _deviation(training: Training, at: str, number: int) -> float:
    def measure() -> float:
        vectors = _tangent_vectors(training, at, number)[training.parts[number][0]]
        deviation = float(np.sqrt(vectors.var(axis=0).sum()))
        return deviation if deviation > 0 else 1.0

    return training.once(("deviation", at, number), measure)


# --- methods --------------------------------------------------------------------------------------


def _shares(y: Indices, weights: RealArray) -> RealArray:
    shares = np.bincount(y, weights)
    return shares / shares.sum()


def _lda(vectors: RealArray, y: Indices, weights: RealArray) -> Learn:
    found = fit_lda(vectors, y, _shares(y, weights))
    return lambda: found


def _rda(vectors: RealArray, y: Indices, weights: RealArray) -> Learn:
    return RDA(vectors, y, _shares(y, weights)).learn


def _logistic(vectors: RealArray, y: Indices, weights: RealArray) -> Learn:
    basis = span(vectors)  # where coefficients lie
    inside = vectors if basis is None else vectors @ basis
    machine = LogisticRegression(max_iter=1000, warm_start=True)

    def learn(C: float) -> Model:
        machine.set_params(C=C).fit(inside, y, weights)
        coefficients, offsets = machine.coef_, machine.intercept_
        if len(coefficients) == 1:  # of the second class of two
            coefficients = np.concatenate([0 * coefficients, coefficients])
            offsets = np.append(0.0, offsets)
        return Linear(coefficients if basis is None else coefficients @ basis.T, offsets)

    return learn


def _rbf(vectors: RealArray, y: Indices, weights: RealArray) -> Learn:
    table = euclidean_distances(vectors, squared=True)

    def learn(C: float, gamma: float) -> Model:
        return Machine(fit_svc(decay(table, gamma), C, y, weights), gamma, vectors)

    return learn


class _Method(NamedTuple):
    """A way to classify vectors."""

    prepare: Callable[..., Learn]  # what is learned once for all parameters
    parameters: dict[str, list[float]]
    forms: Forms = SCORES
    nested: bool = False


_METHODS = {
    "lda": _Method(_lda, {}),
    "logistic": _Method(_logistic, {"C": [1.0, 10.0, 100.0, 1000.0]}),
    "rda": _Method(_rda, {"pool": [0.1, 0.5, 0.9], "shrink": [0.01, 0.03, 0.1, 0.3, 0.6]}),
    "rbf": _Method(
        _rbf,
        {"C": [1.0, 10.0, 100.0], "gamma": [0.1, 0.3, 1.0, 3.0]},
        forms=COUPLED,
        nested=True,
    ),
}
