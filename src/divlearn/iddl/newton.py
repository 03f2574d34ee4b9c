"""Newton's method for linear heads: few steps, each by preconditioned conjugate gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from divlearn.arrays import RealArray, beside, to_host

__all__ = ["Expansion", "HeadMinimum", "Rows", "Samples", "Sums", "minimize_head"]

_NEWTON_STEPS = 50
_CG_STEPS = 100
_BISECTIONS = 40
_FLAT = 0.3  # slope along a step, relative to that at its start, at which a search ends
_ROUNDING = 1e-14
_SINGLE = 1e-5  # least tolerance for which single precision finds directions
_RANK = 1e-13  # share of the largest variance below which a direction holds nothing but rounding
_DAMPING = 1e-2
_TINY = float(np.finfo(float).tiny)


@dataclass(frozen=True, eq=False)
class Expansion:
    """Losses of samples around their scores.

    Attributes
    ----------
    losses : ndarray, shape (n_samples,)
    slopes : ndarray, shape (n_samples, n_outputs), the gradients.
    times : the second derivative of each, applied to directions (n_samples, n_outputs).
    size : ndarray, shape (n_samples,), a typical size of the second derivative.
    """

    losses: RealArray
    slopes: RealArray
    times: Callable[[RealArray], RealArray]
    size: RealArray


@dataclass(frozen=True, eq=False)
class Sums:
    """What a head has to know of all samples.

    Attributes
    ----------
    loss : float, the weighted sum of losses.
    gradient : ndarray, shape (n_outputs, n_columns), its gradient in the head.
    size : float, a typical size of the second derivatives in the scores.
    keep : what the samples need to multiply by the Hessian, and nobody else.
    """

    loss: float
    gradient: RealArray
    size: float
    keep: Any


class Samples(Protocol):
    """Samples a head is fitted to: in memory, see `Rows`, or somewhere else."""

    def gram(self) -> RealArray:
        """Weighted Gram matrix of the design, shape (n_columns, n_columns)."""

    def turn(self, basis: RealArray, rough: bool) -> None:
        """Use the columns ``design @ basis`` from now on; few digits may do for products."""

    def at(self, W: RealArray) -> Sums:
        """Sum over the samples for a head."""

    def product(self, sums: Sums, direction: RealArray) -> RealArray:
        """Hessian of the loss times a direction, shape (n_outputs, n_columns)."""


class Rows:
    """Samples in memory, or on a device; heads are on the host.

    Parameters
    ----------
    expand : callable
        From scores (n_samples, n_outputs) to an `Expansion` of convex losses.
    design : ndarray, shape (n_samples, n_columns)
    weights : ndarray, shape (n_samples,)
    """

    def __init__(
        self, expand: Callable[[RealArray], Expansion], design: RealArray, weights: RealArray
    ) -> None:
        self.expand = expand
        self.design = self.narrow = design
        self.weights = weights[:, None]

    def gram(self) -> RealArray:
        """Weighted Gram matrix. See `Samples.gram`."""
        return to_host(self.design.T @ (self.weights * self.design))

    def turn(self, basis: RealArray, rough: bool) -> None:
        """Use other columns. See `Samples.turn`."""
        self.design = self.design @ beside(basis, self.design)
        # Towards a rough head directions of few digits lead as well, in half of the time.
        self.narrow = self.design.astype(np.float32) if rough else self.design

    def at(self, W: RealArray) -> Sums:
        """Sum over the samples for a head. See `Samples.at`."""
        expansion = self.expand(self.design @ beside(W, self.design).T)
        weights = self.weights[:, 0]
        gradient = to_host((self.weights * expansion.slopes).T @ self.design)
        loss, size = float(weights @ expansion.losses), float(weights @ expansion.size)
        return Sums(loss, gradient, size, expansion)

    def product(self, sums: Sums, direction: RealArray) -> RealArray:
        """Hessian times a direction. See `Samples.product`."""
        narrow, dtype = self.narrow, self.narrow.dtype
        turned = sums.keep.times(narrow @ beside(direction, narrow).T.astype(dtype, copy=False))
        scores = (self.weights * turned).astype(dtype, copy=False)
        return to_host(scores.T @ narrow)


@dataclass(frozen=True, eq=False)
class HeadMinimum:
    """The best head, the objective and the sums over the samples there.

    Attributes
    ----------
    W : ndarray, shape (n_outputs, n_columns)
    value : float
    gradient : ndarray, shape (n_outputs, n_columns), of the losses alone.
    sums : Sums
    """

    W: RealArray
    value: float
    gradient: RealArray
    sums: Sums


@dataclass(frozen=True, eq=False)
class _State:
    W: RealArray
    value: float
    sums: Sums
    gradient: RealArray


class _Problem:
    """Sum of weighted losses and penalties, in principal components of the design.

    The losses are curved alike in all directions, roughly: then the Hessian is diagonal in these,
    which is what makes a good and cheap preconditioner. Columns often depend on each other: all
    divergences at (0, 1), for example, are linear in the entries of a matrix. Directions without
    variance have nothing to say, and are left out.
    """

    def __init__(self, samples: Samples, penalty: RealArray, n_outputs: int, rough: bool) -> None:
        self.samples = samples
        spread, basis = np.linalg.eigh(samples.gram())
        kept = spread > _RANK * spread[-1] if spread[-1] > 0 else spread == spread[-1]
        self.spread, self.basis = spread[kept], basis[:, kept]
        samples.turn(self.basis, rough)
        self.penalty = self.basis.T @ (penalty[:, None] * self.basis)
        self.origin = self.evaluate(np.zeros((n_outputs, len(self.spread))))

    def evaluate(self, W: RealArray) -> _State:
        sums = self.samples.at(W)
        penalized = W @ self.penalty
        value = sums.loss + float(np.vdot(penalized, W))
        return _State(W, value, sums, sums.gradient + 2 * penalized)

    def hessian(self, state: _State, direction: RealArray) -> RealArray:
        product = self.samples.product(state.sums, direction)
        result: RealArray = product + 2 * direction @ self.penalty
        return result + self.damping(state) * direction

    def damping(self, state: _State) -> float:
        """Curvature where a hinge has none, gone at the minimum."""
        start = float(np.linalg.norm(self.origin.gradient))
        return _DAMPING * min(1.0, float(np.linalg.norm(state.gradient)) / max(start, _TINY))

    def precondition(self, state: _State, residual: RealArray) -> RealArray:
        size = max(state.sums.size, 1e-6)
        scale = size * self.spread + 2 * np.diag(self.penalty) + self.damping(state)
        result: RealArray = residual / np.maximum(scale, 1e-12 * scale.max())
        return result


def minimize_head(
    samples: Samples, penalty: RealArray, start: RealArray, tolerance: float
) -> HeadMinimum:
    r"""Minimise :math:`\sum_i w_i \ell_i(W x_i) + \sum_j \gamma_j \|W_{\cdot j}\|^2` over W.

    Parameters
    ----------
    samples : Samples
    penalty : ndarray, shape (n_columns,)
    start : ndarray, shape (n_outputs, n_columns)
    tolerance : float
        Of the gradient, relative to its size at a head of zeros.

    Returns
    -------
    HeadMinimum
    """
    problem = _Problem(samples, penalty, len(start), tolerance >= _SINGLE)
    origin = problem.origin
    state = problem.evaluate(start @ problem.basis) if start.any() else origin
    if origin.value < state.value:
        state = origin
    goal = tolerance * max(float(np.linalg.norm(origin.gradient)), _TINY)
    for _ in range(_NEWTON_STEPS):
        size = float(np.linalg.norm(state.gradient))
        if size <= goal:
            break
        step = _newton_step(problem, state, goal)
        following = _search(problem, state, step)
        if following is None:
            break
        state = following
    back = problem.basis.T
    return HeadMinimum(state.W @ back, state.value, state.sums.gradient @ back, state.sums)


def _newton_step(problem: _Problem, state: _State, goal: float) -> RealArray:
    """Solve for the Newton step as far as it pays: the better, the closer the end is."""
    size = float(np.linalg.norm(state.gradient))
    enough = max(min(0.1, size**0.5) * size, 0.1 * goal)
    step = np.zeros_like(state.W)
    residual = -state.gradient
    z = problem.precondition(state, residual)
    direction, power = z, float(np.vdot(residual, z))
    for _ in range(_CG_STEPS):
        product = problem.hessian(state, direction)
        curvature = float(np.vdot(direction, product))
        if curvature <= 0:
            break
        length = power / curvature
        step = step + length * direction
        residual = residual - length * product
        if np.linalg.norm(residual) <= enough:
            break
        z = problem.precondition(state, residual)
        following = float(np.vdot(residual, z))
        direction, power = z + following / power * direction, following
    return step if step.any() else problem.precondition(state, -state.gradient)


def _search(problem: _Problem, state: _State, step: RealArray) -> _State | None:
    """Best of the points tried along a step; None if none is better than the start.

    A hinge is made of pieces: a full step may lead far beyond the piece it was made for, and the
    minimum along it, found by bisection on the slope, is worth a few evaluations.
    """
    rounding = _ROUNDING * abs(state.value)
    size = float(np.linalg.norm(state.gradient))
    best = None
    low, high = 0.0, 1.0
    length = 1.0
    for _ in range(_BISECTIONS):
        trial = problem.evaluate(state.W + length * step)
        slope = float(np.vdot(step, trial.gradient))
        # At the level of rounding the gradient says more than the value.
        flat = abs(trial.value - state.value) <= rounding
        better = np.linalg.norm(trial.gradient) < size if flat else trial.value < state.value
        if better and (best is None or trial.value < best.value):
            best = trial
        if slope <= 0 or (
            best is not None and abs(slope) <= _FLAT * abs(np.vdot(step, state.gradient))
        ):
            if length == 1.0 or best is not None:
                return best
            low = length
        else:
            high = length
        length = 0.5 * (low + high)
    return best
