"""Minimum distance to mean, in any divergence of SPD matrices whose means are unique."""

import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import softmax
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.base import ClassNamePrefixFeaturesOutMixin as NamesMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import RealArray
from divlearn.baselines.neighbors import checked_blocks, is_log_euclidean
from divlearn.cluster.kmeans import given_point
from divlearn.divergence import Divergence, get_divergence
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.fitting import labelled
from divlearn.fitting.labelled import Labelled, check_labelled
from divlearn.geometry import geodesic
from divlearn.log_vectors import from_log_vectors, log_vectors
from divlearn.means import mean_abld
from divlearn.sharded.blocks import engine_for

_TOLERANCE = 1e-5  # of the gradient at a mean, which has no unit


class DivergenceMDM(NamesMixin, TransformerMixin, labelled.MatrixClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Classify SPD matrices by the nearest of the means of the classes.

    The mean of a class minimises the weighted sum of divergences from its matrices, and a matrix
    belongs to the class whose mean is nearest:

    .. math:: C_k = \arg\min_C \sum_{y_i = k} w_i D(X_i \,\|\, C) , \qquad
              \hat y(X) = \arg\min_k D(X \,\|\, C_k) .

    Parameters
    ----------
    divergence : str, pair (alpha, beta) or Divergence, default="airm"
        As in `DivergenceKNN`, of one sign. The mean in "burg" and "kullback" is the arithmetic one,
        in "reverse-burg" the harmonic one, in "jeffreys" the geometric mean of these two.
    engine : str or Engine, default="auto"

    Attributes
    ----------
    means_ : ndarray, shape (n_classes, d, d)
    classes_ : ndarray, shape (n_classes,)
    n_features_in_ : int, size of the matrices.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, y = make_wishart_clusters(3, 30, 4, random_state=0)
    >>> model = DivergenceMDM("kullback").fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2])
    1.0
    >>> model.transform(X[:5]).shape
    (5, 3)
    """

    means_: RealArray
    _divergence: Divergence | None

    def __init__(
        self,
        divergence: str | Sequence[float] | Divergence = "airm",
        engine: str | Engine = "auto",
    ) -> None:
        self.divergence = divergence
        self.engine = engine

    @labelled.all_or_nothing
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Find the means of matrices X, (n_matrices, d, d), labels y and weights (n_matrices,)."""
        logarithms = is_log_euclidean(self.divergence)
        self._divergence = None if logarithms else get_divergence(self.divergence)
        data = check_labelled(X, y, sample_weight, None)
        self.means_ = _find_means(data, self._divergence, get_engine(self.engine))
        self.classes_ = data.classes
        self.n_features_in_ = data.matrices.shape[-1]
        return self

    def transform(self, X: ArrayLike) -> RealArray:
        """Distances of matrices to the means, shape (n_matrices, n_classes).

        The distance where the divergence is the square of one in its usual form, as that of "airm"
        and "stein"; else the divergence.
        """
        return self._distances(X, squared=False)

    def _predict_codes(self, X: ArrayLike) -> NDArray[np.intp]:
        return self._distances(X, squared=None).argmin(axis=1)

    def predict_proba(self, X: ArrayLike) -> RealArray:
        r"""Probabilities :math:`e^{-D(X \| C_k)} / \sum_j e^{-D(X \| C_j)}`.

        D is the divergence in its usual form: for "airm", "stein" and "log-euclidean" the squared
        distance. The shape is (n_matrices, n_classes).
        """
        return softmax(-self._distances(X, squared=None), axis=1)

    def _distances(self, X: ArrayLike, squared: bool | None) -> RealArray:
        check_is_fitted(self)
        blocks = checked_blocks(self, X, len(self.means_))
        return np.concatenate([self._table(matrices, squared) for matrices in blocks])

    def _table(self, matrices: RealArray, squared: bool | None) -> RealArray:
        if self._divergence is None:
            gaps = log_vectors(matrices)[:, None] - log_vectors(self.means_)
            lengths: RealArray = np.linalg.norm(gaps, axis=2)
            return lengths if squared is False else lengths**2
        engine = get_engine(self.engine)
        prepared: Any = engine.prepare(Prepared.checked(matrices))
        return self._divergence.pairwise(prepared, self.means_, squared=squared, engine=engine)

    @property
    def _n_features_out(self) -> int:
        return len(self.means_)


def _find_means(data: Labelled, divergence: Divergence | None, engine: Engine) -> RealArray:
    """Means of the classes, in closed form where there is one; None is the log-Euclidean metric."""
    if divergence is None:
        return from_log_vectors(_average(data, log_vectors(data.matrices)))
    point = None if divergence.symmetrized else given_point(divergence)
    if point is None and {divergence.alpha, divergence.beta} not in ({0.0, 1.0}, {0.0, -1.0}):
        raise ValueError(
            f"divergence={divergence.name!r} is the mean of both directions, whose means have no "
            "closed form except for 'jeffreys'; pass that, 'stein', which is symmetric, or a "
            "single direction (alpha, beta)"
        )
    arithmetic = _average(data, data.matrices)
    if point == (0.0, 1.0):
        return arithmetic
    harmonic = np.linalg.inv(_average(data, np.linalg.inv(data.matrices)))
    harmonic = 0.5 * (harmonic + harmonic.mT)
    if point == (1.0, 0.0):
        return harmonic
    middle = geodesic(arithmetic, harmonic, 0.5)
    return middle if point is None else _iterate(data, point, middle, engine)


def _average(data: Labelled, values: RealArray) -> RealArray:
    """Weighted means over each class of something that each matrix has."""
    n, n_classes = len(data.codes), len(data.classes)
    largest = np.zeros(n_classes)
    np.maximum.at(largest, data.codes, data.weights)
    weights = data.weights / largest[data.codes]  # tiny ones must not underflow in the sum
    shares = weights / np.bincount(data.codes, weights)[data.codes]
    classes = sparse.csr_array((shares, (data.codes, np.arange(n))), shape=(n_classes, n))
    means: RealArray = classes @ values.reshape(n, -1)
    return means.reshape(n_classes, *values.shape[1:])


def _iterate(
    data: Labelled, point: tuple[float, float], starts: RealArray, engine: Engine
) -> RealArray:
    means = []
    for code, start in enumerate(starts):
        rows = np.flatnonzero(data.codes == code)
        matrices = engine.keep(Prepared.checked(data.matrices[rows]))
        found = mean_abld(
            matrices, *point, data.weights[rows], start, tol=_TOLERANCE,
            engine=engine_for(engine, len(rows), matrices.d),
        )  # fmt: skip
        if not found.converged:
            warnings.warn(
                f"the mean of class {data.classes[code]!s} is not exact: {found.message}",
                ConvergenceWarning, stacklevel=3,
            )  # fmt: skip
        means.append(found.mean)
    return np.stack(means)
