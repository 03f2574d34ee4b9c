"""Series: the checked input, the base class of descriptors of series, and Gaussian embeddings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.covariance import ledoit_wolf, oas
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import Indices, RealArray, check_real
from divlearn.checks import check_flag, check_number
from divlearn.descriptors.matrices import (
    MatrixTransformer,
    check_floor,
    ensure_definite,
    least_floor,
)
from divlearn.fitting.labelled import fit_method
from divlearn.geometry import check_symmetric
from divlearn.spd import are_covariances
from divlearn.text import counted

SeriesLike = ArrayLike | Sequence[ArrayLike]

_BLOCK_ENTRIES = 2**17  # of series computed together, which fit into the cache
_MAX_ENTRY = 2.0**500  # for which sums of squares do not overflow
_LAYOUT = "(n_series, n_channels, n_times)"
_FIX = "; convert it to a float array first"


class Series:
    """Checked series with the same channels; ``dtype`` is float32 if all series are."""

    def __init__(self, X: SeriesLike, min_times: int) -> None:
        if np.ma.is_masked(X):
            raise ValueError("X has masked entries; fill them or drop these series")
        self._groups = _group_by_length(X)  # indices in X, and the series
        arrays = [array for _, array in self._groups]
        for indices, array in self._groups:
            _check(array, indices, min_times)
        if all(map(are_covariances, arrays)):
            d = arrays[0].shape[1]
            raise ValueError(
                f"X holds symmetric {d} x {d} matrices, as covariances are, must hold series, "
                "n_channels x n_times; pass recordings, or leave out the descriptor"
            )
        are_float32 = all(array.dtype.kind == "f" and array.dtype.itemsize == 4 for array in arrays)
        self.n_channels: int = arrays[0].shape[1]
        self.dtype = np.dtype(np.float32 if are_float32 else np.float64)

    def map(self, function: Callable[[RealArray], RealArray]) -> RealArray:
        """Apply a function of float64 arrays (n, n_channels, n_times) that returns (n, ...)."""
        values = np.concatenate(
            [
                function(array[rows].astype(np.float64))
                for _, array in self._groups
                for rows in gen_batches(len(array), max(1, _BLOCK_ENTRIES // array[0].size))
            ]
        )
        result = np.empty_like(values)
        result[np.concatenate([indices for indices, _ in self._groups])] = values
        return result


def _group_by_length(X: SeriesLike) -> list[tuple[Indices, np.ndarray]]:
    if not isinstance(X, list | tuple):
        X = np.asarray(X)
        if X.dtype != object or X.ndim == 0:
            check_real(X, "X", _FIX)
            if X.ndim != 3:
                fix = "; for a single series pass X[np.newaxis]" if X.ndim == 2 else ""
                raise ValueError(f"X has shape {X.shape}, expected {_LAYOUT}{fix}")
            if len(X):
                return [(np.arange(len(X)), X)]
    arrays = [_as_array(series, f"X[{i}]") for i, series in enumerate(X)]
    if not arrays:
        raise ValueError("X is empty; pass at least one series")
    n_channels = len(arrays[0])
    for i, array in enumerate(arrays):
        if len(array) != n_channels:
            raise ValueError(
                f"X[{i}] has {counted(len(array), 'channels')}, but X[0] has {n_channels}; pass "
                "series of the same channels"
            )
    lengths = np.array([array.shape[1] for array in arrays])
    groups = [np.flatnonzero(lengths == length) for length in dict.fromkeys(lengths.tolist())]
    return [(indices, np.stack([arrays[i] for i in indices])) for indices in groups]


def _as_array(series: ArrayLike, where: str) -> np.ndarray:
    if np.ma.is_masked(series):
        raise ValueError(f"{where} has masked entries; fill them or drop this series")
    try:
        array = np.asarray(series)
    except ValueError as error:
        raise ValueError(
            f"{where} is ragged: its channels differ in length; pass (n_channels, n_times)"
        ) from error
    check_real(array, where, _FIX)
    if array.ndim != 2:
        raise ValueError(
            f"{where} has shape {array.shape}, expected (n_channels, n_times); for a single "
            "series pass a list of it"
        )
    return array


def _check(array: np.ndarray, indices: Indices, min_times: int) -> None:
    _, n_channels, n_times = array.shape
    if n_channels < 1 or n_times < min_times:
        raise ValueError(
            f"X[{indices[0]}] has shape {(n_channels, n_times)}, must have >= 1 channels and >= "
            f"{min_times} times; drop it or pass longer series"
        )
    # The extremes of an array with NaN are NaN, for which comparisons are false.
    if float(array.min()) >= -_MAX_ENTRY and float(array.max()) <= _MAX_ENTRY:
        return
    bad = ~(np.abs(array.astype(np.float64)) <= _MAX_ENTRY)
    first, channel, time = np.argwhere(bad)[0]
    raise ValueError(
        f"X[{indices[first]}] has the entry {array[first, channel, time]:.3g} at channel "
        f"{channel}, time {time}, must be finite and at most {_MAX_ENTRY:.3g} in magnitude; drop "
        "this series, fill its gaps or rescale it"
    )


class SeriesTransformer(MatrixTransformer, ABC):
    floor: float | str
    _min_times = 1

    @fit_method
    def fit(self, X: SeriesLike, y: object = None) -> Self:
        """Check the parameters and the series, and fit the descriptor.

        X has the shape (n_series, n_channels, n_times), or is a list of series (n_channels,
        n_times) that may differ in length; y is ignored.
        """
        self._learn(self._check(X, reset=True)[0])
        return self

    def transform(self, X: SeriesLike) -> RealArray:
        """Describe series, given as in `fit`, shape (n_series, d, d); float32 if all series are."""
        check_is_fitted(self)
        return self._describe(*self._check(X, reset=False))

    def _check(self, X: SeriesLike, *, reset: bool) -> tuple[Series, float]:
        """Check the input; return it and the floor of eigenvalues."""
        self._check_parameters()
        series = Series(X, self._min_times)
        self._set_or_check_count(series.n_channels, "channels", reset=reset)
        return series, check_floor(self.floor, series.dtype, series.n_channels)

    @abstractmethod
    def _check_parameters(self) -> None: ...

    def _learn(self, series: Series) -> None:
        """Learn from all series; by default nothing."""

    @abstractmethod
    def _describe(self, series: Series, floor: float) -> RealArray: ...


Estimator = Callable[[RealArray], ArrayLike]

_SHRINKAGE: dict[str, Estimator] = {
    "lwf": lambda centred: ledoit_wolf(centred.T, assume_centered=True)[0],
    "oas": lambda centred: oas(centred.T, assume_centered=True)[0],
}


class GaussianEmbedding(SeriesTransformer):
    r"""Embed the Gaussian with the mean and the covariance of a series as one SPD matrix.

    With the mean :math:`m` over time and the covariance :math:`S` of :math:`d` channels,

    .. math:: P = \begin{pmatrix} S + m m^T & m \\ m^T & 1 \end{pmatrix}, \qquad |P| = |S| .

    With sample covariances an affine map of the channels acts on :math:`P` as a congruence, so
    affine-invariant divergences between embeddings do not depend on units and origins of channels.

    Parameters
    ----------
    estimator : {"cov", "lwf", "oas"} or callable, default="cov"
        "cov" is the sample covariance with the divisor ``n_times - 1``, "lwf" and "oas" are
        scikit-learn's `ledoit_wolf` and `oas`. A callable gets the centred series,
        shape (n_channels, n_times), and returns the covariance, shape (n_channels, n_channels).
    noise : float, default=0.0
        Standard deviation of measurement errors in all channels. Its square is added to the
        variances, so that smaller variations have little effect. Divergences then depend on units.
    normalize : bool, default=False
        Whether to multiply :math:`P` by :math:`|S|^{-1/(d+1)}`, which makes its determinant one.
    floor : float or "auto", default="auto"
        Floor of the eigenvalues of the correlation of :math:`S`; "auto" is the square root of the
        machine epsilon. If an eigenvalue is smaller, as for series with fewer times than channels,
        :math:`S` is shrunk towards its diagonal, with an `SPDRepairWarning`.

    Attributes
    ----------
    n_features_in_ : int, number of channels.

    Notes
    -----
    Because of the term :math:`m m^T`, :math:`P` does not resolve standard deviations below about
    :math:`4 \sqrt{(d + 1) \epsilon}` of a mean: 2e-7 of it for ten channels, 5e-3 in float32. Such
    embeddings are shrunk towards their diagonals, with an `SPDRepairWarning`. To avoid this,
    subtract an offset from all series.

    References
    ----------
    M. Calvo and J. M. Oller, "A distance between multivariate normal distributions based in an
    embedding into the Siegel group", Journal of Multivariate Analysis 35, 1990.
    M. Lovric, M. Min-Oo and E. A. Ruh, "Multivariate normal distributions parametrized as a
    Riemannian symmetric space", Journal of Multivariate Analysis 74, 2000 (the normalised form).

    Examples
    --------
    >>> series = [[[1.0, 3.0, 5.0], [0.0, 1.0, -1.0]]]
    >>> GaussianEmbedding().fit_transform(series)
    array([[[13., -1.,  3.],
            [-1.,  1.,  0.],
            [ 3.,  0.,  1.]]])
    >>> np.linalg.det(GaussianEmbedding(normalize=True).fit_transform(series)).round(12)
    array([1.])
    """

    _min_times = 2

    def __init__(
        self,
        estimator: str | Estimator = "cov",
        *,
        noise: float = 0.0,
        normalize: bool = False,
        floor: float | str = "auto",
    ) -> None:
        self.estimator, self.noise, self.normalize, self.floor = estimator, noise, normalize, floor

    def _describe(self, series: Series, floor: float) -> RealArray:
        d = series.n_channels
        # Sample covariances are computed for all series at once, others for each series.
        estimator = self.estimator if callable(self.estimator) else _SHRINKAGE.get(self.estimator)
        P = series.map(lambda block: _moments(block, estimator))
        S = check_symmetric(P[:, :d, :d], name="covariance of X", graded=True)
        S = ensure_definite(S + float(self.noise) ** 2 * np.eye(d), floor, variables="channels")
        mean = P[:, :d, d]
        P[:, :d, :d] = S + mean[:, :, None] * mean[:, None, :]
        name = f"X embedded in {series.dtype}, where means hide deviations"
        P = ensure_definite(P, least_floor(d + 1, series.dtype), name=name)
        if self.normalize:
            with np.errstate(over="ignore", invalid="ignore"):
                P = P * np.exp(np.linalg.slogdet(P)[1] / -(d + 1))[:, None, None]
        return check_symmetric(P, dtype=series.dtype, name="embedding of X")

    def _check_parameters(self) -> None:
        check_number(self.noise, "noise")
        check_flag(self.normalize, "normalize")
        if not callable(self.estimator) and self.estimator not in ("cov", *_SHRINKAGE):
            raise ValueError(
                f'estimator={self.estimator!r} must be "cov", "lwf", "oas" or a callable'
            )


def _moments(block: RealArray, estimator: Estimator | None) -> RealArray:
    """``[[S, m], [m^T, 1]]`` of each series, shape (n_series, d + 1, d + 1)."""
    n_series, d, n_times = block.shape
    # The first time is subtracted: constant channels become zero, and large offsets lose no digits.
    first = block[..., :1]
    shifted = block - first
    shift = shifted.mean(axis=-1, keepdims=True)
    centred = shifted - shift
    moments = np.ones((n_series, d + 1, d + 1))
    moments[:, :d, d] = moments[:, d, :d] = (first + shift)[..., 0]
    if estimator is None:
        moments[:, :d, :d] = centred @ centred.mT / (n_times - 1)
    else:
        for series, target in zip(centred, moments, strict=True):
            target[:d, :d] = _estimate(estimator, series)
    return moments


def _estimate(estimator: Estimator, centred: RealArray) -> RealArray:
    covariance = np.asarray(estimator(centred))
    d = len(centred)
    if covariance.shape != (d, d) or covariance.dtype.kind not in "buif":
        raise ValueError(
            f"estimator={estimator!r} returned an array of shape {covariance.shape} and dtype "
            f"{covariance.dtype} for a series of shape {centred.shape}, must return real numbers "
            f"of shape {(d, d)}"
        )
    return covariance
