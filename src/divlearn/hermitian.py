r"""Hermitian matrices in their real form: symmetric matrices of twice the size.

Every entry a + ib becomes the block [[a, -b], [b, a]]. Sums, products, inverses, functions and
Cholesky factors of real forms are real forms of those of the matrices. Eigenvalues come twice, so
that traces, log-determinants, squared norms and all divergences are twice as large.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from divlearn import tolerances
from divlearn.arrays import RealArray, array_or_list


def is_complex(X: Any) -> bool:
    """Whether an array or list holds complex numbers; other objects, such as shards, do not."""
    array = array_or_list(X) if isinstance(X, list | tuple) else X
    return getattr(getattr(array, "dtype", None), "kind", "") == "c"


def real_form(X: ArrayLike, name: str = "X", *, always: bool = False) -> ArrayLike:
    """Give complex Hermitian matrices, shape (..., d, d), their real form, (..., 2 d, 2 d).

    Real matrices are returned as they are, unless ``always`` is set.
    """
    if not (always or is_complex(X)):
        return X
    array = np.asarray(X)
    if array.ndim < 2 or array.shape[-1] != array.shape[-2]:
        raise ValueError(
            f"{name} is complex and has shape {array.shape}, must hold square Hermitian matrices, "
            "shape (..., d, d); pass real numbers for anything else"
        )
    _check_hermitian(array, name)
    d = array.shape[-1]
    form = np.empty((*array.shape[:-2], d, 2, d, 2), dtype=array.real.dtype)
    form[..., 0, :, 0] = form[..., 1, :, 1] = array.real
    form[..., 1, :, 0], form[..., 0, :, 1] = array.imag, -array.imag
    return form.reshape(*array.shape[:-2], 2 * d, 2 * d)


def from_real_form(matrices: RealArray) -> RealArray:
    """Complex Hermitian matrices, shape (..., d, d), from their real forms."""
    d = matrices.shape[-1] // 2
    form = matrices.reshape(*matrices.shape[:-2], d, 2, d, 2)
    real = 0.5 * (form[..., 0, :, 0] + form[..., 1, :, 1])
    imaginary = 0.5 * (form[..., 1, :, 0] - form[..., 0, :, 1])
    return real + 1j * imaginary


def _check_hermitian(array: np.ndarray, name: str) -> None:
    root = np.sqrt(np.abs(np.diagonal(array, axis1=-2, axis2=-1)))
    gap = np.abs(array - array.mT.conj())
    tolerance = tolerances.asymmetry(array.real.dtype)
    wrong = np.argwhere(gap > tolerance * root[..., :, None] * root[..., None, :])
    if len(wrong):
        *leading, i, j = wrong[0].tolist()
        where = f"{name}[{', '.join(map(str, leading))}]" if leading else name
        raise ValueError(
            f"{where} is complex but not Hermitian: |x_ij - conj(x_ji)| = "
            f"{gap[tuple(wrong[0])]:.3g} at ({i}, {j}), must be <= {tolerance:.2g} times "
            f"sqrt(x_ii x_jj); if this is noise pass ({name} + {name}.mT.conj()) / 2"
        )
