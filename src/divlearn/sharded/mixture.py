"""Mixtures on shards: responsibilities and log-eigenvalues stay beside the matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from divlearn.arrays import IntArray, RealArray
from divlearn.cluster.mixture.data import NEGLIGIBLE, Mixture, MixtureData, Responsibilities
from divlearn.cluster.samples import Samples
from divlearn.engines import cpu_engine
from divlearn.likelihood.members import Point
from divlearn.likelihood.spectra import Cloud, SpectralSums, as_numbers, sum_cloud
from divlearn.means import arithmetic_mean, search_mean
from divlearn.sharded.averages import Members, take_members
from divlearn.sharded.blocks import Block
from divlearn.sharded.lloyd import assign_block
from divlearn.sharded.shards import SAMPLE, Parts, Shards, add

__all__ = ["ShardedData", "say_block", "sum_block"]

_CLOSED = {(0.0, 1.0): False, (1.0, 0.0): True}  # centroids that are means of X or of its inverse


class ShardedData(MixtureData):
    """Matrices in shards, with weights of mean one.

    Parameters
    ----------
    shards : Shards

    Attributes
    ----------
    n_seen : int, matrices with a weight.
    """

    def __init__(self, shards: Shards) -> None:
        self._shards = shards
        self.d, self.n_seen = shards.d, shards.n_seen
        self.total_weight = float(self.n_seen)
        self._unit = shards.total_weight / self.n_seen if self.n_seen else 1.0

    def sample(self, n_components: int) -> Samples:
        """Draw matrices to start from: all, where there are few."""
        X, _, weights = self._shards.sample(max(SAMPLE, 3 * n_components), 0)
        return Samples.prepare(cpu_engine(), X, weights / self._unit, n_components)

    def expect(self, mixture: Mixture) -> tuple[Responsibilities, float]:
        """Weigh components where the matrices are; see `MixtureData.expect`."""
        found = _Shares(self._shards, self._shards.hold(_expect_block, mixture, self._unit))
        return found, found.log_likelihood / self.total_weight

    def nearest(self, centers: RealArray, point: Point) -> Responsibilities:
        """Assign where the matrices are; see `MixtureData.nearest`."""
        return _Shares(self._shards, self._shards.hold(_nearest_block, centers, point, self._unit))


class _Part(NamedTuple):
    """What components have of the matrices of a block."""

    members: Members
    totals: RealArray  # negligible parts included
    log_likelihood: float


class _Shares(Responsibilities):
    """Responsibilities beside the blocks; what is known of them here are sums."""

    def __init__(self, shards: Shards, parts: Parts) -> None:
        self._shards, self._parts = shards, parts
        sums = shards.reduce(_sums_block, beside=[parts], merge=_merge_sums)
        totals, self._totals, self.log_likelihood, self._sizes = sums
        self.weights = totals / totals.sum()
        self.alive = np.flatnonzero(self._sizes.sum(axis=0))

    def spectra(self, centers: RealArray) -> SpectralSums:
        alive = self.alive
        clouds = self._shards.hold(
            _clouds_block, centers[alive], alive.tolist(), beside=[self._parts]
        )
        sizes = self._sizes[:, alive]
        return _Spectra(_Clouds(self._shards, clouds, sizes), self._totals[alive])

    def move(
        self, mixture: Mixture, tol: RealArray, max_iter: int
    ) -> tuple[RealArray, SpectralSums]:
        family, means = mixture.parameters, mixture.means.copy()
        points = list(zip(family.alpha.tolist(), family.beta.tolist(), strict=True))
        closed = [k for k in self.alive.tolist() if points[k] in _CLOSED]
        if closed:
            means[closed] = self._closed(closed, [_CLOSED[points[k]] for k in closed])
        searches = {
            k: search_mean(points[k][0], points[k][1], means[k], tol[k], max_iter)
            for k in self.alive.tolist()
            if k not in closed
        }
        trials = {k: next(search) for k, search in searches.items()}
        while trials:  # all components take their steps together: a pass is for all of them
            asked = list(trials)
            values, slopes = self._shards.reduce(
                _slopes_block, asked, np.stack(list(trials.values())), [points[k] for k in asked],
                beside=[self._parts],
            )  # fmt: skip
            for k, value, slope in zip(asked, values, slopes, strict=True):
                total = self._totals[k]
                try:
                    trials[k] = searches[k].send((float(value / total), slope / total))
                except StopIteration as end:
                    means[k] = end.value.mean
                    del trials[k]
        return means, self.spectra(means)

    def _closed(self, components: list[int], inverse: list[bool]) -> RealArray:
        """Arithmetic or harmonic means."""
        sums = self._shards.reduce(_means_block, components, inverse, beside=[self._parts])
        means: RealArray = sums / self._totals[components, None, None]
        means[inverse] = np.linalg.inv(means[inverse])
        return 0.5 * (means + means.mT)


class _Clouds:
    """Log-eigenvalues that stay beside the blocks.

    Parameters
    ----------
    shards : Shards
    parts : parts, a list of clouds, one for each centre
    sizes : ndarray of int, shape (n_blocks, n_centers)
    """

    def __init__(self, shards: Shards, parts: Parts, sizes: IntArray) -> None:
        self.shards, self.parts, self.sizes = shards, parts, sizes
        self._thinned: dict[int, list[Cloud]] = {}

    def thin(self, enough: int) -> list[Cloud]:
        """Every m-th matrix around each centre, in the order of the blocks."""
        if enough not in self._thinned:
            ends = self.sizes.cumsum(axis=0)
            steps = [math.ceil(count / enough) for count in ends[-1]]
            found = self.shards.map(_thin_block, steps, ends - self.sizes, beside=[self.parts])
            self._thinned[enough] = [
                (np.concatenate([t for t, _ in one]), np.concatenate([weight for _, weight in one]))
                for one in zip(*found, strict=True)
            ]
        return self._thinned[enough]


class _Spectra(SpectralSums):
    """Those around some of the centres."""

    def __init__(
        self, clouds: _Clouds, totals: RealArray, chosen: Sequence[int] | None = None
    ) -> None:
        self._clouds, self.totals = clouds, totals
        self._chosen = list(range(len(totals))) if chosen is None else list(chosen)

    @property
    def d(self) -> int:
        return self._clouds.shards.d

    def only(self, component: int) -> SpectralSums:
        some = slice(component, component + 1)
        return _Spectra(self._clouds, self.totals[some], self._chosen[some])

    def sums(self, alpha: float, beta: float, shift: RealArray) -> RealArray:
        sums = self._clouds.shards.reduce(
            _spectral_sums_block, self._chosen, alpha, beta, shift, beside=[self._clouds.parts]
        )
        mean: RealArray = sums / self.totals.sum()
        return mean

    def thinned(self, enough: int) -> list[Cloud]:
        clouds = self._clouds.thin(enough)
        return [clouds[i] for i in self._chosen]


# ---------------------------------------------------------------------- what is done with a block


def say_block(block: Block, mixture: Mixture, say: Callable[[RealArray], Any]) -> Any:
    """Say something of the logarithms of weights times densities."""
    return say(mixture.log_joint(block.engine, block.data))


def sum_block(block: Block, mixture: Mixture) -> float:
    """Sum of the log-densities, whatever the weights."""
    return float(logsumexp(mixture.log_joint(block.engine, block.data), axis=1).sum())


def _expect_block(block: Block, mixture: Mixture, unit: float) -> _Part:
    log_joint = mixture.log_joint(block.engine, block.data)
    density = logsumexp(log_joint, axis=1)
    weights = block.weights / unit
    table = np.exp(log_joint - density[:, None]) * weights[:, None]
    return _part(table, float(weights @ density))


def _nearest_block(block: Block, centers: RealArray, point: Point, unit: float) -> _Part:
    labels, _ = assign_block(block, centers, *point)
    table = np.zeros((len(block), len(centers)))
    table[np.arange(len(block)), labels] = block.weights / unit
    return _part(table, 0.0)


def _part(table: RealArray, log_likelihood: float) -> _Part:
    rows = [np.flatnonzero(column > NEGLIGIBLE) for column in table.T]
    members = [(own, table[own, k]) for k, own in enumerate(rows)]
    return _Part(members, table.sum(axis=0), log_likelihood)


_Sums = tuple[RealArray, RealArray, float, NDArray[np.intp]]


def _sums_block(block: Block, part: _Part) -> _Sums:
    """Sum with and without negligible parts; log-likelihood, and rows of every component."""
    weights = [weights for _, weights in part.members]
    own = np.array([one.sum() for one in weights])
    return part.totals, own, part.log_likelihood, np.array([[len(one) for one in weights]])


def _merge_sums(first: _Sums, second: _Sums) -> _Sums:
    return *add(first[:3], second[:3]), np.concatenate([first[3], second[3]])


def _means_block(
    block: Block, part: _Part, components: list[int], inverse: list[bool]
) -> RealArray:
    sums = np.zeros((len(components), block.data.d, block.data.d))
    for i, k in enumerate(components):
        rows, weights = part.members[k]
        matrices = block.data.matrices[rows]
        sums[i] = arithmetic_mean(np.linalg.inv(matrices) if inverse[i] else matrices, weights)
    return sums


def _slopes_block(
    block: Block, part: _Part, components: list[int], centers: RealArray, points: list[Point]
) -> tuple[RealArray, RealArray]:
    """Weighted sums of divergences to centres, and of the slopes around them."""
    values, slopes = np.zeros(len(components)), np.zeros_like(centers)
    for i, k in enumerate(components):
        data, weights = take_members(block, part.members, k)
        if data is None:
            continue
        back = block.engine.pullback(
            data, centers[i : i + 1], *points[i], weights[:, None], parameters=False, values=True
        )
        assert back.values is not None
        values[i], slopes[i] = weights @ back.values[:, 0], -back.whitened[0]
    return values, slopes


def _clouds_block(
    block: Block, part: _Part, centers: RealArray, components: list[int]
) -> list[Cloud]:
    clouds = []
    for center, k in zip(centers, components, strict=True):
        data, weights = take_members(block, part.members, k)
        none = np.empty((0, block.data.d))
        t = none if data is None else block.engine.spectra(data, center[None])[:, 0]
        clouds.append((t, weights))
    return clouds


def _thin_block(
    block: Block, clouds: list[Cloud], steps: list[int], starts: IntArray
) -> list[Cloud]:
    some = [slice(int(-starts[block.number, k] % m), None, m) for k, m in enumerate(steps)]
    return [(t[rows], weight[rows]) for rows, (t, weight) in zip(some, clouds, strict=True)]


def _spectral_sums_block(
    block: Block, clouds: list[Cloud], chosen: list[int], alpha: float, beta: float,
    shift: RealArray,
) -> RealArray:  # fmt: skip
    engine, sums = block.engine, np.zeros((4, len(chosen)))
    for i, k in enumerate(chosen):
        t, weight = clouds[k]
        if len(t):
            numbers = as_numbers(engine, t)
            sums[:, i] = sum_cloud(engine, numbers, weight, alpha, beta, shift[i])
    return sums
