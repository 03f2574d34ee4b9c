"""Classifiers and regressors of tangent vectors of SPD matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Annotated

import numpy as np
from sklearn.model_selection import ParameterGrid
from sklearn.svm import SVC

from divlearn.arrays import Indices, RealArray, to_device_of, to_host
from divlearn.checks import ClassWeight, RandomState, check_name
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.fitting.folds import Splitter
from divlearn.fitting.held_out import FoldedData
from divlearn.fitting.training import (
    Grid,
    HeldOutClassifier,
    HeldOutRegressor,
    NumberedTraining,
    Training,
    coordinate_grid,
)
from divlearn.geometry import invsqrtm
from divlearn.heads.discriminants import (
    RDA,
    Linear,
    NoSpreadError,
    Quadratic,
    fit_lda,
    project_to_span,
)
from divlearn.heads.heads import solve_head
from divlearn.heads.losses import SoftmaxLoss
from divlearn.heads.ridge import RIDGE_PENALTIES, fit_ridge
from divlearn.heads.samples import Head, Samples
from divlearn.kernels.classifier import Candidate
from divlearn.kernels.machines import (
    Landmarks,
    LeastSquares,
    PairMachine,
    couple,
    decide_pairs,
    fit_pairs,
    indicate,
)
from divlearn.kernels.tables import are_many, by_class, decay, pick_landmarks
from divlearn.log_vectors import Centred, centre, log_vectors, spread, squared_distances
from divlearn.means import mean_abld
from divlearn.sharded.blocks import Block
from divlearn.sharded.shards import MemoryShards

__all__ = ["TangentClassifier", "TangentRegressor"]


@dataclass(frozen=True, eq=False)
class Machine:
    """A machine, with its support vectors or landmarks and the factor of the Gaussian kernel."""

    machine: SVC | PairMachine | LeastSquares
    gamma: float
    vectors: Annotated[RealArray, "n_vectors n_entries"]

    @cached_property
    def _centred(self) -> Centred:
        return centre(self.vectors)

    def decide(self, vectors: RealArray) -> RealArray:
        """Scores, shape (n_vectors, n_classes, n_forms)."""
        others = Centred(*(to_device_of(values, vectors) for values in self._centred))
        table = squared_distances(vectors, others)
        kernel = decay(table, self.gamma)
        if isinstance(self.machine, LeastSquares):
            return self.machine.decide(kernel)
        return couple(decide_pairs(self.machine, to_host(kernel)))


Model = Linear | Quadratic | Machine
Learn = Callable[..., Model]  # parameters to a model

POINTS = ("mean", "identity")  # of tangency
_PENALTIES = [1.0, 10.0, 100.0, 1000.0]  # of logistic regression, the strongest first


class TangentClassifier(HeldOutClassifier[Candidate]):
    r"""Classify SPD matrices by a standard method for vectors, on their tangent vectors.

    The vectors are the upper triangles of :math:`\log(G^{-1/2} X G^{-1/2})`, with off-diagonal
    entries times :math:`\sqrt 2`, minus their mean if G is the identity, divided by one number, so
    that their total variance is one.

    Parameters
    ----------
    model : {"lda", "logistic", "rda", "rbf"}, default="lda"
        Linear discriminants with the shrinkage of Ledoit and Wolf, logistic regression, Friedman's
        regularised discriminant analysis, or a support vector machine with a Gaussian kernel.
        Their parameters are chosen by the held-out likelihood. With more than 4,000 matrices "rbf"
        is a least-squares machine with kernels of 500 landmarks, or 10 per class.
    at : {"mean", "identity"}, default="mean"
        G, the point of tangency: the AIRM mean of the training matrices, or the identity, where
        vectors are those of log X.
    cv : int or splitter, default=4
    class_weight : dict, "balanced" or None, default=None
    random_state : int, RandomState or None, default=None
    engine : str or Engine, default="auto"
    n_jobs : int or None, default=None
        Threads that fit candidates and folds, as in scikit-learn; None for those of the engine. The
        result is the same for any number.
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
    _middle: Annotated[RealArray, "n_entries"]

    def __init__(
        self,
        model: str = "lda",
        *,
        at: str = "mean",
        cv: Splitter = 4,
        class_weight: ClassWeight = None,
        random_state: RandomState = None,
        engine: str | Engine = "auto",
        n_jobs: int | None = None,
        regularize: str | float = "raise",
    ) -> None:
        self.model, self.at, self.cv, self.class_weight = model, at, cv, class_weight
        self.random_state, self.engine = random_state, engine
        self.n_jobs, self.regularize = n_jobs, regularize

    def _check_parameters(self) -> None:
        check_name(self.model, "model", _METHODS)
        check_name(self.at, "at", POINTS)

    @property
    def _nested(self) -> bool:  # type: ignore[override]
        return self.model == "rbf"

    def _grid(self, training: Training) -> Grid[Candidate]:
        _, values = self._method(training)
        return coordinate_grid([tuple(choice.items()) for choice in ParameterGrid(values)])

    def _method(self, training: Training) -> tuple[Callable[..., Learn], dict[str, list[float]]]:
        if self.model == "rbf" and are_many(training):
            return _ON_LANDMARKS
        return _METHODS[self.model]

    def _learner(self, training: Training, number: int) -> Callable[[Candidate], Model]:
        rows, data = training.parts[number][0], training.data
        whitener, vectors, deviation = space(training, self.at, number)
        middle = self._find_middle(training, number)
        prepare, _ = self._method(training)
        try:
            learn = prepare(
                (vectors[rows] - middle) / deviation, data.codes[rows], data.weights[rows]
            )
        except NoSpreadError:
            if number < len(training.folds) or number == training.whole:
                raise
            # A fold of the nest with one matrix of each class predicts all classes alike.
            zeros = np.zeros((len(data.classes), vectors.shape[1] + 1))
            return lambda _: Linear(zeros[:, 1:], zeros[:, 0])
        if number == training.whole:
            self.whitener_, self.deviation_, self._middle = whitener, deviation, to_host(middle)
        return lambda candidate: learn(**dict(candidate))

    def _find_middle(self, training: Training, number: int) -> RealArray:
        """Return the mean of vectors, around which methods keep their digits in any unit."""
        rows, (_, vectors, _) = training.parts[number][0], space(training, self.at, number)
        if self.at == "mean":  # they are centred up to the tolerance of the mean
            return 0.0 * vectors[0]
        return training.cached(("middle", self.at, number), lambda: vectors[rows].mean(axis=0))

    def _fit_model(self, training: Training, best: Candidate) -> None:
        super()._fit_model(training, best)
        if isinstance(self.model_, Quadratic):
            self.model_ = self.model_.compact()

    def _decide(self, model: Model, training: Training, number: int) -> RealArray:
        _, vectors, deviation = space(training, self.at, number)
        moved = vectors[training.parts[number][1]] - self._find_middle(training, number)
        return to_host(model.decide(moved / deviation))

    def _decide_new(self, new: Prepared) -> RealArray:
        moved = log_vectors(new, self.whitener_) - self._middle
        return self.model_.decide(moved / self.deviation_)


# --- features, shared by estimators with the same training data -----------------------------------


def space(training: FoldedData, at: str, number: int) -> tuple[RealArray, RealArray, float]:
    """Whitener of a part, the tangent vectors of all matrices, and the deviation of the part."""
    X, rows = training.device_matrices, training.parts[number][0]
    whitener: RealArray = np.eye(X.shape[-1])
    if at == "identity":
        vectors = training.log_vectors
    else:
        # The mean of all data uses no labels: inner folds may share it without optimism.
        part = number if number < len(training.folds) else training.whole
        whitener = training.cached(("whitener", part), lambda: _find_whitener(training, part))
        vectors = training.cached(("tangent vectors", part), lambda: log_vectors(X, whitener))
    deviation = training.cached(("deviation", at, number), lambda: spread(vectors[rows]))
    return whitener, vectors, deviation


def _find_whitener(training: FoldedData, number: int) -> RealArray:
    start, tolerance = None, 1e-6
    if number != training.whole:  # start at the mean of all data, and stop earlier
        whitener, *_ = space(training, "mean", training.whole)
        start, tolerance = np.linalg.inv(whitener @ whitener), 1e-3
    data = Prepared.checked(training.data.matrices[training.parts[number][0]])
    fit = mean_abld(data, 0.0, 0.0, init=start, tol=tolerance, engine=training.engine)
    return invsqrtm(fit.mean)


# --- methods --------------------------------------------------------------------------------------


def _lda(vectors: RealArray, y: Indices, weights: RealArray) -> Learn:
    shares = np.bincount(y, weights)
    model = fit_lda(vectors, y, shares / shares.sum())
    return lambda: model


def _logistic(vectors: RealArray, y: Indices, weights: RealArray) -> Learn:
    coordinates, basis = project_to_span(vectors)  # the span contains the coefficients
    path = _path(coordinates, y, weights)
    lock, heads = Lock(), {}

    def learn(C: float) -> Model:
        with lock:  # every C starts from the solution of the previous one
            while C not in heads:
                penalty, head = next(path)
                heads[penalty] = head
        coefficients, offsets = heads[C]
        return Linear(coefficients if basis is None else coefficients @ to_host(basis.T), offsets)

    return learn


def _path(vectors: RealArray, y: Indices, weights: RealArray) -> Iterator[tuple[float, Head]]:
    """Logistic regressions for all penalties."""
    targets = to_device_of(indicate(y), vectors)
    shares = to_device_of(weights / weights.sum(), vectors)
    # Heads use targets and features only, not the matrices of the block.
    shards = MemoryShards(Block(0, Prepared.checked(vectors), get_engine, None, weights))
    samples = Samples(shards, [(targets, shares)], [vectors], True)
    # scikit-learn penalises only the difference of two classes: twice the penalty of both.
    factor = 1.0 if targets.shape[1] == 2 else 0.5
    head: Head | None = None
    for C in _PENALTIES:
        gamma = factor / (C * float(weights.sum()))
        head, _ = solve_head(SoftmaxLoss().with_tolerance(3e-5), samples, gamma, head)
        coefficients, offsets = head
        if len(offsets) == 2:
            coefficients, offsets = coefficients - coefficients[0], offsets - offsets[0]
        yield C, (coefficients, offsets)


def _rbf(vectors: RealArray, y: Indices, weights: RealArray) -> Learn:
    order = by_class(y)
    vectors, y, weights = vectors[order], y[order], weights[order]
    table = squared_distances(vectors, vectors)

    def learn(C: float, gamma: float) -> Model:
        machine = fit_pairs(to_host(decay(table, gamma)), C, y, weights)
        return Machine(machine, gamma, to_host(vectors[machine.support_]))

    return learn


def _on_landmarks(vectors: RealArray, y: Indices, weights: RealArray) -> Learn:
    landmarks = vectors[pick_landmarks(y)]
    centred = centre(landmarks)
    inner = to_host(squared_distances(landmarks, centred))
    problem = Landmarks(
        lambda rows: squared_distances(vectors[rows], centred),
        lambda gamma: decay(inner, gamma),
        indicate(y),
        weights,
    )
    on_host = to_host(landmarks)
    return lambda C, gamma: Machine(LeastSquares(*problem.learn(C, gamma)), gamma, on_host)


# By name, a function that does the work common to all parameters, and the grid of parameters.
_METHODS: dict[str, tuple[Callable[..., Learn], dict[str, list[float]]]] = {
    "lda": (_lda, {}),
    "logistic": (_logistic, {"C": _PENALTIES}),
    "rda": (
        lambda *data: RDA(*data).learn,
        {"pool": [0.1, 0.5, 0.9], "shrink": [0.01, 0.03, 0.1, 0.3, 0.6]},
    ),
    "rbf": (_rbf, {"C": [1.0, 10.0, 100.0], "gamma": [0.1, 0.3, 1.0, 3.0]}),
}
# Least squares need a smaller C than margins; more values of it cost little.
_ON_LANDMARKS = _on_landmarks, {"C": [0.1, 1.0, 10.0, 100.0], "gamma": [0.1, 0.3, 1.0, 3.0]}


# --- a regressor ----------------------------------------------------------------------------------


class TangentRegressor(HeldOutRegressor[Candidate]):
    r"""Predict numbers by ridge regression on tangent vectors of SPD matrices.

    The vectors are those of `TangentClassifier`, divided by one number, so that their total
    variance is one. The penalty is chosen by the held-out squared error.

    Parameters
    ----------
    at : {"mean", "identity"}, default="mean"
        Point of tangency: the AIRM mean of the training matrices, or the identity, where vectors
        are those of log X.
    cv, random_state, engine, n_jobs, regularize : as in `TangentClassifier`

    Attributes
    ----------
    best_params_ : dict, "penalty", the factor of the squared norm of the coefficients.
    cv_results_ : dict, "params" and their held-out "mean_test_score", an R2.
    oof_prediction_ : ndarray, shape (n_matrices,)
        Held-out predictions, with the penalty chosen without each fold.
    held_out_r2_, held_out_mae_ : float, of these predictions.
    n_features_in_ : int, size of the matrices.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, _ = make_wishart_clusters(1, 120, 3, random_state=0)
    >>> y = np.linalg.slogdet(X)[1]
    >>> regressor = TangentRegressor(random_state=0).fit(X[::2], y[::2])
    >>> bool(regressor.score(X[1::2], y[1::2]) > 0.99)
    True
    """

    model_: Linear
    whitener_: Annotated[RealArray, "d d"]
    deviation_: float

    def __init__(
        self,
        at: str = "mean",
        *,
        cv: Splitter = 4,
        random_state: RandomState = None,
        engine: str | Engine = "auto",
        n_jobs: int | None = None,
        regularize: str | float = "raise",
    ) -> None:
        self.at, self.cv, self.random_state = at, cv, random_state
        self.engine, self.n_jobs, self.regularize = engine, n_jobs, regularize

    def _check_parameters(self) -> None:
        check_name(self.at, "at", POINTS)

    def _grid(self, training: NumberedTraining) -> Grid[Candidate]:
        return Grid([(("penalty", penalty),) for penalty in RIDGE_PENALTIES])

    def _learner(self, training: NumberedTraining, number: int) -> Callable[[Candidate], Linear]:
        rows, data = training.parts[number][0], training.data
        whitener, vectors, deviation = space(training, self.at, number)
        if number == training.whole:
            self.whitener_, self.deviation_ = whitener, deviation
        features = to_host(vectors[rows]) / deviation
        learn = fit_ridge(features, data.numbers[rows], data.weights[rows])
        return lambda candidate: learn(dict(candidate)["penalty"])

    def _decide(self, model: Linear, training: NumberedTraining, number: int) -> RealArray:
        _, vectors, deviation = space(training, self.at, number)
        return to_host(model.decide(vectors[training.parts[number][1]] / deviation))[:, 0]

    def _decide_new(self, new: Prepared) -> RealArray:
        return self.model_.decide(log_vectors(new, self.whitener_) / self.deviation_)[:, 0]
