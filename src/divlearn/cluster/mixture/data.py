"""A mixture, and what its fit asks of the matrices, wherever they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray, to_host
from divlearn.engines import Engine, Prepared
from divlearn.likelihood.members import Point
from divlearn.likelihood.parameters import FamilyParameters
from divlearn.likelihood.spectra import SpectralSums

__all__ = ["NEGLIGIBLE", "Mixture", "MixtureData", "Responsibilities"]

NEGLIGIBLE = 1e-10  # responsibility, times the weight of the matrix
_LARGEST_DIVERGENCE = 1e280  # divergences may overflow; sums over components must not


@dataclass(frozen=True, eq=False)
class Mixture:
    """Weights, centres and densities around them.

    Attributes
    ----------
    weights : ndarray, shape (n_components,)
    means : ndarray, shape (n_components, d, d)
    parameters : FamilyParameters
    """

    weights: RealArray
    means: RealArray
    parameters: FamilyParameters

    def log_joint(self, engine: Engine, data: Prepared) -> RealArray:
        """Logarithm of weight times density, shape (n_matrices, n_components)."""
        family = self.parameters
        # Components gather their matrices by responsibilities, which the host has to know.
        divergences = to_host(engine.encode(data, self.means, family.alpha, family.beta))
        np.minimum(divergences, _LARGEST_DIVERGENCE, out=divergences)
        with np.errstate(divide="ignore"):  # a component may have no weight
            logarithms: RealArray = np.log(self.weights) - family.log_z
        return logarithms - family.kappa * divergences


class Responsibilities(ABC):
    """How much every component has of every matrix.

    Attributes
    ----------
    weights : ndarray, shape (n_components,)
        Of the components, with a sum of one.
    alive : ndarray of int
        Components that have more than a negligible part of any matrix.
    """

    weights: RealArray
    alive: NDArray[np.intp]

    @abstractmethod
    def spectra(self, centers: RealArray) -> SpectralSums:
        """Log-eigenvalues of the matrices of components that are alive, around given centres."""

    @abstractmethod
    def move(
        self, mixture: Mixture, tol: RealArray, max_iter: int
    ) -> tuple[RealArray, SpectralSums]:
        """Take some steps of the centres that are alive towards their centroids.

        Parameters
        ----------
        mixture : Mixture
        tol : ndarray, shape (n_components,)
            Norms of gradients at which to stop.
        max_iter : int
            Steps, at most.

        Returns
        -------
        means : ndarray, shape (n_components, d, d)
        spectra : SpectralSums, around these.
        """


class MixtureData(ABC):
    """Matrices with weights.

    Attributes
    ----------
    d : int, rows of a matrix.
    total_weight : float
    """

    d: int
    total_weight: float

    @abstractmethod
    def expect(self, mixture: Mixture) -> tuple[Responsibilities, float]:
        """Responsibilities times weights of the matrices, and the mean log-likelihood."""

    @abstractmethod
    def nearest(self, centers: RealArray, point: Point) -> Responsibilities:
        """Give every matrix to its nearest centre."""
