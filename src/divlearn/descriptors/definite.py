"""Regularization of singular matrices: `Regularize`, and the repair used by all descriptors."""

from __future__ import annotations

import warnings
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags

from divlearn import tolerances
from divlearn.arrays import Indices, RealArray
from divlearn.checks import is_number
from divlearn.fitting.labelled import MatricesMixin, check_new, check_training, fit_method
from divlearn.spd import SPDRepairWarning, find_not_definite


class MatrixTransformer(TransformerMixin, MatricesMixin, BaseEstimator):  # type: ignore[misc]
    """Base of transformers to SPD matrices, from samples that are not vectors."""

    n_features_in_: int

    def set_output(self, *, transform: str | None = None) -> Self:
        """Do nothing: matrices stay an array, because a data frame cannot hold them."""
        return self

    def _set_or_check_count(self, count: int, noun: str, *, reset: bool, where: str = "X") -> None:
        if reset:
            self.n_features_in_ = count
        elif count != self.n_features_in_:
            raise ValueError(
                f"{where} has {count} {noun}, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} {noun} as input"
            )

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class Regularize(MatrixTransformer):
    r"""Make symmetric matrices that may be rank-deficient positive definite.

    .. math:: X \mapsto (1 - r) X + r \tau I , \qquad \tau = \tfrac{1}{d} \operatorname{tr} \bar X

    with :math:`\bar X` the mean of the training matrices. `fit` computes :math:`\tau`, and
    `transform` applies it to training matrices and new ones alike. Covariances of
    average-referenced EEG have rank d - 1, and covariances of n samples have rank n - 1 at most;
    their zero eigenvalues become :math:`r \tau`. Estimators of divlearn do the same with their
    parameter ``regularize``.

    Parameters
    ----------
    regularize : {"raise", "shrink"} or float, default="shrink"
        The weight r, > 0 and < 1; "shrink" is 0.01. "raise" changes nothing, and raises an error
        for matrices that are not positive definite.

    Attributes
    ----------
    shrinkage_ : (float, float) or None, r and tau; None for "raise".
    n_features_in_ : int, size of the matrices.

    Examples
    --------
    >>> signals = np.random.default_rng(0).standard_normal((10, 4, 50))
    >>> signals -= signals.mean(axis=1, keepdims=True)  # the average is the reference
    >>> X = signals @ signals.mT / 50
    >>> np.linalg.matrix_rank(X[0]), np.linalg.matrix_rank(Regularize().fit_transform(X)[0])
    (np.int64(3), np.int64(4))
    """

    def __init__(self, regularize: str | float = "shrink") -> None:
        self.regularize = regularize

    @fit_method
    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Compute tau from the weighted mean of X, shape (n_matrices, d, d); y is ignored."""
        self.n_features_in_ = check_training(self, X, sample_weight, dtype=None).shape[-1]
        return self

    def transform(self, X: ArrayLike) -> RealArray:
        """Regularize matrices, shape (n_matrices, d, d); float32 stays float32."""
        return self._as_given(check_new(self, X, dtype=None))


def check_floor(floor: float | str, dtype: DTypeLike = np.float64, d: int = 1) -> float:
    """Return the floor as a number, which must be at least `least_floor`."""
    least = least_floor(d, dtype)
    if isinstance(floor, str) and floor == "auto":
        return max(tolerances.repair_floor(dtype), least)
    if not is_number(floor) or not 0 < float(floor) < 1:
        raise ValueError(f'floor={floor!r} must be "auto" or a number > 0 and < 1')
    if float(floor) < least:
        raise ValueError(
            f"floor={floor!r} must be >= {least:.3g}, or matrices of size {d} in "
            f"{np.dtype(dtype)} are singular up to rounding; raise it"
        )
    return float(floor)


def least_floor(d: int, dtype: DTypeLike = np.float64) -> float:
    """Smallest floor for which matrices of size d pass `check_spd` after rounding to ``dtype``."""
    return 8 * tolerances.positive_definite(d, dtype)


def ensure_definite(
    covariances: RealArray, floor: float, *, name: str = "X", variables: str = "features"
) -> RealArray:
    """Shrink matrices towards their diagonals until eigenvalues of correlations are >= floor."""
    # A variable without variance gets the floor times the mean variance of the others. The result
    # is the input itself if no matrix has to be changed.
    leading, d = covariances.shape[:-2], covariances.shape[-1]
    matrices = covariances.reshape(-1, d, d)
    constant = np.diagonal(matrices, axis1=1, axis2=2) <= 0
    # Twice the floor, because the test scales diagonals to one up to a factor of two only.
    candidates = np.union1d(
        find_not_definite(matrices, 2 * floor), np.flatnonzero(constant.any(axis=1))
    )
    weights = np.zeros(len(matrices))
    if candidates.size:
        matrices = matrices.copy()
        filled = _fill_constant(matrices[candidates], constant[candidates], floor, candidates, name)
        matrices[candidates], weights[candidates] = _shrink(filled, floor)
    if not constant.any() and not weights.any():
        return covariances
    _warn(constant, weights, floor, name, variables)
    return matrices.reshape(*leading, d, d)


def _fill_constant(
    matrices: RealArray, constant: NDArray[np.bool_], floor: float, indices: Indices, name: str
) -> RealArray:
    zeros = indices[constant.all(axis=1)]
    if zeros.size:
        more = f" (and {zeros.size - 1} more)" if zeros.size > 1 else ""
        raise ValueError(
            f"{name}: matrix {zeros[0]}{more} has no variance in any variable, so there is no "
            "scale to regularise it to; drop this sample, or use variables that vary"
        )
    matrices[constant[:, :, None] | constant[:, None, :]] = 0
    variances = np.diagonal(matrices, axis1=1, axis2=2)
    mean = variances.sum(axis=1) / (~constant).sum(axis=1)
    row, variable = np.nonzero(constant)
    matrices[row, variable, variable] = floor * mean[row]
    return matrices


def _shrink(matrices: RealArray, floor: float) -> tuple[RealArray, RealArray]:
    d = matrices.shape[-1]
    deviations = np.sqrt(np.diagonal(matrices, axis1=1, axis2=2).astype(np.float64))
    correlations = matrices / deviations[:, :, None] / deviations[:, None, :]
    smallest = np.linalg.eigvalsh(correlations)[:, 0]
    # The slack allows for rounding, so that matrices shrunk before are not shrunk again.
    below = smallest < floor - min(least_floor(d, matrices.dtype), floor) / 2
    weights = np.zeros(len(matrices))
    weights[below] = (floor - smallest[below]) / (1 - smallest[below])
    factors = np.asarray(1 - weights, dtype=matrices.dtype)[:, None, None]
    return np.where(np.eye(d, dtype=bool), matrices, factors * matrices), weights


def _warn(
    constant: NDArray[np.bool_], weights: RealArray, floor: float, name: str, variables: str
) -> None:
    parts = []
    flat, shrunk = np.flatnonzero(constant.any(axis=1)), np.flatnonzero(weights)
    if flat.size:
        parts.append(
            f"{flat.size} of {len(weights)} matrices had {variables} without variance (first: "
            f"{flat[0]}, number {int(np.argmax(constant[flat[0]]))}), which got {floor:.3g} of the "
            "mean variance"
        )
    if shrunk.size:
        parts.append(
            f"{shrunk.size} of {len(weights)} matrices had a correlation with an eigenvalue below "
            f"{floor:.3g} (first: {shrunk[0]}) and were shrunk towards the diagonal, by a weight "
            f"of {weights.max():.3g} at most"
        )
    warnings.warn(f"{name}: " + "; ".join(parts), SPDRepairWarning, stacklevel=3)
