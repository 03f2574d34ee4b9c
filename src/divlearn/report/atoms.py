"""Atoms as a section of a page: many small matrices."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from divlearn.arrays import RealArray, as_real
from divlearn.report.section import check_shape

__all__ = ["AtomsSection", "correlations", "deviations"]

_CELLS = 64  # along a side of a picture; finer ones would be too small to see and too large to send
_LEVELS = 127  # of either sign


@dataclass(frozen=True, eq=False)
class AtomsSection:
    r"""SPD matrices as small pictures, the most used first.

    A picture shows correlations :math:`B_{ij} / \sqrt{B_{ii} B_{jj}}`; the standard deviations
    :math:`\sqrt{B_{ii}}` appear where one points at it.

    Attributes
    ----------
    title : str
    atoms : array-like, shape (n_atoms, d, d)
    uses : array-like, shape (n_atoms,)
        How much each is used, >= 0, in any unit: shares of the sum are shown.
    texts : sequence of str, of length n_atoms
        What is written below each, such as its divergence.
    note : str
        What one sees, in plain words.

    Notes
    -----
    Correlations are sent as bytes, in steps of 1/127. Matrices of more than 64 rows are shown
    coarsely: every cell is the mean of a block.

    Examples
    --------
    >>> section = AtomsSection("Atoms", [np.eye(2), 4 * np.eye(2)], [0.25, 0.75], ["Burg", "AIRM"])
    >>> section.content()["texts"], section.content()["scales"].tolist()
    (['AIRM', 'Burg'], [[2.0, 2.0], [1.0, 1.0]])
    """

    template: ClassVar[str] = "atoms.html"
    kind: ClassVar[str] = "atoms"

    title: str
    atoms: ArrayLike
    uses: ArrayLike
    texts: Sequence[str]
    note: str = ""

    def __post_init__(self) -> None:
        size = np.shape(self.atoms)[-1] if np.ndim(self.atoms) else 0
        atoms = check_shape(self.atoms, "atoms", (None, size, size))
        good = np.isfinite(atoms).all(axis=(1, 2)) & (np.einsum("nii->ni", atoms) > 0).all(axis=1)
        if not good.all():
            raise ValueError(
                f"atoms[{int(good.argmin())}] must be finite and have a positive diagonal"
            )
        uses = as_real(check_shape(self.uses, "uses", (len(atoms),)), "uses")
        if (uses < 0).any():
            raise ValueError(f"uses[{int(uses.argmin())}] = {uses.min():g} must be >= 0")
        if len(self.texts) != len(atoms):
            raise ValueError(f"there are {len(self.texts)} texts for {len(atoms)} atoms")

    def content(self) -> dict[str, Any]:
        """Return what the template and the script need, as plain values."""
        uses = np.asarray(self.uses, dtype=np.float64)
        order = np.argsort(-uses, kind="stable")
        atoms = np.asarray(self.atoms, dtype=np.float64)[order]
        scales = deviations(atoms)
        size = atoms.shape[1]
        starts = np.arange(0, size, -(-size // _CELLS)) if size else np.arange(0)
        return {
            "size": size,
            "starts": starts,
            "pixels": _pack(_block_means(correlations(atoms), starts)),
            "scales": _significant(_group_means(scales, starts)),
            "uses": uses[order] / (uses.sum() or 1.0),
            "texts": [str(self.texts[index]) for index in order],
            "numbers": order,
        }


def deviations(matrices: RealArray) -> RealArray:
    """Compute standard deviations of covariance matrices, (..., d, d)."""
    result: RealArray = np.sqrt(np.diagonal(matrices, axis1=-2, axis2=-1))
    return result


def correlations(matrices: RealArray) -> RealArray:
    """Compute correlations of covariance matrices, (..., d, d).

    Examples
    --------
    >>> correlations(np.array([[4.0, 1.0], [1.0, 1.0]]))
    array([[1. , 0.5],
           [0.5, 1. ]])
    """
    scales = deviations(matrices)
    result: RealArray = matrices / (scales[..., :, None] * scales[..., None, :])
    return result


def _group_means(values: RealArray, starts: NDArray[np.intp]) -> RealArray:
    """Means along the last axis of the groups that start at the given places."""
    if not len(starts):
        return values
    counts = np.diff([*starts, values.shape[-1]])
    means: RealArray = np.add.reduceat(values, starts, axis=-1) / counts
    return means


def _block_means(matrices: RealArray, starts: NDArray[np.intp]) -> RealArray:
    rows = _group_means(matrices, starts).swapaxes(1, 2)
    return _group_means(rows, starts)


def _pack(values: RealArray) -> str:
    """Upper triangles row by row, from -1 to 1 in bytes from 0 to 254."""
    rows, columns = np.triu_indices(values.shape[-1])
    levels = np.rint(_LEVELS * np.clip(values[:, rows, columns], -1, 1)) + _LEVELS
    return b64encode(levels.astype(np.uint8).tobytes()).decode("ascii")


def _significant(values: RealArray) -> RealArray:
    """Round to three significant digits."""
    digits = 10.0 ** (2 - np.floor(np.log10(values)))
    rounded: RealArray = np.round(values * digits) / digits
    return rounded
