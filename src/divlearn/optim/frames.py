r"""SPD matrices as points of a search: :math:`B = A A^T`, with steps in the frame A.

A step S, symmetric, leads to :math:`A e^S A^T`; its length is that of the affine-invariant metric,
and coordinates move along with the point, so that no vector needs to be transported.
"""

from __future__ import annotations

import numpy as np

from divlearn import tolerances
from divlearn.arrays import RealArray
from divlearn.spd import find_not_definite

__all__ = ["in_frames", "move_frames", "usable"]

_MARGIN = 100.0  # times what a matrix needs to be positive definite at all
_LONGEST = 20.0  # of half a step, in units of the metric: further is overflow, not learning


def usable(atoms: RealArray) -> bool:
    """Whether all atoms are positive definite, with some digits to spare.

    Steps that lead elsewhere are too long.
    """
    tolerance = _MARGIN * tolerances.positive_definite(atoms.shape[-1])
    return bool(np.isfinite(atoms).all()) and not find_not_definite(atoms, tolerance).size


def move_frames(frames: RealArray, steps: RealArray) -> RealArray:
    r"""Take steps :math:`A \leftarrow A e^{S/2}`, shape (n, d, d) each."""
    values, vectors = np.linalg.eigh(steps)
    half = vectors * np.exp(np.clip(0.5 * values, -_LONGEST, _LONGEST))[:, None, :]
    moved: RealArray = frames @ (half @ vectors.mT)
    return moved


def in_frames(whitened: RealArray, atoms: RealArray, frames: RealArray) -> RealArray:
    """Gradients in the frames A from those in the frames of Cholesky factors: a rotation."""
    rotation = np.linalg.solve(np.linalg.cholesky(atoms), frames)
    gradient = rotation.mT @ whitened @ rotation
    symmetric: RealArray = 0.5 * (gradient + gradient.mT)
    return symmetric
