"""Matrices made positive definite: `Regularize`, and the repair that all descriptors share."""

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
    """Base of transformers from samples that are no rows of numbers to SPD matrices."""

    n_features_in_: int

    def set_output(self, *, transform: str | None = None) -> Self:
        """Do nothing: a data frame cannot hold matrices, which stay an array in every pipeline."""
        return self

    def _set_or_check_count(self, count: int, what: str, *, reset: bool, where: str = "X") -> None:
        if reset:
            self.n_features_in_ = count
        elif count != self.n_features_in_:
            raise ValueError(
                f"{where} has {count} {what}, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} {what} as input"
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
    average-referenced EEG have rank d - 1, those of n samples rank n - 1 at most: their zero
    eigenvalues become :math:`r \tau`. Estimators of divlearn do this themselves if their parameter
    ``regularize`` is set.

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
        """Learn from matrices X, shape (n_matrices, d, d), by their weighted mean; y is ignored."""
        self.n_features_in_ = check_training(self, X, sample_weight, dtype=None).shape[-1]
        return self

    def transform(self, X: ArrayLike) -> RealArray:
        """Regularize matrices, shape (n_matrices, d, d); float32 stays float32."""
        return self._as_given(check_new(self, X, dtype=None))


def check_floor(floor: float | str, dtype: DTypeLike = np.float64, d: int = 1) -> float:
    """Return the floor that ``floor`` stands for, `least_floor` at least."""
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
    """Smallest floor whose matrices, of size d, pass `check_spd` once rounded to ``dtype``."""
    return 8 * tolerances.positive_definite(d, dtype)


def ensure_definite(
    covariances: RealArray, floor: float, *, name: str = "X", variables: str = "features"
) -> RealArray:
    """Shrink matrices towards their diagonals, as little as lifts correlations to the floor."""
    # A variable without variance gets that share of the mean of the others. Where nothing has to be
    # changed the result is the input itself.
    leading, d = covariances.shape[:-2], covariances.shape[-1]
    matrices = covariances.reshape(-1, d, d)
    constant = np.diagonal(matrices, axis1=1, axis2=2) <= 0
    # The test scales diagonals to within a factor of two of one only, hence twice the floor.
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
    hopeless = indices[constant.all(axis=1)]
    if hopeless.size:
        more = f" (and {hopeless.size - 1} more)" if hopeless.size > 1 else ""
        raise ValueError(
            f"{name}: matrix {hopeless[0]}{more} has no variance in any variable, so there is no "
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
    # The slack is for rounding: a matrix that was lifted to the floor stays, without a warning.
    short = smallest < floor - min(least_floor(d, matrices.dtype), floor) / 2
    weights = np.zeros(len(matrices))
    weights[short] = (floor - smallest[short]) / (1 - smallest[short])
    kept = np.asarray(1 - weights, dtype=matrices.dtype)[:, None, None]
    return np.where(np.eye(d, dtype=bool), matrices, kept * matrices), weights


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
