"""Kernels of SPD matrices for coding, which `KernelSparseCoding` describes.

Points are atoms in coordinates that suit an optimiser.
"""

from typing import Any

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

from divlearn.arrays import RealArray
from divlearn.checks import check_number
from divlearn.divergence import (
    DIVERGENCES,
    LOG_EUCLIDEAN,
    EmbeddedMetric,
    get_divergence,
    get_member,
)
from divlearn.engines import Engine, get_engine
from divlearn.kernels.definiteness import theory
from divlearn.optim.frames import in_frames, move_frames
from divlearn.spd import usable
from divlearn.tolerances import LEARNING_ACCURACY


class EmbeddedKernel:
    """A Gaussian of vectors. Points are those of atoms, shape (n_atoms, d (d + 1) / 2)."""

    def __init__(self, metric: EmbeddedMetric = LOG_EUCLIDEAN) -> None:
        self._metric = metric

    def prepare(self, matrices: RealArray) -> Any:
        return self._metric.embed(matrices)

    def divergences(self, data: Any, atoms: RealArray) -> RealArray:
        """D of prepared data and atoms, shape (n_matrices, n_atoms)."""
        return euclidean_distances(data, self._metric.embed(atoms), squared=True)

    def nearest_bandwidth(self, bandwidth: float, d: int) -> float:
        return bandwidth

    def check_bandwidth(self, bandwidth: Any, d: int) -> None:
        """Raise unless the kernel is positive definite on all matrices of size d."""
        check_number(bandwidth, "bandwidth", positive=True, word="auto")

    def point(self, atoms: RealArray) -> RealArray:
        return self._metric.embed(atoms)

    def atoms(self, point: RealArray) -> RealArray | None:
        """Atoms of a point; None where they are not positive definite, the step was too long."""
        atoms = self._metric.restore(point)
        return atoms if usable(atoms) else None

    def move(self, point: RealArray, step: RealArray) -> RealArray:
        return point + step

    def gradient(
        self, data: Any, point: RealArray, cotangent: RealArray, between: RealArray
    ) -> RealArray:
        """Gradient in the point, given slopes in divergences to the data and ``between`` atoms."""
        pulls = cotangent.sum(axis=0) + 2 * between.sum(axis=0)
        towards = cotangent.T @ data + 2 * between @ point
        return 2 * (pulls[:, None] * point - towards)


class SteinKernel:
    """The Stein kernel. Points are frames of atoms, shape (n_atoms, d, d)."""

    def __init__(self, engine: str | Engine = "auto") -> None:
        self.engine = get_engine(engine, accuracy=LEARNING_ACCURACY)
        self._member = get_member("stein")

    def prepare(self, matrices: RealArray) -> Any:
        return self.engine.prepare(matrices)

    def divergences(self, data: Any, atoms: RealArray) -> RealArray:
        member = self._member
        return member.scale * self.engine.encode(data, atoms, member.alpha, member.beta)

    def nearest_bandwidth(self, bandwidth: float, d: int) -> float:
        if bandwidth >= (d - 1) / 2:
            return bandwidth
        return max(1, round(2 * bandwidth)) / 2

    def check_bandwidth(self, bandwidth: Any, d: int) -> None:
        check_number(bandwidth, "bandwidth", positive=True, word="auto")
        proved, reason = theory(self._member, bandwidth, d)
        if not proved:
            raise ValueError(
                f"bandwidth={bandwidth!r} must make the Stein kernel positive definite: {reason}. "
                f"Pass {self.nearest_bandwidth(bandwidth, d)}, which is the nearest"
            )

    def point(self, atoms: RealArray) -> RealArray:
        return np.linalg.cholesky(atoms)

    def atoms(self, point: RealArray) -> RealArray | None:
        atoms = point @ point.mT
        return atoms if usable(atoms) else None

    def move(self, point: RealArray, step: RealArray) -> RealArray:
        return move_frames(point, step)

    def gradient(
        self, data: Any, point: RealArray, cotangent: RealArray, between: RealArray
    ) -> RealArray:
        atoms = point @ point.mT
        # D is symmetric: an atom gets the same from either side of a pair.
        whitened = self._pull(data, atoms, cotangent) + self._pull(atoms, atoms, 2 * between)
        return in_frames(whitened, atoms, point)

    def _pull(self, data: Any, atoms: RealArray, cotangent: RealArray) -> RealArray:
        member = self._member
        pulled = self.engine.pullback(
            data, atoms, member.alpha, member.beta, member.scale * cotangent, parameters=False
        )
        return pulled.whitened


SPDKernel = EmbeddedKernel | SteinKernel


def get_kernel(name: str, engine: str | Engine = "auto") -> SPDKernel:
    try:
        known = get_divergence(name)
    except ValueError:
        known = None
    if isinstance(known, EmbeddedMetric):
        return EmbeddedKernel(known)
    if known == get_divergence("stein"):
        return SteinKernel(engine)
    names = [one.name for one in DIVERGENCES.values() if isinstance(one, EmbeddedMetric)]
    raise ValueError(f"kernel={name!r} must be one of {', '.join(names)}, stein")
