r"""SPD matrices as points of a search: :math:`B = A A^T`, with steps in the frame A.

A step S, symmetric, leads to :math:`A e^S A^T`; its length is that of the affine-invariant metric,
and coordinates move along with the point, so that no vector needs to be transported.
"""

from math import factorial

import numpy as np

from divlearn.arrays import RealArray, to_device_of

_LONGEST = 20.0  # of half a step, in units of the metric: further is overflow, not learning
_ROUNDING = 1e-17
_SERIES = 1.1  # of half a step: up to here, which is as far as searches go, series are short


def move_frames(frames: RealArray, steps: RealArray) -> RealArray:
    r"""Take steps :math:`A \leftarrow A e^{S/2}`, shape (n, d, d) each."""
    half = 0.5 * steps
    longest = float(np.linalg.norm(half, axis=(1, 2)).max())
    if longest <= _SERIES:
        factor = _exponential_series(half, longest)
    else:
        values, vectors = np.linalg.eigh(half)
        factor = (vectors * np.exp(np.clip(values, -_LONGEST, _LONGEST))[:, None, :]) @ vectors.mT
    return frames @ factor


def _exponential_series(X: RealArray, norm: float) -> RealArray:
    """Sum X^k / k! up to rounding, for matrices of at most some norm."""
    # Powers come in fours, sum_j X^4j (c_4j + c_4j+1 X + c_4j+2 X^2 + c_4j+3 X^3), as Paterson and
    # Stockmeyer have them: a few products, where eigenvectors take as long as fifty.
    groups = 1
    while norm ** (4 * groups) > _ROUNDING * factorial(4 * groups):
        groups += 1
    rest = np.array([[1 / factorial(4 * j + i) for i in (1, 2, 3)] for j in range(groups)])
    square = X @ X
    powers = np.stack([X, square, square @ X])
    sums = (to_device_of(rest, X) @ powers.reshape(3, -1)).reshape(groups, *X.shape)
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
