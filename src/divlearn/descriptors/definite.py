"""What all descriptors share: conventions of scikit-learn, and a regulariser that warns."""

import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from divlearn import tolerances
from divlearn.arrays import RealArray
from divlearn.checks import is_number
from divlearn.fitting.labelled import MatricesMixin
from divlearn.spd import SPDRepairWarning, find_not_definite


class MatrixTransformer(TransformerMixin, MatricesMixin, BaseEstimator):  # type: ignore[misc]
    """Base of transformers from samples that are no rows of numbers to SPD matrices."""

    n_features_in_: int

    def set_output(self, *, transform: str | None = None) -> Self:
        """Do nothing: matrices fit into no data frame, and stay an array in every pipeline."""
        return self

    def _set_or_check_count(self, count: int, what: str, *, reset: bool, where: str = "X") -> None:
        if reset:
            self.n_features_in_ = count
        elif count != self.n_features_in_:
            raise ValueError(
                f"{where} has {count} {what}, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} {what} as input"
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def check_regularize(regularize: float | str, dtype: DTypeLike = np.float64, d: int = 1) -> float:
    """Return the floor that ``regularize`` stands for, `least_floor` at least."""
    least = least_floor(d, dtype)
    if isinstance(regularize, str) and regularize == "auto":
        return max(tolerances.repair_floor(dtype), least)
    if not is_number(regularize) or not 0 < float(regularize) < 1:
        raise ValueError(f'regularize={regularize!r} must be "auto" or a number > 0 and < 1')
    if float(regularize) < least:
        raise ValueError(
            f"regularize={regularize!r} must be >= {least:.3g}, or matrices of size {d} in "
            f"{np.dtype(dtype)} are singular up to rounding; raise it"
        )
    return float(regularize)


def least_floor(d: int, dtype: DTypeLike = np.float64) -> float:
    """Smallest floor whose matrices, of size d, pass `check_spd` once rounded to ``dtype``."""
    return 2 * _slack(d, dtype)


def _slack(d: int, dtype: DTypeLike) -> float:
    """How far below the floor rounding may leave an eigenvalue that was raised to it."""
    return 4 * tolerances.positive_definite(d, dtype)


def ensure_definite(
    covariances: RealArray, floor: float, *, name: str = "X", variables: str = "features"
) -> RealArray:
    r"""Make positive semi-definite matrices strictly positive definite, changing few and little.

    Let :math:`R` be the correlation matrix of :math:`C` and :math:`D` the diagonal of :math:`C`.
    Where :math:`\lambda_{\min}(R) < \varphi` the matrix is shrunk towards its own diagonal,

    .. math:: C \leftarrow (1 - r) C + r D, \qquad
              r = \frac{\varphi - \lambda_{\min}(R)}{1 - \lambda_{\min}(R)},

    which is the smallest weight that gives :math:`\lambda_{\min}(R) = \varphi`. Variances stay as
    they are, and a change of the units of a variable commutes with the repair. A variable without
    variance gets :math:`\varphi` times the mean of the other variances. The result is the input
    itself where nothing had to be changed; otherwise an `SPDRepairWarning` says what was.
    """
    leading, d = covariances.shape[:-2], covariances.shape[-1]
    matrices = covariances.reshape(-1, d, d)
    constant = np.diagonal(matrices, axis1=1, axis2=2) <= 0
    # The test scales diagonals to within a factor of two of one only, hence twice the floor.
    candidates = np.union1d(
        find_not_definite(matrices, 2 * floor), np.flatnonzero(constant.any(axis=1))
    )
    if not candidates.size:
        return covariances
    matrices = matrices.copy()
    filled = _fill_constant(matrices[candidates], constant[candidates], floor, candidates, name)
    matrices[candidates], weights = _shrink(filled, floor)
    if not constant.any() and not weights.any():
        return covariances
    _warn(constant, weights, candidates, len(matrices), floor, name, variables)
    return matrices.reshape(*leading, d, d)


def _fill_constant(
    matrices: RealArray, constant: NDArray[np.bool_], floor: float,
    indices: NDArray[np.intp], name: str,
) -> RealArray:  # fmt: skip
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
    # Without the slack a repaired matrix, which is at the floor up to rounding, would be repaired
    # again, and again a warning given.
    short = smallest < floor - min(_slack(d, matrices.dtype), floor / 2)
    weights = np.zeros(len(matrices))
    weights[short] = (floor - smallest[short]) / (1 - smallest[short])
    kept = np.asarray(1 - weights, dtype=matrices.dtype)[:, None, None]
    return np.where(np.eye(d, dtype=bool), matrices, kept * matrices), weights


def _warn(
    constant: NDArray[np.bool_], weights: RealArray, candidates: NDArray[np.intp],
    n_matrices: int, floor: float, name: str, variables: str,
) -> None:  # fmt: skip
    parts = []
    flat = np.flatnonzero(constant.any(axis=1))
    if flat.size:
        parts.append(
            f"{flat.size} of {n_matrices} matrices had {variables} without variance (first: "
            f"{flat[0]}, number {int(np.argmax(constant[flat[0]]))}), which got {floor:.3g} of the "
            "mean variance"
        )
    shrunk = candidates[weights > 0]
    if shrunk.size:
        parts.append(
            f"{shrunk.size} of {n_matrices} matrices had a correlation with an eigenvalue below "
            f"{floor:.3g} (first: {shrunk[0]}) and {'was' if shrunk.size == 1 else 'were'} shrunk "
            f"towards {'its diagonal' if shrunk.size == 1 else 'their diagonals'}, by a weight of "
            f"{weights.max():.3g} at most"
        )
    warnings.warn(f"{name}: " + "; ".join(parts), SPDRepairWarning, stacklevel=3)
