"""The native engine: compiled kernels, under ``native/``, that run one matrix per vector lane."""

import os
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import DeviceArray, IntArray, RealArray
from divlearn.engines.base import Engine
from divlearn.engines.data import Gradients, Prepared, Pullback, Request, add_part
from divlearn.engines.packing import (
    NativeAtoms,
    NativeData,
    _native,
    instruction_sets,
    lower_triangle,
    pack,
)
from divlearn.engines.parameters import (
    Parameters,
    gradient_routes,
    split_pairs,
    traces_usable,
    value_routes,
)
from divlearn.engines.pencil import decompose, factorize
from divlearn.engines.projected import line_of
from divlearn.engines.reference import ReferenceEngine
from divlearn.spectral import abld_scalar
from divlearn.threads import available_threads, limit_blas
from divlearn.tolerances import LARGEST_LISTED_SHARE, SMALLEST_TRACE

_NOTHING = np.empty(0)
_LOG_2 = float(np.log(2.0))
_THREAD_OPERATIONS = 1e7  # per thread: some 200 microseconds, well above what waking it costs
_LOGDET_SHARE = 0.2  # of the time of a spectrum that a log-determinant takes
_SUM_ENTRIES = 1 << 23  # entries of partial sums a pullback may hold
_CHUNKS = 16  # partial sums per atom: enough for the threads, whatever their number
# Groups of lanes in a block, at most, and from a dimension on: `block_size` of native/pullback.hpp.
_GROUPS, _FEW_GROUPS, _LARGE = 8, 2, 64
_BUFFER_ENTRIES = 1 << 23  # of a buffer for results that kernels cannot write in place
_LISTED_PAIRS = 4096  # pairs close to each other that are computed again at a time
_MAX_RANK = 16  # of filters in native/filters.hpp
_LAPACK_DIMENSION = 1024  # LAPACK's eigenvectors are faster above (measured: 1100, one thread)

# libgomp in a forked child would wait for OpenMP threads that only the parent has.
_LOADED_BY = os.getpid()


class NativeEngine(Engine):
    """Compiled kernels, by default with the fastest of `instruction_sets`. See `Engine`."""

    name: ClassVar[str] = "native"

    def __init__(
        self,
        n_threads: int | None = None,
        accuracy: str | float = "auto",
        instruction_set: str | None = None,
    ) -> None:
        super().__init__(n_threads, accuracy)
        available = instruction_sets()
        if instruction_set is not None and instruction_set not in available:
            raise ValueError(
                f"instruction_set={instruction_set!r} must be one of {', '.join(available)} on "
                "this machine"
            )
        self.instruction_set = instruction_set or available[0]

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, instruction_set={self.instruction_set!r})"

    def _available_threads(self) -> int:
        return available_threads(_native.max_threads)

    def prepare(self, X: DeviceArray) -> Prepared:
        prepared = super().prepare(X)
        if isinstance(prepared, NativeData) and prepared.instruction_set != self.instruction_set:
            return self._prepare(prepared.working, prepared.order)
        return prepared

    def _prepare(self, matrices: RealArray, order: IntArray | None = None) -> NativeData:
        threads = self._threads(matrices.size * matrices.shape[-1])
        return pack(matrices, self.instruction_set, threads, order)

    def _spectra(self, data: Prepared, atoms: RealArray) -> RealArray:
        assert isinstance(data, NativeData)
        out = np.empty((data.n_matrices, len(atoms), data.d))
        failed = self._run(_native.spectra, data, NativeAtoms(atoms), out)
        for rows, atom, part in self._failures(data, failed):
            out[rows, atom] = self._reference._spectra(part, atoms[atom])
        return out

    def _encode(
        self, data: Prepared, atoms: RealArray, parameters: Parameters, out: RealArray
    ) -> None:
        assert isinstance(data, NativeData)
        if parameters.opposite:
            self._reference._encode(self._reference._prepare(data.working), atoms, parameters, out)
            return
        prepared = NativeAtoms(atoms)
        pairs = split_pairs(parameters, prepared, data.extremes, self.condition_limit)
        self._encode_each(data, prepared, pairs, out)

    def _encode_each(
        self, data: NativeData, atoms: NativeAtoms, pairs: list[Parameters], out: RealArray
    ) -> None:
        if len(pairs) == 1:
            self._encode_pairs(data, atoms, pairs[0], out)
            return
        for index, pair in enumerate(pairs):
            values = np.empty((*out.shape[:2], 1))
            self._encode_pairs(data, atoms, pair, values)
            out[:, :, index] = values[:, :, 0]

    def _encode_pairs(
        self, data: NativeData, atoms: NativeAtoms, parameters: Parameters, out: RealArray
    ) -> None:
        routes = value_routes(parameters)
        routes[routes == "logdet"] = "spectrum"  # the kernels handle alpha + beta = 1
        direct = out.dtype == np.float64 and out.flags.c_contiguous
        for route in sorted(set(routes.tolist())):
            chosen = np.flatnonzero(routes == route)
            route_atoms, route_parameters = atoms.select(chosen), parameters.select(chosen)
            if direct and len(chosen) == len(routes):
                self._encode_route(route, data, route_atoms, route_parameters, out)
                continue
            # Through a buffer, block by block: the result may be larger than memory.
            step = max(1, _BUFFER_ENTRIES // (len(chosen) * out.shape[2] * data.lanes)) * data.lanes
            for start in range(0, data.n_matrices, step):
                block = data.block(start, min(start + step, data.n_matrices))
                values = np.empty((block.n_matrices, len(chosen), out.shape[2]))
                self._encode_route(route, block, route_atoms, route_parameters, values)
                out[start : start + step, chosen] = values

    def _spectral_encode(
        self, data: NativeData, atoms: NativeAtoms, parameters: Parameters, out: RealArray
    ) -> None:
        failed = self._run(_native.encode, data, atoms, parameters.alpha, parameters.beta, out)
        for rows, atom, part in self._failures(data, failed):
            pairs = parameters.select(np.arange(atom.start, atom.stop))
            self._reference._encode(part, atoms.original[atom], pairs, out[rows, atom])

    def _encode_route(
        self, route: str, data: NativeData, atoms: NativeAtoms, point: Parameters, out: RealArray
    ) -> None:
        if route == "spectrum" or not traces_usable(atoms, data.extremes, self.condition_limit):
            self._spectral_encode(data, atoms, point, out)
            return
        inverse = route == "inverse trace"
        threads = self._threads(data.n_matrices * atoms.packed.size)
        small = _trace_values(data, atoms, out[:, :, 0], inverse=inverse, n_threads=threads)
        if small is None:
            return
        if np.count_nonzero(small) > LARGEST_LISTED_SHARE * small.size:
            self._spectral_encode(data, atoms, point, out)
            return
        rows, columns = np.nonzero(small)
        for start in range(0, len(rows), _LISTED_PAIRS):
            listed = slice(start, start + _LISTED_PAIRS)
            factor, exponent = factorize(data.working[rows[listed]])
            whitened = atoms.whitener[columns[listed]] @ factor
            exponent = exponent - atoms.exponent[columns[listed]].astype(int)
            t = decompose(whitened, exponent, self.condition_limit, vectors=False)[0]
            scalar = abld_scalar(t, point.alpha[0, 0], point.beta[0, 0], derivatives=())
            out[rows[listed], columns[listed], 0] = scalar.f.sum(axis=-1)

    def _pullback(self, data: Prepared, atoms: RealArray, request: Request) -> Pullback:
        assert isinstance(data, NativeData)
        parameters, cotangent = request.parameters, request.cotangent
        if parameters.opposite or data.d >= _LAPACK_DIMENSION:
            engine = self._reference
            return engine._pullback(engine._prepare(data.working), atoms, request)
        prepared, state = NativeAtoms(atoms), (data.extremes, self.condition_limit)
        pairs = split_pairs(parameters, prepared, *state)
        routes = gradient_routes(parameters, prepared, *state)
        in_one_pass = len(pairs) < cotangent.shape[2]
        in_one_pass |= request.values and "spectrum" in routes
        if request.slopes or in_one_pass:
            return self._spectral_pullback(data, prepared, request)
        gradient, whitened = np.zeros((2, *atoms.shape))
        for index, pair in enumerate(pairs):
            for route in np.unique(routes[:, index]):
                chosen = np.flatnonzero(routes[:, index] == route)
                weights = np.ascontiguousarray(cotangent[:, chosen, index : index + 1])
                part_request = Request(pair.select(chosen), weights)
                part = self._pullback_route(route, data, prepared.select(chosen), part_request)
                gradient[chosen] += part.atoms
                whitened[chosen] += part.whitened
        values = np.empty(cotangent.shape) if request.values else None
        if values is not None:
            self._encode_each(data, prepared, pairs, values)
        return Pullback(gradient, whitened, values=values)

    def _pullback_route(
        self, route: str, data: NativeData, atoms: NativeAtoms, request: Request
    ) -> Pullback:
        if route == "spectrum":
            return self._spectral_pullback(data, atoms, request)
        if route == "logdet":
            return self._logdet_pullback(data, atoms, request)
        weights, threads = request.cotangent[:, :, 0], self._threads(np.inf)
        inverse = route == "inverse trace"
        return _trace_gradient(data, atoms, weights, inverse=inverse, n_threads=threads)

    def _spectral_pullback(
        self, data: NativeData, atoms: NativeAtoms, request: Request
    ) -> Pullback:
        chunks, shape = self._chunks(data, atoms), request.parameters.alpha.shape
        first, second = np.empty((2, shape[0], chunks, shape[1] if request.slopes else 0))
        values = np.empty(request.cotangent.shape if request.values else 0)
        inner, failed = self._sums(data, atoms, request, chunks, (first, second, values))
        whitened = -atoms.unpack(inner)
        in_alpha, in_beta = (x.sum(axis=1) if request.slopes else None for x in (first, second))
        divergences = values if request.values else None
        result = Pullback(atoms.congruence(whitened), whitened, in_alpha, in_beta, divergences)
        for rows, atom, part in self._failures(data, failed):
            extra = self._reference._pullback(part, atoms.original[atom], request.part(rows, atom))
            add_part(result, extra, rows, atom)
        return result

    def _logdet_pullback(self, data: NativeData, atoms: NativeAtoms, request: Request) -> Pullback:
        """Theta = 1: grad_B = sum_i w_i (N_i^-1 - B^-1)/alpha with N = alpha X + beta B."""
        chunks = self._chunks(data, atoms)
        sums, _ = self._sums(data, atoms, request, chunks, (_NOTHING,) * 3, logdet=True)
        weighted = request.cotangent.sum(axis=0)[:, :, None] * atoms.unpack(atoms.packed_inverse)
        gradient = (atoms.unpack(sums) - weighted) / request.parameters.alpha[:, :, None]
        return atoms.gradient(atoms.in_units(gradient))

    def _sums(
        self,
        data: NativeData,
        atoms: NativeAtoms,
        request: Request,
        chunks: int,
        results: tuple[RealArray, RealArray, RealArray],
        *,
        logdet: bool = False,
    ) -> tuple[RealArray, NDArray[np.uint8] | None]:
        """Sum packed gradients over the data, chunk by chunk; fill ``results`` as well."""
        n, size = atoms.packed.shape
        sums, point = np.empty((n, chunks, size)), request.parameters
        weighted = point.alpha, point.beta, request.cotangent, chunks
        failed = self._run(_native.pullback, data, atoms, *weighted, sums, *results, logdet)
        return sums.sum(axis=1), failed

    def logarithms(self, matrices: RealArray) -> RealArray:
        data = self.prepare(Prepared.checked(matrices))
        assert isinstance(data, NativeData)
        identity = _identity(data.d)
        packed = np.empty((data.n_matrices, len(identity.lower[0])))
        failed = self._run(_native.logarithms, data, identity, packed)
        logs: RealArray = np.empty(matrices.shape)
        order = np.arange(data.d) if data.order is None else data.order
        rows, columns = (order[index] for index in identity.lower)
        logs[:, rows, columns] = logs[:, columns, rows] = packed
        for group, *_ in self._failures(data, failed):
            logs[group] = super().logarithms(matrices[group])
        return logs

    def _encode_filters(
        self, data: Prepared, filters: RealArray, alpha: RealArray, beta: RealArray
    ) -> RealArray:
        line, packed = line_of(alpha, beta), self.prepare(data)
        if line is None or filters.shape[2] > _MAX_RANK:
            return super()._encode_filters(data, filters, alpha, beta)
        assert isinstance(packed, NativeData)
        out = np.empty((data.n_matrices, len(filters), alpha.shape[1] + 1))
        threads = self._threads(data.n_matrices * filters.size * data.d)
        rows = _filter_rows(packed, filters)
        _native.encode_filters(self.instruction_set, packed.arrays(), rows, *line, out, threads)
        return out

    def _pull_filters(
        self, data: Prepared, filters: RealArray, *arrays: RealArray, parameters: bool
    ) -> Gradients:
        alpha, beta, cotangent = arrays
        line, packed = line_of(alpha, beta), self.prepare(data)
        if parameters or line is None or filters.shape[2] > _MAX_RANK:
            return super()._pull_filters(data, filters, *arrays, parameters=parameters)
        assert isinstance(packed, NativeData)
        rows, chunks = _filter_rows(packed, filters), min(_CHUNKS, -(-data.n_matrices // 64))
        sums = np.empty((len(rows), chunks, *rows.shape[1:]))
        threads = self._threads(2 * data.n_matrices * filters.size * data.d)
        weights = np.ascontiguousarray(cotangent)
        _native.pullback_filters(
            self.instruction_set, packed.arrays(), rows, *line, weights, chunks, sums, threads
        )
        gradient = np.empty_like(filters)
        order = np.arange(data.d) if packed.order is None else packed.order
        gradient[:, order] = sums.sum(axis=1).mT
        return gradient, None, None

    def _run(
        self, kernel: Callable[..., int], data: NativeData, atoms: NativeAtoms, *arrays: DeviceArray
    ) -> NDArray[np.uint8] | None:
        """Call a kernel; return a mask of the (group, atom) where it failed, or None if nowhere."""
        n = len(atoms.original)
        operations = data.n_matrices * n * _operations(data.d)
        if kernel is _native.encode and arrays[0].shape[1] == 1:
            alpha, beta = arrays[:2]
            operations *= _LOGDET_SHARE if ((alpha + beta == 1) & (alpha * beta > 0)).all() else 1
        failed = np.zeros((-(-data.n_matrices // data.lanes), n), np.uint8)
        inputs = self.instruction_set, data.arrays(), atoms.arrays()
        limits = self.condition_limit, self._threads(operations)
        failures = kernel(*inputs, *arrays, *limits, failed)
        return failed if failures else None

    def _failures(
        self, data: NativeData, failed: NDArray[np.uint8] | None
    ) -> Iterator[tuple[slice, slice, Prepared]]:
        """Yield the failed (rows, atom), and these rows prepared for the reference engine."""
        for group, atom in [] if failed is None else np.argwhere(failed).tolist():
            rows = slice(group * data.lanes, min((group + 1) * data.lanes, data.n_matrices))
            yield rows, slice(atom, atom + 1), self._reference._prepare(data.working[rows])

    @staticmethod
    def _chunks(data: NativeData, atoms: NativeAtoms) -> int:
        """Count partial sums per atom; neither the count nor results depend on threads."""
        most = _SUM_ENTRIES // (len(atoms.original) * len(atoms.lower[0]))
        # Each sum fills whole blocks of lanes and is worth a thread.
        block = data.lanes * (_GROUPS if data.d < _LARGE else _FEW_GROUPS)
        least = max(block, int(_THREAD_OPERATIONS / _operations(data.d)))
        return max(1, min(_CHUNKS, data.n_matrices // least, most))

    def _threads(self, operations: float) -> int:
        """Count the threads that a number of operations is worth."""
        if os.getpid() != _LOADED_BY or operations < 2 * _THREAD_OPERATIONS:
            return 1
        return int(min(operations / _THREAD_OPERATIONS, self.n_threads))

    @property
    def _reference(self) -> ReferenceEngine:
        return ReferenceEngine(self.given_threads, self.accuracy)


@lru_cache(maxsize=16)
def _identity(d: int) -> NativeAtoms:
    return NativeAtoms(np.eye(d)[None])


def _operations(d: int) -> float:
    """Approximate number of operations for a pair."""
    return 10.0 * d**3 + 300.0 * d**2


# Burg's divergence and its reverse without eigenvalues: D at (0, 1) is tr(X B^-1) - logdet(X B^-1)
# - d, at (1, 0) tr(B X^-1) + logdet(X B^-1) - d. A trace of a product is a scalar product of
# triangles, so that a whole table is one call of BLAS.


def _trace_columns(data: NativeData, inverse: bool) -> RealArray:
    """Triangles of the matrices or inverses, their log-determinants, and ones; computed once."""
    key = "inverse traces" if inverse else "traces"

    def compute() -> RealArray:
        rows, columns = lower_triangle(data.d)
        matrices = data.working.astype(np.float64, copy=False)
        with limit_blas(1):
            source = np.linalg.inv(matrices) if inverse else matrices
        n = data.n_matrices
        left = np.ones((n, len(rows) + 2))
        left[:, :-2] = source[:, rows, columns]
        left[:, -2] = -_logdet(data, data.logdet[:n], data.exponent[:n], inverse)
        return left

    return data.cached(key, compute)


def _logdet(data: NativeData, scaled: RealArray, exponent: RealArray, inverse: bool) -> RealArray:
    """Log-determinants in the units of the data, with the sign they have in the divergence."""
    units = (exponent - data.unit) * (data.d * _LOG_2)
    return -(scaled + units) if inverse else scaled + units


def _trace_values(
    data: NativeData, atoms: NativeAtoms, out: RealArray, *, inverse: bool, n_threads: int
) -> NDArray[np.bool_] | None:
    """Divergences at (0, 1), or (1, 0) if ``inverse``; returns a mask of those too small."""
    rows, columns = atoms.lower
    lower = atoms.original[:, rows, columns] if inverse else atoms.in_units(atoms.packed_inverse)
    weights = np.where(rows == columns, 1.0, 2.0) * lower
    constant = _logdet(data, atoms.logdet, atoms.exponent, inverse) - data.d
    right = np.column_stack([weights, np.ones(len(weights)), constant])
    left = _trace_columns(data, inverse)
    # Inverses of subnormal matrices overflow; NaN counts as too small as well.
    with limit_blas(n_threads), np.errstate(over="ignore", invalid="ignore"):
        np.matmul(left, right.T, out=out)
    smallest = SMALLEST_TRACE * data.d
    return None if out.min() >= smallest else ~(out >= smallest)


def _trace_gradient(
    data: NativeData, atoms: NativeAtoms, cotangent: RealArray, *, inverse: bool, n_threads: int
) -> Pullback:
    """At (0, 1) sum_i w_i (B^-1 - B^-1 X_i B^-1), at (1, 0) sum_i w_i (X_i^-1 - B^-1)."""
    precision, triangles = atoms.inverse(), _trace_columns(data, inverse)[:, :-2]
    with limit_blas(n_threads):
        summed = atoms.unpack(cotangent.T @ triangles)
        weighted = cotangent.sum(axis=0)[:, None, None] * precision
        if inverse:
            return atoms.gradient(summed - weighted)
        product = precision @ summed @ precision
        return atoms.gradient(weighted - 0.5 * (product + product.mT))


def _filter_rows(data: NativeData, filters: RealArray) -> RealArray:
    """Rows of the filters, (n_filters, p, d), with variables in the order of the packed data."""
    ordered = filters if data.order is None else filters[:, data.order]
    return np.ascontiguousarray(ordered.mT)
