"""Divergences outside the alpha-beta family: vector metrics, Wasserstein, user functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import Indices, RealArray
from divlearn.divergence.base import Divergence, Matrices, check_set, check_weighted, warn_inexact
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.geometry import unvectorize, vectorize
from divlearn.hermitian import from_real_form, real_form
from divlearn.means import arithmetic_mean
from divlearn.spd import check_spd

Measure = Callable[[RealArray, RealArray], ArrayLike]  # (n, d, d) and (d, d) to n numbers
_LEAST_SIZE = 1e-152  # of vectors, whose squared distances shall be accurate
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

    def vectors(self, X: Matrices) -> RealArray:
        """Vectors whose Euclidean distances are those of the matrices, (n, d (d + 1) / 2)."""
        if isinstance(X, Prepared):
            return X.cached(self, lambda: self.embed(X.matrices))
        return self.embed(check_set(X))

    def embed_for_squares(self, matrices: RealArray) -> RealArray:
        """Embed matrices; raise if squares of the vectors would overflow or underflow."""
        vectors = self.embed(matrices)
        size = float(np.abs(vectors).max(initial=0))
        if size and not _LEAST_SIZE < size < 1 / _LEAST_SIZE:
            raise ValueError(
                f"entries of the matrices lead to numbers up to {size:.2g} in {self.name!r}, whose "
                f"squares {'overflow' if size > 1 else 'underflow'}; multiply all matrices by one "
                "number, so that their entries are about one"
            )
        return vectors

    def _table(self, X: RealArray, Y: RealArray) -> RealArray:
        from scipy.spatial.distance import cdist, pdist, squareform  # take a moment to import

        vectors = self.embed_for_squares(X)
        if Y is X:
            return squareform(pdist(vectors, "sqeuclidean"))
        return cdist(vectors, self.embed_for_squares(Y), "sqeuclidean")

    def _mean(self, X: Matrices, weight: ArrayLike | None, **_: object) -> RealArray:
        matrices, weights = check_weighted(X, weight)
        return self.restore((weights @ self.embed(matrices))[None])[0]

    def _compare(self, X: RealArray, Y: RealArray) -> RealArray:
        first, second = (
            self.embed_for_squares(Z.reshape(-1, *Z.shape[-2:])).reshape(*Z.shape[:-2], -1)
            for Z in (X, Y)
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
    """Return the positions of the diagonal in the lower triangle."""
    return np.cumsum(np.arange(1, d + 1)) - 1


def entries(matrices: RealArray) -> RealArray:
    return vectorize(matrices.astype(np.float64, copy=False))


def inverse_entries(matrices: RealArray) -> RealArray:
    # One triangle alone would lose the small eigenvalues, which `from_inverse_entries` needs.
    return vectorize(_symmetric(np.linalg.inv(matrices.astype(np.float64, copy=False))))


def from_inverse_entries(vectors: RealArray) -> RealArray:
    return _symmetric(np.linalg.inv(unvectorize(vectors)))


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
        self, X: Matrices, weight: ArrayLike | None, *, tol: float, what: str, **others: object
    ) -> RealArray:
        # The mean is the fixed point C = sum_i w_i (C^1/2 X_i C^1/2)^1/2: its factor is the average
        # of factors L_i U_i of the matrices, each rotated to the nearest. None is inverted.
        matrices, weights = check_weighted(X, weight)
        factors = np.linalg.cholesky(matrices)
        mean = np.linalg.cholesky(arithmetic_mean(matrices, weights))
        for _ in range(_MAX_ITER):
            left, _, right = np.linalg.svd(factors.mT @ mean)
            average = arithmetic_mean(factors @ (left @ right), weights)
            step = np.linalg.solve(mean, average - mean)
            error = float(np.linalg.norm(step) / np.sqrt(len(mean)))
            if error <= tol:
                return mean @ mean.T
            mean = average
        warn_inexact(what, f"max_iter={_MAX_ITER} reached; gradient norm {error:.2g}")
        return mean @ mean.T

    def _compare(self, X: RealArray, Y: RealArray) -> RealArray:
        first, second = (np.linalg.cholesky(Z.astype(np.float64, copy=False)) for Z in (X, Y))
        left, _, right = np.linalg.svd(second.mT @ first)
        # Differences of factors, unlike those of traces, keep the digits of small distances.
        squares: RealArray = ((first - second @ (left @ right)) ** 2).sum(axis=(-2, -1))
        return squares


def _symmetric(matrices: RealArray) -> RealArray:
    return 0.5 * (matrices + matrices.mT)


@dataclass(frozen=True)
class FunctionDivergence(Divergence):
    """A function as a divergence without a mean.

    Attributes
    ----------
    name : str
    function : callable
        Called with matrices of shape (n, d, d) and one of shape (d, d), returns n numbers, as
        pyRiemann's distances do.
    squared_distance, formula, aliases : see `Divergence`

    Examples
    --------
    >>> largest = FunctionDivergence("largest", lambda A, B: np.abs(A - B).max(axis=(1, 2)))
    >>> largest.pairwise([np.eye(2), 3 * np.eye(2)])
    array([[0., 2.],
           [2., 0.]])
    """

    function: Measure

    def _mean(self, X: Matrices, weight: ArrayLike | None, **_: object) -> RealArray:
        raise ValueError(
            f"divergence={self.name} is a function without a mean; pass "
            f'{{"mean": ..., "distance": {self.name}}}'
        )

    def of_real_form(self) -> Self:
        return replace(self, function=partial(_of_real_forms, self.function))

    def _compare(self, X: RealArray, Y: RealArray) -> RealArray:
        leading, d = np.broadcast_shapes(X.shape[:-2], Y.shape[:-2]), X.shape[-1]
        if Y.ndim == 2:
            return self._column(X.reshape(-1, d, d), Y).reshape(leading)[()]
        first, second = (np.broadcast_to(Z, (*leading, d, d)) for Z in (X, Y))
        pairs = zip(first.reshape(-1, 1, d, d), second.reshape(-1, d, d), strict=True)
        return np.array([self._column(*pair)[0] for pair in pairs]).reshape(leading)

    def _column(self, matrices: RealArray, other: RealArray) -> RealArray:
        values = np.asarray(self.function(matrices, other), dtype=np.float64)
        if values.shape != (len(matrices),):
            raise ValueError(
                f"{self.name} returned the shape {values.shape} for matrices of shape "
                f"{matrices.shape} and one of shape {other.shape}, must return ({len(matrices)},); "
                'for a function of two matrices pass np.vectorize(f, signature="(d,d),(d,d)->()")'
            )
        return values


def squared_thompson(X: RealArray, Y: RealArray) -> RealArray:
    """Square of the largest logarithm of an eigenvalue of X Y^-1, in magnitude."""
    # Engines keep the digits of small eigenvalues. Those of real forms are the same, twice.
    data, other = (np.asarray(real_form(Z)).astype(np.float64) for Z in (X, Y[None]))
    t = get_engine().spectra(Prepared.checked(data), Prepared.checked(other))
    return np.square(t).max(axis=(1, 2))


def _of_real_forms(function: Measure, X: RealArray, Y: RealArray) -> RealArray:
    """Call a function of complex matrices with real forms, and double it as these do."""
    return np.multiply(2, function(from_real_form(X), from_real_form(Y)))


def _mean_of_real_forms(
    average: Callable[..., ArrayLike], X: RealArray, sample_weight: RealArray
) -> ArrayLike:
    """Call a function to the mean of complex matrices with real forms."""
    mean = np.asarray(average(from_real_form(X), sample_weight=sample_weight))
    return real_form(mean, "the mean", always=True)


@dataclass(frozen=True)
class PairedDivergence(Divergence):
    """A divergence with another mean, as pyRiemann's ``{"mean": ..., "distance": ...}``.

    Attributes
    ----------
    name : str
    distance : Divergence
    average : Divergence with a mean, or a function of matrices and ``sample_weight`` to their mean
    squared_distance, formula, aliases : see `Divergence`

    Examples
    --------
    >>> from divlearn import get_divergence
    >>> paired = get_divergence({"mean": "euclid", "distance": "riemann"})
    >>> paired.mean([np.eye(2), 3 * np.eye(2)])
    array([[2., 0.],
           [0., 2.]])
    """

    distance: Divergence
    average: Divergence | Callable[..., ArrayLike]

    def pairwise(
        self,
        X: Matrices,
        Y: Matrices | None = None,
        *,
        squared: bool | None = None,
        engine: str | Engine = "auto",
    ) -> RealArray:
        """Table of all pairs, shape (n_matrices_X, n_matrices_Y)."""
        return self.distance.pairwise(X, Y, squared=squared, engine=engine)

    def _mean(self, X: Matrices, weight: ArrayLike | None, **search: Any) -> RealArray:
        if isinstance(self.average, Divergence):
            return self.average._mean(X, weight, **search)
        matrices, weights = check_weighted(X, weight)
        return check_spd(self.average(matrices, sample_weight=weights), ndim=2, name="the mean")

    def of_real_form(self) -> Self:
        distance, average = self.distance.of_real_form(), self.average
        if isinstance(average, Divergence):
            return replace(self, distance=distance, average=average.of_real_form())
        return replace(self, distance=distance, average=partial(_mean_of_real_forms, average))

    def _compare(self, X: RealArray, Y: RealArray) -> RealArray:
        return self.distance._compare(X, Y)
