"""SPD matrices: diagnosis, shrinkage on request, and the functions of `divlearn.geometry`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from divlearn import tolerances
from divlearn.arrays import Indices, RealArray
from divlearn.checks import is_number
from divlearn.geometry import (
    check_symmetric,
    equilibrate,
    expm,
    geodesic,
    invsqrtm,
    locate,
    logm,
    normalize,
    powm,
    sqrtm,
)
from divlearn.weights import check_weights

__all__ = [
    "SPDRepairWarning",
    "check_spd",
    "expm",
    "geodesic",
    "invsqrtm",
    "logm",
    "powm",
    "sqrtm",
]

Shrinkage = tuple[float, float]  # weight r and variance tau of the map (1 - r) X + r tau I
Regularize = str | float | Shrinkage | None  # None: new matrices for a model fitted without
SHRINK_WEIGHT = 0.01  # the largest that costs no accuracy: see docs/data.md
# Matrices are factorised in blocks of about this many entries, so that a block stays in cache
# and one bad matrix costs a second look at its own block only.
_BLOCK_ENTRIES = 32768
_ROUNDINGS = 10  # sums of rows accumulate the errors of many entries
CANCELLING = (
    "the rows add up to zero, as after an average reference, where more samples do not help: drop "
    "one channel, project onto one dimension less,"
)


class SPDRepairWarning(UserWarning):
    """A descriptor computed matrices that were not positive definite, and changed them."""


def check_spd(
    X: ArrayLike,
    *,
    regularize: Regularize = "raise",
    dtype: DTypeLike | None = None,
    ndim: int | None = None,
    name: str = "X",
) -> RealArray:
    r"""Validate SPD matrices, which are regularized on request.

    A symmetric :math:`X` is accepted when :math:`S X S - d \epsilon I` has a Cholesky factor,
    where the diagonal :math:`S` holds the powers of two that bring every diagonal entry into
    [1/2, 2). The verdict on a matrix depends neither on its units nor on its batch.

    Parameters
    ----------
    X : array-like of real numbers, shape (..., d, d)
    regularize : {"raise", "shrink"} or float, default="raise"
        "raise" refuses matrices that are not positive definite. A weight r, > 0 and < 1, shrinks
        all of them to :math:`(1 - r) X + r \tau I`, with :math:`\tau` the mean of all their
        eigenvalues; "shrink" is r = 0.01. `divlearn.descriptors.Regularize` does the same to
        new matrices. None is the same as "raise". NaN, infinity and asymmetry are always refused.
    dtype : float32 or float64, optional
        By default float32 stays, float16 becomes float32 and all else float64.
    ndim : int, optional
        Required number of dimensions.
    name : str, default="X"
        What error messages call the input.

    Returns
    -------
    ndarray, shape (..., d, d)
        A new C-contiguous, exactly symmetric array.

    Examples
    --------
    >>> check_spd([[2, 1], [1, 2]])
    array([[2., 1.],
           [1., 2.]])
    >>> check_spd([[1.0, 1.0], [1.0, 1.0]])
    Traceback (most recent call last):
    ValueError: X is rank-deficient: numerical rank 1 of 2, ...
    >>> check_spd([[1.0, 1.0], [1.0, 1.0]], regularize="shrink")
    array([[1.  , 0.99],
           [0.99, 1.  ]])
    """
    return check_and_learn(X, regularize, dtype=dtype, ndim=ndim, name=name)[0]


def check_and_learn(
    X: ArrayLike,
    regularize: Regularize,
    sample_weight: ArrayLike | None = None,
    *,
    dtype: DTypeLike | None = None,
    ndim: int | None = None,
    name: str = "X",
) -> tuple[RealArray, Shrinkage | None]:
    """Check and regularize matrices as `check_spd` does; also returns the shrinkage learned."""
    checked = check_symmetric(X, dtype=dtype, ndim=ndim, name=name, graded=True)
    leading, d = checked.shape[:-2], checked.shape[-1]
    matrices = checked.reshape(-1, d, d)
    shrinkage = learn_shrinkage(regularize, lambda: (mean_eigenvalues(matrices), sample_weight))
    shrink(matrices, shrinkage)
    failing = find_not_definite(matrices, tolerances.positive_definite(d, matrices.dtype))
    if failing.size:
        here = "" if name == "init" else ", here or"  # an estimator regularizes X alone
        fix = f'pass regularize="shrink"{here} to check_spd'
        if shrinkage is not None:
            fix = f"raise regularize={shrinkage[0]:g}"
        elif regularize is None:  # set when the model was fitted
            fix = 'fit with regularize="shrink"'
        _raise_not_definite(matrices, failing, leading, name, fix)
    return checked, shrinkage


def shrink(matrices: RealArray, shrinkage: Shrinkage | None) -> None:
    """Regularize matrices in place."""
    if shrinkage is not None:
        diagonal = range(matrices.shape[-1])
        matrices *= 1 - shrinkage[0]
        matrices[:, diagonal, diagonal] += shrinkage[0] * shrinkage[1]


def mean_eigenvalues(matrices: RealArray) -> RealArray:
    """Mean eigenvalue of each matrix; division before summation avoids overflow."""
    diagonals = np.diagonal(matrices, axis1=1, axis2=2).astype(np.float64)
    return (diagonals / matrices.shape[-1]).sum(axis=1)


def learn_shrinkage(
    regularize: Regularize, sizes: Callable[[], tuple[RealArray, ArrayLike | None]]
) -> Shrinkage | None:
    """Learn the shrinkage from mean eigenvalues and weights, which ``sizes()`` computes."""
    if regularize is None or isinstance(regularize, tuple):  # learned before
        return regularize
    if isinstance(regularize, str) and regularize == "raise":
        return None
    named = isinstance(regularize, str) and regularize == "shrink"
    weight = SHRINK_WEIGHT if named else regularize
    if not is_number(weight) or not 0 < weight < 1:
        raise ValueError(
            f'regularize={regularize!r} must be "raise", "shrink" or a number > 0 and < 1'
        )
    means, sample_weight = sizes()
    weights = check_weights(sample_weight, len(means))
    variance = float(weights / weights.sum() @ means)
    if variance <= 0:
        raise ValueError(
            f"regularize={regularize!r} shrinks towards the mean of all eigenvalues, which is "
            f"{variance:.3g}, but must be > 0; check how the matrices were computed"
        )
    return float(weight), variance


def find_not_definite(matrices: RealArray, tolerance: float) -> Indices:
    """Find matrices whose smallest eigenvalue, diagonal in [1/2, 2), is below a tolerance."""
    d = matrices.shape[-1]
    step = max(1, _BLOCK_ENTRIES // d**2)
    failing: list[int] = []
    for start in range(0, len(matrices), step):
        shifted = equilibrate(matrices[start : start + step])[0]
        np.einsum("nii->ni", shifted)[...] -= tolerance  # a view of the diagonals
        if not _has_cholesky(shifted):
            failing += [start + i for i, X in enumerate(shifted) if not _has_cholesky(X)]
    return np.array(failing, dtype=np.intp)


def are_symmetric(stack: NDArray[np.generic]) -> bool:
    """Whether the finite entries of matrices, (n, d, d), are symmetric up to rounding."""
    single = stack.dtype.kind == "f" and stack.dtype.itemsize < 8
    relative = tolerances.asymmetry(np.float32 if single else np.float64)
    for matrix in stack:
        finite = np.where(np.isfinite(matrix), matrix, 0).astype(np.float64)
        if (np.abs(finite - finite.T) > relative * np.abs(finite).max()).any():
            return False
    return True


def are_covariances(stack: NDArray[np.generic]) -> bool:
    """Whether an array is a stack of symmetric matrices with positive diagonals."""
    square = stack.ndim == 3 and stack.shape[1] == stack.shape[2] > 1 and len(stack) > 0
    if not square or stack.dtype.kind not in "iuf":
        return False
    return bool((np.diagonal(stack, axis1=1, axis2=2) > 0).all()) and are_symmetric(stack)


def usable(matrices: RealArray) -> bool:
    """Whether all matrices are positive definite with a margin; else a step was too long."""
    tolerance = tolerances.USABLE_MARGIN * tolerances.positive_definite(matrices.shape[-1])
    finite = bool(np.isfinite(matrices).all())
    return finite and not find_not_definite(matrices, tolerance).size


def _has_cholesky(X: RealArray) -> bool:
    try:
        np.linalg.cholesky(X)
    except np.linalg.LinAlgError:
        return False
    return True


def _raise_not_definite(
    matrices: RealArray, failing: Indices, leading: tuple[int, ...], name: str, fix: str
) -> NoReturn:
    where, count = locate(failing, leading, name, "are not positive definite")
    X = matrices[failing[0]]
    diagonal = np.diagonal(X)
    if (diagonal <= 0).any():
        i = int(np.flatnonzero(diagonal <= 0)[0])
        raise ValueError(
            f"{where} has a diagonal entry {diagonal[i]:.3g} at ({i}, {i}), must be > 0{count}; "
            f"drop constant variables or {fix}"
        )
    d = len(X)
    tolerance = tolerances.positive_definite(d, X.dtype)
    normalized, exponent = normalize(X)
    smallest, largest = np.ldexp(np.linalg.eigvalsh(normalized)[[0, -1]], exponent)
    scaled = np.linalg.eigvalsh(equilibrate(X)[0])
    after = f"{scaled[0]:.3g} after scaling the diagonal to about one"
    if scaled[0] < -tolerance:
        raise ValueError(
            f"{where} is indefinite: smallest eigenvalue {smallest:.3g} ({after}), must be > 0"
            f"{count}; check how it was computed or {fix}"
        )
    rank = min(int((scaled > tolerance).sum()), d - 1)
    remedy = "use more samples than variables"
    if rank == d - 1 and rows_cancel(normalized):
        remedy = CANCELLING
    raise ValueError(
        f"{where} is rank-deficient: numerical rank {rank} of {d}, eigenvalues from {smallest:.3g} "
        f"to {largest:.3g} ({after}){count}; {remedy} or {fix}"
    )


def rows_cancel(matrices: RealArray) -> NDArray[np.bool_]:
    """Whether every row adds up to zero; semi-definite matrices only, shape (..., d, d)."""
    tolerance = _ROUNDINGS * tolerances.positive_definite(matrices.shape[-1], matrices.dtype)
    sums = matrices.sum(axis=(-2, -1))  # zero only if that of every row is
    return np.abs(sums) <= tolerance * np.trace(matrices, axis1=-2, axis2=-1)
