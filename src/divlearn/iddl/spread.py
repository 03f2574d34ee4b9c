"""How features spread: what a step of the head is measured by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from divlearn.arrays import RealArray, to_host

__all__ = ["Spread"]


@dataclass(frozen=True, eq=False)
class Spread:
    r"""Mean :math:`\mu` and covariance :math:`U \operatorname{diag}(\lambda) U^T` of features."""

    mean: RealArray
    values: RealArray
    vectors: RealArray

    @classmethod
    def of(cls, design: RealArray, weights: RealArray, *, centre: bool) -> Self:
        """Spread of the rows of a design, around zero where there is no bias to centre them."""
        mean = weights @ design if centre else np.zeros(design.shape[1], like=design)
        centred = design - mean
        covariance = centred.T @ (weights[:, None] * centred)
        return cls.around(to_host(mean), to_host(covariance))

    @classmethod
    def around(cls, mean: RealArray, covariance: RealArray) -> Self:
        """Spread of a known covariance."""
        values, vectors = np.linalg.eigh(covariance)
        return cls(mean, np.maximum(values, 0), vectors)
