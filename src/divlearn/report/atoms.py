"""Sections that show SPD matrices as small pictures."""

from base64 import b64encode
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from divlearn.arrays import RealArray
from divlearn.report.sections import Section

_CELLS = 64  # along a side of a picture; more would be too small to see and too large to send
_LEVELS = 127  # of either sign


def atoms_section(
    title: str, atoms: ArrayLike, uses: ArrayLike, texts: Sequence[str], note: str = ""
) -> Section:
    """Draw SPD matrices as small pictures of their correlations, the most used first.

    The standard deviations appear under the pointer. Of more than 64 rows, averages over blocks are
    drawn. ``uses``, >= 0, are in any unit; ``texts`` stand below the pictures.
    """
    matrices, used = np.asarray(atoms, dtype=np.float64), np.asarray(uses, dtype=np.float64)
    diagonals, size = np.diagonal(matrices, axis1=1, axis2=2), matrices.shape[-1]
    order = np.argsort(-used, kind="stable")
    starts = np.arange(0, size, -(-size // _CELLS)) if size else np.arange(0)
    rows = _group_means(correlations(matrices[order]), starts).swapaxes(1, 2)
    scales = _group_means(np.sqrt(diagonals[order]), starts)
    digits = 10.0 ** (2 - np.floor(np.log10(scales)))  # three significant ones
    content = {
        "size": size, "starts": starts, "pixels": _pack(_group_means(rows, starts)),
        "scales": np.round(scales * digits) / digits, "uses": used[order] / (used.sum() or 1.0),
        "texts": [str(texts[index]) for index in order], "numbers": order,
    }  # fmt: skip
    return Section("atoms", title, content, note)


def correlations(matrices: RealArray) -> RealArray:
    scales = np.sqrt(np.diagonal(matrices, axis1=-2, axis2=-1))
    return matrices / (scales[..., :, None] * scales[..., None, :])


def _group_means(values: RealArray, starts: NDArray[np.intp]) -> RealArray:
    """Means along the last axis of the groups that begin at the given places."""
    if not len(starts):
        return values
    counts = np.diff([*starts, values.shape[-1]])
    return np.add.reduceat(values, starts, axis=-1) / counts


def _pack(values: RealArray) -> str:
    """Upper triangles row by row, from -1 to 1 in bytes from 0 to 254."""
    rows, columns = np.triu_indices(values.shape[-1])
    levels = np.rint(_LEVELS * np.clip(values[:, rows, columns], -1, 1)) + _LEVELS
    return b64encode(levels.astype(np.uint8).tobytes()).decode("ascii")
