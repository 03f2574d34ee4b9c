r"""Members of the family exp(-kappa D) / Z to choose from: all, those on a line, or a single one.

They are searched in :math:`\delta = \beta - \alpha` and :math:`\nu = \alpha \beta \ge 0`. For a
given difference f is even in :math:`\alpha + \beta`, hence analytic in these two,

.. math:: f = \frac{t^2}{2} + \delta \frac{t^3}{6} + (\delta^2 - 2 \nu) \frac{t^4}{24} + \dots,

while in alpha and beta every likelihood is stationary along (1, 1) at the origin.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from divlearn.arrays import RealArray
from divlearn.divergence import Divergence, get_divergence
from divlearn.likelihood.normalizer import check_same_sign

Point = tuple[float, float]
_T = TypeVar("_T")

_LARGEST_DIFFERENCE = 8.0  # beyond these members differ by little: D depends on c t only
_LARGEST_PRODUCT = 64.0
_NEAR_ORIGIN = 1e-4  # alpha + beta below which derivatives in nu are taken a little further out
_STARTS: tuple[Point, ...] = tuple(
    (known.alpha, known.beta)
    for known in map(get_divergence, ("stein", "airm", "burg", "reverse-burg", "log-cosh"))
)


@dataclass(frozen=True)
class Members:
    """A point, one of two lines or all of the quadrant, with coordinates.

    Attributes
    ----------
    n_free : {0, 1, 2}
        Coordinates: none for the member (alpha, beta), the difference on the line
        alpha + beta = 1, difference and product on the whole quadrant.
    alpha, beta : float >= 0, of the single member.
    tied : bool
        Whether the line is alpha = beta instead, with the product for a coordinate.

    Examples
    --------
    >>> everything = Members("learn", 2)
    >>> everything.place(everything.locate(0.25, 0.75))
    (0.25, 0.75)
    """

    name: str
    n_free: int
    alpha: float = 0.0
    beta: float = 0.0
    tied: bool = False

    @property
    def bounds(self) -> list[Point]:
        """Least and largest value of each coordinate."""
        if self.n_free == 1 and not self.tied:
            return [(-1.0, 1.0)]
        return self._choose((-_LARGEST_DIFFERENCE, _LARGEST_DIFFERENCE), (0.0, _LARGEST_PRODUCT))

    @property
    def starts(self) -> tuple[Point, ...]:
        """(alpha, beta) from which a search may set out."""
        if self.n_free == 0:
            return ((self.alpha, self.beta),)
        if self.n_free == 2:
            return _STARTS
        return tuple((a, b) for a, b in _STARTS if (a == b if self.tied else a + b == 1))

    def locate(self, alpha: float, beta: float) -> RealArray:
        """Coordinates of a member; of one elsewhere, those of one close to it."""
        coordinates = np.array(self._choose(beta - alpha, alpha * beta))
        low, high = np.reshape(self.bounds, (-1, 2)).T
        return np.clip(coordinates, low, high)

    def place(self, coordinates: RealArray) -> Point:
        """(alpha, beta) of coordinates."""
        if self.n_free == 0:
            return self.alpha, self.beta
        difference = 0.0 if self.tied else float(coordinates[0])
        known = self.n_free == 2 or self.tied
        product = float(coordinates[-1]) if known else 0.25 * (1 - difference**2)
        larger = 0.5 * (math.sqrt(difference**2 + 4 * product) + abs(difference))
        smaller = product / larger if difference else larger
        return (smaller, larger) if difference >= 0 else (larger, smaller)

    def place_nearby(self, coordinates: RealArray) -> Point:
        """(alpha, beta) of coordinates, or next to it at the origin, where `pull` divides by 0."""
        alpha, beta = self.place(coordinates)
        if (self.n_free == 2 or self.tied) and alpha + beta < _NEAR_ORIGIN:
            return self.place(coordinates + np.array(self._choose(0.0, _NEAR_ORIGIN**2)))
        return alpha, beta

    def pull(self, point: Point, in_alpha: RealArray, in_beta: RealArray) -> RealArray:
        """Turn derivatives in alpha and beta into those in the coordinates, the first axis."""
        alpha, beta = point
        if self.n_free == 0:
            return np.empty((0, *np.shape(in_alpha)))
        if self.n_free == 1 and not self.tied:
            return np.stack([0.5 * (in_beta - in_alpha)])
        both = self._choose(beta * in_beta - alpha * in_alpha, in_alpha + in_beta)
        return np.stack(both) / (alpha + beta)

    def _choose(self, of_difference: _T, of_product: _T) -> list[_T]:
        return [of_product] if self.tied else [of_difference, of_product][: self.n_free]


NAMED_MEMBERS: dict[str, Members] = {
    "wishart": Members("wishart", 0, 0.0, 1.0),
    "inverse-wishart": Members("inverse-wishart", 0, 1.0, 0.0),
    "matrix-f": Members("matrix-f", 1),
    "riemannian-gaussian": Members("riemannian-gaussian", 0, 0.0, 0.0),
}


def get_members(divergence: str | Sequence[float] | Divergence) -> Members:
    """Members by the name of a distribution, by divergence, or all of them.

    Parameters
    ----------
    divergence : str, pair of floats, or Divergence
        "learn" for all members, the name of a distribution ("wishart", "inverse-wishart",
        "matrix-f", "riemannian-gaussian"), or what `divlearn.get_divergence` takes. The scale of a
        named divergence does not matter, as kappa multiplies it.

    Examples
    --------
    >>> get_members("Wishart")
    Members(name='wishart', n_free=0, alpha=0.0, beta=1.0, tied=False)
    """
    if isinstance(divergence, str):
        key = divergence.strip().lower().replace("_", "-").replace(" ", "-")
        if key == "learn":
            return Members("learn", 2)
        if key in NAMED_MEMBERS:
            return NAMED_MEMBERS[key]
    try:
        known = get_divergence(divergence)
    except ValueError as error:
        names = ", ".join(("learn", *NAMED_MEMBERS))
        raise ValueError(f"{error}; here also {names}") from None
    alpha, beta = known.alpha, known.beta
    if known.symmetrized:
        raise ValueError(
            f"divergence={known.name!r} is the mean of two divergences, must be one of them: its "
            "density has no known constant; pass one of its directions"
        )
    check_same_sign(alpha, beta)
    if min(alpha, beta) < 0:
        alpha, beta = -beta, -alpha
    return Members(known.name, 0, alpha + 0.0, beta + 0.0)
