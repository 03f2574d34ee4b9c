"""What an SPD matrix is: diagnosis, repair on request, and the functions of `divlearn.geometry`."""

import warnings
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from divlearn import tolerances
from divlearn.arrays import RealArray
from divlearn.geometry import (
    check_symmetric,
    compose,
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

__all__ = [
    "SPDRepairWarning", "check_spd", "expm", "geodesic", "invsqrtm", "logm", "powm", "sqrtm",
]  # fmt: skip

_METHODS = ("raise", "shrink", "jitter", "clip")
_REPAIR_HINT = 'pass regularize="shrink", "jitter" or "clip" to repair it'
# Matrices are factorised in blocks of about this many entries, so that a block stays in cache
# and one bad matrix costs a second look at its own block only.
_BLOCK_ENTRIES = 32768


class SPDRepairWarning(UserWarning):
    """Matrices were changed by ``check_spd(..., regularize=...)``."""


def check_spd(
    X: ArrayLike, *, regularize: str = "raise", dtype: DTypeLike | None = None,
    ndim: int | None = None, name: str = "X",
) -> RealArray:  # fmt: skip
    r"""Validate SPD matrices, and repair those that are not positive definite on request.

    A symmetric :math:`X` is accepted when :math:`S X S - d \epsilon I` has a Cholesky factor,
    where the diagonal :math:`S` holds the powers of two that bring every diagonal entry into
    [1/2, 2). The verdict on a matrix depends neither on its units nor on its batch.

    Parameters
    ----------
    X : array-like of real numbers, shape (..., d, d)
    regularize : {"raise", "shrink", "jitter", "clip"}, default="raise"
        What to do with a matrix that is not positive definite. With the floor
        :math:`\varphi` = `tolerances.repair_floor`, a repair is the smallest that reaches
        :math:`\lambda_{\min} = \varphi \lambda_{\max}`: "shrink" returns
        :math:`(1 - r) X + r \operatorname{tr}(X) / d \, I`, "jitter" :math:`X + \delta I`, and
        "clip" raises the eigenvalues below the floor to it. NaN, infinity and asymmetry are
        never repaired. `SPDRepairWarning` says what was changed.
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
    >>> check_spd([[1.0, 2.0], [2.0, 1.0]])
    Traceback (most recent call last):
    ValueError: X is indefinite: smallest eigenvalue -1 ...
    """
    if regularize not in _METHODS:
        raise ValueError(f"regularize={regularize!r} must be one of {', '.join(_METHODS)}")
    checked = check_symmetric(X, dtype=dtype, ndim=ndim, name=name, graded=True)
    leading, d = checked.shape[:-2], checked.shape[-1]
    matrices = checked.reshape(-1, d, d)
    failing = find_not_definite(matrices, tolerances.positive_definite(d, matrices.dtype))
    if failing.size:
        if regularize == "raise":
            _raise_not_definite(matrices, failing, leading, name)
        matrices[failing], change = _repair(matrices[failing], regularize, failing, leading, name)
        first = ", ".join(map(str, failing[:5])) + (", ..." if failing.size > 5 else "")
        warnings.warn(
            f"{regularize} repaired {failing.size} of {len(matrices)} matrices (flat index "
            f"{first}); largest relative change {change:.3g}", SPDRepairWarning, stacklevel=2,
        )  # fmt: skip
    return checked


def find_not_definite(matrices: RealArray, tolerance: float) -> NDArray[np.intp]:
    """Find matrices with an eigenvalue, once the diagonal is in [1/2, 2), up to a tolerance."""
    d = matrices.shape[-1]
    step = max(1, _BLOCK_ENTRIES // d**2)
    failing: list[int] = []
    for start in range(0, len(matrices), step):
        shifted = equilibrate(matrices[start : start + step])[0]
        shifted[:, range(d), range(d)] -= tolerance
        if not _has_cholesky(shifted):
            failing += [start + i for i, one in enumerate(shifted) if not _has_cholesky(one)]
    return np.array(failing, dtype=np.intp)


def _has_cholesky(X: RealArray) -> bool:
    try:
        np.linalg.cholesky(X)
    except np.linalg.LinAlgError:
        return False
    return True


def _raise_not_definite(
    matrices: RealArray, failing: NDArray[np.intp], leading: tuple[int, ...], name: str
) -> NoReturn:
    where, count = locate(failing, leading, name, "are not positive definite")
    X = matrices[failing[0]]
    diagonal = np.diagonal(X)
    if (diagonal <= 0).any():
        i = int(np.flatnonzero(diagonal <= 0)[0])
        raise ValueError(
            f"{where} has a diagonal entry {diagonal[i]:.3g} at ({i}, {i}), must be > 0{count}; "
            f"drop constant variables or {_REPAIR_HINT}"
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
            f"{count}; check how it was computed or {_REPAIR_HINT}"
        )
    rank = min(int((scaled > tolerance).sum()), d - 1)
    raise ValueError(
        f"{where} is rank-deficient: numerical rank {rank} of {d}, eigenvalues from {smallest:.3g} "
        f"to {largest:.3g} ({after}){count}; use more samples than variables or {_REPAIR_HINT}"
    )


def _repair(
    matrices: RealArray, method: str, indices: NDArray[np.intp], leading: tuple[int, ...], name: str
) -> tuple[RealArray, float]:
    """Return repaired matrices and the largest relative change; float64 inside, whatever comes."""
    X, exponent = normalize(matrices.astype(np.float64))
    eigenvalues, vectors = np.linalg.eigh(X)
    smallest, largest = eigenvalues[:, 0], eigenvalues[:, -1]
    mean = np.trace(X, axis1=-2, axis2=-1) / X.shape[-1]
    hopeless = indices[(mean if method == "shrink" else largest) <= 0]
    if hopeless.size:
        where, count = locate(hopeless, leading, name, "are like that")
        what = "its trace" if method == "shrink" else "its largest eigenvalue"
        raise ValueError(
            f'{where} cannot be repaired by "{method}": {what} is not positive, so there is no '
            f"scale to repair it to{count}; drop it"
        )
    floor = tolerances.repair_floor(matrices.dtype)
    shortfall = floor * largest - smallest
    identity = np.eye(X.shape[-1])
    if method == "shrink":
        weight = (shortfall / (shortfall + (1 - floor) * mean))[:, None, None]
        repaired = (1 - weight) * X + weight * mean[:, None, None] * identity
    elif method == "jitter":
        repaired = X + (shortfall / (1 - floor))[:, None, None] * identity
    else:
        repaired = compose(vectors, np.maximum(eigenvalues, floor * largest[:, None]))
    change = np.linalg.norm(repaired - X, axis=(1, 2)) / np.linalg.norm(X, axis=(1, 2))
    restored = np.ldexp(repaired, exponent[:, None, None])
    return restored.astype(matrices.dtype), float(change.max())
