r"""Positive definite kernels :math:`k(X, Y) = e^{-\gamma D(X, Y)}` of SPD matrices.

- "log-euclidean": :math:`D = \|\log X - \log Y\|_F^2`. A Gaussian in a Euclidean space, and so
  positive definite for every bandwidth :math:`\gamma > 0`.
- "stein": :math:`D = \log\det\frac{X + Y}{2} - \frac12 \log\det XY`. Positive definite for matrices
  of size d exactly for :math:`\gamma \in \{\frac12, 1, \dots, \frac{d - 2}{2}\}` and
  :math:`\gamma \ge \frac{d - 1}{2}` [1]_; other bandwidths are refused.

References
----------
.. [1] S. Sra, "A new metric on the manifold of kernel matrices with application to matrix geometric
   means", NIPS 2012.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances

from divlearn.arrays import RealArray
from divlearn.divergence import get_divergence
from divlearn.engines import Engine, get_engine
from divlearn.kernels.definiteness import theory
from divlearn.log_vectors import from_log_vectors, log_vectors
from divlearn.optim.frames import in_frames, move_frames, usable

__all__ = ["LogEuclideanKernel", "SPDKernel", "SteinKernel", "get_kernel"]

_ACCURACY = 1e-6  # of the smallest eigenvalues of pencils: coding needs no more


class SPDKernel(Protocol):
    """What coding needs of a kernel. Points are atoms in coordinates that suit an optimiser."""

    name: ClassVar[str]

    def prepare(self, matrices: RealArray) -> Any:
        """Do once what depends on the data alone."""

    def divergences(self, data: Any, atoms: RealArray) -> RealArray:
        """D of prepared data and atoms, shape (n_matrices, n_atoms)."""

    def nearest_bandwidth(self, bandwidth: float, d: int) -> float:
        """Find the bandwidth nearest to a given one for which the kernel is positive definite."""

    def check_bandwidth(self, bandwidth: float, d: int) -> None:
        """Raise unless the kernel is positive definite on all matrices of size d."""

    def point(self, atoms: RealArray) -> RealArray:
        """Atoms as a point."""

    def atoms(self, point: RealArray) -> RealArray | None:
        """Atoms of a point; None where they are not positive definite, the step was too long."""

    def move(self, point: RealArray, step: RealArray) -> RealArray:
        """Take a step, of the shape of the point."""

    def gradient(
        self, data: Any, point: RealArray, cotangent: RealArray, between: RealArray
    ) -> RealArray:
        """Gradient in the point of a function of divergences, of which the slopes are given.

        Parameters
        ----------
        data : prepared data
        point : ndarray
        cotangent : ndarray, shape (n_matrices, n_atoms)
        between : ndarray, shape (n_atoms, n_atoms)
            Slopes in the divergences between atoms, symmetric.
        """


class LogEuclideanKernel:
    """A Gaussian of logarithms. Points are vectors of logarithms, shape (n_atoms, d (d + 1) / 2).

    Examples
    --------
    >>> kernel = LogEuclideanKernel()
    >>> X = np.array([np.eye(2), np.e * np.eye(2)])
    >>> kernel.divergences(kernel.prepare(X), X)
    array([[0., 2.],
           [2., 0.]])
    """

    name: ClassVar[str] = "log-euclidean"

    def prepare(self, matrices: RealArray) -> RealArray:
        """Take logarithms. See `SPDKernel.prepare`."""
        return log_vectors(matrices)

    def divergences(self, data: RealArray, atoms: RealArray) -> RealArray:
        """Squared distances of logarithms. See `SPDKernel.divergences`."""
        squares: RealArray = euclidean_distances(data, log_vectors(atoms), squared=True)
        return squares

    def nearest_bandwidth(self, bandwidth: float, d: int) -> float:
        """Every bandwidth will do. See `SPDKernel.nearest_bandwidth`."""
        return bandwidth

    def check_bandwidth(self, bandwidth: float, d: int) -> None:
        """See `SPDKernel.check_bandwidth`."""
        _check_positive(bandwidth)

    def point(self, atoms: RealArray) -> RealArray:
        """See `SPDKernel.point`."""
        return log_vectors(atoms)

    def atoms(self, point: RealArray) -> RealArray | None:
        """See `SPDKernel.atoms`."""
        atoms = from_log_vectors(point)
        return atoms if usable(atoms) else None

    def move(self, point: RealArray, step: RealArray) -> RealArray:
        """See `SPDKernel.move`."""
        return point + step

    def gradient(
        self, data: RealArray, point: RealArray, cotangent: RealArray, between: RealArray
    ) -> RealArray:
        """See `SPDKernel.gradient`."""
        pulls = cotangent.sum(axis=0) + 2 * between.sum(axis=0)
        towards = cotangent.T @ data + 2 * between @ point
        gradient: RealArray = 2 * (pulls[:, None] * point - towards)
        return gradient


class SteinKernel:
    """The Stein kernel. Points are frames of atoms, shape (n_atoms, d, d).

    Parameters
    ----------
    engine : str or Engine, default="auto"

    Examples
    --------
    >>> kernel = SteinKernel()
    >>> X = np.array([np.eye(2), 3 * np.eye(2)])
    >>> kernel.divergences(kernel.prepare(X), X).round(6)
    array([[0.      , 0.287682],
           [0.287682, 0.      ]])
    >>> kernel.nearest_bandwidth(0.8, d=10)
    1.0
    >>> kernel.check_bandwidth(0.8, d=10)
    Traceback (most recent call last):
    ValueError: bandwidth=0.8 must make the Stein kernel positive definite: exp(-s S), S the Stein
    divergence, is for d=10 exactly for s in {1/2, ..., 8/2} or s >= 9/2 (Sra 2012), but here
    s = 0.8; the next larger that is: 1. Pass 1.0, which is the nearest
    """

    name: ClassVar[str] = "stein"

    def __init__(self, engine: str | Engine = "auto") -> None:
        self.engine = get_engine(engine, accuracy=_ACCURACY)
        self._member = get_divergence("stein")

    def prepare(self, matrices: RealArray) -> Any:
        """See `SPDKernel.prepare`."""
        return self.engine.prepare(matrices)

    def divergences(self, data: Any, atoms: RealArray) -> RealArray:
        """See `SPDKernel.divergences`."""
        return self._member.scale * self.engine.encode(
            data, atoms, self._member.alpha, self._member.beta
        )

    def nearest_bandwidth(self, bandwidth: float, d: int) -> float:
        """See `SPDKernel.nearest_bandwidth`."""
        if bandwidth >= (d - 1) / 2:
            return bandwidth
        return max(1, round(2 * bandwidth)) / 2

    def check_bandwidth(self, bandwidth: float, d: int) -> None:
        """See `SPDKernel.check_bandwidth`."""
        _check_positive(bandwidth)
        known = theory((0.5, 0.5), bandwidth * self._member.scale, d)
        if not known.proved:
            raise ValueError(
                f"bandwidth={bandwidth!r} must make the Stein kernel positive definite: "
                f"{known.reason}. Pass {self.nearest_bandwidth(bandwidth, d)}, which is the nearest"
            )

    def point(self, atoms: RealArray) -> RealArray:
        """See `SPDKernel.point`."""
        frames: RealArray = np.linalg.cholesky(atoms)
        return frames

    def atoms(self, point: RealArray) -> RealArray | None:
        """See `SPDKernel.atoms`."""
        atoms = point @ point.mT
        return atoms if usable(atoms) else None

    def move(self, point: RealArray, step: RealArray) -> RealArray:
        """See `SPDKernel.move`."""
        return move_frames(point, step)

    def gradient(
        self, data: Any, point: RealArray, cotangent: RealArray, between: RealArray
    ) -> RealArray:
        """See `SPDKernel.gradient`."""
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


def get_kernel(name: str, engine: str | Engine = "auto") -> SPDKernel:
    """Kernel by name.

    Parameters
    ----------
    name : {"log-euclidean", "stein"}
    engine : str or Engine, default="auto"
        Who computes Stein divergences.

    Examples
    --------
    >>> get_kernel("gaussian")
    Traceback (most recent call last):
    ValueError: kernel='gaussian' must be one of log-euclidean, stein
    """
    if name == LogEuclideanKernel.name:
        return LogEuclideanKernel()
    if name == SteinKernel.name:
        return SteinKernel(engine)
    raise ValueError(
        f"kernel={name!r} must be one of {LogEuclideanKernel.name}, {SteinKernel.name}"
    )


def _check_positive(bandwidth: Any) -> None:
    number = isinstance(bandwidth, float | int | np.floating | np.integer)
    if isinstance(bandwidth, bool) or not number or not 0 < bandwidth < np.inf:
        raise ValueError(f'bandwidth={bandwidth!r} must be "auto" or a finite number > 0')
