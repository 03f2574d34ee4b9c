"""Members of the alpha-beta family, with a scale."""

from dataclasses import dataclass, replace
from typing import Any, Self

from numpy.typing import ArrayLike

from divlearn.alpha_beta import compare, nonnegative_point, pairwise_abld
from divlearn.arrays import RealArray
from divlearn.divergence.base import Divergence, Matrices, Search, check_weighted
from divlearn.engines import Engine
from divlearn.geometry import geodesic
from divlearn.means import arithmetic_mean, harmonic_mean, mean_abld


@dataclass(frozen=True)
class ABDivergence(Divergence):
    r"""A member of the alpha-beta family in its textbook form.

    ``div(X, Y)`` is ``scale`` times :math:`D^{(\alpha,\beta)}(X \| Y)` or, if ``symmetrized``,
    times the mean of both directions.

    Attributes
    ----------
    name : str
    alpha, beta : float
    scale : float, ratio of the textbook form to D
    symmetrized : bool, whether both directions are averaged
    squared_distance, formula, aliases : see `Divergence`

    Examples
    --------
    >>> import numpy as np
    >>> bhattacharyya = ABDivergence("mine", 0.5, 0.5, scale=0.25)
    >>> round(float(bhattacharyya(np.eye(2), 3 * np.eye(2))), 6)
    0.287682
    >>> bhattacharyya.mean([[[1.0]], [[4.0]]]).round(9)
    array([[2.]])
    """

    alpha: float
    beta: float
    scale: float = 1.0
    symmetrized: bool = False

    def _compare(self, X: RealArray, Y: RealArray) -> RealArray:
        value = compare(X, Y, self.alpha, self.beta)
        if self.symmetrized:
            value = 0.5 * (value + compare(X, Y, self.beta, self.alpha))
        return self.scale * value

    def pairwise(
        self,
        X: Matrices,
        Y: Matrices | None = None,
        *,
        squared: bool | None = None,
        engine: str | Engine = "auto",
        **options: Any,
    ) -> RealArray:
        """Table of all pairs in the textbook form; further options are those of `pairwise_abld`."""
        options["engine"] = engine
        value = pairwise_abld(X, Y, alpha=self.alpha, beta=self.beta, **options)
        if self.symmetrized:
            options.pop("out", None)  # it holds the first direction
            value += pairwise_abld(X, Y, alpha=self.beta, beta=self.alpha, **options)
            value *= 0.5
        value *= self.scale
        value[...] = self._convention(value, squared)
        return value

    def _mean(self, X: Matrices, weight: ArrayLike | None, search: Search) -> RealArray:
        if self.symmetrized:
            return self._symmetric_mean(X, weight)
        closed = {(0.0, 1.0): arithmetic_mean, (1.0, 0.0): harmonic_mean}.get(self.point)
        if closed is not None:
            return closed(*check_weighted(X, weight))
        engine, init, tol, _ = search
        data = engine.keep(X)
        found = mean_abld(data, *self.point, weight, init, tol=tol, engine=engine)
        if not found.converged:
            search.warn(found.message)
        return found.mean

    def _symmetric_mean(self, X: Matrices, weight: ArrayLike | None) -> RealArray:
        if {abs(self.alpha), abs(self.beta)} != {0.0, 1.0}:
            raise ValueError(
                f"divergence={self.name!r} is the mean of both directions, whose means have no "
                "closed form except for 'jeffreys'; pass that, 'stein', which is symmetric, or a "
                "single direction (alpha, beta)"
            )
        matrices, weights = check_weighted(X, weight)
        arithmetic = arithmetic_mean(matrices, weights)
        return geodesic(arithmetic, harmonic_mean(matrices, weights), 0.5)

    @property
    def point(self) -> tuple[float, float]:
        """The pair (alpha, beta), both >= 0, of a single direction: its centroids are unique."""
        if self.symmetrized:
            raise ValueError(
                f"divergence={self.name!r} is the mean of both directions, must be a single one; "
                "pass 'stein', which is symmetric, or 'burg'"
            )
        return nonnegative_point(self.alpha, self.beta)

    def symmetrize(self) -> Self:
        """Return the mean of both directions of this divergence."""
        if self.symmetrized or self.alpha == self.beta:
            return self
        name = f"symmetrized {self.name}"
        return replace(self, name=name, symmetrized=True, formula="", aliases=())
