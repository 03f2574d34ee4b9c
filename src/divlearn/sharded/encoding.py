"""Divergences of shards to atoms: left where the shards are, or gathered."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from divlearn.arrays import RealArray
from divlearn.sharded.blocks import Block
from divlearn.sharded.opening import open_shards
from divlearn.sharded.shards import Parts


def encode(
    X: Any, atoms: ArrayLike, alpha: ArrayLike, beta: ArrayLike, *, gather: bool = True,
    **options: Any,
) -> RealArray | Parts:  # fmt: skip
    """Divergence of every matrix in shards to every atom.

    Parameters
    ----------
    X : shards, or what `open_shards` takes
    atoms, alpha, beta : as in `divlearn.engines.Engine.encode`
    gather : bool, default=True
        Whether to bring the divergences here. Else they stay where the shards are, and what is
        returned can be passed as ``beside`` to the methods of the shards.
    **options
        Of `open_shards`.

    Returns
    -------
    ndarray, shape (n_matrices, n_atoms) or (n_matrices, n_atoms, n_pairs); or parts

    Examples
    --------
    >>> X = np.stack([np.eye(2), 2 * np.eye(2), np.eye(2)])
    >>> encode(X, np.eye(2)[None], 0, 0, block_size=2).round(4).ravel()
    array([0.    , 0.4805, 0.    ])
    """
    shards = open_shards(X, **options)
    shared = tuple(map(np.asarray, (atoms, alpha, beta)))
    if not gather:
        return shards.hold(encode_block, *shared)
    return np.concatenate(shards.map(encode_block, *shared))


def encode_block(block: Block, atoms: RealArray, alpha: ArrayLike, beta: ArrayLike) -> RealArray:
    """Divergences of a block."""
    return block.engine.encode(block.data, atoms, alpha, beta)
