"""Covariance kernels: how pixel features resemble each other over a region."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import RealArray
from divlearn.descriptors.bandwidth import check_gamma, median_gamma
from divlearn.descriptors.definite import check_regularize, ensure_definite
from divlearn.descriptors.images import Images, check_images
from divlearn.descriptors.pixels import Feature
from divlearn.descriptors.presets import Preset
from divlearn.descriptors.region import RegionDescriptor

__all__ = ["CovarianceKernel"]


class CovarianceKernel(RegionDescriptor):
    r"""Gaussian kernels between the pixel features of a region.

    From the covariance :math:`C` of the features over the region,

    .. math:: K_{pq} = \exp\bigl(-\gamma \, (C_{pp} + C_{qq} - 2 C_{pq})\bigr) .

    The bracket is the mean square over the pixels of the difference of the features p and q, each
    less its mean: K is the kernel of `RBFKernelDescriptor` with pixels for frames, blind to
    constants added to an image. It keeps that the distance between features is one of grey levels,
    so features should share that unit, as those of the default do.

    Parameters
    ----------
    features : str, Preset or sequence of features, default="cancer"
        As in `RegionCovariance`; the default gives matrices of 8 x 8 from RGB images.
    gamma : float or "median", default="median"
        Factor of the squared distances, > 0. "median" is one over the median of the squared
        distances between features that differ, over the regions seen in `fit`.
    patch, stride, boxes, n_jobs, verbose : as in `RegionCovariance`
    regularize : "auto" or float, default="auto"
        Floor of the smallest eigenvalue of a kernel; "auto" is the square root of epsilon. Kernels
        below, as where two features are equal, are shrunk towards the identity, with an
        `SPDRepairWarning`.

    Attributes
    ----------
    gamma_ : float
        The factor in use.
    feature_names_ : list of str, the rows of the matrices.
    n_features_in_ : int, channels of the images.

    Notes
    -----
    The covariance-kernel descriptors of the paper's cancer data are not specified there beyond
    their size; this is our definition of them.

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
        regularize: float | str = "auto",
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.features = features
        self.gamma = gamma
        self.patch = patch
        self.stride = stride
        self.boxes = boxes
        self.regularize = regularize
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Images, y: Any = None) -> Self:
        """Check the parameters and learn ``gamma_``.

        Parameters
        ----------
        X : array or sequence of images
        y : ignored

        Returns
        -------
        self
        """
        if isinstance(self.gamma, str):
            self.fit_transform(X)
        else:
            check_gamma(self.gamma)
            super().fit(X)
            self.gamma_ = float(self.gamma)
        return self

    def fit_transform(self, X: Images, y: Any = None) -> RealArray:
        """Learn ``gamma_`` and describe the same images; see `fit` and `transform`.

        Parameters
        ----------
        X : array or sequence of images
        y : ignored

        Returns
        -------
        ndarray, shape (n_images, d, d) or (n_images, n_regions, d, d)
        """
        check_gamma(self.gamma)
        super().fit(X)
        parts = self._parts(check_images(X))
        if isinstance(self.gamma, str):
            seen = np.concatenate([part.covariances for part in parts])
            self.gamma_ = median_gamma(_squared_distances(seen), "features")
        else:
            self.gamma_ = float(self.gamma)
        return self._arrange(self._collect(parts), len(X))

    def _describe(self, covariances: RealArray, single: bool) -> RealArray:
        dtype = np.float32 if single else np.float64
        floor = check_regularize(self.regularize, dtype, covariances.shape[-1])
        kernels = np.exp(-self.gamma_ * _squared_distances(covariances))
        return ensure_definite(kernels, floor, name="covariance kernels")


def _squared_distances(covariances: RealArray) -> RealArray:
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    squares = variances[:, :, None] + variances[:, None, :] - 2 * covariances
    return np.maximum(squares, 0)
