"""The native engine: compiled kernels that run one matrix per vector lane.

Data is packed once, several matrices side by side; every verb then works on blocks that stay in
the cache. This module only prepares arrays and turns sums into gradients; the kernels are under
``native/``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
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
_THREAD_OPERATIONS = 1e7  # per thread: some 200 microseconds, well above what waking it costs
_SUM_ENTRIES = 1 << 23  # entries of partial sums a pullback may hold
_CHUNKS = 16  # partial sums per atom: enough for the threads, whatever their number
_CHUNK_MATRICES = 96  # at least, so that blocks of lanes are full
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

    def arrays(self, inverse: RealArray = _NOTHING) -> Any:
        """Return the arrays the kernels take."""
        return _native.DataArrays(
            self.n_matrices, self.d, self.factor, self.matrix, inverse, self.logdet,
            self.exponent, self.spread,
        )  # fmt: skip

    def rows(self, group: int) -> slice:
        """Rows of a group of lanes."""
        return slice(group * self.lanes, min((group + 1) * self.lanes, self.n_matrices))


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

    def arrays(self) -> Any:
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


def _add(result: Pullback, extra: Pullback, rows: slice, atom: slice) -> None:
    """Add what the reference engine found for some rows of one atom, in place."""
    result.atoms[atom] += extra.atoms
    result.whitened[atom] += extra.whitened
    for sums, share in ((result.alpha, extra.alpha), (result.beta, extra.beta)):
        if sums is not None and share is not None:
            sums[atom] += share
    if result.values is not None:
        result.values[rows, atom] = extra.values


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
        failed = self._run(_native.spectra, data, _Atoms(atoms), _NOTHING, out)
        for rows, atom, part in self._failures(data, failed):
            out[rows, atom] = self._reference._spectra(part, atoms[atom])
        return out

    def _encode(
        self, data: Prepared, atoms: RealArray, parameters: Parameters, out: RealArray
    ) -> None:
        assert isinstance(data, NativeData)
        if parameters.opposite:
            self._reference._encode(self._reference.prepare(data.matrices), atoms, parameters, out)
            return
        alpha, beta = parameters.alpha, parameters.beta
        reverse_burg = alpha.shape[1] == 1 and bool(((alpha == 1) & (beta == 0)).any())
        inverse = self._inverse(data) if reverse_burg else _NOTHING
        direct = out.dtype == np.float64 and out.flags.c_contiguous
        values = out if direct else np.empty(out.shape)
        failed = self._run(_native.encode, data, _Atoms(atoms), inverse, alpha, beta, values)
        for rows, atom, part in self._failures(data, failed):
            self._reference._encode(
                part, atoms[atom], parameters.chosen(np.arange(len(atoms))[atom]),
                values[rows, atom],
            )  # fmt: skip
        if not direct:
            out[...] = values

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
        chunks = self._chunks(data, atoms)
        inner = np.empty((n, chunks, len(atoms.lower[0])))
        first, second = (np.empty((n, chunks, pairs if with_parameters else 0)) for _ in range(2))
        values = np.empty(cotangent.shape if with_values else 0)
        failed = self._run(
            _native.pullback, data, atoms, _NOTHING, parameters.alpha, parameters.beta, cotangent,
            chunks, inner, first, second, values, False,
        )  # fmt: skip
        whitened = -atoms.unpack(inner.sum(axis=1))
        result = Pullback(
            atoms.congruence(whitened),
            whitened,
            first.sum(axis=1) if with_parameters else None,
            second.sum(axis=1) if with_parameters else None,
            values if with_values else None,
        )
        for rows, atom, part in self._failures(data, failed):
            extra = self._reference._pullback(
                part, atoms.original[atom], parameters.chosen(np.arange(n)[atom]),
                cotangent[rows, atom], with_parameters, with_values,
            )  # fmt: skip
            _add(result, extra, rows, atom)
        return result

    def _logdet_pullback(
        self, data: NativeData, atoms: _Atoms, parameters: Parameters, cotangent: RealArray
    ) -> Pullback:
        """Theta = 1: grad_B = sum_i w_i (N_i^-1 - B^-1)/alpha with N = alpha X + beta B."""
        alpha = parameters.alpha
        chunks = self._chunks(data, atoms)
        sums = np.empty((len(alpha), chunks, len(atoms.lower[0])))
        self._run(
            _native.pullback, data, atoms, _NOTHING, alpha, parameters.beta, cotangent, chunks,
            sums, _NOTHING, _NOTHING, _NOTHING, True,
        )  # fmt: skip
        total = sums.sum(axis=1)
        weight = cotangent.sum(axis=0)[:, :, None]
        own = weight * atoms.unpack(atoms.packed_inverse)
        return atoms.gradient(atoms.in_units((atoms.unpack(total) - own) / alpha[:, :, None]))

    def _trace_pullback(
        self, data: NativeData, atoms: _Atoms, inverse: bool, cotangent: RealArray
    ) -> Pullback:
        """(0,1): sum_i w_i (B^-1 - B^-1 X_i B^-1); (1,0): sum_i w_i (X_i^-1 - B^-1)."""
        packed = self._inverse(data) if inverse else data.matrix
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

    def _run(
        self, kernel: Callable[..., int], data: NativeData, atoms: _Atoms, inverse: RealArray,
        *arrays: Any,
    ) -> NDArray[np.uint8] | None:  # fmt: skip
        """Call a kernel; return its marks of (group, atom) without an answer, None if all have."""
        n = len(atoms.original)
        operations = data.n_matrices * n * (10.0 * data.d**3 + 300.0 * data.d**2)
        failed = np.zeros((-(-data.n_matrices // data.lanes), n), np.uint8)
        failures = kernel(
            self.instruction_set, data.arrays(inverse), atoms.arrays(), *arrays,
            self.condition_limit, self._threads(operations), failed,
        )  # fmt: skip
        return failed if failures else None

    def _failures(
        self, data: NativeData, failed: NDArray[np.uint8] | None
    ) -> Iterator[tuple[slice, slice, Prepared]]:
        """Yield what is beyond the range of the kernels, extreme scales, for the reference."""
        for group, atom in [] if failed is None else np.argwhere(failed).tolist():
            rows = data.rows(group)
            part = self._reference.prepare(data.matrices[rows])
            yield rows, slice(atom, atom + 1), part

    @staticmethod
    def _chunks(data: NativeData, atoms: _Atoms) -> int:
        """Partial sums per atom; depends on the data alone, so that results do not on threads."""
        most = _SUM_ENTRIES // (len(atoms.original) * len(atoms.lower[0]))
        return max(1, min(_CHUNKS, data.n_matrices // _CHUNK_MATRICES, most))

    def _inverse(self, data: NativeData) -> RealArray:
        return data.inverse(self._threads(data.factor.size * data.d))

    def _threads(self, operations: float) -> int:
        """Threads worth waking for that much work."""
        return 1 if _forked else int(np.clip(operations / _THREAD_OPERATIONS, 1, self.n_threads))

    @property
    def _reference(self) -> ReferenceEngine:
        return ReferenceEngine(self.n_threads, self.accuracy)
