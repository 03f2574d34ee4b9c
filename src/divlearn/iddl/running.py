"""Averages over a stream: what features are standardised by, and how the latest did."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from divlearn.arrays import RealArray
from divlearn.iddl.features import FeatureMap, Features
from divlearn.iddl.stochastic import Spread
from divlearn.iddl.training import Model

__all__ = ["Recent", "Running", "Standing"]

_RECENT = 1000  # matrices: enough for a temperature


@dataclass(frozen=True, eq=False)
class Running:
    """Mean and covariance, over a stream, of what a head sees before it is standardised."""

    mean: RealArray
    covariance: RealArray

    @classmethod
    def of(cls, rows: RealArray, weights: RealArray) -> Self:
        """Mean and covariance of rows; the weights have sum one."""
        mean = weights @ rows
        centred = rows - mean
        return cls(mean, centred.T @ (weights[:, None] * centred))

    @classmethod
    def guess(cls, design: RealArray, weights: RealArray, model: Model) -> Self:
        """Guess what a model has seen from what its head sees of a batch.

        Deviations are those of the model. A batch of fewer matrices than features says little of
        their correlations: the fewer, the more features are held for uncorrelated. Else the head
        would take long steps in directions that are missing from the batch alone.
        """
        found = cls.of(design, weights)
        n, size = design.shape
        standardized = model.feature_map.standardize
        level = 1.0 if standardized else float((weights @ design**2).mean())
        covariance = (n * found.covariance + size * level * np.eye(size)) / (n + size)
        mean, ratio = found.mean, np.ones(size)
        if standardized:
            known = slice(len(model.features.mean))
            mean[known] = model.features.mean
            ratio[known] = model.features.scale / np.sqrt(np.diagonal(covariance)[known])
        return cls(mean, covariance * np.outer(ratio, ratio))

    def learn(self, rows: RealArray, weights: RealArray, gain: float) -> Self:
        """Mean and covariance once rows make up a share of what was seen."""
        new = self.of(rows, weights)
        way = new.mean - self.mean
        within = (1 - gain) * self.covariance + gain * new.covariance
        return type(self)(self.mean + gain * way, within + gain * (1 - gain) * np.outer(way, way))

    def features(self, feature_map: FeatureMap, size: int) -> Features:
        """Standardisation of the first columns, the divergences; there are no samples in it."""
        mean, deviation = self.mean[:size], np.sqrt(np.diagonal(self.covariance)[:size])
        pair = np.stack([mean - deviation, mean + deviation])  # has this mean and this deviation
        found = FeatureMap(None, feature_map.standardize).compute(pair, np.full(2, 0.5))
        return replace(found, values=found.values[:0].copy())

    def spread(self, features: Features, *, centre: bool) -> Spread:
        """Spread of what the head sees: standardised features, and what stands beside them."""
        mean, scale = self.mean.copy(), np.ones(len(self.mean))
        size = len(features.mean)
        mean[:size] = (mean[:size] - features.mean) / features.scale
        scale[:size] = features.scale
        covariance = self.covariance / np.outer(scale, scale)
        if not centre:
            covariance, mean = covariance + np.outer(mean, mean), np.zeros_like(mean)
        values, vectors = np.linalg.eigh(covariance)
        return Spread(mean, np.maximum(values, 0), vectors)


@dataclass(frozen=True, eq=False)
class Standing(FeatureMap):
    r"""A feature map that standardises by what a stream has shown, so that one matrix is enough.

    Mean and deviation follow the divergences all the same, and gradients go through them: that in
    the features, :math:`c_{ij}`, is less by
    :math:`w_i (\sum_k c_{kj} + z_{ij} \sum_k c_{kj} z_{kj})`. Over a whole stream and at the best
    head, the sums are 0 and :math:`-2 \gamma \|W_j\|^2`.

    Attributes
    ----------
    known : Features
    push : ndarray, shape (n_features,), the :math:`2 \gamma \|W_j\|^2`.
    """

    known: Features | None = None
    push: RealArray | float = 0.0

    def compute(self, V: RealArray, weights: RealArray, known: Features | None = None) -> Features:
        """Features of divergences. See `FeatureMap.compute`."""
        return super().compute(V, weights, known or self.known)

    def pull(
        self, V: RealArray, features: Features, weights: RealArray, cotangent: RealArray,
        sums: tuple[RealArray, RealArray] | None = None,
    ) -> RealArray:  # fmt: skip
        """Gradient in V from that in the features. See `FeatureMap.pull`."""
        if self.standardize:
            cotangent = cotangent + weights[:, None] * self.push * features.values
        return FeatureMap(self.offset, False).pull(V, features, weights, cotangent)


@dataclass(frozen=True, eq=False)
class Recent:
    """The latest matrices, with the scores they had before they were learned from.

    Attributes
    ----------
    scores, targets : ndarray, shape (n_matrices, n_outputs)
    weights : ndarray, shape (n_matrices,)
    unseen : bool, false for a first batch: the head it starts with has seen it.
    """

    scores: RealArray
    targets: RealArray
    weights: RealArray
    unseen: bool

    @classmethod
    def none(cls, n_outputs: int, *, unseen: bool) -> Self:
        """Nothing yet."""
        return cls(np.zeros((0, n_outputs)), np.zeros((0, n_outputs)), np.zeros(0), unseen)

    def add(self, following: Recent) -> Recent:
        """Add what follows, and let the oldest go, and what was seen."""
        if not self.unseen:
            return following
        return Recent(
            np.concatenate([self.scores, following.scores])[-_RECENT:],
            np.concatenate([self.targets, following.targets])[-_RECENT:],
            np.concatenate([self.weights, following.weights])[-_RECENT:],
            True,
        )
