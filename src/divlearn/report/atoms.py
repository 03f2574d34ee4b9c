"""Sections that show SPD matrices as small pictures."""

from base64 import b64encode
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from divlearn.arrays import RealArray, as_real
from divlearn.report.sections import Section, check_shape

_CELLS = 64  # along a side of a picture; more would be too small to see and too large to send
_LEVELS = 127  # of either sign


def atoms_section(
    title: str, atoms: ArrayLike, uses: ArrayLike, texts: Sequence[str], note: str = ""
) -> Section:
    r"""Draw SPD matrices as small pictures, the most used first.

    A picture shows correlations :math:`B_{ij} / \sqrt{B_{ii} B_{jj}}`; the standard deviations
    :math:`\sqrt{B_{ii}}` appear under the pointer.

    Parameters
    ----------
    title, note : str
    atoms : array-like, shape (n_atoms, d, d)
        Of more than 64 rows, averages over blocks are drawn.
    uses : array-like, shape (n_atoms,)
        How much each is used, >= 0, in any unit: shares of the sum are shown.
    texts : sequence of str, of length n_atoms, below the pictures.

    Examples
    --------
    >>> section = atoms_section("Atoms", [np.eye(2), 4 * np.eye(2)], [0.25, 0.75], ["Burg", "AIRM"])
    >>> section.content["texts"], section.content["scales"].tolist()
    (['AIRM', 'Burg'], [[2.0, 2.0], [1.0, 1.0]])
    """
    size = np.shape(atoms)[-1] if np.ndim(atoms) else 0
    matrices = check_shape(atoms, "atoms", (None, size, size))
    diagonals = np.diagonal(matrices, axis1=1, axis2=2)
    good = np.isfinite(matrices).all(axis=(1, 2)) & (diagonals > 0).all(axis=1)
    if not good.all():
        raise ValueError(f"atoms[{int(good.argmin())}] must be finite and have a positive diagonal")
    used = as_real(check_shape(uses, "uses", (len(matrices),)), "uses")
    if (used < 0).any():
        raise ValueError(f"uses[{int(used.argmin())}] = {used.min():g} must be >= 0")
    if len(texts) != len(matrices):
        raise ValueError(f"there are {len(texts)} texts for {len(matrices)} atoms")
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
