"""Kernel descriptors: similarities of the tracks of a sequence, or of pixel features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import RealArray
from divlearn.checks import check_flag, check_number
from divlearn.descriptors.matrices import ensure_definite
from divlearn.descriptors.pixels import Feature, Images, Preset
from divlearn.descriptors.region import Part, RegionCovariance, Regions
from divlearn.descriptors.series import Series, SeriesTransformer


class RBFKernelDescriptor(SeriesTransformer):
    r"""Describe a sequence by the Gaussian kernel between its tracks.

    A sequence has :math:`d` tracks :math:`f_1, \dots, f_d`, such as the scores of :math:`d` classes
    along :math:`T` frames, and becomes the matrix of size :math:`d`

    .. math:: K_{pq} = \exp\bigl(-\gamma \, \lVert f_p - f_q \rVert^2\bigr), \qquad
              \lVert f_p - f_q \rVert^2 = \frac{1}{T} \sum_{t=1}^T (f_{pt} - f_{qt})^2 .

    Parameters
    ----------
    gamma : float or "median", default="median"
        Factor of the squared distances, > 0. "median" is one over the median of the squared
        distances between all pairs of tracks that differ, over the sequences in `fit`.
    per_frame : bool, default=True
        Whether squared distances are divided by the number of frames :math:`T`, as above, so that
        one ``gamma`` suits sequences of all lengths. False takes the sum, as in the reference.
    floor : float or "auto", default="auto"
        Floor of the eigenvalues of a kernel; "auto" is the square root of the machine epsilon. If
        an eigenvalue is smaller, as for equal tracks, the kernel is shrunk towards the identity,
        with an `SPDRepairWarning`.

    Attributes
    ----------
    gamma_ : float, the factor in use.
    n_features_in_ : int, number of tracks.

    References
    ----------
    A. Cherian, P. Koniusz and S. Gould, "Higher-order pooling of CNN features via kernel
    linearization for action recognition", WACV 2017.

    Examples
    --------
    >>> sequence = [[0.0, 0.0], [1.0, 1.0], [0.0, 2.0]]
    >>> descriptor = RBFKernelDescriptor(gamma=np.log(2)).fit([sequence])
    >>> descriptor.transform([sequence]).round(3)
    array([[[1.  , 0.5 , 0.25],
            [0.5 , 1.  , 0.5 ],
            [0.25, 0.5 , 1.  ]]])
    """

    gamma_: float

    def __init__(
        self, gamma: float | str = "median", *, per_frame: bool = True, floor: float | str = "auto"
    ) -> None:
        self.gamma, self.per_frame, self.floor = gamma, per_frame, floor

    def _check_parameters(self) -> None:
        _check_gamma(self.gamma)
        check_flag(self.per_frame, "per_frame")

    def _learn(self, series: Series) -> None:
        if isinstance(self.gamma, str):
            self.gamma_ = _median_gamma(self._squared_distances(series), "tracks")
        else:
            self.gamma_ = float(self.gamma)

    def _describe(self, series: Series, floor: float) -> RealArray:
        with np.errstate(over="ignore"):
            kernels = np.exp(-self.gamma_ * self._squared_distances(series))
        kernels = ensure_definite(kernels, floor, variables="tracks")
        return kernels.astype(series.dtype, copy=False)

    def _squared_distances(self, series: Series) -> RealArray:
        return series.map(lambda block: _squared_distances(block, self.per_frame))


def _squared_distances(block: RealArray, per_frame: bool) -> RealArray:
    """Squared distances between all tracks of each sequence, shape (n_sequences, d, d)."""
    n_sequences, d, n_frames = block.shape
    squares = np.zeros((n_sequences, d, d))
    for p in range(d - 1):
        # Expanding the square would lose the digits of differences between nearly equal tracks.
        difference = block[:, p + 1 :] - block[:, p : p + 1]
        squares[:, p, p + 1 :] = np.vecdot(difference, difference)
    squares += squares.mT.copy()
    return squares / n_frames if per_frame else squares


class CovarianceKernel(RegionCovariance):
    r"""Gaussian kernels between the pixel features of a region.

    From the covariance :math:`C` of the features over the region,

    .. math:: K_{pq} = \exp\bigl(-\gamma \, (C_{pp} + C_{qq} - 2 C_{pq})\bigr) .

    The bracket is the mean square over the pixels of the difference of the features p and q, each
    minus its mean. K is the kernel of `RBFKernelDescriptor` with pixels as frames, invariant to
    constants added to an image. Features should have the same unit, as those of the default do.

    Parameters
    ----------
    features : str, Preset or sequence of features, default="cancer"
        As in `RegionCovariance`; the default gives matrices of 8 x 8 from RGB images.
    gamma : float or "median", default="median"
        Factor of the squared distances, > 0. "median" is one over the median of the squared
        distances between features that differ, over the regions in `fit`.
    patch, stride, boxes, n_jobs, verbose : as in `RegionCovariance`
    floor : "auto" or float, default="auto", as in `RBFKernelDescriptor`

    Attributes
    ----------
    gamma_ : float, the factor in use.
    feature_names_, n_features_in_ : as in `RegionCovariance`

    Notes
    -----
    The paper states only the size of the descriptors of its cancer data; the definition is ours.

    Examples
    --------
    >>> images = np.random.default_rng(0).integers(256, size=(10, 40, 50, 3))
    >>> CovarianceKernel().fit_transform(images).shape
    (10, 8, 8)
    """

    gamma_: float

    def __init__(
        self,
        features: str | Preset | Sequence[Feature] = "cancer",
        *,
        gamma: float | str = "median",
        patch: int | tuple[int, int] | None = None,
        stride: int | tuple[int, int] | None = None,
        boxes: ArrayLike | None = None,
        floor: float | str = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.features, self.patch, self.stride, self.boxes = features, patch, stride, boxes
        self.floor, self.n_jobs, self.verbose, self.gamma = floor, n_jobs, verbose, gamma

    def _fit(self, X: Images) -> list[Part]:
        _check_gamma(self.gamma)
        super()._fit(X)
        if not isinstance(self.gamma, str):
            self.gamma_ = float(self.gamma)
            return []
        parts = self._compute_parts(X)
        covariances = np.concatenate([part.matrices for part, _ in parts])
        self.gamma_ = _median_gamma(_mean_square_differences(covariances), "features")
        return parts

    def _describe(self, regions: Regions, floor: float) -> RealArray:
        kernels = np.exp(-self.gamma_ * _mean_square_differences(regions.matrices))
        return ensure_definite(kernels, floor, name="covariance kernels")


def _mean_square_differences(covariances: RealArray) -> RealArray:
    """Mean squares of differences of centred features, from their covariances."""
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    squares = variances[:, :, None] + variances[:, None, :] - 2 * covariances
    return np.maximum(squares, 0)


def _check_gamma(gamma: float | str) -> None:
    if not (isinstance(gamma, str) and gamma == "median"):
        check_number(gamma, "gamma", positive=True, word="median")


def _median_gamma(squared_distances: RealArray, variables: str) -> float:
    """Return 1 / median of the squared distances, (n_samples, d, d), of variables that differ."""
    d = squared_distances.shape[-1]
    if d == 1:
        raise ValueError(
            f'gamma="median" needs at least two {variables}, but X has 1; pass a number for gamma'
        )
    pairs = squared_distances[:, *np.triu_indices(d, 1)]
    # The inverse of smaller distances would overflow.
    differing = pairs[pairs >= np.finfo(np.float64).tiny]
    if not differing.size:
        raise ValueError(
            f'gamma="median" has no scale to learn: all {variables} of each sample of X are equal; '
            "pass a number for gamma or samples that vary"
        )
    return 1 / float(np.median(differing))
