"""Losses on features, each with the linear head that minimises it solved inside.

With the head solved, the gradient in the features is the partial one (envelope theorem).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from divlearn.arrays import RealArray, beside, to_host
from divlearn.iddl.newton import Expansion, HeadMinimum, Rows, Samples, minimize_head

_ROUNDED = 0.02  # of the margin
_EXACT, _ROUGH = 1e-9, 1e-4

__all__ = ["LOSSES", "Head", "HingeLoss", "Loss", "RidgeLoss", "SoftmaxLoss", "Solved"]


@dataclass(frozen=True, eq=False)
class Head:
    """Scores are ``features @ weights.T + bias``.

    Attributes
    ----------
    weights : ndarray, shape (n_outputs, n_features)
    bias : ndarray, shape (n_outputs,)
    """

    weights: RealArray
    bias: RealArray

    def scores(self, features: RealArray) -> RealArray:
        """Compute scores, shape (n_samples, n_outputs)."""
        weights, bias = beside(self.weights, features), beside(self.bias, features)
        result: RealArray = features @ weights.T + bias
        return result


@dataclass(frozen=True, eq=False)
class Solved:
    """A head at the minimum, the objective there and its gradient in the features."""

    head: Head
    value: float
    cotangent: RealArray


class Loss(ABC):
    r"""A convex loss of scores with the penalty :math:`\gamma \|W\|_F^2`.

    The objective is :math:`\sum_i w_i \ell(W \phi_i + b, h_i) + \gamma \|W\|_F^2` with weights of
    sum one; the bias b is not penalised.

    Parameters
    ----------
    bias : bool, default=True
        Whether there is a bias.

    Attributes
    ----------
    tolerance : float
        Of the gradient in the head, relative to its size at a head of zeros.
    """

    name: ClassVar[str]

    def __init__(self, bias: bool = True) -> None:
        self.bias = bias
        self.tolerance = _EXACT

    def roughly(self) -> Self:
        """Make the same loss with heads of few digits, to judge by data held out."""
        rough = copy(self)
        rough.tolerance = _ROUGH
        return rough

    @abstractmethod
    def solve(
        self, features: RealArray, targets: RealArray, weights: RealArray, gamma: float,
        warm: Head | None = None,
    ) -> Solved:  # fmt: skip
        """Find the best head.

        Parameters
        ----------
        features : ndarray, shape (n_samples, n_features)
        targets : ndarray, shape (n_samples, n_outputs)
            One-hot rows for classes.
        weights : ndarray, shape (n_samples,)
            Non-negative, with sum one.
        gamma : float
        warm : Head, optional
            Where to start.
        """

    def best_head(
        self, features: RealArray, targets: RealArray, weights: RealArray, gamma: float,
        warm: Head | None = None,
    ) -> Head:  # fmt: skip
        """Find the best head and nothing else. See `solve`."""
        return self.solve(features, targets, weights, gamma, warm).head

    @abstractmethod
    def losses(self, scores: RealArray, targets: RealArray) -> RealArray:
        """Loss of every sample, shape (n_samples,)."""

    @abstractmethod
    def slopes(self, scores: RealArray, targets: RealArray) -> RealArray:
        """Gradients of the losses in the scores, shape (n_samples, n_outputs)."""


class RidgeLoss(Loss):
    r"""Half the squared error, :math:`\ell = \frac12 \|h - s\|^2`; the head in closed form."""

    name = "ridge"

    def losses(self, scores: RealArray, targets: RealArray) -> RealArray:
        """Loss of every sample."""
        result: RealArray = 0.5 * ((targets - scores) ** 2).sum(axis=1)
        return result

    def slopes(self, scores: RealArray, targets: RealArray) -> RealArray:
        """Gradients of the losses in the scores."""
        return scores - targets

    def solve(
        self, features: RealArray, targets: RealArray, weights: RealArray, gamma: float,
        warm: Head | None = None,
    ) -> Solved:  # fmt: skip
        """Find the best head. See `Loss.solve`."""
        targets, weights = beside(targets, features), beside(weights, features)
        head, centred, wanted = self._fit_centred(features, targets, weights, gamma)
        W = beside(head.weights, features)
        residual = wanted - centred @ W.T
        squares = float(weights @ (residual**2).sum(axis=1))
        value = 0.5 * squares + gamma * float((head.weights**2).sum())
        return Solved(head, value, -weights[:, None] * (residual @ W))

    def best_head(
        self, features: RealArray, targets: RealArray, weights: RealArray, gamma: float,
        warm: Head | None = None,
    ) -> Head:  # fmt: skip
        """Find the best head and nothing else. See `Loss.solve`."""
        targets, weights = beside(targets, features), beside(weights, features)
        return self._fit_centred(features, targets, weights, gamma)[0]

    def _fit_centred(
        self, features: RealArray, targets: RealArray, weights: RealArray, gamma: float
    ) -> tuple[Head, RealArray, RealArray]:
        """Find the best head; returns it with features and targets less their means."""
        middle = np.zeros(features.shape[1], like=features)
        level = np.zeros(targets.shape[1], like=features)
        if self.bias:
            middle, level = weights @ features, weights @ targets
        centred, wanted = features - middle, targets - level
        weighted = weights[:, None] * centred
        # Small, and solved with on the host.
        products = to_host(np.concatenate([centred.T @ weighted, weighted.T @ wanted], axis=1))
        gram, cross = products[:, : len(products)], products[:, len(products) :]
        gram[np.diag_indices_from(gram)] += 2 * gamma
        try:
            W = cho_solve(cho_factor(gram), cross).T
        except LinAlgError:
            root = np.sqrt(weights)[:, None]
            W = to_host(np.linalg.lstsq(root * centred, root * wanted, rcond=None)[0].T)
        bias = to_host(level - beside(W, features) @ middle)
        return Head(W, bias), centred, wanted


class NewtonLoss(Loss):
    """Losses whose head is found by Newton's method. See `divlearn.iddl.newton`."""

    @abstractmethod
    def expand(self, scores: RealArray, targets: RealArray) -> Expansion:
        """Losses and their derivatives in the scores."""

    def slopes(self, scores: RealArray, targets: RealArray) -> RealArray:
        """Gradients of the losses in the scores."""
        return self.expand(scores, targets).slopes

    def solve(
        self, features: RealArray, targets: RealArray, weights: RealArray, gamma: float,
        warm: Head | None = None,
    ) -> Solved:  # fmt: skip
        """Find the best head. See `Loss.solve`."""
        targets, weights = beside(targets, features), beside(weights, features)
        ones = np.ones_like(features[:, :1])
        design = np.concatenate([features, ones], axis=1) if self.bias else features

        def rows(loss: NewtonLoss) -> Samples:
            return Rows(lambda scores: loss.expand(scores, targets), design, weights)

        head, found = self.find(rows, (targets.shape[1], features.shape[1]), gamma, warm)
        slopes = weights[:, None] * found.sums.keep.slopes
        return Solved(head, found.value, slopes @ beside(head.weights, slopes))

    def find(
        self, samples: Callable[[NewtonLoss], Samples], shape: tuple[int, int], gamma: float,
        warm: Head | None = None,
    ) -> tuple[Head, HeadMinimum]:  # fmt: skip
        """Find the best head for samples, wherever they are.

        Parameters
        ----------
        samples : callable
            From a loss to the samples it is of, with a last column of ones where it has a bias.
        shape : (n_outputs, n_features)
        gamma, warm : as in `Loss.solve`
        """
        n_outputs, n_features = shape
        penalty = np.full(n_features + self.bias, gamma)
        penalty[n_features:] = 0
        start = np.zeros((n_outputs, len(penalty)))
        if warm is not None and warm.weights.shape[1] == n_features:
            start = np.concatenate([warm.weights, warm.bias[:, None]], axis=1)[:, : len(penalty)]
        found = minimize_head(samples(self), penalty, start, self.tolerance)
        return Head(found.W[:, :n_features], found.W[:, n_features:].sum(axis=1)), found


class SoftmaxLoss(NewtonLoss):
    r"""Logarithmic loss, :math:`\ell = \log \sum_l e^{s_l} - \sum_l h_l s_l`."""

    name = "softmax"

    def losses(self, scores: RealArray, targets: RealArray) -> RealArray:
        """Loss of every sample."""
        return self._losses(scores, targets, *_exponentials(scores))

    @staticmethod
    def _losses(
        scores: RealArray, targets: RealArray, top: RealArray, powers: RealArray
    ) -> RealArray:
        # What is largest is left out of the sum: the rest may be small against it.
        largest = scores == top
        count = largest.sum(axis=1)
        rest = np.where(largest, 0, powers).sum(axis=1) / count
        sums = np.log1p(rest) + np.log(count) + top[:, 0]
        result: RealArray = sums - (targets * scores).sum(axis=1)
        return result

    def expand(self, scores: RealArray, targets: RealArray) -> Expansion:
        """Losses and their derivatives in the scores."""
        top, powers = _exponentials(scores)
        p = powers / powers.sum(axis=1, keepdims=True)

        def times(direction: RealArray) -> RealArray:
            shares = p.astype(direction.dtype, copy=False)
            weighted = shares * direction
            result: RealArray = weighted - shares * weighted.sum(axis=1, keepdims=True)
            return result

        losses = self._losses(scores, targets, top, powers)
        return Expansion(losses, p - targets, times, (p * (1 - p)).mean(axis=1))


def _exponentials(scores: RealArray) -> tuple[RealArray, RealArray]:
    """Return the largest score of every sample, and the exponentials of what others differ by."""
    top = scores.max(axis=1, keepdims=True)
    return top, np.exp(scores - top)


class HingeLoss(NewtonLoss):
    r"""Multiclass hinge, :math:`\ell = \sum_{l \ne y} h(s_l - s_y + \Delta)`.

    The corner of :math:`h(z) = \max(0, z)` is rounded by a parabola over a fiftieth of the margin,
    :math:`0 < z < \Delta / 50`, so that the head is found to all digits and the gradient exists.

    Parameters
    ----------
    bias : bool, default=True
    margin : float, default=1.0
        :math:`\Delta`.
    """

    name = "hinge"

    def __init__(self, bias: bool = True, margin: float = 1.0) -> None:
        super().__init__(bias)
        self.margin = margin
        self.width = _ROUNDED * margin

    def find(
        self, samples: Callable[[NewtonLoss], Samples], shape: tuple[int, int], gamma: float,
        warm: Head | None = None,
    ) -> tuple[Head, HeadMinimum]:  # fmt: skip
        """Find the best head, through hinges less and less rounded. See `NewtonLoss.find`."""
        if self.width < self.margin:
            rounder = copy(self)
            rounder.width = min(4 * self.width, self.margin)
            warm, _ = rounder.find(samples, shape, gamma, warm)
        return super().find(samples, shape, gamma, warm)

    def losses(self, scores: RealArray, targets: RealArray) -> RealArray:
        """Loss of every sample."""
        z = self._excess(scores, targets)
        rounded = np.where(z < self.width, z**2 / (2 * self.width), z - self.width / 2)
        result: RealArray = rounded.sum(axis=1)
        return result

    def expand(self, scores: RealArray, targets: RealArray) -> Expansion:
        """Losses and their derivatives in the scores."""
        z = self._excess(scores, targets)
        slope = np.minimum(z / self.width, 1)
        bend = np.where((z > 0) & (z < self.width), 1 / self.width, 0.0)

        def spread(pushes: RealArray) -> RealArray:
            """Every push on a class pulls at the true one."""
            result: RealArray = pushes - targets * pushes.sum(axis=1, keepdims=True)
            return result

        def times(direction: RealArray) -> RealArray:
            true = (targets * direction).sum(axis=1, keepdims=True)
            return spread(bend * (direction - true))

        return Expansion(self.losses(scores, targets), spread(slope), times, 2 * bend.mean(axis=1))

    def _excess(self, scores: RealArray, targets: RealArray) -> RealArray:
        """How far each class comes too close to the true one; zero for the latter."""
        true = (targets * scores).sum(axis=1, keepdims=True)
        excess: RealArray = np.maximum(scores - true + self.margin, 0) * (1 - targets)
        return excess


LOSSES: dict[str, type[Loss]] = {loss.name: loss for loss in (RidgeLoss, HingeLoss, SoftmaxLoss)}
