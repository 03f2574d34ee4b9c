"""Heads from sums over shards: ridge in one pass, others by Newton's method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from divlearn.arrays import RealArray
from divlearn.iddl.features import FeatureMap, Features
from divlearn.iddl.losses import Head, Loss, NewtonLoss
from divlearn.iddl.newton import Samples, Sums
from divlearn.sharded.blocks import Block
from divlearn.sharded.shards import Parts, Shards
from divlearn.sharded.statistics import Moments

__all__ = ["ShardedRows", "SolvedHead", "Targets", "known_features", "solve_newton", "solve_ridge"]

_LARGEST_HESSIAN = 150  # entries of a head, for which it costs no more than twenty products

Targets = tuple[RealArray, RealArray]  # of a block: targets, and weights whose sum over all is one


@dataclass(frozen=True, eq=False)
class SolvedHead:
    """A head at the minimum.

    Attributes
    ----------
    head : Head
    value : float, the objective.
    slopes : ndarray, shape (n_outputs, n_features), gradient of the losses in the head's weights.
    level : ndarray, shape (n_outputs,), the same in its bias, whether it has one or not.
    """

    head: Head
    value: float
    slopes: RealArray
    level: RealArray

    @property
    def sums(self) -> tuple[RealArray, RealArray]:
        """Sums over all samples of the gradient in the features, and of it times the features."""
        W = self.head.weights
        return self.level @ W, (W * self.slopes).sum(axis=0)


def known_features(
    moments: Moments, size: int, feature_map: FeatureMap
) -> tuple[Features, Moments]:
    """Standardisation by moments, and the moments once that was done.

    Parameters
    ----------
    moments : Moments
        Of values before they are standardised, and of targets after them.
    size : int
        Number of values.
    feature_map : FeatureMap
    """
    mean: RealArray = np.zeros(size)
    scale: RealArray = np.ones(size)
    if feature_map.standardize:
        mean = moments.mean[:size].copy()
        variance = np.diagonal(moments.scatter)[:size] / moments.weight
        scale = feature_map.deviation(variance, variance + mean**2)
    shift, unit = np.zeros(len(moments.mean)), np.ones(len(moments.mean))
    shift[:size], unit[:size] = mean, scale
    scaled = Moments(
        moments.weight, (moments.mean - shift) / unit, moments.scatter / np.outer(unit, unit)
    )
    return Features(np.zeros((0, size)), mean, scale), scaled


def solve_ridge(loss: Loss, moments: Moments, size: int, gamma: float) -> SolvedHead:
    """Ridge regression from the moments of features and of targets after them."""
    both = moments.scatter / moments.weight
    middle, level = moments.mean[:size], moments.mean[size:]
    if not loss.bias:
        both = moments.second()
        middle, level = np.zeros(size), np.zeros(len(level))
    gram, cross, square = both[:size, :size], both[:size, size:], both[size:, size:]
    penalized = gram + 2 * gamma * np.eye(size)
    try:
        W = cho_solve(cho_factor(penalized), cross).T
    except LinAlgError:
        W = np.linalg.lstsq(penalized, cross, rcond=None)[0].T
    product = W @ gram
    squares = float(np.trace(square)) - 2 * float(np.vdot(W, cross.T)) + float(np.vdot(product, W))
    value = 0.5 * max(squares, 0.0) + gamma * float((W**2).sum())
    head = Head(W, level - W @ middle)
    residual = W @ moments.mean[:size] + head.bias - moments.mean[size:]
    return SolvedHead(head, value, product - cross.T, residual)


def solve_newton(
    loss: NewtonLoss, shards: Shards, parts: tuple[Parts, Parts], shape: tuple[int, int],
    moments: Moments, known: tuple[FeatureMap, Features], gamma: float, warm: Head | None,
) -> SolvedHead:  # fmt: skip
    """Softmax, hinge and the like.

    Parameters
    ----------
    loss : NewtonLoss
    shards : Shards
    parts : targets and divergences of the blocks
    shape : (n_outputs, n_features)
    moments : Moments
        Of the features.
    known : what makes features of divergences
    gamma : float
    warm : Head, optional
        Where to start.
    """

    def rows(one: NewtonLoss) -> Samples:
        return ShardedRows(one, shards, parts, moments, shape[1], known)

    head, found = loss.find(rows, shape, gamma, warm)
    slopes = found.gradient
    # Where the loss has no bias, the gradient in it is not at hand, and takes a pass of its own.
    level = slopes[:, shape[1]] if loss.bias else _level(loss, shards, parts, known, head)
    return SolvedHead(head, found.value, slopes[:, : shape[1]], level)


class ShardedRows:
    """Samples on shards, as Newton's method wants them; see `divlearn.iddl.newton.Samples`."""

    def __init__(
        self, loss: NewtonLoss, shards: Shards, parts: tuple[Parts, Parts], moments: Moments,
        size: int, known: tuple[FeatureMap, Features],
    ) -> None:  # fmt: skip
        self._loss, self._shards, self._known = loss, shards, known
        self._targets, self._V = parts
        self._moments, self._size = moments, size
        self._design: Parts = ()
        self._hessian: tuple[RealArray, RealArray] | None = None

    def gram(self) -> RealArray:
        """Weighted Gram matrix, which the moments know."""
        size, bias = self._size, int(self._loss.bias)
        gram = np.ones((size + bias, size + bias))
        gram[:size, :size] = self._moments.second()[:size, :size]
        if bias:
            gram[size, :size] = gram[:size, size] = self._moments.mean[:size]
        return gram

    def turn(self, basis: RealArray, rough: bool) -> None:
        """Let the blocks make their rows of the design, with all digits for rough heads too."""
        self._design = self._shards.hold(
            _design_block, *self._known, self._loss.bias, basis, beside=[self._V]
        )

    def at(self, W: RealArray) -> Sums:
        """Sum over the shards for a head."""
        beside = [self._targets, self._design]
        loss, gradient, size = self._shards.reduce(_sums_block, self._loss, W, beside=beside)
        return Sums(loss, gradient, size, W)

    def product(self, sums: Sums, direction: RealArray) -> RealArray:
        """Hessian times a direction, summed over the shards.

        A small Hessian is summed once, and all products with it are made here.
        """
        beside = [self._targets, self._design]
        W: RealArray = sums.keep
        if W.size > _LARGEST_HESSIAN:
            product: RealArray = self._shards.reduce(
                _product_block, self._loss, W, direction, beside=beside
            )
            return product
        if self._hessian is None or self._hessian[0] is not W:
            self._hessian = W, self._shards.reduce(_hessian_block, self._loss, W, beside=beside)
        return np.tensordot(self._hessian[1], direction, axes=2)


def _design_block(
    block: Block, V: RealArray, feature_map: FeatureMap, known: Features, bias: bool,
    basis: RealArray,
) -> RealArray:  # fmt: skip
    values = feature_map.compute(V, np.empty(0), known).values
    if bias:
        values = np.concatenate([values, np.ones((len(values), 1))], axis=1)
    return values @ basis


def _sums_block(
    block: Block, targets: Targets, design: RealArray, loss: NewtonLoss, W: RealArray
) -> tuple[float, RealArray, float]:
    wanted, weights = targets
    expansion = loss.expand(design @ W.T, wanted)
    gradient = (weights[:, None] * expansion.slopes).T @ design
    return float(weights @ expansion.losses), gradient, float(weights @ expansion.size)


def _product_block(
    block: Block, targets: Targets, design: RealArray, loss: NewtonLoss, W: RealArray,
    direction: RealArray,
) -> RealArray:  # fmt: skip
    wanted, weights = targets
    turned = loss.expand(design @ W.T, wanted).times(design @ direction.T)
    product: RealArray = (weights[:, None] * turned).T @ design
    return product


def _hessian_block(
    block: Block, targets: Targets, design: RealArray, loss: NewtonLoss, W: RealArray
) -> RealArray:
    """Hessian in the head, shape (n_outputs, n_columns, n_outputs, n_columns)."""
    wanted, weights = targets
    times = loss.expand(design @ W.T, wanted).times
    n_outputs, n_columns = W.shape
    hessian = np.empty((n_outputs, n_columns, n_outputs, n_columns))
    for k in range(n_outputs):
        bends = times(np.broadcast_to(np.eye(n_outputs)[k], wanted.shape))
        for other in range(k + 1):
            part = design.T @ ((weights * bends[:, other])[:, None] * design)
            hessian[k, :, other], hessian[other, :, k] = part, part
    return hessian


def _level(
    loss: Loss, shards: Shards, parts: tuple[Parts, Parts], known: tuple[Any, Any], head: Head
) -> RealArray:
    level: RealArray = shards.reduce(_level_block, loss, *known, head, beside=parts)
    return level


def _level_block(
    block: Block, targets: Targets, V: RealArray, loss: Loss, feature_map: FeatureMap,
    known: Features, head: Head,
) -> RealArray:  # fmt: skip
    wanted, weights = targets
    scores = head.scores(feature_map.compute(V, weights, known).values)
    level: RealArray = weights @ loss.slopes(scores, wanted)
    return level
