"""Kernel descriptors: how the tracks of a sequence resemble each other, as an SPD matrix."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from divlearn.arrays import RealArray
from divlearn.descriptors.bandwidth import check_gamma, median_gamma
from divlearn.descriptors.definite import check_regularize, ensure_definite
from divlearn.descriptors.series import Series, SeriesLike, SeriesTransformer

__all__ = ["RBFKernelDescriptor"]


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
        distances between all pairs of tracks that differ, over the sequences seen in `fit`.
    per_frame : bool, default=True
        Whether squared distances are divided by the number of frames :math:`T`, as above. Sums over
        frames grow with :math:`T`: with one ``gamma`` for all, tracks of long sequences would
        resemble each other less than those of short ones for their length alone. False takes the
        sum, the formula of the reference; for sequences of one length it is the same kernel, at
        another ``gamma``.
    regularize : float or "auto", default="auto"
        Floor of the eigenvalues of a kernel; "auto" is the square root of the machine epsilon.
        Where they are below, as with equal tracks, the kernel is shrunk towards the identity and an
        `SPDRepairWarning` says so; see `divlearn.descriptors.definite.ensure_definite`.

    Attributes
    ----------
    gamma_ : float
        The factor in use.
    n_features_in_ : int
        Number of tracks.

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
        self,
        gamma: float | str = "median",
        *,
        per_frame: bool = True,
        regularize: float | str = "auto",
    ) -> None:
        self.gamma = gamma
        self.per_frame = per_frame
        self.regularize = regularize

    def fit(self, X: SeriesLike, y: Any = None) -> Self:
        """Check the parameters and the sequences, and learn ``gamma_``.

        Parameters
        ----------
        X : array-like, shape (n_sequences, n_tracks, n_frames), or a list of sequences
            Sequences in a list, shape (n_tracks, n_frames), may differ in length.
        y : ignored

        Returns
        -------
        self : object
        """
        check_gamma(self.gamma)
        series = self._check_series(X, reset=True)
        check_regularize(self.regularize, series.dtype, series.n_channels)
        if isinstance(self.gamma, str):
            self.gamma_ = median_gamma(self._squared_distances(series), "tracks")
        else:
            self.gamma_ = float(self.gamma)
        return self

    def transform(self, X: SeriesLike) -> RealArray:
        """Compute kernels.

        Parameters
        ----------
        X : array-like, shape (n_sequences, n_tracks, n_frames), or a list of sequences

        Returns
        -------
        ndarray, shape (n_sequences, n_tracks, n_tracks)
            With a diagonal of ones. float32 if all sequences are, else float64; computed in
            float64.
        """
        check_is_fitted(self)
        series = self._check_series(X, reset=False)
        floor = check_regularize(self.regularize, series.dtype, series.n_channels)
        with np.errstate(over="ignore"):
            kernels = np.exp(-self.gamma_ * self._squared_distances(series))
        kernels = ensure_definite(kernels, floor, variables="tracks")
        return kernels.astype(series.dtype, copy=False)

    def _squared_distances(self, series: Series) -> RealArray:
        return series.map(lambda block: _squared_distances(block, self.per_frame))


def _squared_distances(block: RealArray, per_frame: bool) -> RealArray:
    """Between all tracks of each sequence, shape (n_sequences, d, d)."""
    n_sequences, d, n_frames = block.shape
    squares = np.zeros((n_sequences, d, d))
    for p in range(d - 1):
        # Differences first: sums of squares and products would lose those of nearly equal tracks.
        difference = block[:, p + 1 :] - block[:, p : p + 1]
        squares[:, p, p + 1 :] = np.vecdot(difference, difference)
    squares += squares.mT.copy()
    return squares / n_frames if per_frame else squares
