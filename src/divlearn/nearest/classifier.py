"""Classes by their nearest matrices, the divergence chosen by held-out likelihood."""

from collections.abc import Callable
from itertools import product
from typing import Annotated, NamedTuple

import numpy as np

from divlearn.arrays import Indices, RealArray
from divlearn.checks import RandomState
from divlearn.divergence import LOG_EUCLIDEAN, ABDivergence, Divergence, get_member
from divlearn.engines import Engine, get_engine
from divlearn.fitting.folds import Splitter
from divlearn.fitting.training import Grid, HeldOutClassifier, Training
from divlearn.kernels.classifier import POINTS, shared_tables
from divlearn.kernels.tables import symmetric_table
from divlearn.tolerances import LEARNING_ACCURACY

_COUNTS = (1, 3)  # of neighbours in every class
_LEAST = 1e-12  # of a divergence, relative to the mean: copies are not infinitely near
_SMALLEST = float(np.finfo(float).tiny)  # where all matrices are copies of one


class Candidate(NamedTuple):
    divergence: Divergence
    n_neighbors: int


class NearestClassifier(HeldOutClassifier[Candidate]):
    r"""Classify SPD matrices by the mean divergence to the nearest matrices of every class.

    .. math:: p(y = k \,|\, X) \propto D_k^{-1/T} ,

    with :math:`D_k` the mean of the symmetrised divergences between X and its nearest neighbours in
    class k. The divergence, the number of neighbours (1 or 3) and T are chosen by the held-out
    likelihood.

    Parameters
    ----------
    cv : int or splitter, default=4
    random_state : int, RandomState or None, default=None
    engine : str or Engine, default="auto"
    regularize : {"raise", "shrink"} or float, default="raise", see `Regularize`

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
    best_params_ : dict, "divergence", a `Divergence`, and "n_neighbors".
    cv_results_ : dict, "params" and their held-out "mean_test_score", the mean log-likelihood.
    oof_proba_ : ndarray, shape (n_matrices, n_classes)
        Held-out probabilities, with parameters and T chosen without each fold.
    held_out_accuracy_ : float, of these probabilities.
    n_features_in_ : int, size of the matrices.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, random_state=0)
    >>> model = NearestClassifier(random_state=0).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2])
    1.0
    """

    matrices_: Annotated[RealArray, "n_matrices d d"]
    codes_: Annotated[Indices, "n_matrices"]

    def __init__(
        self,
        *,
        cv: Splitter = 4,
        random_state: RandomState = None,
        engine: str | Engine = "auto",
        regularize: str | float = "raise",
    ) -> None:
        self.cv, self.random_state = cv, random_state
        self.engine, self.regularize = engine, regularize

    def _grid(self, training: Training) -> Grid[Candidate]:
        members = [get_member(point).symmetrize() for point in POINTS]
        pairs = product([LOG_EUCLIDEAN, *members], _COUNTS)
        return Grid([Candidate(*one) for one in pairs])

    def _learner(self, training: Training, number: int) -> Callable[[Candidate], Candidate]:
        return lambda candidate: candidate  # matrices are all there is to know

    def _fit_model(self, training: Training, best: Candidate) -> None:
        self.matrices_, self.codes_ = training.data.matrices, training.data.codes

    def _decide(self, model: Candidate, training: Training, number: int) -> RealArray:
        train, held = training.parts[number]
        table = _table(training, model.divergence)[np.ix_(held, train)]
        return _scores(table, training.data.codes[train], model.n_neighbors)

    def _decide_new(self, matrices: RealArray) -> RealArray:
        best = Candidate(**self.best_params_)
        engine = get_engine(self.engine, accuracy=LEARNING_ACCURACY)
        table = symmetric_table(best.divergence, engine, matrices, self.matrices_)
        return _scores(table, self.codes_, best.n_neighbors)


def _table(training: Training, divergence: Divergence) -> RealArray:
    if isinstance(divergence, ABDivergence):
        return shared_tables(training, POINTS)[divergence.alpha, divergence.beta]
    return training.once(
        divergence.name,
        lambda: symmetric_table(divergence, training.engine, training.data.matrices),
    )


def _scores(table: RealArray, codes: Indices, count: int) -> RealArray:
    """Negative logarithms of mean divergences to the nearest matrices of every class."""
    classes = range(codes.max() + 1)
    means = [np.sort(table[:, codes == k], axis=1)[:, :count].mean(axis=1) for k in classes]
    distances = np.stack(means, axis=1)
    return -np.log(np.maximum(distances, max(_LEAST * distances.mean(), _SMALLEST)))
