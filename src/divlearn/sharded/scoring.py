"""Scores of data in shards, which hold what is to be predicted."""

from typing import Any

import numpy as np

from divlearn.arrays import RealArray
from divlearn.sharded.blocks import Block, targets_block
from divlearn.sharded.opening import is_sharded, open_shards
from divlearn.sharded.shards import Shards


class ScoreMixin:
    """`score` of classifiers and regressors that predict matrices in shards, too."""

    engine: Any

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Compute the mean accuracy, or the coefficient of determination of numbers.

        Parameters
        ----------
        X : array-like, shape (n_matrices, d, d), or shards
        y : array-like, shape (n_matrices,), or None for shards that hold it
        sample_weight : array-like, shape (n_matrices,), optional
            Those that shards hold, by default.

        Returns
        -------
        float
        """
        if is_sharded(X, self.engine):
            if not isinstance(X, Shards):
                X, y, sample_weight = (
                    open_shards(X, y, sample_weight, engine=self.engine), None, None,
                )  # fmt: skip
            y = np.concatenate(X.map(targets_block)) if y is None else y
            sample_weight = gather_weights(X) if sample_weight is None else sample_weight
        return super().score(X, y, sample_weight)  # type: ignore[misc]


def gather_weights(shards: Shards) -> RealArray:
    """Bring the weights of all matrices here."""
    return np.concatenate(shards.map(_weights_block))


def _weights_block(block: Block) -> RealArray:
    return block.weights
