"""Losses of scores. To add one, see docs/extending.md.

The objective of IDDL is evaluated at the linear head that minimises the loss, so that its gradient
in the features is the partial derivative, with the head fixed (envelope theorem).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from divlearn.arrays import RealArray

_ROUNDED = 0.02  # width of the parabola at the corner of a hinge, relative to the margin
_EXACT, _ROUGH, _ROUGH_HINGE = 1e-9, 1e-4, 1e-6  # tolerances


class Expansion(NamedTuple):
    """Losses of samples around their scores.

    Attributes
    ----------
    losses : ndarray, shape (n_samples,)
    slopes : ndarray, shape (n_samples, n_outputs)
        Gradients of the losses in the scores.
    curvature : object
        Argument of `Loss.hessian_product`, which applies the second derivatives.
    sizes : ndarray, shape (n_samples,)
        Typical size of each second derivative.
    """

    losses: RealArray
    slopes: RealArray
    curvature: Any
    sizes: RealArray


class Loss(ABC):
    r"""A convex loss of scores with the penalty :math:`\gamma \|W\|_F^2`.

    The objective is :math:`\sum_i w_i \ell(W \phi_i + b, h_i) + \gamma \|W\|_F^2` with weights of
    sum one; the bias b is not penalised. Losses must be picklable for data on workers.

    Parameters
    ----------
    bias : bool, default=True
        Whether there is a bias.
    plain : bool, default=False
        Whether the features :math:`\phi_i` are the divergences themselves, as in the paper, instead
        of their standardised logarithms.

    Attributes
    ----------
    name : str
    tolerance : float
        Of the norm of the gradient in the head, relative to that at a head of zeros.
    quadratic : bool
        Whether the loss is half the squared error, whose head has a closed form.
    """

    name: ClassVar[str]
    quadratic: ClassVar[bool] = False

    def __init__(self, bias: bool = True, *, plain: bool = False) -> None:
        self.bias, self.plain = bias, plain
        self.tolerance = _EXACT

    @abstractmethod
    def expand(self, scores: RealArray, targets: RealArray) -> Expansion:
        """Compute losses and their derivatives in the scores.

        Parameters
        ----------
        scores : ndarray, shape (n_samples, n_outputs)
        targets : ndarray, shape (n_samples, n_outputs)
            One-hot rows for classes.

        Returns
        -------
        Expansion
        """

    @abstractmethod
    def hessian_product(self, curvature: Any, direction: RealArray) -> RealArray:
        """Apply the second derivative of every loss to a direction of its scores.

        Parameters
        ----------
        curvature : object
            From `Expansion.curvature`.
        direction : ndarray, shape (n_samples, n_outputs)

        Returns
        -------
        ndarray, shape (n_samples, n_outputs)
        """

    def stages(self) -> Sequence[Loss]:
        """Return losses to minimise one after the other, the last of which is this one."""
        return (self,)

    def with_tolerance(self, tolerance: float = _ROUGH) -> Self:
        """Return the same loss with another tolerance; by default, enough for held-out losses."""
        rough = copy(self)
        rough.tolerance = tolerance
        return rough


class RidgeLoss(Loss):
    r"""Half the squared error, :math:`\ell = \frac12 \|h - s\|^2`; the head in closed form."""

    name = "ridge"
    quadratic = True

    def expand(self, scores: RealArray, targets: RealArray) -> Expansion:
        slopes = scores - targets
        return Expansion(0.5 * (slopes**2).sum(axis=1), slopes, None, np.ones_like(slopes[:, 0]))

    def hessian_product(self, curvature: Any, direction: RealArray) -> RealArray:
        return direction


class SoftmaxLoss(Loss):
    r"""Logarithmic loss, :math:`\ell = \log \sum_l e^{s_l} - \sum_l h_l s_l`."""

    name = "softmax"

    def expand(self, scores: RealArray, targets: RealArray) -> Expansion:
        top = scores.max(axis=1, keepdims=True)
        powers = np.exp(scores - top)
        # Largest scores are summed apart: the other terms may be small against theirs.
        largest = scores == top
        count = largest.sum(axis=1)
        others = np.where(largest, 0, powers).sum(axis=1) / count
        log_sums = np.log1p(others) + np.log(count) + top[:, 0]
        p = powers / powers.sum(axis=1, keepdims=True)
        losses = log_sums - (targets * scores).sum(axis=1)
        return Expansion(losses, p - targets, p, (p * (1 - p)).mean(axis=1))

    def hessian_product(self, curvature: Any, direction: RealArray) -> RealArray:
        p = curvature.astype(direction.dtype, copy=False)
        weighted = p * direction
        return weighted - p * weighted.sum(axis=1, keepdims=True)


class HingeLoss(Loss):
    r"""Multiclass hinge, :math:`\ell = \sum_{l \ne y} h(s_l - s_y + \Delta)`.

    The corner of :math:`h(z) = \max(0, z)` is rounded by a parabola over a fiftieth of the margin,
    :math:`0 < z < \Delta / 50`, so that the gradient exists and Newton's method converges.

    Parameters
    ----------
    bias, plain : bool
        As in `Loss`.
    margin : float, default=1.0
        :math:`\Delta`.
    """

    name = "hinge"

    def __init__(self, bias: bool = True, margin: float = 1.0, *, plain: bool = False) -> None:
        super().__init__(bias, plain=plain)
        self.margin = margin
        self.width = _ROUNDED * margin

    def stages(self) -> Sequence[Loss]:
        if self.width >= self.margin:
            return (self,)
        smoother = copy(self)
        smoother.width = min(4 * self.width, self.margin)
        return (*smoother.stages(), self)

    def with_tolerance(self, tolerance: float = _ROUGH) -> Self:
        # Curvature jumps: a small gradient does not mean that the head is close to the best.
        return super().with_tolerance(min(tolerance, _ROUGH_HINGE))

    def expand(self, scores: RealArray, targets: RealArray) -> Expansion:
        true_scores = (targets * scores).sum(axis=1, keepdims=True)
        # Violation of the margin by each class; zero for the true one.
        z = np.maximum(scores - true_scores + self.margin, 0) * (1 - targets)
        losses = np.where(z < self.width, z**2 / (2 * self.width), z - self.width / 2).sum(axis=1)
        second = np.where((z > 0) & (z < self.width), 1 / self.width, 0.0)
        slopes = _subtract_sums(np.minimum(z / self.width, 1), targets)
        return Expansion(losses, slopes, (second, targets), 2 * second.mean(axis=1))

    def hessian_product(self, curvature: Any, direction: RealArray) -> RealArray:
        second, targets = curvature
        true = (targets * direction).sum(axis=1, keepdims=True)
        return _subtract_sums(second * (direction - true), targets)


def _subtract_sums(derivatives: RealArray, targets: RealArray) -> RealArray:
    """Turn derivatives in the margins, score minus true score, into those in the scores."""
    return derivatives - targets * derivatives.sum(axis=1, keepdims=True)


LOSSES: dict[str, type[Loss]] = {loss.name: loss for loss in (RidgeLoss, HingeLoss, SoftmaxLoss)}
