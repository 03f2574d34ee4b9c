"""Parameters of atoms, and the routes by which engines compute values and gradients."""

from __future__ import annotations

from copy import copy

import numpy as np
from numpy.typing import ArrayLike, NDArray

from divlearn import tolerances
from divlearn.arrays import DeviceArray, Indices, RealArray, as_real, to_device_of

_EPS = float(np.finfo(np.float64).eps)
_ROUTES = np.array(["spectrum", "trace", "inverse trace", "logdet"])
Extremes = tuple[float, float, float]  # of data: largest spread, smallest and largest exponent


class Parameters:
    """Parameters of all atoms, (n_atoms, m), brought to alpha, beta >= 0 where signs agree."""

    def __init__(self, alpha: ArrayLike, beta: ArrayLike, n_atoms: int) -> None:
        first, second = (
            as_real(value, name, largest=tolerances.LARGEST_PARAMETER)
            for value, name in ((alpha, "alpha"), (beta, "beta"))
        )
        try:
            single_pair = max(first.ndim, second.ndim) < 2  # one pair per atom
            shape = np.broadcast(first, second, *[np.empty(n_atoms)] * single_pair).shape
            if len(shape) > 2 or shape[0] != n_atoms or 0 in shape:
                raise ValueError
        except ValueError:
            raise ValueError(
                f"alpha has shape {first.shape} and beta {second.shape}, but both must fit "
                f"(n_atoms,) = ({n_atoms},) or (n_atoms, n_pairs); pass one number for all atoms "
                "or one per atom"
            ) from None
        a, b = np.empty((2, *shape))
        a[...], b[...] = first, second
        a, b = a.reshape(n_atoms, -1), b.reshape(n_atoms, -1)
        # D^(-a,-b) = D^(b,a): negative pairs become positive, and `restore` maps gradients back.
        self._negative = (a <= 0) & (b <= 0) & ((a < 0) | (b < 0))
        # Adding zero turns -0.0 into 0.0.
        self.alpha: RealArray = np.where(self._negative, -b, a) + 0.0
        self.beta: RealArray = np.where(self._negative, -a, b) + 0.0
        self.shape = shape  # of the caller, (n_atoms,) or (n_atoms, m)

    @property
    def opposite(self) -> bool:
        """Whether any pair has opposite signs (a bounded domain; no compiled route)."""
        return bool(((self.alpha < 0) | (self.beta < 0)).any())

    def select(self, index: Indices) -> Parameters:
        return self if len(index) == len(self.alpha) else self._part(index, self.shape[1:])

    def pairs(self) -> list[Parameters]:
        """Split into one object per pair, each with the parameters of all atoms."""
        columns = range(self.alpha.shape[1])
        return [self._part((slice(None), slice(j, j + 1)), (1,)) for j in columns]

    def _part(self, index: DeviceArray, pairs: tuple[int, ...]) -> Parameters:
        part = copy(self)  # without the checks of __init__
        part.alpha, part.beta = self.alpha[index], self.beta[index]
        part._negative, part.shape = self._negative[index], (len(part.alpha), *pairs)
        return part

    def restore(self, alpha: RealArray, beta: RealArray) -> tuple[RealArray, RealArray]:
        """Turn gradients in alpha and beta into those for the pairs of the caller."""
        if self._negative.any():
            negative = to_device_of(self._negative, alpha)
            alpha, beta = np.where(negative, -beta, alpha), np.where(negative, -alpha, beta)
        return alpha.reshape(self.shape), beta.reshape(self.shape)


def value_routes(parameters: Parameters) -> NDArray[np.str_]:
    """Route to the values of each atom: "spectrum", "trace", "inverse trace" or "logdet"."""
    if parameters.alpha.shape[1] > 1:
        return np.full(len(parameters.alpha), "spectrum")
    return _closed_forms(parameters)[:, 0]


def _closed_forms(parameters: Parameters) -> NDArray[np.str_]:
    """Route to the value of each atom and pair, if it is computed alone."""
    alpha, beta = parameters.alpha, parameters.beta
    line = (np.abs(alpha + beta - 1) <= _EPS) & (alpha > 0) & (beta > 0)
    chosen = 3 * line + ((alpha == 0) & (beta == 1)) + 2 * ((alpha == 1) & (beta == 0))
    return _ROUTES[chosen]


def gradient_routes(
    parameters: Parameters, atoms: DeviceArray, extremes: Extremes, condition_limit: float
) -> NDArray[np.str_]:
    """Route to the gradient of each atom and pair; without eigenvectors where that is accurate."""
    spread, low, high = extremes
    accurate = spread <= tolerances.largest_spread(condition_limit) / atoms.spread
    for exponent in (low, high):
        accurate &= np.abs(atoms.exponent - exponent) <= tolerances.LOGDET_EXPONENT
    routes = np.where(accurate[:, None], _closed_forms(parameters), "spectrum")
    small_alpha = parameters.alpha < tolerances.LEAST_ALPHA
    extreme = np.abs(atoms.exponent[:, None]) > tolerances.LOGDET_EXPONENT  # traces keep the units
    return np.where(np.where(routes == "logdet", small_alpha, extreme), "spectrum", routes)


def traces_usable(atoms: DeviceArray, extremes: Extremes, condition_limit: float) -> bool:
    """Whether sizes and conditioning allow values by traces for all pairs."""
    spread, low, high = extremes
    low, high = min(low, atoms.exponent.min()), max(high, atoms.exponent.max())
    alike = high - low <= tolerances.TRACE_EXPONENT
    limit = tolerances.largest_spread(condition_limit) / atoms.spread.max()
    return bool(alike and spread <= limit)


def split_pairs(
    parameters: Parameters, atoms: DeviceArray, extremes: Extremes, condition_limit: float
) -> list[Parameters]:
    """Split pairs where none needs a spectrum; otherwise one pass of spectra serves them all."""
    several = parameters.alpha.shape[1] > 1
    on_line = several and (np.abs(parameters.alpha + parameters.beta - 1) <= _EPS).all()
    if not on_line or not traces_usable(atoms, extremes, condition_limit):
        return [parameters]
    if "spectrum" in gradient_routes(parameters, atoms, extremes, condition_limit):
        return [parameters]
    return parameters.pairs()
