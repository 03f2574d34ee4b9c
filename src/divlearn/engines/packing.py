"""Data and atoms in the form the compiled kernels take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from importlib import import_module
from typing import Any, cast

import numpy as np

from divlearn.arrays import DeviceArray, Indices, IntArray, RealArray
from divlearn.engines.data import Prepared, Pullback
from divlearn.engines.parameters import Extremes
from divlearn.engines.pencil import congruence, no_factor
from divlearn.threads import limit_blas

_native: Any = import_module("divlearn.engines._native")  # compiled: there are no types to import


def instruction_sets() -> tuple[str, ...]:
    """Instruction sets the kernels can use on this machine, the fastest first."""
    return tuple(_native.instruction_sets())


@lru_cache(maxsize=16)  # small fits prepare atoms of one size many times
def lower_triangle(d: int) -> tuple[Indices, Indices]:
    """Rows and columns of a lower triangle, row by row."""
    return np.tril_indices(d)


def _aligned(size: int) -> RealArray:
    """Return an array of doubles that starts on a cache line, as the vector loads need."""
    raw = np.empty(size + 8)
    start = (-raw.ctypes.data // raw.itemsize) % 8
    return raw[start : start + size]


@dataclass(eq=False)
class NativeData(Prepared):
    """Matrices in groups of `lanes`, interleaved entry by entry; the last group is padded."""

    instruction_set: str
    lanes: int
    factor: RealArray
    matrix: RealArray
    logdet: RealArray
    exponent: RealArray
    spread: RealArray

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the matrices alone: packed arrays lose their alignment on the way."""
        return _pack_again, (self.working, self.instruction_set, self.order)

    @cached_property
    def extremes(self) -> Extremes:
        return float(self.spread.max()), float(self.exponent.min()), float(self.exponent.max())

    @cached_property
    def unit(self) -> float:
        """A typical exponent, which serves as the unit."""
        return float(np.sort(self.exponent)[len(self.exponent) // 2])

    def arrays(self) -> DeviceArray:
        shape, packed = (self.n_matrices, self.d), (self.factor, self.matrix)
        return _native.DataArrays(*shape, *packed, self.logdet, self.exponent, self.spread)

    def block(self, start: int, stop: int) -> NativeData:
        """Matrices [start, stop) without copying; start is a multiple of `lanes`."""
        size = self.d * (self.d + 1) // 2
        end = -(-stop // self.lanes) * self.lanes
        packed, plain = slice(start * size, end * size), slice(start, end)
        return replace(
            self,
            working=self.working[start:stop],
            **{name: getattr(self, name)[packed] for name in ("factor", "matrix")},
            **{name: getattr(self, name)[plain] for name in ("logdet", "exponent", "spread")},
            cache={key: cast(RealArray, array)[start:stop] for key, array in self.cache.items()},
        )


def pack(
    matrices: RealArray, instruction_set: str, n_threads: int, order: IntArray | None = None
) -> NativeData:
    lanes = _native.lanes(instruction_set)
    count, d = len(matrices), matrices.shape[-1]
    padded = -(-count // lanes) * lanes
    factor, matrix = (_aligned(padded * d * (d + 1) // 2) for _ in range(2))
    logdet, exponent, spread = np.empty((3, padded))
    arrays = factor, matrix, logdet, exponent, spread
    double = matrices.astype(np.float64, copy=False)
    failed = _native.factor(instruction_set, double, *arrays, n_threads)
    if failed >= 0:
        raise no_factor(f"X[{failed}]")
    return NativeData("native", matrices, instruction_set, lanes, *arrays, order=order)


def _pack_again(matrices: RealArray, instruction_set: str, order: IntArray | None) -> NativeData:
    available = instruction_sets()
    chosen = instruction_set if instruction_set in available else available[0]
    return pack(matrices, chosen, 1, order)


class NativeAtoms:
    """Atoms in the form of the kernels, and the conversion of sums to gradients."""

    def __init__(self, atoms: RealArray) -> None:
        n, d = atoms.shape[:2]
        self.original, self.whitener = atoms, np.empty((n, d, d))
        self.packed, self.packed_inverse = np.empty((2, n, d * (d + 1) // 2))
        self.logdet, self.exponent, self.spread = np.empty((3, n))
        triangles, sizes = (self.packed, self.packed_inverse), (self.exponent, self.spread)
        failed = _native.prepare_atoms(atoms, self.whitener, *triangles, self.logdet, *sizes)
        if failed >= 0:
            raise no_factor(f"atoms[{failed}]")

    @property
    def lower(self) -> tuple[Indices, Indices]:
        """Rows and columns of the entries of packed triangles."""
        return lower_triangle(self.original.shape[-1])

    def select(self, index: Indices) -> NativeAtoms:
        return self if len(index) == len(self.original) else NativeAtoms(self.original[index])

    def arrays(self) -> DeviceArray:
        whole, sizes = (self.whitener, self.packed), (self.exponent, self.spread)
        return _native.AtomArrays(len(self.original), *whole, self.logdet, *sizes)

    def unpack(self, packed: RealArray) -> RealArray:
        full, (rows, columns) = np.empty_like(self.whitener), self.lower
        full[:, rows, columns] = full[:, columns, rows] = packed
        return full

    def in_units(self, gradient: RealArray) -> RealArray:
        """Undo the scaling of the atoms in arrays that scale as their inverses."""
        # Two factors: one alone might overflow where the product does not. `ldexp` would be slow.
        exponent = -self.exponent.astype(int).reshape(-1, *[1] * (gradient.ndim - 1))
        half = exponent // 2
        with np.errstate(over="ignore"):
            return gradient * np.ldexp(1.0, half) * np.ldexp(1.0, exponent - half)

    def inverse(self) -> RealArray:
        return self.unpack(self.in_units(self.packed_inverse))

    def gradient(self, euclidean: RealArray) -> Pullback:
        """Pair a Euclidean gradient with its whitened form ``L_B^T (gradient) L_B``."""
        with limit_blas(1):
            factor = np.linalg.cholesky(self.original)
            product = factor.mT @ euclidean @ factor
        return Pullback(euclidean, 0.5 * (product + product.mT))

    def congruence(self, inner: RealArray) -> RealArray:
        """``L_B^-T S L_B^-1``."""
        with limit_blas(1):
            return congruence(self.whitener, inner, self.exponent.astype(int))
