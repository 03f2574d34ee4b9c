"""The concentration of a density exp(-kappa D) / Z from a mean divergence."""

from __future__ import annotations

import math

from divlearn.likelihood.normalizer import Normalizer, differentiate_normalizer, smallest_kappa

__all__ = ["solve_kappa"]

_SMALLEST_MARGIN = 1e-6  # relative; of less rounding would leave few digits
_SMALLEST_KAPPA = 1e-3  # matrices that spread further are beyond floating-point numbers
_SMALLEST_SLOPE = 0.2  # so that no step on a logarithmic scale is wild


def solve_kappa(
    alpha: float, beta: float, mean_divergence: float, d: int, *, margin: float = math.nan,
    largest: float = math.inf, rtol: float = 1e-9,
) -> tuple[float, Normalizer]:  # fmt: skip
    r"""Solve for the concentration whose expected divergence is the observed one.

    log Z is convex in kappa, and its slope :math:`-E[D]` rises from minus infinity to zero. The
    solution is kept away from where Z is infinite, and above 1e-3.

    Parameters
    ----------
    alpha, beta : float >= 0
    mean_divergence : float, > 0 unless ``largest`` is finite
    d : int
    margin : float, optional
        Guess of how far kappa lies above its lower bound.
    largest : float, default=inf
        Returned where the solution lies beyond.
    rtol : float, default=1e-9
        Relative error of the divergence that is solved for.

    Returns
    -------
    kappa : float
    constant : Normalizer, log Z and its derivatives there.

    Examples
    --------
    >>> kappa, constant = solve_kappa(0, 0, 0.125, 1)  # E[t^2 / 2] = 1 / 2 kappa
    >>> round(kappa, 8)
    4.0
    """
    least, moment = smallest_kappa(alpha, beta, d), 0.25 * d * (d + 1)
    # E[D] is moment / kappa if kappa is large, and inverse to the margin near its bound too: on
    # logarithmic scales the slope is always about one.
    if mean_divergence * largest <= moment:
        return largest, differentiate_normalizer(alpha, beta, largest, d)
    smallest = max(least * (1 + _SMALLEST_MARGIN), _SMALLEST_KAPPA * max(1.0, alpha + beta) ** 2)
    floor = math.log(smallest - least)

    def at(log_margin: float) -> tuple[float, Normalizer, float]:
        kappa = least + math.exp(log_margin)
        found = differentiate_normalizer(alpha, beta, kappa, d)
        return kappa, found, math.log(mean_divergence) - math.log(-found.kappa)

    here = max(floor, math.log(margin if margin > 0 else moment / mean_divergence))
    (kappa, found, error), slope = at(here), 1.0
    low, high = -math.inf, math.inf
    while abs(error) > rtol and not (error > 0 and here == floor):
        low, high = (here, high) if error < 0 else (low, here)
        following = here - error / slope
        if not low < following < high:  # which happens only where both are finite
            following = 0.5 * (low + high)
        following = max(floor, following)
        if following == here:
            break
        before = error
        kappa, found, error = at(following)
        slope = max((error - before) / (following - here), _SMALLEST_SLOPE)
        here = following
    return kappa, found
