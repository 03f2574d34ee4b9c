"""Burg's divergence and its reverse on the device: one matrix product for all pairs.

The formulas are those of `divlearn.engines.traces`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from divlearn.engines.cuda.data import Block, CudaAtoms
from divlearn.engines.cuda.lazy import cp
from divlearn.engines.limits import LARGEST_SPREAD, SMALLEST_TRACE, TRACE_EXPONENT

__all__ = ["TraceTable"]

_LOG_2 = float(np.log(2.0))


class TraceTable:
    """Traces of the products of all matrices, or their inverses, with those of all atoms.

    Parameters
    ----------
    block : Block
    atoms : CudaAtoms
    inverse : bool
        Whether (1, 0) is meant instead of (0, 1).
    """

    def __init__(self, block: Block, atoms: CudaAtoms, *, inverse: bool) -> None:
        self.block, self.atoms, self.inverse = block, atoms, inverse

    @staticmethod
    def usable(block: Block, atoms: CudaAtoms) -> bool:
        """Whether sizes and conditioning allow these formulas for all pairs."""
        largest, low, high = block.extremes
        low, high = min(low, atoms.exponent.min()), max(high, atoms.exponent.max())
        return bool(high - low <= TRACE_EXPONENT) and bool(
            largest <= LARGEST_SPREAD / atoms.spread.max()
        )

    def _matrices(self) -> Any:
        """Return matrices of the data or their inverses, (n, d * d); computed once."""
        if not self.inverse:
            return self.block.matrices.reshape(len(self.block), -1)
        if "inverses" not in self.block.kept:
            inverses = cp.linalg.inv(self.block.matrices)
            inverses = 0.5 * (inverses + inverses.transpose(0, 2, 1))
            self.block.kept["inverses"] = inverses.reshape(len(self.block), -1)
        return self.block.kept["inverses"]

    def values(self, out: Any) -> Any:
        """Divergences into out (n_matrices, n_atoms).

        Returns where they are too small to be trusted, None if nowhere.
        """
        block, atoms = self.block, self.atoms
        d = atoms.matrices.shape[-1]
        other = atoms.matrices if self.inverse else atoms.in_units(atoms.inverse)
        unit = float(atoms.exponent[0])
        of_data = block.logdets + (block.exponents - unit) * (d * _LOG_2)
        of_atoms = atoms.logdets + (atoms.exponents - unit) * (d * _LOG_2)
        sign = -1.0 if self.inverse else 1.0
        traces = cp.matmul(self._matrices(), other.reshape(len(atoms), -1).T)
        out[...] = traces - sign * (of_data[:, None] - of_atoms) - d
        small = out < SMALLEST_TRACE * d
        return small if bool(small.any()) else None

    def gradient(self, cotangent: Any) -> Any:
        """At (0, 1) sum_i w_i (B^-1 - B^-1 X_i B^-1), at (1, 0) sum_i w_i (X_i^-1 - B^-1)."""
        precision = self.atoms.in_units(self.atoms.inverse)
        summed = cp.matmul(cotangent.T, self._matrices()).reshape(precision.shape)
        own = cotangent.sum(axis=0)[:, None, None] * precision
        if self.inverse:
            return 0.5 * (summed + summed.transpose(0, 2, 1)) - own
        product = cp.matmul(cp.matmul(precision, summed), precision)
        return own - 0.5 * (product + product.transpose(0, 2, 1))
