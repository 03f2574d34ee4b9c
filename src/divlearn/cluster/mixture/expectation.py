"""A mixture, and how much its components have of the matrices, wherever these are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from divlearn.arrays import RealArray, to_host
from divlearn.cluster.clusters import Clusters, Members, Point, nearest_block
from divlearn.likelihood.parameters import FamilyParameters
from divlearn.likelihood.spectra import SpectralSums
from divlearn.sharded.blocks import Block
from divlearn.sharded.shards import Parts, Shards

__all__ = ["Mixture", "Responsibilities", "expect", "nearest", "unit_of"]

_NEGLIGIBLE = 1e-10  # responsibility, times the weight of the matrix
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

    def log_joint(self, block: Block) -> RealArray:
        """Logarithm of weight times density, shape (n_matrices, n_components)."""
        family = self.parameters
        # Components gather their matrices by responsibilities, which the host has to know.
        divergences = to_host(
            block.engine.encode(block.data, self.means, family.alpha, family.beta)
        )
        np.minimum(divergences, _LARGEST_DIVERGENCE, out=divergences)
        with np.errstate(divide="ignore"):  # a component may have no weight
            logarithms: RealArray = np.log(self.weights) - family.log_z
        return logarithms - family.kappa * divergences


class Responsibilities:
    """How much every component has of every matrix.

    Parameters
    ----------
    shards : Shards
    members : parts, `Members` of every block.

    Attributes
    ----------
    weights : ndarray, shape (n_components,)
        Of the components, with a sum of one.
    alive : ndarray of int
        Components that have more than a negligible part of any matrix.
    log_likelihood : float, of all matrices.
    """

    def __init__(self, shards: Shards, members: Parts) -> None:
        totals, own, self.log_likelihood = shards.reduce(_sums_block, beside=[members])
        self.weights = totals / totals.sum()
        self.alive: NDArray[np.intp] = np.flatnonzero(own)
        self._clusters = Clusters(shards, members, own)

    def spectra(self, centers: RealArray) -> SpectralSums:
        """Log-eigenvalues of the matrices of components that are alive, around given centres."""
        return self._clusters.spectra(self.alive, centers[self.alive])

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
        family, means, alive = mixture.parameters, mixture.means.copy(), self.alive
        points = list(zip(family.alpha[alive].tolist(), family.beta[alive].tolist(), strict=True))
        means[alive] = self._clusters.settle(alive, means[alive], points, max_iter, tol[alive])
        return means, self.spectra(means)


def expect(shards: Shards, mixture: Mixture) -> tuple[Responsibilities, float]:
    """Responsibilities times weights of the matrices, and the mean log-likelihood."""
    found = Responsibilities(shards, shards.hold(_expect_block, mixture, unit_of(shards)))
    return found, found.log_likelihood / shards.n_seen


def nearest(shards: Shards, centers: RealArray, point: Point) -> Responsibilities:
    """Give every matrix to its nearest centre."""
    return Responsibilities(shards, shards.hold(_nearest_block, centers, point, unit_of(shards)))


def unit_of(shards: Shards) -> float:
    """Return the mean weight: of weights in this unit only the ratios matter."""
    return shards.total_weight / shards.n_seen


def _expect_block(block: Block, mixture: Mixture, unit: float) -> Members:
    log_joint = mixture.log_joint(block)
    density = logsumexp(log_joint, axis=1)
    weights = block.weights / unit
    table = np.exp(log_joint - density[:, None]) * weights[:, None]
    return _members(table, float(weights @ density))


def _nearest_block(block: Block, centers: RealArray, point: Point, unit: float) -> Members:
    labels = nearest_block(block, centers, *point)[0]
    table = np.zeros((len(block), len(centers)))
    table[np.arange(len(block)), labels] = block.weights / unit
    return _members(table, 0.0)


def _members(table: RealArray, log_likelihood: float) -> Members:
    rows = [np.flatnonzero(column > _NEGLIGIBLE) for column in table.T]
    weights = [table[own, k] for k, own in enumerate(rows)]
    own = np.array([one.sum() for one in weights])
    return Members(rows, weights, (table.sum(axis=0), own, log_likelihood))


def _sums_block(block: Block, members: Members) -> tuple[RealArray, RealArray, float]:
    """Return the sums with and without negligible parts, and the log-likelihood."""
    sums: tuple[RealArray, RealArray, float] = members.sums
    return sums
