"""The matrices of a cluster, wherever they are, as one that stands for all.

Its divergence to a centre is their weighted mean, and so are its gradients: what finds centroids of
matrices in memory finds those of shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from divlearn.arrays import RealArray
from divlearn.engines import Engine, Prepared, Pullback
from divlearn.means import arithmetic_mean
from divlearn.sharded.blocks import Block
from divlearn.sharded.shards import Parts, Shards

__all__ = ["AverageEngine", "Members", "take_members", "weighted_slopes"]

# Rows of a block in every cluster, with their weights.
Members = Sequence[tuple[NDArray[np.intp], RealArray]]


class AverageEngine(Engine):
    """Divergence of the average matrix of a cluster, and its gradient, by sums over shards.

    Parameters
    ----------
    shards : Shards
    members : parts, of every block (rows, weights) of each cluster, by its number.
    cluster : int
    total : float
        Weight of the cluster.
    """

    name = "average"

    def __init__(self, shards: Shards, members: Parts, cluster: int, total: float) -> None:
        super().__init__(1)
        self._shards, self._members = shards, members
        self._cluster, self._total = cluster, total

    def stand_in(self, alpha: float, beta: float) -> Prepared:
        """Make the average matrix: the mean itself where it has a closed form."""
        matrix = np.eye(self._shards.d)
        if (alpha, beta) in ((0.0, 1.0), (1.0, 0.0)):
            inverse = beta == 0
            sums = self._shards.reduce(_mean_block, self._cluster, inverse, beside=[self._members])
            matrix = np.linalg.inv(sums / self._total) if inverse else sums / self._total
            matrix = 0.5 * (matrix + matrix.T)
        return Prepared(self.name, matrix[None])

    def prepare(self, X: ArrayLike | Prepared) -> Prepared:
        """Return the average matrix as it is."""
        assert isinstance(X, Prepared)
        return X

    def encode(self, data: Any, atoms: Any, alpha: Any, beta: Any, *, out: Any = None) -> RealArray:
        """Mean divergence to each of some centres, shape (1, n_centers)."""
        sums = self._shards.reduce(
            _encode_block, self._cluster, np.asarray(atoms), alpha, beta, beside=[self._members]
        )
        mean: RealArray = sums[None] / self._total
        return mean

    def pullback(
        self, data: Any, atoms: Any, alpha: Any, beta: Any, cotangent: ArrayLike, *,
        parameters: bool = True, values: bool = False,
    ) -> Pullback:  # fmt: skip
        """Gradients of the mean divergence to one centre, times the cotangent."""
        gradient, whitened, divergence = self._shards.reduce(
            _pullback_block, self._cluster, np.asarray(atoms), alpha, beta, beside=[self._members]
        )
        scale = float(np.asarray(cotangent).ravel()[0]) / self._total
        found = np.full((1, 1), divergence / self._total) if values else None
        return Pullback(scale * gradient, scale * whitened, values=found)

    def _none(self, *_: Any) -> NoReturn:
        raise NotImplementedError("averages are asked for nothing else")

    _prepare = _spectra = _encode = _pullback = _none  # type: ignore[assignment]


def weighted_slopes(
    block: Block, members: Members, centers: RealArray, clusters: Any, alpha: float, beta: float
) -> RealArray:
    """Weighted sums of slopes around the centres of some clusters, shape (n_centers, d, d)."""
    sums = np.zeros_like(centers)
    for i, z in enumerate(clusters):
        data, weights = take_members(block, members, z)
        if data is not None:
            back = block.engine.pullback(
                data, centers[i : i + 1], alpha, beta, weights[:, None], parameters=False
            )
            sums[i] = -back.whitened[0]
    return sums


def take_members(block: Block, members: Members, cluster: int) -> tuple[Prepared | None, RealArray]:
    """Matrices of a cluster in a block, if there are any, and their weights."""
    rows, weights = members[cluster]
    if not len(rows):
        return None, weights
    if len(rows) == len(block):
        return block.data, weights
    return block.engine.prepare(Prepared.checked(block.data.matrices[rows])), weights


def _mean_block(block: Block, members: Members, cluster: int, inverse: bool) -> RealArray:
    rows, weights = members[cluster]
    matrices = block.data.matrices[rows]
    return arithmetic_mean(np.linalg.inv(matrices) if inverse else matrices, weights)


def _encode_block(
    block: Block, members: Members, cluster: int, atoms: RealArray, alpha: Any, beta: Any
) -> RealArray:
    data, weights = take_members(block, members, cluster)
    if data is None:
        return np.zeros(len(atoms))
    sums: RealArray = weights @ block.engine.encode(data, atoms, alpha, beta)
    return sums


def _pullback_block(
    block: Block, members: Members, cluster: int, atoms: RealArray, alpha: Any, beta: Any
) -> tuple[RealArray, RealArray, float]:
    data, weights = take_members(block, members, cluster)
    if data is None:
        return np.zeros_like(atoms), np.zeros_like(atoms), 0.0
    back = block.engine.pullback(
        data, atoms, alpha, beta, weights[:, None], parameters=False, values=True
    )
    assert back.values is not None
    return back.atoms, back.whitened, float(weights @ back.values[:, 0])
