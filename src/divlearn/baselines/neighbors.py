"""Nearest neighbours in any divergence of SPD matrices."""

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator
from sklearn.neighbors import NearestNeighbors
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import RealArray, to_host
from divlearn.baselines import plane
from divlearn.checks import check_count
from divlearn.divergence import Divergence, get_divergence
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.fitting import labelled
from divlearn.fitting.folds import Fold
from divlearn.fitting.labelled import Labelled, check_labelled
from divlearn.log_vectors import log_vectors
from divlearn.spd import check_spd

Indices = NDArray[np.intp]

_COLUMNS = 1024  # training matrices whose divergences are held at a time
_WEIGHTS = ("uniform", "distance")
_LOG_EUCLIDEAN = ("log-euclidean", "logeuclid")
_TABLE_ENTRIES = 1 << 22  # of a table held at a time
_LEAST_ROWS = 1024  # of a block, so that vector lanes are full


class DivergenceKNN(labelled.MatrixClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Classify SPD matrices by the nearest training matrices in a divergence.

    Neighbours of a matrix X are the training matrices :math:`X_i` of the smallest
    :math:`D(X \,\|\, X_i)`: X comes first, which matters where a divergence is not symmetric.

    Parameters
    ----------
    n_neighbors : int, default=1
    divergence : str, pair (alpha, beta) or Divergence, default="airm"
        "log-euclidean", the Frobenius distance of logarithms; a name that `divlearn.get_divergence`
        knows, such as "airm", "stein" or "jeffreys"; or a pair, such as the ``(alpha_, beta_)``
        that an estimator has learned. "choose" chooses a point (alpha, beta), with one neighbour:
        that of the highest leave-one-out accuracy on the training data, as `divlearn.plane_map`
        with fewer points; ties go to named divergences.
    weights : {"uniform", "distance"}, default="uniform"
        Votes of neighbours: one each, or inversely proportional to their distance, where those at
        zero outvote all others.
    engine : str or Engine, default="auto"
    cv : int, splitter or iterable of pairs of indices, default=4
        Folds of the held-out probabilities of "choose", as in `DivergenceKernelClassifier`.
    random_state : int, RandomState or None, default=None
        Shuffles the folds.

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
    divergence_ : Divergence or "log-euclidean", the one that was given or chosen.
    scale_ : float, only where the divergence is chosen
        Factor s in `predict_proba`, of the least held-out log-loss.
    cv_results_ : dict of arrays, only where the divergence is chosen
        "divergence", the candidates by name, and their leave-one-out "accuracy".
    oof_proba_ : ndarray, shape (n_matrices, n_classes), only where the divergence is chosen
        Held-out probabilities. The divergence is chosen without the fold they are for. NaN for
        matrices that no fold holds out.
    n_features_in_ : int, size of the matrices.

    Notes
    -----
    Ties go to the class whose nearest member is nearest, then to the first of ``classes_``. Memory
    does not grow with the number of pairs.

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

    scale_: float
    cv_results_: dict[str, Any]
    oof_proba_: RealArray
    _divergence: Divergence | None

    def __init__(
        self,
        n_neighbors: int = 1,
        divergence: str | Sequence[float] | Divergence = "airm",
        weights: str = "uniform",
        engine: str | Engine = "auto",
        *,
        cv: Any = 4,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.divergence = divergence
        self.weights = weights
        self.engine = engine
        self.cv = cv
        self.random_state = random_state

    @labelled.all_or_nothing
    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Keep matrices X, shape (n_matrices, d, d), and labels y, of two classes at least.

        A divergence is chosen by neighbours of other groups; folds do not split groups.
        """
        if self.weights not in _WEIGHTS:
            raise ValueError(f"weights={self.weights!r} must be one of {', '.join(_WEIGHTS)}")
        logarithms, chosen = is_log_euclidean(self.divergence), is_chosen(self.divergence)
        if not chosen:
            self._divergence = None if logarithms else get_divergence(self.divergence)
        get_engine(self.engine)
        data = check_labelled(X, y, None, None, groups)
        _check_neighbors(self.n_neighbors, len(data.matrices))
        if chosen:
            self._choose(data)
        self.classes_, self._codes = data.classes, data.codes
        self.n_features_in_ = data.matrices.shape[-1]
        self._matrices = data.matrices
        if logarithms:
            self._vectors = log_vectors(data.matrices)
            self._index = NearestNeighbors(algorithm="brute").fit(self._vectors)
        return self

    @property
    def divergence_(self) -> Divergence | str:
        """The divergence in use."""
        return "log-euclidean" if self._divergence is None else self._divergence

    def _choose(self, data: Labelled) -> None:
        """Choose the divergence, and the scale of probabilities on held-out data."""
        if self.n_neighbors != 1:
            raise ValueError(
                f"n_neighbors={self.n_neighbors} must be 1 for divergence='choose', which judges "
                "by the nearest neighbour; pass the divergence_ that it chooses to another model"
            )
        engine = get_engine(self.engine, accuracy=plane.ACCURACY)
        folds = folds_to_choose(data, self.cv, self.random_state)
        fold_of = np.full(len(data.codes), len(folds))
        for number, (_, held) in enumerate(folds):
            fold_of[held] = number
        groups = None if data.groups is None else np.unique(data.groups, return_inverse=True)[1]
        correct, judged = plane.judge_neighbors(
            data.matrices, data.codes, fold_of, groups, plane.CHOICES, engine
        )

        def best(flags: NDArray[np.bool_]) -> Divergence:
            return plane.CANDIDATES[plane.rank_best(plane.CHOICES, flags.mean(axis=1))[0]]

        def find(fold: Fold, divergence: Divergence) -> RealArray:
            train, held = fold
            known = data.matrices[train], data.codes[train]
            return _nearest_of_classes(data.matrices[held], *known, divergence, engine)

        self._divergence = chosen = best(correct[-1])
        self.cv_results_ = {
            "divergence": np.array([one.name for one in plane.CANDIDATES]),
            "accuracy": correct[-1].mean(axis=1),
        }
        tables = [find(fold, chosen) for fold in folds]
        rows = np.concatenate([held for _, held in folds])
        scales, losses = plane.log_losses(np.concatenate(tables)[None], data.codes[rows])
        self.scale_ = float(scales[0, plane.least_loss(losses, np.ones(len(rows)))[1]])
        self.oof_proba_ = np.full((len(data.y), len(data.classes)), np.nan)
        for number, (fold, table) in enumerate(zip(folds, tables, strict=True)):
            own = best(correct[number][:, fold_of[judged] != number])
            table = table if own is chosen else find(fold, own)
            others = np.isin(rows, fold[1], invert=True)
            place = plane.least_loss(losses, (others if others.any() else ~others).astype(float))[1]
            scale = plane.SCALES[place] / plane.unit_of(table)
            self.oof_proba_[fold[1]] = softmax(-scale * table, axis=1)

    def kneighbors(
        self, X: ArrayLike, n_neighbors: int | None = None, return_distance: bool = True
    ) -> tuple[RealArray, Indices] | Indices:
        """Find the nearest training matrices: distances and indices, (n_matrices, n_neighbors).

        X has the shape (n_matrices, d, d); ``n_neighbors`` is that of the estimator by default.
        Distances, ascending, are left out unless ``return_distance``. Where the divergence is not
        the square of a distance in its usual form, as those of "airm" and "stein" are, they are
        divergences.
        """
        distances, neighbors = self._search(X, n_neighbors)
        return (distances, neighbors) if return_distance else neighbors

    def _predict_codes(self, X: ArrayLike) -> Indices:
        distances, neighbors = self._search(X)
        votes, nearest = self._vote(distances, neighbors)
        # The last key counts most; what ties in all of them stays in the order of classes.
        return np.lexsort((nearest, -votes), axis=1)[:, 0]

    def predict_proba(self, X: ArrayLike) -> RealArray:
        r"""Shares of classes in the votes of the neighbours, shape (n_matrices, n_classes).

        With a chosen divergence :math:`e^{-s D_k} / \sum_j e^{-s D_j}`, with :math:`D_k` the
        divergence to the nearest matrix of class k, and s = ``scale_``.
        """
        if is_chosen(self.divergence):
            check_is_fitted(self)
            assert self._divergence is not None
            known = self._matrices, self._codes, self._divergence, get_engine(self.engine)
            blocks = checked_blocks(self, X, _COLUMNS)
            return np.concatenate(
                [softmax(-self.scale_ * _nearest_of_classes(one, *known), axis=1) for one in blocks]
            )
        votes, _ = self._vote(*self._search(X))
        return votes / votes.sum(axis=1, keepdims=True)

    def _search(self, X: ArrayLike, n_neighbors: int | None = None) -> tuple[RealArray, Indices]:
        check_is_fitted(self)
        k = self.n_neighbors if n_neighbors is None else n_neighbors
        _check_neighbors(k, len(self._codes))
        found = [self._search_block(queries, k) for queries in checked_blocks(self, X, _COLUMNS)]
        distances, neighbors = map(np.concatenate, zip(*found, strict=True))
        return distances, neighbors

    def _search_block(self, queries: RealArray, k: int) -> tuple[RealArray, Indices]:
        if self._divergence is None:
            vectors = log_vectors(queries)
            neighbors = self._index.kneighbors(vectors, k, return_distance=False)
            # Not those that come with them, whose squares lose digits by subtraction.
            gaps = vectors[:, None] - self._vectors[neighbors]
            return _take_nearest(np.linalg.norm(gaps, axis=2), neighbors, k)
        return _find_nearest(queries, self._matrices, self._divergence, k, get_engine(self.engine))

    def _vote(self, distances: RealArray, neighbors: Indices) -> tuple[RealArray, RealArray]:
        """Votes for every class, and the distance to its nearest member among the neighbours."""
        rows, codes = np.arange(len(distances))[:, None], self._codes[neighbors]
        votes = np.zeros((len(distances), len(self.classes_)))
        nearest = np.full(votes.shape, np.inf)
        np.add.at(votes, (rows, codes), self._weigh(distances))
        np.minimum.at(nearest, (rows, codes), distances)
        return votes, nearest

    def _weigh(self, distances: RealArray) -> RealArray:
        if self.weights == "uniform":
            return np.ones(distances.shape)
        nearest = distances[:, :1]
        usual = (nearest > 0) & (nearest < np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            weights: RealArray = np.where(usual, nearest / distances, distances == nearest)
        return weights


def is_log_euclidean(divergence: Any) -> bool:
    """Whether a divergence is the log-Euclidean distance, which no pair (alpha, beta) gives."""
    return isinstance(divergence, str) and divergence.lower().replace("_", "-") in _LOG_EUCLIDEAN


def is_chosen(divergence: Any) -> bool:
    """Whether a divergence is to be chosen on the training data."""
    return isinstance(divergence, str) and divergence == "choose"


def folds_to_choose(data: Labelled, cv: Any, random_state: Any) -> list[Fold]:
    """Folds by which to choose a divergence, one at least."""
    folds = data.folds(cv, random_state)
    if not folds:
        raise ValueError(
            "every class has 1 matrix or group, but some must have >= 2 for divergence='choose', "
            "one to train on and one to judge by; pass more, or name a divergence"
        )
    return folds


def checked_blocks(estimator: Any, X: ArrayLike, n_columns: int) -> Iterator[RealArray]:
    """Check matrices to predict block by block, for tables of so many columns; X may be mapped."""
    array = X if isinstance(X, np.ndarray) and X.ndim == 3 else check_spd(X, ndim=3)
    step = max(_LEAST_ROWS, _TABLE_ENTRIES // n_columns)
    for start in range(0, max(len(array), 1), step):
        name = "X" if len(array) <= step else f"X[{start}:{min(start + step, len(array))}]"
        block = check_spd(array[start : start + step], ndim=3, dtype=np.float64, name=name)
        labelled.check_size(estimator, block.shape[-1])
        yield block


def _check_neighbors(n_neighbors: Any, n_matrices: int) -> None:
    fix = ", the number of matrices; lower n_neighbors or pass more data"
    check_count(n_neighbors, "n_neighbors", most=n_matrices, fix=fix)


def _find_nearest(
    queries: RealArray, matrices: RealArray, divergence: Divergence, k: int, engine: Engine
) -> tuple[RealArray, Indices]:
    """Distances to the k nearest matrices and their indices, the nearest first."""
    prepared: Any = engine.keep(Prepared.checked(queries))
    distances: RealArray = np.empty((len(queries), 0))
    neighbors: Indices = np.empty((len(queries), 0), dtype=np.intp)
    for start in range(0, len(matrices), _COLUMNS):
        block = matrices[start : start + _COLUMNS]
        table = divergence.pairwise(prepared, block, squared=False, engine=engine)
        columns = np.broadcast_to(np.arange(start, start + len(block)), table.shape)
        if k < len(block):
            some = np.argpartition(table, k - 1, axis=1)[:, :k]
            table = np.take_along_axis(table, some, axis=1)
            columns = start + to_host(some).astype(np.intp, copy=False)
        distances, neighbors = _take_nearest(
            np.hstack([distances, to_host(table)]), np.hstack([neighbors, columns]), k
        )
    return distances, neighbors


def _nearest_of_classes(
    queries: RealArray, matrices: RealArray, codes: Indices, divergence: Divergence, engine: Engine
) -> RealArray:
    """Divergences to the nearest matrix of every class, shape (n_queries, n_classes)."""
    prepared: Any = engine.keep(Prepared.checked(queries))
    nearest = np.full((len(queries), int(codes.max()) + 1), np.inf)
    for start in range(0, len(matrices), _COLUMNS):
        some = slice(start, start + _COLUMNS)
        table = to_host(divergence.pairwise(prepared, matrices[some], engine=engine))
        for code in np.unique(codes[some]):
            least = table[:, codes[some] == code].min(axis=1)
            nearest[:, code] = np.minimum(nearest[:, code], least)
    return nearest


def _take_nearest(distances: RealArray, neighbors: Indices, k: int) -> tuple[RealArray, Indices]:
    """Return the k nearest of some neighbours, in the order of distances, then of indices."""
    order = np.lexsort((neighbors, distances), axis=1)[:, :k]
    return (
        np.take_along_axis(distances, order, axis=1),
        np.take_along_axis(neighbors, order, axis=1),
    )
