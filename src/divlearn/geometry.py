r"""Symmetric matrices, functions of them, and the affine-invariant geometry of SPD matrices.

All functions broadcast over leading dimensions. Matrices may be complex Hermitian; results are too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import factorial

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.linalg import solve

from divlearn import tolerances
from divlearn.arrays import Indices, RealArray, check_real, on_device, to_device_of
from divlearn.hermitian import from_real_form, is_complex, real_form

_MAX_LOG = 20.0  # bound of the eigenvalues of half a step, against overflow
_ROUNDING = 1e-17
_MAX_SERIES_NORM = 1.1  # of half a step; the series is short up to it, and steps rarely exceed it


def check_symmetric(
    X: ArrayLike,
    *,
    dtype: DTypeLike | None = None,
    ndim: int | None = None,
    name: str = "X",
    graded: bool = False,
) -> RealArray:
    """Validate finite symmetric matrices: as `check_spd`, but for definiteness."""
    # Asymmetry is measured against the largest entry or, if ``graded``, each pair of entries
    # against the geometric mean of their two diagonal entries.
    array = _as_numeric(X, name)
    _check_shape(array.shape, ndim, name)
    _check_finite(array, name)
    return _average_triangles(_cast(array, dtype, name), name, graded)


def equilibrate(X: RealArray) -> tuple[RealArray, RealArray]:
    """Scale the diagonal into [1/2, 2) by powers of two; also returns the scale."""
    exponent = np.frexp(np.diagonal(X, axis1=-2, axis2=-1))[1] // 2
    scale = np.ldexp(np.ones((), X.dtype), -exponent)
    with np.errstate(over="ignore"):
        scaled = X * scale[..., :, None]
        scaled *= scale[..., None, :]
    # Positive definite matrices lie within these limits, and clipping makes no other one definite.
    return np.clip(scaled, -2, 2, out=scaled), scale


def _as_numeric(X: ArrayLike, name: str) -> NDArray[np.generic]:
    try:
        array = np.asarray(X)
    except ValueError as error:
        raise ValueError(
            f"{name} is ragged: its rows or matrices differ in shape; pass matrices of one size"
        ) from error
    if np.ma.is_masked(X):
        raise ValueError(f"{name} has masked entries; fill them or drop these matrices")
    fix = "; convert it to a float array of shape (n_matrices, d, d) first"
    if array.ndim < 2:  # names of files, or an object that yields matrices
        fix = (
            "; load the matrices first, files with numpy.load, or use an estimator that learns "
            "from shards, such as IDDLClassifier, ABKMeans or ABMixture"
        )
    elif array.dtype.kind == "c":  # as floats, they would lose a part
        fix = "; pass complex matrices to divergences, means and estimators"
    check_real(array, name, fix)
    return array


def _check_shape(shape: tuple[int, ...], ndim: int | None, name: str) -> None:
    if len(shape) < 2 or (ndim is not None and len(shape) != ndim):
        expected = {None: "(..., d, d)", 2: "(d, d)", 3: "(n_matrices, d, d)"}
        layout = expected.get(ndim, f"(..., d, d) with {ndim} dimensions")
        single = ndim is not None and len(shape) == 2
        fix = f"for a single matrix pass {name}[np.newaxis]" if single else "reshape it"
        raise ValueError(f"{name} has shape {shape}, expected {layout}; {fix}")
    if shape[-1] != shape[-2]:
        raise ValueError(
            f"{name} has shape {shape}: its matrices are {shape[-2]} by {shape[-1]}, not square; "
            "compute covariances of the raw data first, with pyriemann.estimation.Covariances"
        )
    if 0 in shape:
        raise ValueError(f"{name} is empty, shape {shape}; pass at least one non-empty matrix")


def locate(failing: Indices, leading: tuple[int, ...], name: str, fault: str) -> tuple[str, str]:
    """Name the first offending matrix and say how many there are (nothing for a lone matrix)."""
    if not leading:
        return name, ""
    index = ", ".join(str(i) for i in np.unravel_index(failing[0], leading))
    return f"{name}[{index}]", f" ({failing.size} of {np.prod(leading)} matrices {fault})"


def _check_finite(array: NDArray[np.generic], name: str) -> None:
    if np.isfinite(array).all():
        return
    for kind, is_kind in (("NaN", np.isnan), ("infinite", np.isinf)):
        bad = is_kind(array).reshape(-1, *array.shape[-2:])
        failing = np.flatnonzero(bad.any(axis=(1, 2)))
        if failing.size:
            where, count = locate(failing, array.shape[:-2], name, f"have {kind} entries")
            row, column = np.argwhere(bad[failing[0]])[0]
            raise ValueError(
                f"{where} has a {kind} entry at ({row}, {column}){count}; "
                "drop these matrices or clean the data they come from"
            )


def _cast(array: NDArray[np.generic], dtype: DTypeLike | None, name: str) -> RealArray:
    small = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    target = np.dtype(dtype if dtype is not None else np.float32 if small else np.float64)
    if target not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"dtype={dtype!r} must be float32 or float64, or None to follow {name}")
    with np.errstate(over="ignore"):
        result: RealArray = array.astype(target, order="C")
    if np.can_cast(array.dtype, target):
        return result
    diagonal = np.eye(array.shape[-1], dtype=bool)
    lost = np.isinf(result) | (diagonal & (result == 0) & (array != 0))
    failing = np.flatnonzero(lost.any(axis=(-2, -1)))
    if failing.size:
        where, count = locate(failing, array.shape[:-2], name, f"do not fit {target}")
        raise ValueError(f"{where} does not fit the range of {target}{count}; rescale {name}")
    return result


def _average_triangles(X: RealArray, name: str, graded: bool) -> RealArray:
    """Average both triangles in place, unless they are equal."""
    if np.array_equal(X, X.mT):
        return X
    matrices = X.reshape(-1, *X.shape[-2:])
    with np.errstate(over="ignore"):
        gap = np.abs(matrices - matrices.mT)
    scale = np.abs(matrices).max(axis=(1, 2), keepdims=True)
    if graded:
        root = np.sqrt(np.abs(np.diagonal(matrices, axis1=1, axis2=2)))
        scale = root[:, :, None] * root[:, None, :]
    tolerance = tolerances.asymmetry(X.dtype)
    excess = gap - tolerance * scale
    failing = np.flatnonzero(excess.max(axis=(1, 2)) > 0)
    if failing.size:
        where, count = locate(failing, X.shape[:-2], name, "are not symmetric")
        first = failing[0]
        row, column = np.unravel_index(excess[first].argmax(), gap[first].shape)
        unit = np.broadcast_to(scale[first], gap[first].shape)[row, column]
        against = "sqrt(x_ii x_jj)" if graded else "the largest entry"
        variable = name.rpartition(": ")[2]  # a name in a file is "file.npz: X"
        raise ValueError(
            f"{where} is not symmetric: |x_ij - x_ji| = {gap[first, row, column]:.3g} at "
            f"({row}, {column}), must be <= {tolerance:.2g} times {against} = {unit:.3g}{count}; "
            f"if this is noise pass ({variable} + {variable}.mT) / 2"
        )
    uneven = gap.any(axis=(1, 2))
    matrices[uneven] = 0.5 * matrices[uneven] + 0.5 * matrices[uneven].mT
    return X


def normalize(X: RealArray) -> tuple[RealArray, NDArray[np.intc]]:
    """Divide by ``2**exponent``, so that the largest entry is about one."""
    exponent = np.frexp(np.abs(X).max(axis=(-2, -1)))[1]
    return np.ldexp(X, -exponent[..., None, None]), exponent


def compose(vectors: RealArray, values: RealArray) -> RealArray:
    """Compute ``V diag(values) V^T``, exactly symmetric."""
    return _symmetric_part((vectors * values[..., None, :]) @ vectors.mT)


def _symmetric_part(M: RealArray) -> RealArray:
    return 0.5 * M + 0.5 * M.mT


def graded_eigh(X: RealArray) -> tuple[RealArray, RealArray]:
    """Eigen-decompose with the largest variables first, for accurate small eigenvalues."""
    order = np.argsort(-np.diagonal(X, axis1=-2, axis2=-1), axis=-1)
    sorted_rows = np.take_along_axis(X, order[..., :, None], axis=-2)
    values, vectors = np.linalg.eigh(np.take_along_axis(sorted_rows, order[..., None, :], axis=-1))
    back = np.argsort(order, axis=-1)
    return values, np.take_along_axis(vectors, back[..., :, None], axis=-2)


def _apply(
    X: ArrayLike, function: Callable[[RealArray], RealArray], name: str, *, positive: bool = True
) -> RealArray:
    if is_complex(X):
        return from_real_form(_apply(real_form(X, name), function, name, positive=positive))
    normalized, exponent = normalize(check_symmetric(X, name=name))
    eigenvalues, vectors = graded_eigh(normalized)
    eigenvalues = np.ldexp(eigenvalues, exponent[..., None])
    failing = np.flatnonzero(eigenvalues[..., 0] <= 0)
    if positive and failing.size:
        where, count = locate(failing, normalized.shape[:-2], name, "are like that")
        smallest = eigenvalues[..., 0].flat[failing[0]]
        raise ValueError(
            f"{where} has the eigenvalue {smallest:.3g}, must be > 0 (and above rounding){count}; "
            "see check_spd for a diagnosis and for repair"
        )
    with np.errstate(over="ignore"):
        values = function(eigenvalues)
    if not np.isfinite(values).all():
        raise ValueError(
            f"the result for {name}, eigenvalues from {eigenvalues.min():.3g} to "
            f"{eigenvalues.max():.3g}, does not fit {values.dtype}; rescale {name}"
        )
    return compose(vectors, values)


def sqrtm(X: ArrayLike, *, name: str = "X") -> RealArray:
    r"""Symmetric square root :math:`X^{1/2}` of SPD matrices, shape (..., d, d).

    Examples
    --------
    >>> sqrtm([[4.0, 0.0], [0.0, 9.0]])
    array([[2., 0.],
           [0., 3.]])
    """
    return _apply(X, np.sqrt, name)


def invsqrtm(X: ArrayLike, *, name: str = "X") -> RealArray:
    r"""Symmetric inverse square root :math:`X^{-1/2}` of SPD matrices, shape (..., d, d).

    Examples
    --------
    >>> invsqrtm([[4.0, 0.0], [0.0, 16.0]])
    array([[0.5 , 0.  ],
           [0.  , 0.25]])
    """
    return _apply(X, lambda eigenvalues: 1 / np.sqrt(eigenvalues), name)


def logm(X: ArrayLike, *, name: str = "X") -> RealArray:
    r"""Symmetric logarithm :math:`\log X` of SPD matrices, shape (..., d, d).

    Examples
    --------
    >>> logm([[1.0, 0.0], [0.0, np.e]])
    array([[0., 0.],
           [0., 1.]])
    """
    return _apply(X, np.log, name)


def expm(X: ArrayLike, *, name: str = "X") -> RealArray:
    r"""Exponential :math:`\exp X` of symmetric matrices of any sign, shape (..., d, d).

    Examples
    --------
    >>> expm([[0.0, 0.0], [0.0, -1.0]]).round(4)
    array([[1.    , 0.    ],
           [0.    , 0.3679]])
    """
    return _apply(X, np.exp, name, positive=False)


def powm(X: ArrayLike, p: ArrayLike, *, name: str = "X") -> RealArray:
    r"""Real power :math:`X^p` of SPD matrices, shape (..., d, d); ``p`` broadcasts over (...).

    Examples
    --------
    >>> powm([[4.0, 0.0], [0.0, 9.0]], 1.5)
    array([[ 8.,  0.],
           [ 0., 27.]])
    """
    power = np.asarray(p)[..., None]
    return _apply(X, lambda eigenvalues: eigenvalues ** power.astype(eigenvalues.dtype), name)


def solve_definite(A: RealArray, B: RealArray) -> RealArray:
    """Solve A X = B for a positive definite A, on the host or on a device."""
    if on_device(A):
        return np.linalg.solve(A, B)
    return solve(A, B, assume_a="pos", check_finite=False)


@lru_cache(maxsize=16)  # it takes longer than logarithms of one matrix
def _upper_triangle(d: int) -> tuple[Indices, Indices]:
    return np.triu_indices(d)


def vectorize(S: RealArray) -> RealArray:
    r"""Upper triangles of symmetric matrices as rows, with :math:`\sqrt 2` off the diagonal."""
    rows, columns = _upper_triangle(S.shape[-1])
    return S[..., rows, columns] * to_device_of(np.where(rows == columns, 1, np.sqrt(2)), S)


def unvectorize(vectors: RealArray) -> RealArray:
    """Symmetric matrices, shape (n, d, d), from rows of `vectorize`."""
    d = int(np.sqrt(2 * vectors.shape[1]))
    rows, columns = _upper_triangle(d)
    entries = vectors * to_device_of(np.where(rows == columns, 1, np.sqrt(0.5)), vectors)
    matrices = np.zeros((len(vectors), d, d), like=vectors)
    matrices[:, rows, columns] = entries
    matrices[:, columns, rows] = entries
    return matrices


def geodesic(start: ArrayLike, end: ArrayLike, fraction: ArrayLike) -> RealArray:
    r"""Point at ``fraction`` of the way from ``start`` to ``end``; broadcasts over (...).

    .. math:: P^{1/2} (P^{-1/2} Q P^{-1/2})^t P^{1/2} = L (L^{-1} Q L^{-T})^t L^T

    Any :math:`L L^T = P` gives the same; the Cholesky factor suits graded matrices best.

    Examples
    --------
    >>> geodesic(np.eye(2), np.diag([4.0, 9.0]), 0.5)
    array([[2., 0.],
           [0., 3.]])
    """
    if is_complex(start) or is_complex(end):
        start, end = real_form(start, "start", always=True), real_form(end, "end", always=True)
        return from_real_form(geodesic(start, end, fraction))
    base, scale = equilibrate(check_symmetric(start, name="start"))
    try:
        factor = np.linalg.cholesky(base)
    except np.linalg.LinAlgError as error:
        raise ValueError(
            "start is not positive definite; see check_spd for a diagnosis and for repair"
        ) from error
    target, d = check_symmetric(end, name="end"), scale.shape[-1]
    if target.shape[-1] != d:
        raise ValueError(f"end has shape {target.shape}, must have d={d} like the base point")
    # Coordinates in which ``start`` is the identity. The powers of two in ``scale`` make the factor
    # independent of the units of the variables.
    half = np.linalg.solve(factor, target * scale[..., :, None] * scale[..., None, :])
    whitened = _symmetric_part(np.linalg.solve(factor, half.mT))
    moved = _symmetric_part(factor @ powm(whitened, fraction, name="end") @ factor.mT)
    return moved / scale[..., :, None] / scale[..., None, :]


# --- frames ---------------------------------------------------------------------------------------

# A search moves SPD matrices B = A A^T in their frames A. A step S, symmetric, leads to A e^S A^T;
# its length is that of the affine-invariant metric, and coordinates move along with the point, so
# that no vector needs to be transported.


def move_frames(frames: RealArray, steps: RealArray) -> RealArray:
    r"""Take steps :math:`A \leftarrow A e^{S/2}`, shape (n, d, d) each."""
    half = 0.5 * steps
    longest = float(np.linalg.norm(half, axis=(1, 2)).max())
    if longest <= _MAX_SERIES_NORM:
        factor = _exponential_series(half, longest)
    else:
        values, vectors = np.linalg.eigh(half)
        factor = (vectors * np.exp(np.clip(values, -_MAX_LOG, _MAX_LOG))[:, None, :]) @ vectors.mT
    return frames @ factor


def _exponential_series(X: RealArray, norm: float) -> RealArray:
    """Sum X^k / k! up to rounding, for matrices of at most this norm."""
    # Paterson and Stockmeyer's scheme in groups of four powers, sum_j X^4j (c_4j + c_4j+1 X +
    # c_4j+2 X^2 + c_4j+3 X^3), needs few products; eigenvectors cost as much as fifty.
    groups = 1
    while norm ** (4 * groups) > _ROUNDING * factorial(4 * groups):
        groups += 1
    coefficients = np.array([[1 / factorial(4 * j + i) for i in (1, 2, 3)] for j in range(groups)])
    square = X @ X
    powers = np.stack([X, square, square @ X])
    sums = (to_device_of(coefficients, X) @ powers.reshape(3, -1)).reshape(groups, *X.shape)
    for part in range(groups):  # the identity, on diagonals
        sums[part].reshape(len(X), -1)[:, :: X.shape[-1] + 1] += 1 / factorial(4 * part)
    total: RealArray = sums[-1]
    if groups > 1:
        fourth = square @ square
        for part in range(groups - 2, -1, -1):
            total = total @ fourth + sums[part]
    return total


def in_frames(whitened: RealArray, atoms: RealArray, frames: RealArray) -> RealArray:
    """Gradients in the frames A from those in the frames of Cholesky factors: a rotation."""
    rotation = np.linalg.solve(np.linalg.cholesky(atoms), frames)
    gradient = rotation.mT @ whitened @ rotation
    return 0.5 * (gradient + gradient.mT)
