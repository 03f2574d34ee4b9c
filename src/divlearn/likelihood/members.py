r"""Sets of members of the family exp(-kappa D) / Z: all, those on a line, or a single one.

Coordinates are :math:`\delta = \beta - \alpha` and :math:`\nu = \alpha \beta \ge 0`. For a
given difference f is even in :math:`\alpha + \beta`, hence analytic in these two,

.. math:: f = \frac{t^2}{2} + \delta \frac{t^3}{6} + (\delta^2 - 2 \nu) \frac{t^4}{24} + \dots,

while in alpha and beta every likelihood is stationary along (1, 1) at the origin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from divlearn.alpha_beta import Point, nonnegative_point
from divlearn.arrays import RealArray
from divlearn.divergence import DivergenceLike, get_member
from divlearn.divergence.named import plain_name

_LARGEST_DIFFERENCE = 8.0  # beyond it members differ little: D depends on c t only
_LARGEST_PRODUCT = 64.0
_NEAR_ORIGIN = 1e-4  # for smaller alpha + beta derivatives are taken at a point further out
_STARTS: tuple[Point, ...] = tuple(
    (member.alpha, member.beta)
    for member in map(get_member, ("stein", "airm", "burg", "reverse-burg", "log-cosh"))
)


@dataclass(frozen=True)
class Members:
    """A point, the line alpha + beta = 1 or the whole quadrant, with 0, 1 or 2 free coordinates."""

    n_free: int  # 1: the difference; 2: also the product
    alpha: float = 0.0  # alpha and beta of a single member
    beta: float = 0.0

    @property
    def bounds(self) -> list[Point]:
        if self.n_free == 1:
            return [(-1.0, 1.0)]
        limits = [(-_LARGEST_DIFFERENCE, _LARGEST_DIFFERENCE), (0.0, _LARGEST_PRODUCT)]
        return limits[: self.n_free]

    @property
    def starts(self) -> tuple[Point, ...]:
        if self.n_free == 0:
            return ((self.alpha, self.beta),)
        return tuple((a, b) for a, b in _STARTS if self.n_free == 2 or a + b == 1)

    def named_cases(self) -> list[Members]:
        """Named members, with fixed parameters, of which this set consists among others."""
        if not self.n_free:
            return []
        fixed = [members for members in NAMED_MEMBERS.values() if not members.n_free]
        return [m for m in fixed if self.n_free == 2 or m.alpha + m.beta == 1]

    def locate(self, alpha: float, beta: float) -> RealArray:
        """Coordinates of (alpha, beta), clipped to the bounds."""
        coordinates = np.array([beta - alpha, alpha * beta][: self.n_free])
        low, high = np.reshape(self.bounds, (-1, 2)).T
        return np.clip(coordinates, low, high)

    def place(self, coordinates: RealArray) -> Point:
        if self.n_free == 0:
            return self.alpha, self.beta
        difference = float(coordinates[0])
        product = float(coordinates[1]) if self.n_free == 2 else 0.25 * (1 - difference**2)
        larger = 0.5 * (math.sqrt(difference**2 + 4 * product) + abs(difference))
        smaller = product / larger if difference else larger
        return (smaller, larger) if difference >= 0 else (larger, smaller)

    def place_nearby(self, coordinates: RealArray) -> Point:
        """(alpha, beta) of coordinates; a point next to the origin, where `pull` divides by 0."""
        alpha, beta = self.place(coordinates)
        if self.n_free == 2 and alpha + beta < _NEAR_ORIGIN:
            return self.place(coordinates + np.array([0.0, _NEAR_ORIGIN**2]))
        return alpha, beta

    def pull(self, point: Point, in_alpha: RealArray, in_beta: RealArray) -> RealArray:
        """Turn derivatives in alpha and beta into those in the coordinates, on the first axis."""
        alpha, beta = point
        if self.n_free == 0:
            return np.empty((0, *np.shape(in_alpha)))
        if self.n_free == 1:
            return np.stack([0.5 * (in_beta - in_alpha)])
        slopes = [beta * in_beta - alpha * in_alpha, in_alpha + in_beta]
        return np.stack(slopes) / (alpha + beta)


NAMED_MEMBERS: dict[str, Members] = {
    "wishart": Members(0, 0.0, 1.0),
    "inverse-wishart": Members(0, 1.0, 0.0),
    "matrix-f": Members(1),
    "riemannian-gaussian": Members(0),
}


def get_members(divergence: DivergenceLike) -> Members:
    """Members by name of a distribution, by divergence, or all ("learn")."""
    if isinstance(divergence, str):
        key = plain_name(divergence)
        if key == "learn":
            return Members(2)
        if key in NAMED_MEMBERS:
            return NAMED_MEMBERS[key]
    try:
        member = get_member(divergence)
    except ValueError as error:
        names = ", ".join(("learn", *NAMED_MEMBERS))
        raise ValueError(f"{error}, or here {names}") from None
    if member.symmetrized:
        raise ValueError(
            f"divergence={member.name!r} is the mean of two divergences, so its density has no "
            "known constant; pass one of them, as (alpha, beta)"
        )
    # The scale of a named divergence does not matter, as kappa multiplies it.
    return Members(0, *nonnegative_point(member.alpha, member.beta))
