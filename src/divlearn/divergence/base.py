"""Divergences of SPD matrices: values, tables of pairs and a mean; and the alpha-beta family."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from divlearn.alpha_beta import (
    check_pair,
    check_sizes,
    compare,
    nonnegative_point,
    pairwise_abld,
    real_forms,
)
from divlearn.arrays import RealArray
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.geometry import geodesic
from divlearn.hermitian import from_real_form
from divlearn.means import arithmetic_mean, harmonic_mean, mean_abld
from divlearn.spd import check_spd
from divlearn.weights import check_weights

Matrices = ArrayLike | Prepared


@dataclass(frozen=True)
class Divergence(ABC):
    r"""A divergence D(X || Y) of SPD matrices, real or complex Hermitian, in its textbook form.

    It can be passed as ``metric`` to pyRiemann's functions: called with pyRiemann's argument
    ``squared``, it returns what pyRiemann's function of that name does. pyRiemann's estimators need
    a mean as well: see `divlearn.divergence.for_pyriemann`, which is also faster where pyRiemann
    asks for pairs one by one.

    Attributes
    ----------
    name : str
    squared_distance : bool, whether the textbook form is the square of a distance
    formula : str, the textbook form
    aliases : tuple of str
    """

    name: str
    _: KW_ONLY
    squared_distance: bool = False
    formula: str = ""
    aliases: tuple[str, ...] = ()

    def __call__(self, X: ArrayLike, Y: ArrayLike, squared: bool | None = None) -> RealArray:
        """Divergence in its textbook form, broadcast over leading dimensions.

        ``squared`` is pyRiemann's convention: if False, the distance is returned where the textbook
        form is a squared distance; if True, the square of that result.
        """
        (X, Y), share = real_forms(X, Y)
        divergence = self.for_forms(share)
        return self._convention(share * divergence._compare(*check_pair(X, Y)), squared)

    def pairwise(
        self,
        X: Matrices,
        Y: Matrices | None = None,
        *,
        squared: bool | None = None,
        engine: str | Engine = "auto",
    ) -> RealArray:
        """Table of all pairs in the textbook form, shape (n_matrices_X, n_matrices_Y).

        Only members of the alpha-beta family need an ``engine``. ``squared`` is as in a call.
        """
        (X, Y), share = real_forms(X, Y)
        first = check_set(X)
        second = first if Y is None else check_set(Y, "Y")
        check_sizes(first, second)
        divergence = self.for_forms(share)
        table = share * divergence._table(first, second)
        if Y is None:
            np.fill_diagonal(table, 0.0)
        return self._convention(table, squared)

    def mean(
        self,
        X: Matrices,
        sample_weight: ArrayLike | None = None,
        *,
        engine: str | Engine = "auto",
        init: ArrayLike | None = None,
        tol: float = 1e-10,
        what: str = "the matrices",
    ) -> RealArray:
        r"""Mean :math:`\arg\min_C \sum_i w_i D(X_i \,\|\, C)`, shape (d, d).

        Where it has no closed form, the search starts at ``init`` and stops when the norm of the
        gradient, which has no unit, is below ``tol``. If it never is, a warning names ``what``.
        """
        (X, init), share = real_forms(X, init)
        engine = get_engine(engine)
        divergence = self.for_forms(share)
        mean = divergence._mean(X, sample_weight, engine=engine, init=init, tol=tol, what=what)
        return mean if share == 1 else from_real_form(mean)

    def for_forms(self, share: float) -> Self:
        """Return the divergence for matrices (share 1), or for real forms of complex ones (1/2)."""
        return self if share == 1 else self.of_real_form()

    def of_real_form(self) -> Self:
        """Return the divergence for real forms: twice that of the complex matrices."""
        return self

    @abstractmethod
    def _compare(self, X: RealArray, Y: RealArray) -> RealArray:
        """Divergences of checked matrices in the textbook form, broadcast over (...)."""

    @abstractmethod
    def _mean(
        self,
        X: Matrices,
        weight: ArrayLike | None,
        *,
        engine: Engine,
        init: ArrayLike | None,
        tol: float,
        what: str,
    ) -> RealArray:
        """Compute the mean of real matrices; parameters as in `mean`."""

    def _table(self, X: RealArray, Y: RealArray) -> RealArray:
        return np.stack([self._compare(X, matrix) for matrix in Y], axis=1)

    def _convention(self, value: RealArray, squared: bool | None) -> RealArray:
        if squared is None or (squared and self.squared_distance):
            return value
        if self.squared_distance:
            return np.sqrt(np.maximum(value, 0))
        return value**2 if squared else value


def check_set(X: Matrices, name: str = "X") -> RealArray:
    return X.matrices if isinstance(X, Prepared) else check_spd(X, ndim=3, name=name)


def warn_inexact(what: str, message: str) -> None:
    """Warn that the search for the mean of ``what`` ended early, and why."""
    from sklearn.exceptions import ConvergenceWarning  # takes a second to import

    message = f"the mean of {what} is not exact: {message}"
    warnings.warn(message, ConvergenceWarning, stacklevel=4)


def check_weighted(X: Matrices, weight: ArrayLike | None) -> tuple[RealArray, RealArray]:
    """Return checked matrices in double precision, and weights with the sum one."""
    matrices = check_set(X).astype(np.float64, copy=False)
    weights = check_weights(weight, len(matrices))
    return matrices, weights / weights.sum()


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

    def _mean(
        self,
        X: Matrices,
        weight: ArrayLike | None,
        *,
        engine: Engine,
        init: ArrayLike | None,
        tol: float,
        what: str,
    ) -> RealArray:
        if self.symmetrized:
            return self._symmetric_mean(X, weight)
        closed_form = {(0.0, 1.0): arithmetic_mean, (1.0, 0.0): harmonic_mean}.get(self.point)
        if closed_form is not None:
            return closed_form(*check_weighted(X, weight))
        result = mean_abld(engine.keep(X), *self.point, weight, init, tol=tol, engine=engine)
        if not result.converged:
            warn_inexact(what, result.message)
        return result.mean

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
        """The pair (alpha, beta), both >= 0; symmetrized divergences have none."""
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
