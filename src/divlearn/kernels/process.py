"""The kernel of a divergence for the Gaussian processes of scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel, NormalizedKernelMixin

from divlearn.arrays import RealArray
from divlearn.divergence import Divergence
from divlearn.engines import Engine
from divlearn.kernels.kernel import DivergenceKernel

__all__ = ["DivergenceProcessKernel"]


class DivergenceProcessKernel(NormalizedKernelMixin, Kernel):  # type: ignore[misc]
    r"""Covariance function of a Gaussian process on SPD matrices, with a scale that is learned.

    .. math:: k(X, Y) = \exp\bigl(-s\, \tilde D(X, Y)\bigr)

    as in `DivergenceKernel`. The Gaussian processes of scikit-learn take rows only, so matrices are
    passed as rows of :math:`d^2` numbers, ``X.reshape(len(X), -1)``. The kernel adds and multiplies
    with those of `sklearn.gaussian_process.kernels`.

    Parameters
    ----------
    divergence : str, pair (alpha, beta) or Divergence, default="stein"
    scale : float, default=1.0
        s, or where its search starts.
    scale_bounds : pair of floats or "fixed", default=(1e-5, 1e5)
        Where the marginal likelihood looks for s.
    engine : str or Engine, default="auto"

    Notes
    -----
    Where the kernel is not positive definite (see `DivergenceKernel.definiteness`), add a
    `WhiteKernel`, or more ``alpha``, than the most negative eigenvalue.

    Examples
    --------
    >>> from sklearn.gaussian_process import GaussianProcessRegressor
    >>> X = np.array([np.diag([1.0, x]) for x in np.geomspace(1, 4, 9)])
    >>> y = np.log(X[:, 1, 1])
    >>> model = GaussianProcessRegressor(DivergenceProcessKernel("stein"))
    >>> rows = X.reshape(len(X), -1)
    >>> float(model.fit(rows[::2], y[::2]).predict(rows[1:2])[0]), float(y[1])
    (0.17..., 0.173...)
    """

    def __init__(
        self,
        divergence: str | Sequence[float] | Divergence = "stein",
        scale: float = 1.0,
        scale_bounds: tuple[float, float] | str = (1e-5, 1e5),
        engine: str | Engine = "auto",
    ) -> None:
        self.divergence = divergence
        self.scale = scale
        self.scale_bounds = scale_bounds
        self.engine = engine

    @property
    def hyperparameter_scale(self) -> Hyperparameter:
        """The scale, as scikit-learn describes what it learns."""
        return Hyperparameter("scale", "numeric", self.scale_bounds)

    def __call__(
        self, X: ArrayLike, Y: ArrayLike | None = None, eval_gradient: bool = False
    ) -> Any:
        """Compute the kernel between rows that hold matrices.

        Parameters
        ----------
        X : array-like, shape (n_X, d * d)
        Y : array-like, shape (n_Y, d * d), optional
            X itself by default.
        eval_gradient : bool, default=False
            Whether to return the derivative in the logarithm of the scale too; only without Y.

        Returns
        -------
        K : ndarray, shape (n_X, n_Y)
        gradient : ndarray, shape (n_X, n_X, 1), or (n_X, n_X, 0) if the scale is fixed
            Only if ``eval_gradient``.
        """
        if eval_gradient and Y is not None:
            raise ValueError("eval_gradient=True must come without Y; pass X alone")
        kernel = DivergenceKernel(self.divergence, float(self.scale), engine=self.engine)
        K = kernel(_matrices(X), None if Y is None else _matrices(Y))
        if not eval_gradient:
            return K
        if self.hyperparameter_scale.fixed:
            return K, np.empty((*K.shape, 0))
        # d/dlog(s) exp(-s D) = -s D exp(-s D), zero where the kernel has vanished.
        slope = K * np.log(np.where(K > 0, K, 1.0))
        return K, slope[:, :, None]

    def is_stationary(self) -> bool:
        """Return False: rows that hold matrices cannot be shifted."""
        return False

    def __repr__(self) -> str:
        """Name the divergence and the scale."""
        return f"{type(self).__name__}({self.divergence!r}, scale={self.scale:.3g})"


def _matrices(rows: ArrayLike) -> RealArray:
    array = np.asarray(rows)
    d = math.isqrt(array.shape[-1]) if array.ndim == 2 else 0
    if array.ndim != 2 or d * d != array.shape[1]:
        raise ValueError(
            f"X has shape {array.shape}, but must have shape (n, d * d), one matrix per row; pass "
            "X.reshape(len(X), -1)"
        )
    return array.reshape(len(array), d, d)
