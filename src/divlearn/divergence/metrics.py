"""Metrics of SPD matrices outside the alpha-beta family: of vectors, and Wasserstein's."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import Indices, RealArray
from divlearn.divergence.base import Divergence, Search, check_set, check_weighted
from divlearn.engines import Prepared
from divlearn.geometry import invsqrtm, sqrtm, unvectorize, vectorize
from divlearn.means import arithmetic_mean

_MAX_ITER = 500  # of the Wasserstein mean


@dataclass(frozen=True)
class EmbeddedMetric(Divergence):
    """Squared Euclidean distance of vectors that represent SPD matrices.

    Attributes
    ----------
    name : str
    embed : function of matrices, shape (n, d, d), to vectors, shape (n, d (d + 1) / 2)
    restore : function of vectors to matrices, its inverse
    squared_distance, formula, aliases : see `Divergence`

    Examples
    --------
    >>> from divlearn.geometry import unvectorize, vectorize
    >>> frobenius = EmbeddedMetric("mine", vectorize, unvectorize)
    >>> X = np.array([np.eye(2), 3 * np.eye(2)])
    >>> frobenius.pairwise(X, squared=False).round(4)
    array([[0.    , 2.8284],
           [2.8284, 0.    ]])
    """

    squared_distance: bool = field(default=True, kw_only=True)
    embed: Callable[[RealArray], RealArray]
    restore: Callable[[RealArray], RealArray]

    def vectors(self, X: ArrayLike | Prepared) -> RealArray:
        """Vectors whose Euclidean distances are those of the matrices, (n, d (d + 1) / 2)."""
        return self.embed(check_set(X))

    def from_vectors(self, vectors: RealArray) -> RealArray:
        """Matrices, shape (n, d, d), of which `vectors` gives these rows."""
        return self.restore(vectors)

    def _table(self, X: RealArray, Y: RealArray) -> RealArray:
        from scipy.spatial.distance import cdist  # takes a moment to import

        vectors = self.embed(X)
        others = vectors if Y is X else self.embed(Y)
        return cdist(vectors, others, "sqeuclidean")

    def _mean(
        self, X: ArrayLike | Prepared, sample_weight: ArrayLike | None, search: Search
    ) -> RealArray:
        matrices, weights = check_weighted(X, sample_weight)
        return self.restore((weights @ self.embed(matrices))[None])[0]

    def _compare(self, X: RealArray, Y: RealArray) -> RealArray:
        first, second = (
            self.embed(some.reshape(-1, *some.shape[-2:])).reshape(*some.shape[:-2], -1)
            for some in (X, Y)
        )
        squares: RealArray = ((first - second) ** 2).sum(axis=-1)
        return squares


def cholesky_vectors(matrices: RealArray) -> RealArray:
    """Lower triangles of Cholesky factors."""
    rows, columns = np.tril_indices(matrices.shape[-1])
    return np.linalg.cholesky(matrices.astype(np.float64, copy=False))[:, rows, columns]


def from_cholesky_vectors(vectors: RealArray) -> RealArray:
    d = int(np.sqrt(2 * vectors.shape[1]))
    factors = np.zeros((len(vectors), d, d))
    factors[:, *np.tril_indices(d)] = vectors
    return factors @ factors.mT


def log_cholesky_vectors(matrices: RealArray) -> RealArray:
    """Lower triangles of Cholesky factors, with logarithms on the diagonal."""
    vectors, diagonal = cholesky_vectors(matrices), _diagonal(matrices.shape[-1])
    vectors[:, diagonal] = np.log(vectors[:, diagonal])
    return vectors


def from_log_cholesky_vectors(vectors: RealArray) -> RealArray:
    entries, diagonal = vectors.copy(), _diagonal(int(np.sqrt(2 * vectors.shape[1])))
    entries[:, diagonal] = np.exp(entries[:, diagonal])
    return from_cholesky_vectors(entries)


def _diagonal(d: int) -> Indices:
    """Places of the diagonal in the lower triangle."""
    return np.cumsum(np.arange(1, d + 1)) - 1


def entries(matrices: RealArray) -> RealArray:
    return vectorize(matrices.astype(np.float64, copy=False))


def inverse_entries(matrices: RealArray) -> RealArray:
    return vectorize(np.linalg.inv(matrices.astype(np.float64, copy=False)))


def from_inverse_entries(vectors: RealArray) -> RealArray:
    inverses = np.linalg.inv(unvectorize(vectors))
    return 0.5 * (inverses + inverses.mT)


@dataclass(frozen=True)
class Wasserstein(Divergence):
    r"""Squared Wasserstein (Bures) distance: that of Gaussians N(0, X) and N(0, Y).

    It is :math:`\min_U \|L_X - L_Y U\|_F^2` over orthogonal U, with Cholesky factors L.

    Examples
    --------
    >>> bures = Wasserstein("bures")
    >>> float(bures([[1.0]], [[9.0]]).round(9))
    4.0
    """

    squared_distance: bool = field(default=True, kw_only=True)

    def _mean(
        self, X: ArrayLike | Prepared, sample_weight: ArrayLike | None, search: Search
    ) -> RealArray:
        # The mean is the fixed point C = sum_i w_i (C^1/2 X_i C^1/2)^1/2.
        matrices, weights = check_weighted(X, sample_weight)
        mean = arithmetic_mean(matrices, weights)
        for _ in range(_MAX_ITER):
            root, whitener = sqrtm(mean), invsqrtm(mean)
            # The optimal map from the mean to the matrices, on average: the identity at the end.
            average = arithmetic_mean(sqrtm(_symmetric(root @ matrices @ root)), weights)
            step = _symmetric(whitener @ average @ whitener)
            error = float(np.linalg.norm(step - np.eye(len(mean))) / np.sqrt(len(mean)))
            if error <= search.tol:
                return mean
            mean = _symmetric(step @ mean @ step)
        search.warn(f"max_iter={_MAX_ITER} reached; gradient norm {error:.2g}")
        return mean

    def _compare(self, X: RealArray, Y: RealArray) -> RealArray:
        first, second = (np.linalg.cholesky(some.astype(np.float64, copy=False)) for some in (X, Y))
        left, _, right = np.linalg.svd(second.mT @ first)
        # Differences of factors keep the digits of small distances, those of traces do not.
        squares: RealArray = ((first - second @ (left @ right)) ** 2).sum(axis=(-2, -1))
        return squares


def _symmetric(matrices: RealArray) -> RealArray:
    return 0.5 * (matrices + matrices.mT)
