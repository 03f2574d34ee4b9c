"""Matrices in memory, as mixtures are fitted to them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.special import logsumexp

from divlearn.arrays import RealArray, to_host
from divlearn.cluster.mixture.data import NEGLIGIBLE, Mixture, MixtureData, Responsibilities
from divlearn.cluster.samples import Samples
from divlearn.engines import Prepared
from divlearn.likelihood.members import Point
from divlearn.likelihood.spectra import Spectra
from divlearn.means import mean_abld

__all__ = ["SampleData"]


class SampleData(MixtureData):
    """Samples.

    Parameters
    ----------
    samples : Samples
    """

    def __init__(self, samples: Samples) -> None:
        self._samples = samples
        self.d, self.total_weight = samples.d, samples.total_weight

    def expect(self, mixture: Mixture) -> tuple[Responsibilities, float]:
        """Weigh components block by block; see `MixtureData.expect`."""
        samples, parts, total, start = self._samples, [], 0.0, 0
        for block in samples.blocks:
            log_joint = mixture.log_joint(samples.engine, block)
            density = logsumexp(log_joint, axis=1)
            weights = samples.weights[start : start + len(density)]
            parts.append(np.exp(log_joint - density[:, None]) * weights[:, None])
            total += float(weights @ density)
            start += len(density)
        return _Table(samples, np.concatenate(parts)), total / self.total_weight

    def nearest(self, centers: RealArray, point: Point) -> Responsibilities:
        """Assign all; see `MixtureData.nearest`."""
        labels = self._samples.assign(centers, *point).labels
        table = np.zeros((len(labels), len(centers)))
        table[np.arange(len(labels)), labels] = self._samples.weights
        return _Table(self._samples, table)


class _Table(Responsibilities):
    def __init__(self, samples: Samples, table: RealArray) -> None:
        self._samples, self._table = samples, table
        counts = table.sum(axis=0)
        self.weights = counts / counts.sum()
        self.alive = np.flatnonzero(table.max(axis=0) > NEGLIGIBLE)

    def spectra(self, centers: RealArray) -> Spectra:
        clouds = [self._cloud(own, centers[k], weight) for k, own, weight in self._members()]
        return Spectra(self._samples.engine, clouds)

    def move(self, mixture: Mixture, tol: RealArray, max_iter: int) -> tuple[RealArray, Spectra]:
        family, engine = mixture.parameters, self._samples.engine
        means, clouds = mixture.means.copy(), []
        for k, own, weight in self._members():
            means[k] = mean_abld(
                own, family.alpha[k], family.beta[k], weight, means[k],
                tol=tol[k], max_iter=max_iter, engine=engine,
            ).mean  # fmt: skip
            clouds.append(self._cloud(own, means[k], weight))
        return means, Spectra(engine, clouds)

    def _members(self) -> Iterator[tuple[int, Prepared, RealArray]]:
        """Yield components, their matrices and the weights of these."""
        for k in self.alive.tolist():
            rows = np.flatnonzero(self._table[:, k] > NEGLIGIBLE)
            yield k, self._samples.take(rows), self._table[rows, k]

    def _cloud(
        self, own: Prepared, center: RealArray, weight: RealArray
    ) -> tuple[RealArray, RealArray]:
        return to_host(self._samples.engine.spectra(own, center[None]))[:, 0], weight
