"""Nearest neighbours of SPD matrices, in a given divergence or one chosen on held-out data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise, product
from typing import Annotated, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from divlearn.alpha_beta import keep_prepared
from divlearn.arrays import Indices, Labels, RealArray, to_host
from divlearn.checks import RandomState, check_count, check_name
from divlearn.divergence import (
    LOG_EUCLIDEAN,
    Divergence,
    DivergenceLike,
    EmbeddedMetric,
    get_divergence,
)
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.fitting import labelled
from divlearn.fitting.folds import Splitter
from divlearn.fitting.held_out import FoldedData, prepare_once
from divlearn.fitting.labelled import check_labelled, check_new
from divlearn.fitting.training import Grid, HeldOutClassifier, Training
from divlearn.kernels.classifier import POINTS
from divlearn.kernels.regressor import usual_divergences
from divlearn.kernels.tables import are_many, by_class, cut, shared_table, training_table
from divlearn.log_vectors import centre, squared_distances
from divlearn.nearest.vectors import VectorNeighbors, take_nearest
from divlearn.tolerances import LEARNING_ACCURACY

_COLUMNS = 1024  # training matrices whose divergences are held at a time
_WEIGHTS = ("uniform", "distance")
_TABLE_ENTRIES = 1 << 22  # of a table held at a time
_LEAST_ROWS = 1024  # of a block, so that vector lanes are full
_COUNTS = (1, 3)  # of neighbours in every class, to choose from
_FLOOR = 1e-12  # of a divergence, relative to the median: logarithms are finite for copies
_SAMPLE = 256  # training matrices for the median divergence
_SMALLEST = float(np.finfo(float).tiny)  # the floor if all matrices are copies of one

Candidate = tuple[Divergence, int]  # with a number of neighbours


@labelled.takes_metric
class DivergenceKNN(labelled.MatrixClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Classify SPD matrices by the nearest training matrices in a divergence.

    Neighbours of a matrix X are the training matrices :math:`X_i` with the smallest
    :math:`D(X \,\|\, X_i)`. The order matters if the divergence is not symmetric.

    Parameters
    ----------
    n_neighbors : int, default=1
        Number of matrices that vote; all if there are fewer.
    divergence : str, pair (alpha, beta), callable, dict or Divergence, default="airm"
        Any argument of `divlearn.get_divergence`: a name, such as "airm", "log-euclidean" or
        "wasserstein"; a pair, such as the ``(alpha_, beta_)`` that an estimator has learned; or
        your function. As in pyRiemann, ``metric`` is another name for this parameter, and
        pyRiemann's names of metrics are accepted.
    weights : {"uniform", "distance"}, default="uniform"
        Votes of neighbours: one each, or inversely proportional to the distance. Neighbours at
        distance zero outvote all others. Sample weights multiply votes.
    engine : str or Engine, default="auto"
    n_jobs : int, optional
        Threads of an engine given by name; all by default, as with -1.
    regularize : {"raise", "shrink"} or float, default="raise", see `Regularize`

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
    covmeans_ : ndarray, shape (n_matrices, d, d), training matrices with a weight.
    classmeans_ : ndarray, shape (n_matrices,), their classes; both are names of pyRiemann.
    n_features_in_ : int, size of the matrices.

    Notes
    -----
    Votes that tie go to the first of ``classes_``, as in scikit-learn and pyRiemann. Memory does
    not grow with the number of pairs.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, random_state=0)
    >>> model = DivergenceKNN(5, "stein").fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2])
    1.0
    >>> distances, neighbors = model.kneighbors(X[:1], 2)
    >>> neighbors[0, 0], round(distances[0, 0], 6)  # itself
    (np.int64(0), np.float64(0.0))
    """

    _divergence: Divergence
    _matrices: Annotated[RealArray, "n_matrices d d"]
    _codes: Annotated[Indices, "n_matrices"]
    _vectors: Annotated[RealArray, "n_matrices n_entries"]

    def __init__(
        self,
        n_neighbors: int = 1,
        divergence: DivergenceLike = "airm",
        weights: str = "uniform",
        engine: str | Engine = "auto",
        *,
        n_jobs: int | None = None,
        regularize: str | float = "raise",
    ) -> None:
        self.n_neighbors, self.divergence, self.weights = n_neighbors, divergence, weights
        self.engine, self.n_jobs, self.regularize = engine, n_jobs, regularize

    @labelled.fit_method
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Keep matrices X, shape (n_matrices, d, d), and labels y, of two classes at least.

        Weights, shape (n_matrices,), multiply the votes of matrices; zero leaves a matrix out.
        """
        check_name(self.weights, "weights", _WEIGHTS)
        divergence = get_divergence(self.divergence)
        get_engine(self.engine)
        check_count(self.n_neighbors, "n_neighbors")
        data = check_labelled(self, X, y, sample_weight)
        self._divergence = self._for_checked(divergence)
        self._codes, self._matrices = data.codes, data.matrices
        self._votes, self._kept = data.weights, data.positions
        if isinstance(self._divergence, EmbeddedMetric):
            self._vectors = self._divergence.embed(data.matrices)
        return self

    @property
    def covmeans_(self) -> RealArray:
        """Training matrices, by pyRiemann's name."""
        return self._as_given(self._matrices)

    @property
    def classmeans_(self) -> Labels:
        """Classes of the training matrices, by pyRiemann's name."""
        return self.classes_[self._codes]

    def kneighbors(
        self, X: ArrayLike, n_neighbors: int | None = None, return_distance: bool = True
    ) -> tuple[RealArray, Indices] | Indices:
        """Find the nearest training matrices: distances and indices, (n_matrices, n_neighbors).

        X has the shape (n_matrices, d, d); ``n_neighbors`` is that of the estimator by default.
        With ``return_distance=False`` only indices are returned. Distances are ascending, and are
        divergences unless the divergence is the square of a distance, as "airm" and "stein" are.
        """
        check_is_fitted(self)
        k = self.n_neighbors if n_neighbors is None else n_neighbors
        fix = ", the number of matrices of weight > 0; lower n_neighbors or pass more data"
        check_count(k, "n_neighbors", most=len(self._codes), fix=fix)
        distances, neighbors = self._search(X, k)
        indices = self._kept[neighbors]
        return (distances, indices) if return_distance else indices

    def predict_proba(self, X: ArrayLike) -> RealArray:
        """Shares of classes in the votes of the neighbours, shape (n_matrices, n_classes)."""
        check_is_fitted(self)
        distances, neighbors = self._search(X, min(self.n_neighbors, len(self._codes)))
        votes = np.zeros((len(distances), len(self.classes_)))
        rows, codes = np.arange(len(votes))[:, None], self._codes[neighbors]
        np.add.at(votes, (rows, codes), self._weigh(distances) * self._votes[neighbors])
        return votes / votes.sum(axis=1, keepdims=True)

    def _search(self, X: ArrayLike, k: int) -> tuple[RealArray, Indices]:
        queries = blocks(check_new(self, X), _COLUMNS)
        results = [self._search_block(block, k) for block in queries]
        distances, neighbors = map(np.concatenate, zip(*results, strict=True))
        share = np.sqrt(self._share) if self._divergence.squared_distance else self._share
        return share * distances, neighbors

    def _search_block(self, queries: RealArray, k: int) -> tuple[RealArray, Indices]:
        if isinstance(self._divergence, EmbeddedMetric):
            trained = prepare_once(self, self._vectors, VectorNeighbors)
            return trained.find(self._divergence.embed(queries), k)
        blocks = prepare_once(self, self._matrices, _split)
        engine = labelled.engine_of(self)
        return _find_nearest(queries, blocks, self._divergence, k, engine)

    def _weigh(self, distances: RealArray) -> RealArray:
        if self.weights == "uniform":
            return np.ones(distances.shape)
        nearest = distances[:, :1]
        usual = (nearest > 0) & (nearest < np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            weights: RealArray = np.where(usual, nearest / distances, distances == nearest)
        return weights


def blocks(matrices: RealArray, n_columns: int) -> Iterator[RealArray]:
    """Yield blocks of matrices, for tables with ``n_columns``."""
    step = max(_LEAST_ROWS, _TABLE_ENTRIES // n_columns)
    for start in range(0, len(matrices), step):
        yield matrices[start : start + step]


def _split(matrices: RealArray) -> list[Prepared]:
    starts = range(0, len(matrices), _COLUMNS)
    return [Prepared.checked(matrices[start : start + _COLUMNS]) for start in starts]


def _find_nearest(
    queries: RealArray, blocks: list[Prepared], divergence: Divergence, k: int, engine: Engine
) -> tuple[RealArray, Indices]:
    """Distances to the k nearest matrices of some blocks and their indices, the nearest first."""
    prepared = engine.keep(Prepared.checked(queries))
    distances: RealArray = np.empty((len(queries), 0))
    neighbors: Indices = np.empty((len(queries), 0), dtype=np.intp)
    for number, block in enumerate(blocks):
        known = keep_prepared(engine, block, prepared.dtype)
        table = divergence.pairwise(prepared, known, squared=False, engine=engine)
        columns = np.broadcast_to(np.arange(block.n_matrices), table.shape)
        if k < block.n_matrices:
            order = np.argpartition(table, k - 1, axis=1)[:, :k]
            table = np.take_along_axis(table, order, axis=1)
            columns = to_host(order).astype(np.intp, copy=False)
        columns = columns + number * _COLUMNS
        distances, neighbors = take_nearest(
            np.hstack([distances, to_host(table)]), np.hstack([neighbors, columns]), k
        )
    return distances, neighbors


class Nearest:
    """Base of estimators that choose a divergence and a number of neighbours."""

    _names: ClassVar[tuple[str, ...]] = ("divergence", "n_neighbors")

    def __init__(
        self,
        *,
        cv: Splitter = 4,
        random_state: RandomState = None,
        engine: str | Engine = "auto",
        n_jobs: int | None = None,
        regularize: str | float = "raise",
    ) -> None:
        self.cv, self.random_state = cv, random_state
        self.engine, self.n_jobs, self.regularize = engine, n_jobs, regularize

    def _learner(self, training: FoldedData, number: int) -> Callable[[Candidate], Candidate]:
        return lambda candidate: candidate  # there is nothing to fit


class NearestClassifier(Nearest, HeldOutClassifier[Candidate]):
    r"""Classify SPD matrices by the mean divergence to the nearest matrices of every class.

    .. math:: p(y = k \,|\, X) \propto D_k^{-1/T} ,

    with :math:`D_k` the mean of the symmetrised divergences between X and its nearest neighbours in
    class k. The divergence, the number of neighbours (1 or 3) and T are chosen by the held-out
    likelihood. With more than 4,000 matrices the divergence is log-Euclidean: others would take too
    long between all pairs.

    Parameters
    ----------
    cv, random_state, engine, n_jobs, regularize : as in `TangentClassifier`

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

    matrices_: Annotated[RealArray, "n_kept d d"]
    codes_: Annotated[Indices, "n_kept"]
    least_: float

    def _grid(self, training: Training) -> Grid[Candidate]:
        divergences = [LOG_EUCLIDEAN] if are_many(training) else usual_divergences()
        return Grid(list(product(divergences, _COUNTS)))

    def _fit_model(self, training: Training, best: Candidate) -> None:
        self.matrices_, self.codes_ = training.data.matrices, training.data.codes
        self.least_ = _least(training, divergence=best[0])

    def _decide(self, model: Candidate, training: Training, number: int) -> RealArray:
        divergence, count = model
        search = partial(_nearest_held_out, training, number, divergence)
        nearest = training.cached(("nearest", divergence, number), search)  # for all counts
        return _scores(_class_means(nearest, count), _least(training, divergence))

    def _decide_new(self, new: Prepared) -> RealArray:
        divergence, count = self.best_params_["divergence"], self.best_params_["n_neighbors"]
        engine = labelled.engine_of(self, LEARNING_ACCURACY)
        table = training_table(self, divergence, engine, new)
        order = by_class(self.codes_)
        nearest = _nearest_of_classes(table[:, order], self.codes_[order])
        return _scores(_class_means(nearest, count), self.least_)


def _least(training: Training, divergence: Divergence) -> float:
    """Return the floor of divergences, relative to the median between training matrices."""

    # Not between new matrices: a prediction does not depend on the others.
    def compute() -> float:
        rows = np.arange(len(training.data.codes))
        rows = rows[:: -(-len(rows) // _SAMPLE)]
        if are_many(training):
            vectors = training.log_vectors[rows]
            table = squared_distances(vectors, vectors)
        else:
            table = cut(shared_table(training, divergence, POINTS), rows, rows)
        values = to_host(table)
        values = values[values > 0]
        return max(_FLOOR * float(np.median(values)), _SMALLEST) if values.size else _SMALLEST

    return training.cached(("least", divergence), compute)


def _nearest_held_out(training: Training, number: int, divergence: Divergence) -> list[RealArray]:
    """Divergences between held-out matrices and the nearest training matrices of each class."""
    train, held = training.parts[number]
    train = train[by_class(training.data.codes[train])]
    codes = training.data.codes[train]
    if not are_many(training):
        table = cut(shared_table(training, divergence, POINTS), held, train)
        return _nearest_of_classes(table, codes)
    vectors = training.log_vectors
    trained = centre(vectors[train])
    blocks = np.split(held, range(_LEAST_ROWS, len(held), _LEAST_ROWS))
    tables = (to_host(squared_distances(vectors[rows], trained)) for rows in blocks)
    nearest = [_nearest_of_classes(table, codes) for table in tables]
    return [np.concatenate(of_class) for of_class in zip(*nearest, strict=True)]


def _nearest_of_classes(table: RealArray, codes: Indices) -> list[RealArray]:
    """Smallest divergences to every class, ascending, from columns sorted by class."""
    nearest, k = [], max(_COUNTS)
    for start, end in pairwise(np.searchsorted(codes, np.arange(codes[-1] + 2)).tolist()):
        part = table[:, start:end]
        smallest = np.partition(part, k - 1, axis=1)[:, :k] if end - start > k else part
        nearest.append(np.sort(smallest, axis=1))
    return nearest


def _class_means(nearest: list[RealArray], count: int) -> RealArray:
    """Mean divergences to the nearest matrices of every class."""
    parts = [of_class[:, :count] for of_class in nearest]
    return np.stack([part.sum(axis=1) / part.shape[1] for part in parts], axis=1)


def _scores(distances: RealArray, least: float) -> RealArray:
    """Negative logarithms of divergences from the classes."""
    return -np.log(np.maximum(distances, least))
