"""Base of all divergences of SPD matrices: values, tables of pairs, and a mean."""

import warnings
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from divlearn.alpha_beta import check_pair, check_sizes, real_forms
from divlearn.arrays import RealArray
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.hermitian import from_real_form
from divlearn.spd import check_spd
from divlearn.weights import check_weights

Matrices = ArrayLike | Prepared


class Search(NamedTuple):
    """How to look for a mean that has no closed form; see `Divergence.mean`."""

    engine: Engine
    init: ArrayLike | None
    tol: float
    what: str

    def warn(self, message: str) -> None:
        from sklearn.exceptions import ConvergenceWarning  # takes a second to import

        message = f"the mean of {self.what} is not exact: {message}"
        warnings.warn(message, ConvergenceWarning, stacklevel=4)


@dataclass(frozen=True)
class Divergence(ABC):
    r"""A divergence D(X || Y) of SPD matrices, real or complex Hermitian, in its textbook form.

    It can be passed as ``metric`` to pyRiemann's functions: called with pyRiemann's argument
    ``squared``, it returns what pyRiemann's function of that name does. pyRiemann's estimators need
    a mean as well: see `divlearn.divergence.for_pyriemann`.

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
        known = self if share == 1 else self.of_real_form()
        return self._convention(share * known._compare(*check_pair(X, Y)), squared)

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
        known = self if share == 1 else self.of_real_form()
        table = share * known._table(first, second)
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
        mean = self._mean(X, sample_weight, Search(get_engine(engine), init, tol, what))
        return mean if share == 1 else from_real_form(mean)

    def of_real_form(self) -> Self:
        """Return what gives twice the divergence of complex matrices for their real form."""
        return self

    @abstractmethod
    def _compare(self, X: RealArray, Y: RealArray) -> RealArray:
        """Divergences of checked matrices in the textbook form, broadcast over (...)."""

    @abstractmethod
    def _mean(self, X: Matrices, weight: ArrayLike | None, search: Search) -> RealArray: ...

    def _table(self, X: RealArray, Y: RealArray) -> RealArray:
        return np.stack([self._compare(X, one) for one in Y], axis=1)

    def _convention(self, value: RealArray, squared: bool | None) -> RealArray:
        if squared is None or (squared and self.squared_distance):
            return value
        if self.squared_distance:
            return np.sqrt(np.maximum(value, 0))
        return value**2 if squared else value


def check_set(X: Matrices, name: str = "X") -> RealArray:
    return X.matrices if isinstance(X, Prepared) else check_spd(X, ndim=3, name=name)


def check_weighted(X: Matrices, weight: ArrayLike | None) -> tuple[RealArray, RealArray]:
    """Return checked matrices in double precision, and weights that add up to one."""
    matrices = check_set(X).astype(np.float64, copy=False)
    weights = check_weights(weight, len(matrices))
    return matrices, weights / weights.sum()
