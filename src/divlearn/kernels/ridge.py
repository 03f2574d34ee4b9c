"""Ridge regression with a kernel, decomposed once for all penalties."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from scipy.linalg import eigh

from divlearn.arrays import RealArray, to_device_of, to_host

PENALTIES = tuple(10.0**power for power in range(-5, 4))  # to choose from


@dataclass(frozen=True, eq=False)
class KernelModel:
    """Numbers that are linear in kernels with the training matrices."""

    coefficients: Annotated[RealArray, "n_matrices"]
    offset: float

    def decide(self, kernels: RealArray) -> RealArray:
        return to_host(kernels @ to_device_of(self.coefficients, kernels)) + self.offset


class KernelRidge:
    r"""Minimise :math:`\sum_i w_i (y_i - b - f(X_i))^2 + \lambda \|f\|^2` for any penalty.

    b is the weighted mean of y. Kernels of some divergences are not positive definite: directions
    of negative eigenvalues are left out.
    """

    def __init__(self, kernel: RealArray, numbers: RealArray, weights: RealArray) -> None:
        self._roots = np.sqrt(weights)
        self._offset = float(np.average(numbers, weights=weights))
        values, vectors = eigh(self._roots[:, None] * kernel * self._roots, driver="evd")
        self._values, self._vectors = values[values > 0], vectors[:, values > 0]
        self._projected = (self._roots * (numbers - self._offset)) @ self._vectors

    def learn(self, penalty: float) -> KernelModel:
        shrunk = self._projected / (self._values + penalty)
        return KernelModel(self._roots * (self._vectors @ shrunk), self._offset)
