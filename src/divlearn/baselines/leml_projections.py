r"""Cyclic Bregman projections for LogDet problems with constraints on traces.

.. math:: \min_{Q, \xi} \; D_{\ell d}(Q, Q_0) + \eta \sum_c D_{\ell d}(\xi_c, \xi_{0c})
          \quad\text{subject to}\quad
          \operatorname{tr}(Q A_c) \le \xi_c \;\text{(similar)}, \quad
          \operatorname{tr}(Q A_c) \ge \xi_c \;\text{(dissimilar)}

with :math:`D_{\ell d}(Q, P) = \operatorname{tr}(Q P^{-1}) - \log\det(Q P^{-1}) - d` and
:math:`A_c = M_c^T M_c` of any rank. With a multiplier for every constraint, >= 0 for similar
pairs and <= 0 for dissimilar ones, the solution has

.. math:: Q^{-1} = Q_0^{-1} + \sum_c \mu_c A_c , \qquad 1 / \xi_c = 1 / \xi_{0c} - \mu_c / \eta ,

and a projection changes one multiplier such that its constraint holds with equality, or becomes
zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray

__all__ = ["Constraints", "Solution", "project", "solve_logdet"]

_EXACT = 1e-12  # of the logarithm of tr(Q A) / xi
_STEPS = 200  # bisection alone needs fewer


@dataclass(frozen=True, eq=False)
class Constraints:
    """Bounds of tr(Q M^T M).

    Attributes
    ----------
    differences : ndarray, shape (n_constraints, d, d), the M, none of them zero.
    similar : ndarray of bool, shape (n_constraints,), whether a bound is an upper one.
    bounds : ndarray, shape (n_constraints,), positive.
    """

    differences: RealArray
    similar: NDArray[np.bool_]
    bounds: RealArray


@dataclass(frozen=True, eq=False)
class Solution:
    """Where projections have led.

    Attributes
    ----------
    frame : ndarray, shape (d, d), F with Q = F F^T.
    multipliers : ndarray, shape (n_constraints,)
    bounds : ndarray, shape (n_constraints,), with their slack.
    n_iter : int, passes over all constraints.
    converged : bool
    interrupted : bool
    message : str, why they stopped.
    """

    frame: RealArray
    multipliers: RealArray
    bounds: RealArray
    n_iter: int
    converged: bool
    interrupted: bool
    message: str


def project(squares: RealArray, bound: float, eta: float) -> float:
    r"""Find the change of a multiplier after which a constraint holds with equality.

    It is the root of :math:`\sum_k \lambda_k / (1 + \mu \lambda_k) = 1 / (1 / \xi - \mu / \eta)`,
    unique where both sides are positive: the left one falls, the right one rises.

    Parameters
    ----------
    squares : ndarray, shape (d,), the eigenvalues of F^T A F, ascending, the last one > 0.
    bound : float, xi.
    eta : float

    Returns
    -------
    float

    Examples
    --------
    >>> round(project(np.array([2.0]), 1.0, 1e12), 9)  # no slack: 1 / (1/2 + mu) = 1
    0.5
    """
    lowest, highest, change = -1 / float(squares[-1]), eta / bound, 0.0
    for _ in range(_STEPS):
        shares = squares / (1 + change * squares)
        distance, inverse = float(shares.sum()), 1 / bound - change / eta
        gap = log(distance * inverse)
        if abs(gap) <= _EXACT:
            break
        lowest, highest = (change, highest) if gap > 0 else (lowest, change)
        slope = float(shares @ shares) / distance + 1 / (eta * inverse)
        following = change + gap / slope
        if not lowest < following < highest:  # Newton's step leads out of the bracket
            following = 0.5 * (lowest + highest)
        if following == change:
            break
        change = following
    return change


def solve_logdet(
    constraints: Constraints, start: RealArray, eta: float, *, max_iter: int, tol: float,
    watch: Callable[[int, float], None] | None = None,
) -> Solution:  # fmt: skip
    """Project on one constraint after the other, in turns.

    Parameters
    ----------
    constraints : Constraints
    start : ndarray, shape (d, d), F with Q_0 = F F^T.
    eta : float
        Weight of the slack: bounds are kept the more strictly the larger it is.
    max_iter : int
        Passes over all constraints.
    tol : float
        Stop after a pass that changes multipliers by at most this share of all of them.
    watch : callable, optional
        Called after each pass with its number and that share.

    Returns
    -------
    Solution
        An interruption by the user ends it where it stands.
    """
    frame, n = start, len(constraints.bounds)
    multipliers, bounds = np.zeros(n), constraints.bounds.astype(np.float64)
    iteration, converged, interrupted = 0, False, False
    message = f"max_iter={max_iter} reached"
    try:
        while iteration < max_iter and not converged:
            changes = np.zeros(n)
            for c in range(n):
                frame, changes[c] = _visit(constraints, c, frame, multipliers, bounds, eta)
            iteration += 1
            total, changed = np.abs(multipliers).sum(), np.abs(changes).sum()
            share = float(changed / total) if total > 0 else 0.0
            if watch is not None:
                watch(iteration, share)
            if share <= tol:
                converged = True
                message = f"a pass changed the multipliers by {share:.2g} of them, <= tol={tol:g}"
    except KeyboardInterrupt:
        interrupted = True
        message = f"interrupted by the user in pass {iteration + 1}"
    return Solution(frame, multipliers, bounds, iteration, converged, interrupted, message)


def _visit(
    constraints: Constraints, c: int, frame: RealArray, multipliers: RealArray, bounds: RealArray,
    eta: float,
) -> tuple[RealArray, float]:  # fmt: skip
    """Project on constraint c; returns the frame and the change of its multiplier."""
    moved = constraints.differences[c] @ frame
    similar, bound, multiplier = constraints.similar[c], float(bounds[c]), float(multipliers[c])
    distance = np.vdot(moved, moved)
    if multiplier == 0 and (distance <= bound if similar else distance >= bound):
        return frame, 0.0
    squares, vectors = np.linalg.eigh(moved.T @ moved)
    squares = np.maximum(squares, 0.0)
    change = project(squares, bound, eta)
    # A multiplier keeps its sign: constraints hold, but are not pressed where they need not be.
    change = max(change, -multiplier) if similar else min(change, -multiplier)
    multipliers[c] += change
    bounds[c] = 1 / (1 / bound - change / eta)
    return frame @ (vectors / np.sqrt(1 + change * squares)), change
