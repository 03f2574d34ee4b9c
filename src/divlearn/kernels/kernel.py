"""The kernel exp(-s D) of a divergence: a transformer, a function, and a covariance function."""

from __future__ import annotations

import math
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.base import ClassNamePrefixFeaturesOutMixin as NamesMixin
from sklearn.gaussian_process.kernels import Hyperparameter, Kernel, NormalizedKernelMixin
from sklearn.utils.validation import check_is_fitted

from divlearn.alpha_beta import check_pair, real_forms
from divlearn.arrays import RealArray
from divlearn.checks import check_number
from divlearn.divergence import ABDivergence, Divergence, DivergenceLike, get_divergence
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.fitting import labelled
from divlearn.fitting.labelled import check_new, check_training
from divlearn.kernels import tables
from divlearn.kernels.definiteness import Definiteness, measure, theory
from divlearn.kernels.tables import decay, symmetric_table, training_table
from divlearn.spd import check_spd


@labelled.takes_metric
class DivergenceKernel(NamesMixin, TransformerMixin, labelled.MatricesMixin, BaseEstimator):  # type: ignore[misc]
    r"""Kernel of a divergence between SPD matrices.

    .. math:: K(X, Y) = \exp\bigl(-s\, \tilde D(X, Y)\bigr), \qquad
              \tilde D(X, Y) = \tfrac12 \bigl(D(X \,\|\, Y) + D(Y \,\|\, X)\bigr),

    and :math:`\tilde D = D` if alpha = beta. The transformer returns the kernel between new and
    training matrices, for estimators with ``kernel="precomputed"``. The function ``kernel(X, Y)``
    returns the kernel between any two sets of matrices.

    Parameters
    ----------
    divergence : str, pair (alpha, beta), callable, dict or Divergence, default="stein"
        Any argument of `divlearn.get_divergence`. A name stands for the textbook form, a pair for
        :math:`D^{(\alpha,\beta)}` itself: "stein" is a quarter of (1/2, 1/2). The signs of alpha
        and beta must not differ. ``metric`` is another name for this parameter, as in pyRiemann.
    scale : float or "median", default="median"
        s > 0. "median" is one over the median of :math:`\tilde D` over all pairs of training
        matrices that differ, so that half of them have a kernel below 1/e.
    engine : str or Engine, default="auto"
    regularize : {"raise", "shrink"} or float, default="raise", see `Regularize`

    Attributes
    ----------
    scale_ : float, the s in use.
    divergence_ : Divergence, the divergence in use.
    matrices_ : ndarray, shape (n_matrices, d, d), the training matrices.
    n_features_in_ : int, size of the matrices.

    Notes
    -----
    Not all of these kernels are positive definite: `is_psd` is whether this one provably is, and
    `definiteness` gives the reason, and eigenvalues on data. `sklearn.svm.SVC` also works with
    kernels that are not, and finds a stationary point of a problem that is then not convex.

    Examples
    --------
    >>> X = np.array([np.eye(2), 2 * np.eye(2), 4 * np.eye(2)])
    >>> DivergenceKernel(scale=1.0)(X).round(4)
    array([[1.    , 0.8889, 0.64  ],
           [0.8889, 1.    , 0.8889],
           [0.64  , 0.8889, 1.    ]])
    >>> kernel = DivergenceKernel(scale=1.0).fit(X)
    >>> kernel.is_psd
    True
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.svm import SVC
    >>> model = make_pipeline(DivergenceKernel("airm"), SVC(kernel="precomputed"))
    >>> model.fit(X, ["small", "small", "large"]).predict(3.9 * np.eye(2)[None])
    array(['large'], dtype='<U5')
    """

    scale_: float
    divergence_: Divergence
    matrices_: Annotated[RealArray, "n_matrices d d"]
    n_features_in_: Annotated[int, "d"]

    def __init__(
        self,
        divergence: DivergenceLike = "stein",
        scale: float | str = "median",
        *,
        engine: str | Engine = "auto",
        regularize: str | float = "raise",
    ) -> None:
        self.divergence, self.scale = divergence, scale
        self.engine, self.regularize = engine, regularize

    @labelled.fit_method
    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Keep the training matrices X, shape (n_matrices, d, d), and learn ``scale_``."""
        self.fit_checked(check_training(self, X, dtype=None))
        return self

    def transform(self, X: ArrayLike) -> RealArray:
        """Kernel of new and training matrices, shape (n_matrices, n_training_matrices)."""
        return self.transform_prepared(Prepared.checked(check_new(self, X, dtype=None)))

    def transform_prepared(self, new: Prepared) -> RealArray:
        """Transform checked matrices."""
        divergence, engine = self._for_checked(self.divergence_), get_engine(self.engine)
        return decay(training_table(self, divergence, engine, new), self.scale_)

    @labelled.fit_method
    def fit_transform(self, X: ArrayLike, y: Any = None) -> RealArray:
        """Fit, and compute the kernel between the training matrices, (n_matrices, n_matrices)."""
        divergences = self.fit_checked(check_training(self, X, dtype=None))
        if divergences is None:
            return self._learned_kernel(self.matrices_)
        return decay(divergences, self.scale_)

    def __call__(self, X: ArrayLike, Y: ArrayLike | None = None) -> RealArray:
        """Compute the kernel between any matrices; `fit` is needed only if it learns something.

        X has the shape (n_X, d, d) and Y (n_Y, d, d), the kernel (n_X, n_Y). Y is X itself by
        default; the kernel is then exactly symmetric, with a diagonal of ones.
        """
        divergence = self._resolve()
        if isinstance(self.scale, str) or self.regularize != "raise":
            check_is_fitted(self, msg='scale="median" and regularize are learned by fit: call it')
        (X, Y), share = real_forms(X, Y)
        scale = self.scale_ if isinstance(self.scale, str) else share * float(self.scale)
        divergence = divergence.for_forms(share)
        regularize = self.shrinkage_ or "raise"
        first = check_spd(X, regularize=regularize, ndim=3)
        if Y is None:
            return self._kernel(divergence, scale, first)
        second = check_spd(Y, regularize=regularize, ndim=3, name="Y")
        return self._kernel(divergence, scale, *check_pair(first, second, ndim=3))

    @property
    def is_psd(self) -> bool:
        """Whether the kernel is proved positive definite on all matrices; see `definiteness`."""
        return self._theory()[0] is True

    def definiteness(self, X: ArrayLike | None = None) -> Definiteness:
        """Return what is proved of positive definiteness, and the eigenvalues on some data.

        The data are the training matrices, or X, shape (n_matrices, d, d). ``print`` explains them.

        Examples
        --------
        >>> X = np.array([np.eye(2), 2 * np.eye(2)])
        >>> print(DivergenceKernel("stein", 0.25).fit(X).definiteness())
        Not positive definite on every data set: exp(-s S), S the Stein divergence, is for d=2
        exactly for s >= 1/2 (Sra 2012), but here s = 0.25; the next larger that is: 0.5. On 2
        matrices it is positive semi-definite up to rounding (smallest eigenvalue ...
        """
        theorem = self._theory()
        matrices = self.matrices_ if X is None else check_new(self, X, dtype=None)
        return measure(theorem, self._learned_kernel(matrices))

    def _theory(self) -> tuple[bool | None, str]:
        check_is_fitted(self)
        return theory(self.divergence_, self.scale_, self.n_features_in_)

    def _resolve(self) -> Divergence:
        divergence = get_divergence(self.divergence)
        if isinstance(divergence, ABDivergence):
            tables.symmetric_point(divergence.alpha, divergence.beta)  # checks their signs
        if not (isinstance(self.scale, str) and self.scale == "median"):
            check_number(self.scale, "scale", positive=True, word="median")
        return divergence

    def fit_checked(self, matrices: RealArray) -> RealArray | None:
        """Fit to checked matrices; return their divergences if these were computed."""
        self.divergence_, self.matrices_ = self._resolve(), matrices
        self.n_features_in_ = matrices.shape[-1]
        if not isinstance(self.scale, str):
            self.scale_ = self._share * float(self.scale)
            return None
        divergence = self._for_checked(self.divergence_)
        divergences = symmetric_table(divergence, get_engine(self.engine), self.matrices_)
        copies = tables.find_copies(self.matrices_)
        self.scale_ = tables.median_scale(divergences, copies, fix="pass a number for scale")
        return divergences

    def _learned_kernel(self, X: RealArray) -> RealArray:
        return self._kernel(self._for_checked(self.divergence_), self.scale_, X)

    def _kernel(
        self, divergence: Divergence, scale: float, X: RealArray, Y: RealArray | None = None
    ) -> RealArray:
        return decay(symmetric_table(divergence, get_engine(self.engine), X, Y), scale)

    @property
    def _n_features_out(self) -> int:
        return len(self.matrices_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


@labelled.takes_metric
class DivergenceProcessKernel(NormalizedKernelMixin, Kernel):  # type: ignore[misc]
    r"""Covariance function of a Gaussian process on SPD matrices, with a scale that is learned.

    .. math:: k(X, Y) = \exp\bigl(-s\, \tilde D(X, Y)\bigr)

    as in `DivergenceKernel`. The Gaussian processes of scikit-learn take rows only, so matrices are
    passed as rows of :math:`d^2` numbers, ``X.reshape(len(X), -1)``. The kernel can be added to and
    multiplied by those of `sklearn.gaussian_process.kernels`.

    Parameters
    ----------
    divergence : str, pair (alpha, beta) or Divergence, default="stein"
    scale : float, default=1.0
        s, or the start of its search.
    scale_bounds : pair of floats or "fixed", default=(1e-5, 1e5)
        Range of s in the maximisation of the marginal likelihood.
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
        divergence: DivergenceLike = "stein",
        scale: float = 1.0,
        scale_bounds: tuple[float, float] | str = (1e-5, 1e5),
        engine: str | Engine = "auto",
    ) -> None:
        self.divergence, self.scale = divergence, scale
        self.scale_bounds, self.engine = scale_bounds, engine

    @property
    def hyperparameter_scale(self) -> Hyperparameter:
        """The scale, as scikit-learn describes hyperparameters."""
        return Hyperparameter("scale", "numeric", self.scale_bounds)

    def __call__(
        self, X: ArrayLike, Y: ArrayLike | None = None, eval_gradient: bool = False
    ) -> Any:
        """Compute the kernel, (n_X, n_Y), between rows (n_X, d * d) and (n_Y, d * d) of matrices.

        Y is X itself by default. Then ``eval_gradient`` also returns the derivative in the
        logarithm of the scale, shape (n_X, n_X, 1), or (n_X, n_X, 0) if the scale is fixed.
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
