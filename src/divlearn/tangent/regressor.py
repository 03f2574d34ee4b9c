"""Ridge regression on tangent vectors of SPD matrices."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Annotated

import numpy as np
from scipy.linalg import svd
from sklearn.metrics.pairwise import euclidean_distances

from divlearn.arrays import RealArray
from divlearn.checks import RandomState
from divlearn.engines import Engine
from divlearn.fitting.folds import Splitter
from divlearn.fitting.held_out import Grid
from divlearn.fitting.regression import HeldOutRegressor, NumberedTraining
from divlearn.kernels.ridge import PENALTIES, KernelModel, KernelRidge
from divlearn.kernels.tables import decay
from divlearn.log_vectors import log_vectors
from divlearn.tangent.classifier import POINTS, space


@dataclass(frozen=True, eq=False)
class LinearModel:
    """Numbers that are linear in vectors."""

    coefficients: Annotated[RealArray, "n_entries"]
    offset: float

    def decide(self, vectors: RealArray) -> RealArray:
        return vectors @ self.coefficients + self.offset


@dataclass(frozen=True, eq=False)
class GaussianModel:
    """Kernel ridge with a Gaussian kernel, and the vectors it was fitted to."""

    model: KernelModel
    gamma: float
    vectors: Annotated[RealArray, "n_vectors n_entries"]

    def decide(self, vectors: RealArray) -> RealArray:
        table = euclidean_distances(vectors, self.vectors, squared=True)
        return self.model.decide(decay(table, self.gamma))


Model = LinearModel | GaussianModel
Candidate = tuple[float, ...]  # gamma, of "rbf", and the penalty
Learn = Callable[[Candidate], Model]


class TangentRegressor(HeldOutRegressor[Candidate]):
    r"""Predict numbers by ridge regression on tangent vectors of SPD matrices.

    The vectors are those of `TangentClassifier`, divided by one number, so that their total
    variance is one.

    Parameters
    ----------
    model : {"ridge", "rbf"}, default="ridge"
        Ridge regression, or kernel ridge regression with a Gaussian kernel. The penalty and the
        width are chosen by the held-out squared error.
    at : {"mean", "identity"}, default="mean"
        Point of tangency: the AIRM mean of the training matrices, or the identity, where vectors
        are those of log X.
    cv : int or splitter, default=4
    random_state : int, RandomState or None, default=None
    engine : str or Engine, default="auto"
    regularize : {"raise", "shrink"} or float, default="raise", see `Regularize`

    Attributes
    ----------
    best_params_ : dict, "penalty" and, of "rbf", "gamma".
    cv_results_ : dict, "params" and their held-out "mean_test_score", an R2.
    oof_prediction_ : ndarray, shape (n_matrices,)
        Held-out predictions, with parameters chosen without each fold.
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

    model_: Model
    whitener_: Annotated[RealArray, "d d"]
    deviation_: float

    def __init__(
        self,
        model: str = "ridge",
        *,
        at: str = "mean",
        cv: Splitter = 4,
        random_state: RandomState = None,
        engine: str | Engine = "auto",
        regularize: str | float = "raise",
    ) -> None:
        self.model, self.at, self.cv = model, at, cv
        self.random_state, self.engine, self.regularize = random_state, engine, regularize

    def _check_parameters(self) -> None:
        if self.model not in _METHODS:
            raise ValueError(f"model={self.model!r} must be one of {', '.join(_METHODS)}")
        if self.at not in POINTS:
            raise ValueError(f"at={self.at!r} must be one of {', '.join(POINTS)}")

    def _grid(self, training: NumberedTraining) -> Grid[Candidate]:
        return Grid(list(product(*_METHODS[self.model][1].values())))

    def _describe(self, candidate: Candidate) -> dict[str, float]:
        return dict(zip(_METHODS[self.model][1], candidate, strict=True))

    def _learner(self, training: NumberedTraining, number: int) -> Learn:
        rows, data = training.parts[number][0], training.data
        whitener, vectors, deviation = space(training, self.at, number)
        if number == training.whole:
            self.whitener_, self.deviation_ = whitener, deviation
        prepare, _ = _METHODS[self.model]
        return prepare(vectors[rows] / deviation, data.numbers[rows], data.weights[rows])

    def _decide(self, model: Model, training: NumberedTraining, number: int) -> RealArray:
        _, vectors, deviation = space(training, self.at, number)
        return model.decide(vectors[training.parts[number][1]] / deviation)

    def _decide_new(self, matrices: RealArray) -> RealArray:
        return self.model_.decide(log_vectors(matrices, self.whitener_) / self.deviation_)


def _ridge(vectors: RealArray, numbers: RealArray, weights: RealArray) -> Learn:
    """Decompose weighted vectors, centred, once for all penalties."""
    roots = np.sqrt(weights)
    centre, offset = (np.average(one, axis=0, weights=weights) for one in (vectors, numbers))
    left, values, right = svd(roots[:, None] * (vectors - centre), full_matrices=False)
    projected = values * ((roots * (numbers - offset)) @ left)

    def learn(candidate: Candidate) -> LinearModel:
        coefficients = (projected / (values**2 + candidate[0])) @ right
        return LinearModel(coefficients, float(offset - centre @ coefficients))

    return learn


def _rbf(vectors: RealArray, numbers: RealArray, weights: RealArray) -> Learn:
    table = euclidean_distances(vectors, squared=True)

    @lru_cache(maxsize=1)  # candidates that differ in their penalty follow each other
    def decompose(gamma: float) -> KernelRidge:
        return KernelRidge(decay(table, gamma), numbers, weights)

    return lambda candidate: GaussianModel(
        decompose(candidate[0]).learn(candidate[1]), candidate[0], vectors
    )


# What is learned once for all penalties, and values of parameters to choose from.
_METHODS: dict[str, tuple[Callable[..., Learn], dict[str, tuple[float, ...]]]] = {
    "ridge": (_ridge, {"penalty": tuple(10.0 ** (power / 2) for power in range(-8, 9))}),
    "rbf": (_rbf, {"gamma": (0.03, 0.1, 0.3, 1.0), "penalty": PENALTIES}),
}
