"""The native engine: compiled kernels that run one matrix per vector lane.

Data is packed once, several matrices side by side; every verb then works on blocks that stay in
the cache. This module only prepares arrays, cuts the work into calls short enough to be
interrupted, and turns sums into gradients; the kernels are under ``native/``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.engines import _native  # type: ignore[attr-defined]
from divlearn.engines.base import Engine, Parameters, Prepared, Pullback
from divlearn.engines.blas import limit_blas
from divlearn.engines.reference import ReferenceEngine

__all__ = ["NativeEngine", "instruction_sets"]

_NOTHING = np.empty(0)
_CALL_OPERATIONS = 2e9  # per call: well under a second, so that Ctrl-C is answered
_THREAD_OPERATIONS = 1e7  # per thread: some 200 microseconds, well above what waking it costs
_SUM_ENTRIES = 1 << 23  # entries of partial sums a pullback may hold
_CHUNKS = 16  # partial sums per atom: enough for the threads, whatever their number
_DIRECT_SPREAD = 1e6  # conditioning up to which gradients need no eigenvectors
_LAPACK_DIMENSION = 256  # from here on LAPACK's eigenvectors win

# A forked child has none of its parent's OpenMP threads, and libgomp would wait for them.
_forked = False


def _note_fork() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def instruction_sets() -> tuple[str, ...]:
    """Instruction sets the kernels can use on this machine, the fastest first.

    Examples
    --------
    >>> instruction_sets()[-1]
    'baseline'
    """
    return tuple(_native.instruction_sets())


def _aligned(size: int) -> RealArray:
    """Return an array of doubles that starts on a cache line, as the vector loads need."""
    raw = np.empty(size + 8)
    start = (-raw.ctypes.data // raw.itemsize) % 8
    return raw[start : start + size]


@dataclass(frozen=True, eq=False)
class NativeData(Prepared):
    """Packed lanes: entry by entry, `lanes` matrices side by side, the last group padded."""

    lanes: int
    factor: RealArray
    matrix: RealArray
    logdet: RealArray
    exponent: RealArray
    spread: RealArray
    instruction_set: str
    _inverse: list[RealArray] = field(default_factory=list)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the matrices alone: packed arrays lose their alignment on the way."""
        return _prepare_again, (self.matrices, self.instruction_set)

    def inverse(self, n_threads: int) -> RealArray:
        """Packed inverses, computed when first asked for."""
        if not self._inverse:
            inverse = _aligned(self.factor.size)
            _native.invert(
                self.instruction_set, self.n_matrices, self.d, self.factor, inverse, n_threads
            )
            self._inverse.append(inverse)
        return self._inverse[0]

    def part(self, start: int, stop: int, inverse: RealArray) -> Any:
        """Matrices [start, stop) as the kernels take them; start is a multiple of `lanes`."""
        size = self.d * (self.d + 1) // 2
        end = -(-stop // self.lanes) * self.lanes
        packed, plain = slice(start * size, end * size), slice(start, end)
        return _native.DataArrays(
            stop - start, self.d, self.factor[packed], self.matrix[packed], inverse[packed],
            self.logdet[plain], self.exponent[plain], self.spread[plain],
        )  # fmt: skip


def _prepare_again(matrices: RealArray, instruction_set: str) -> NativeData:
    usable = instruction_set if instruction_set in instruction_sets() else None
    return NativeEngine(instruction_set=usable)._prepare(matrices)


class _Atoms:
    """Atoms as the kernels take them, and what turns their sums into gradients."""

    def __init__(self, atoms: RealArray) -> None:
        n, d = atoms.shape[:2]
        self.original = atoms
        self.lower = np.tril_indices(d)
        self.whitener = np.empty((n, d, d))
        self.packed, self.packed_inverse = np.empty((2, n, d * (d + 1) // 2))
        self.logdet, self.exponent, self.spread = np.empty((3, n))
        failed = _native.prepare_atoms(
            atoms, self.whitener, self.packed, self.packed_inverse, self.logdet, self.exponent,
            self.spread,
        )  # fmt: skip
        if failed >= 0:
            raise ValueError(
                f"atoms[{failed}] has no Cholesky factor in double precision; see check_spd for "
                "a diagnosis and for repair"
            )

    def chosen(self, index: NDArray[np.intp]) -> _Atoms:
        """Select some of the atoms."""
        return self if len(index) == len(self.original) else _Atoms(self.original[index])

    def part(self) -> Any:
        """Return the arrays the kernels take."""
        return _native.AtomArrays(
            len(self.original), self.whitener, self.packed, self.packed_inverse, self.logdet,
            self.exponent, self.spread,
        )  # fmt: skip

    def unpack(self, packed: RealArray) -> RealArray:
        """Symmetric matrices from packed lower triangles."""
        full = np.empty_like(self.whitener)
        rows, columns = self.lower
        full[:, rows, columns] = packed
        full[:, columns, rows] = packed
        return full

    def in_units(self, gradient: RealArray) -> RealArray:
        """Undo the scaling of the atoms on something that scales as their inverse."""
        scaled: RealArray = np.ldexp(gradient, -self.exponent.astype(int)[:, None, None])
        return scaled

    def inverse(self) -> RealArray:
        """Inverse atoms."""
        return self.in_units(self.unpack(self.packed_inverse))

    def gradient(self, euclidean: RealArray) -> Pullback:
        """Add ``L_B^T (gradient) L_B`` to a gradient found without it."""
        with limit_blas(1):
            factor = np.linalg.cholesky(self.original)
            product = factor.mT @ euclidean @ factor
        return Pullback(euclidean, 0.5 * (product + product.mT))

    def congruence(self, inner: RealArray) -> RealArray:
        """``L_B^-T S L_B^-1``."""
        with limit_blas(1):
            product = self.whitener.mT @ inner @ self.whitener
        return self.in_units(0.5 * (product + product.mT))


def _direct_routes(parameters: Parameters, spread: RealArray) -> NDArray[np.str_]:
    """How each atom's gradient is found; without eigenvectors where parameters and data allow."""
    alpha, beta = parameters.alpha[:, 0], parameters.beta[:, 0]
    line = (np.abs(alpha + beta - 1) <= np.finfo(float).eps) & (alpha > 0) & (beta > 0)
    routes = np.select(
        [spread > _DIRECT_SPREAD, line, (alpha == 0) & (beta == 1), (alpha == 1) & (beta == 0)],
        ["spectrum", "logdet", "trace", "inverse_trace"],
        "spectrum",
    )
    return np.asarray(routes)


class NativeEngine(Engine):
    """Compiled kernels with AVX-512, AVX2 or whatever the machine has. See `Engine`.

    Parameters
    ----------
    n_threads, accuracy : as in `Engine`
    instruction_set : str, optional
        One of `instruction_sets`; the fastest by default.
    """

    name: ClassVar[str] = "native"

    def __init__(
        self, n_threads: int | None = None, accuracy: str = "auto",
        instruction_set: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(n_threads, accuracy)
        available = instruction_sets()
        if instruction_set is not None and instruction_set not in available:
            raise ValueError(
                f"instruction_set={instruction_set!r} must be one of {', '.join(available)} on "
                "this machine"
            )
        self.instruction_set = instruction_set or available[0]

    def __repr__(self) -> str:
        """Name the engine and its settings."""
        return f"{super().__repr__()[:-1]}, instruction_set={self.instruction_set!r})"

    def prepare(self, X: Any) -> Prepared:
        """Validate data and pack it for the vector lanes. See `Engine.prepare`."""
        prepared = super().prepare(X)
        if isinstance(prepared, NativeData) and prepared.instruction_set != self.instruction_set:
            return self._prepare(prepared.matrices)
        return prepared

    def _prepare(self, matrices: RealArray) -> NativeData:
        lanes = _native.lanes(self.instruction_set)
        count, d = len(matrices), matrices.shape[-1]
        padded = -(-count // lanes) * lanes
        factor, matrix = (_aligned(padded * d * (d + 1) // 2) for _ in range(2))
        logdet, exponent, spread = np.empty((3, padded))
        failed = _native.factor(
            self.instruction_set,
            matrices.astype(np.float64, copy=False),
            factor,
            matrix,
            logdet,
            exponent,
            spread,
            self._threads(factor.size * d),
        )
        if failed >= 0:
            raise ValueError(
                f"X[{failed}] has no Cholesky factor in double precision; see check_spd for a "
                "diagnosis and for repair"
            )
        return NativeData(
            self.name,
            matrices,
            lanes,
            factor,
            matrix,
            logdet,
            exponent,
            spread,
            self.instruction_set,
        )

    def _spectra(self, data: Prepared, atoms: RealArray) -> RealArray:
        assert isinstance(data, NativeData)
        out = np.empty((data.n_matrices, len(atoms), data.d))
        everything = _Atoms(atoms).part()
        for start, stop, threads in self._calls(data, len(atoms)):
            failures = _native.spectra(
                self.instruction_set, data.part(start, stop, _NOTHING), everything,
                out[start:stop], self.condition_limit, threads,
            )  # fmt: skip
            if failures:
                rows = self._reference.prepare(data.matrices[start:stop])
                out[start:stop] = self._reference._spectra(rows, atoms)
        return out

    def _encode(
        self, data: Prepared, atoms: RealArray, parameters: Parameters, out: RealArray
    ) -> None:
        assert isinstance(data, NativeData)
        if parameters.opposite:
            self._reference._encode(self._reference.prepare(data.matrices), atoms, parameters, out)
            return
        everything = _Atoms(atoms).part()
        alpha, beta = parameters.alpha, parameters.beta
        reverse_burg = bool(((alpha == 1) & (beta == 0)).any()) and alpha.shape[1] == 1
        inverse = (
            data.inverse(self._threads(data.factor.size * data.d)) if reverse_burg else _NOTHING
        )
        direct = out.dtype == np.float64 and out.flags.c_contiguous
        for start, stop, threads in self._calls(data, len(atoms)):
            block = out[start:stop] if direct else np.empty((stop - start, *out.shape[1:]))
            failures = _native.encode(
                self.instruction_set, data.part(start, stop, inverse), everything, alpha, beta,
                block, self.condition_limit, threads,
            )  # fmt: skip
            if failures:
                rows = self._reference.prepare(data.matrices[start:stop])
                self._reference._encode(rows, atoms, parameters, block)
            if not direct:
                out[start:stop] = block

    def _pullback(
        self, data: Prepared, atoms: RealArray, parameters: Parameters, cotangent: RealArray,
        with_parameters: bool, with_values: bool,
    ) -> Pullback:  # fmt: skip
        assert isinstance(data, NativeData)
        if parameters.opposite or data.d >= _LAPACK_DIMENSION:
            return self._reference._pullback(
                self._reference.prepare(data.matrices), atoms, parameters, cotangent,
                with_parameters, with_values,
            )  # fmt: skip
        prepared = _Atoms(atoms)
        if with_parameters or with_values or cotangent.shape[2] > 1:
            return self._spectral_pullback(
                data, prepared, parameters, cotangent, with_parameters, with_values
            )
        gradient, whitened = np.empty((2, *atoms.shape))
        routes = _direct_routes(parameters, data.spread.max() * prepared.spread)
        for route in np.unique(routes):
            chosen = np.flatnonzero(routes == route)
            some = prepared.chosen(chosen)
            weights = np.ascontiguousarray(cotangent[:, chosen])
            picked = parameters.chosen(chosen)
            if route == "spectrum":
                part = self._spectral_pullback(data, some, picked, weights, False, False)
            elif route == "logdet":
                part = self._logdet_pullback(data, some, picked, weights)
            else:
                part = self._trace_pullback(data, some, route == "inverse_trace", weights)
            gradient[chosen], whitened[chosen] = part.atoms, part.whitened
        return Pullback(gradient, whitened)

    def _spectral_pullback(
        self, data: NativeData, atoms: _Atoms, parameters: Parameters, cotangent: RealArray,
        with_parameters: bool, with_values: bool,
    ) -> Pullback:  # fmt: skip
        n, pairs = parameters.alpha.shape
        everything = atoms.part()
        inner = np.zeros((n, len(atoms.lower[0])))
        first, second = np.zeros((n, pairs)), np.zeros((n, pairs))
        values = np.empty(cotangent.shape) if with_values else None
        chunks = self._chunks(inner.size)
        sums = np.empty((n, chunks, inner.shape[1]))
        alphas, betas = (
            np.empty((n, chunks, pairs)) if with_parameters else _NOTHING for _ in range(2)
        )
        for start, stop, threads in self._calls(data, n):
            failures = _native.pullback(
                self.instruction_set, data.part(start, stop, _NOTHING), everything,
                parameters.alpha, parameters.beta, cotangent[start:stop], chunks, sums, alphas,
                betas, _NOTHING if values is None else values[start:stop], False,
                self.condition_limit, threads,
            )  # fmt: skip
            if failures:  # beyond the range of the kernels: extreme scales
                return self._reference._pullback(
                    self._reference.prepare(data.matrices), atoms.original, parameters, cotangent,
                    with_parameters, with_values,
                )  # fmt: skip
            inner += sums.sum(axis=1)
            if with_parameters:
                first += alphas.sum(axis=1)
                second += betas.sum(axis=1)
        whitened = -atoms.unpack(inner)
        gradient = atoms.congruence(whitened)
        if not with_parameters:
            return Pullback(gradient, whitened, values=values)
        return Pullback(gradient, whitened, first, second, values)

    def _logdet_pullback(
        self, data: NativeData, atoms: _Atoms, parameters: Parameters, cotangent: RealArray
    ) -> Pullback:
        """Theta = 1: grad_B = sum_i w_i (N_i^-1 - B^-1)/alpha with N = alpha X + beta B."""
        alpha, beta = parameters.alpha, parameters.beta
        everything = atoms.part()
        total = np.zeros((len(alpha), len(atoms.lower[0])))
        chunks = self._chunks(total.size)
        sums = np.empty((len(alpha), chunks, total.shape[1]))
        for start, stop, threads in self._calls(data, len(alpha)):
            _native.pullback(
                self.instruction_set, data.part(start, stop, _NOTHING), everything, alpha, beta,
                cotangent[start:stop], chunks, sums, _NOTHING, _NOTHING, _NOTHING, True,
                self.condition_limit, threads,
            )  # fmt: skip
            total += sums.sum(axis=1)
        weight = cotangent.sum(axis=0)[:, :, None]
        own = weight * atoms.unpack(atoms.packed_inverse)
        return atoms.gradient(atoms.in_units((atoms.unpack(total) - own) / alpha[:, :, None]))

    def _trace_pullback(
        self, data: NativeData, atoms: _Atoms, inverse: bool, cotangent: RealArray
    ) -> Pullback:
        """(0,1): sum_i w_i (B^-1 - B^-1 X_i B^-1); (1,0): sum_i w_i (X_i^-1 - B^-1)."""
        packed = data.inverse(self._threads(data.factor.size * data.d)) if inverse else data.matrix
        weights = np.ascontiguousarray(cotangent[:, :, 0])
        total = np.empty((weights.shape[1], len(atoms.lower[0])))
        _native.weighted_sum(
            self.instruction_set, data.n_matrices, data.d, packed, data.exponent,
            -1 if inverse else 1, weights, total, self._threads(packed.size * weights.shape[1]),
        )  # fmt: skip
        summed, precision = atoms.unpack(total), atoms.inverse()
        own = weights.sum(axis=0)[:, None, None] * precision
        if inverse:
            return atoms.gradient(summed - own)
        with limit_blas(1):
            product = precision @ summed @ precision
        return atoms.gradient(own - 0.5 * (product + product.mT))

    def _chunks(self, entries: int) -> int:
        return int(np.clip(_SUM_ENTRIES // entries, 1, _CHUNKS))

    def _calls(self, data: NativeData, n_atoms: int) -> Iterator[tuple[int, int, int]]:
        """Yield (start, stop, threads): row ranges, whole groups of lanes each, of bounded cost."""
        cost = n_atoms * (10.0 * data.d**3 + 300.0 * data.d**2)
        step = max(1, int(_CALL_OPERATIONS * self.n_threads / cost / data.lanes)) * data.lanes
        for start in range(0, data.n_matrices, step):
            stop = min(start + step, data.n_matrices)
            yield start, stop, self._threads((stop - start) * cost)

    def _threads(self, operations: float) -> int:
        """Threads worth waking for that much work."""
        return 1 if _forked else int(np.clip(operations / _THREAD_OPERATIONS, 1, self.n_threads))

    @property
    def _reference(self) -> ReferenceEngine:
        return ReferenceEngine(self.n_threads, self.accuracy)
