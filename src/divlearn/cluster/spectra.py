"""Log-eigenvalues around centres, kept beside the matrices, and sums over them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from divlearn.arrays import IntArray, RealArray
from divlearn.engines import Engine, Prepared
from divlearn.likelihood.spectra import Cloud, SpectralSums, as_numbers, sum_cloud
from divlearn.sharded.blocks import Block
from divlearn.sharded.shards import Parts, Shards

__all__ = ["HeldCloud", "HeldSpectra", "hold_cloud"]

# Log-eigenvalues of the matrices of a block around a centre, weights, and the numbers e^t.
HeldCloud = tuple[RealArray, RealArray, Prepared | None]


def hold_cloud(engine: Engine, t: RealArray, weights: RealArray) -> HeldCloud:
    """Prepare log-eigenvalues for many sums; there may be none."""
    return t, weights, as_numbers(engine, t) if len(t) else None


class HeldSpectra(SpectralSums):
    """Log-eigenvalues that stay beside the blocks.

    Parameters
    ----------
    shards : Shards
    clouds : parts, a list of `HeldCloud`, one for each centre
    totals : ndarray, shape (n_centers,), weight around each centre.
    """

    def __init__(self, shards: Shards, clouds: Parts, totals: RealArray) -> None:
        self._shards, self._clouds, self.totals = shards, clouds, totals
        self._chosen = list(range(len(totals)))
        self._thinned: dict[int, list[Cloud]] = {}

    @property
    def d(self) -> int:
        """Rows of a matrix."""
        return self._shards.d

    def only(self, component: int) -> HeldSpectra:
        """Those around one centre."""
        one = HeldSpectra(self._shards, self._clouds, self.totals[component : component + 1])
        one._chosen, one._thinned = [self._chosen[component]], self._thinned
        return one

    def sums(self, alpha: float, beta: float, shift: RealArray) -> RealArray:
        """Sum where the matrices are; see `SpectralSums.sums`."""
        sums = self._shards.reduce(
            _sums_block, self._chosen, alpha, beta, shift, beside=[self._clouds]
        )
        mean: RealArray = sums / self.totals.sum()
        return mean

    def thinned(self, enough: int) -> list[Cloud]:
        """Take every m-th in the order of the blocks; see `SpectralSums.thinned`."""
        if enough not in self._thinned:
            sizes = np.array(self._shards.map(_sizes_block, beside=[self._clouds]))
            ends = sizes.cumsum(axis=0)
            steps = [math.ceil(count / enough) for count in ends[-1]]
            found = self._shards.map(_thin_block, steps, ends - sizes, beside=[self._clouds])
            self._thinned[enough] = [
                (np.concatenate([t for t, _ in one]), np.concatenate([weight for _, weight in one]))
                for one in zip(*found, strict=True)
            ]
        return [self._thinned[enough][i] for i in self._chosen]


def _sums_block(
    block: Block, clouds: Sequence[HeldCloud], chosen: Sequence[int], alpha: float, beta: float,
    shift: RealArray,
) -> RealArray:  # fmt: skip
    engine, sums = block.engine, np.zeros((4, len(chosen)))
    for i, k in enumerate(chosen):
        _, weights, numbers = clouds[k]
        if numbers is not None:
            sums[:, i] = sum_cloud(engine, numbers, weights, alpha, beta, shift[i])
    return sums


def _sizes_block(block: Block, clouds: Sequence[HeldCloud]) -> list[int]:
    return [len(t) for t, _, _ in clouds]


def _thin_block(
    block: Block, clouds: Sequence[HeldCloud], steps: Sequence[int], starts: IntArray
) -> list[Cloud]:
    some = [slice(int(-starts[block.number, k] % m), None, m) for k, m in enumerate(steps)]
    return [(t[rows], weight[rows]) for rows, (t, weight, _) in zip(some, clouds, strict=True)]
