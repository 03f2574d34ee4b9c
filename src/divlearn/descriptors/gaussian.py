"""Gaussian embeddings: the mean and the covariance of a series in one SPD matrix."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from sklearn.covariance import ledoit_wolf, oas

from divlearn.arrays import RealArray
from divlearn.checks import check_number
from divlearn.descriptors.definite import ensure_definite, least_floor
from divlearn.descriptors.series import Series, SeriesTransformer
from divlearn.geometry import check_symmetric

Estimator = Callable[[RealArray], ArrayLike]

_SHRUNK: dict[str, Estimator] = {
    "lwf": lambda centred: ledoit_wolf(centred.T, assume_centered=True)[0],
    "oas": lambda centred: oas(centred.T, assume_centered=True)[0],
}


class GaussianEmbedding(SeriesTransformer):
    r"""Embed the Gaussian with the mean and the covariance of a series as one SPD matrix.

    With the mean :math:`m` over time and the covariance :math:`S` of :math:`d` channels,

    .. math:: P = \begin{pmatrix} S + m m^T & m \\ m^T & 1 \end{pmatrix}, \qquad |P| = |S| .

    With sample covariances an affine change of the channels acts on :math:`P` as a congruence, so
    affine-invariant divergences between embeddings see neither units nor origins of the channels.

    Parameters
    ----------
    estimator : {"cov", "lwf", "oas"} or callable, default="cov"
        "cov" is the sample covariance with the divisor ``n_times - 1``, "lwf" and "oas" are
        scikit-learn's `ledoit_wolf` and `oas`. A callable gets the centred series,
        shape (n_channels, n_times), and returns the covariance, shape (n_channels, n_channels).
    noise : float, default=0.0
        Standard deviation of errors of measurement in all channels. Its square is added to the
        variances: what varies by less is not told apart. With it units matter.
    normalize : bool, default=False
        Whether to multiply :math:`P` by :math:`|S|^{-1/(d+1)}`, which makes its determinant one.
    floor : float or "auto", default="auto"
        Floor of the eigenvalues of the correlation of :math:`S`; "auto" is the square root of the
        machine epsilon. Where they are below, as in series shorter than their number of channels,
        :math:`S` is shrunk towards its diagonal, with an `SPDRepairWarning`.

    Attributes
    ----------
    n_features_in_ : int, number of channels.

    Notes
    -----
    Next to :math:`m m^T`, :math:`P` does not resolve standard deviations below about
    :math:`4 \sqrt{(d + 1) \epsilon}` of a mean: 2e-7 of it for ten channels, 5e-3 in float32. Such
    embeddings are shrunk towards their diagonals, with an `SPDRepairWarning`; an offset subtracted
    from all series avoids it.

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
        # Sample covariances are computed for all series at once, others for one after the other.
        estimator = self.estimator if callable(self.estimator) else _SHRUNK.get(self.estimator)
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
        if not callable(self.estimator) and self.estimator not in ("cov", *_SHRUNK):
            raise ValueError(
                f'estimator={self.estimator!r} must be "cov", "lwf", "oas" or a callable'
            )


def _moments(block: RealArray, estimator: Estimator | None) -> RealArray:
    """``[[S, m], [m^T, 1]]`` of each series, shape (n_series, d + 1, d + 1)."""
    n_series, d, n_times = block.shape
    # Relative to the first time constant channels are exactly zero, and large offsets cost nothing.
    first = block[..., :1]
    shifted = block - first
    shift = shifted.mean(axis=-1, keepdims=True)
    centred = shifted - shift
    moments = np.ones((n_series, d + 1, d + 1))
    moments[:, :d, d] = moments[:, d, :d] = (first + shift)[..., 0]
    if estimator is None:
        moments[:, :d, :d] = centred @ centred.mT / (n_times - 1)
    else:
        for one, target in zip(centred, moments, strict=True):
            target[:d, :d] = _estimate(estimator, one)
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
