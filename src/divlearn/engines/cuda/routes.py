"""Routes of the CUDA engine: the choice of kernels, and gradients from their sums."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import numpy as np

from divlearn.arrays import DeviceArray, IntArray, RealArray
from divlearn.engines.base import Engine
from divlearn.engines.cpu import cpu_engine
from divlearn.engines.cuda import as_numpy, cp, kind_of
from divlearn.engines.cuda.data import Block, CudaAtoms, CudaData
from divlearn.engines.cuda.kernels import largest_dimension
from divlearn.engines.cuda.pipeline import Failures, Launcher, Spectra, Sums, on_device
from divlearn.engines.data import (
    Gradients,
    Prepared,
    Pullback,
    Request,
    add_part,
    nonfinite_atoms,
)
from divlearn.engines.parameters import (
    Parameters,
    gradient_routes,
    split_pairs,
    traces_usable,
    value_routes,
)
from divlearn.tolerances import SMALLEST_TRACE

_LOG_2 = float(np.log(2.0))
_OUT_BYTES = 1 << 28  # of results on the device that are copied elsewhere


def _host_request(request: Request) -> Request:
    return replace(request, cotangent=as_numpy(request.cotangent))


class CudaRoutes(Engine):
    """Base of `CudaEngine`: its operations on checked data and atoms."""

    name: ClassVar[str] = "cuda"

    def _prepare(self, matrices: RealArray, order: IntArray | None = None) -> Prepared:
        if matrices.shape[-1] > largest_dimension():
            return Prepared(self.name, matrices, order=order)  # it stays on the host
        return CudaData(matrices, order)

    def _spectra(self, data: Prepared, atoms: RealArray) -> RealArray:
        if not isinstance(data, CudaData):
            return self._fallback._spectra(self._prepare_on_cpu(data), atoms)
        shape, prepared = (data.n_matrices, len(atoms), data.d), CudaAtoms(atoms)
        out = np.empty(shape) if data.kind == "numpy" else cp.empty(shape)
        for rows, block in self._iterate_blocks(data, 8 * data.d * len(atoms)):
            failures = Failures()
            spectra = Launcher(block, prepared, self.condition_limit, failures).spectra()
            for row, atom, part in self._iterate_failed(data, failures):
                host = self._fallback._spectra(part, as_numpy(atoms[atom]))
                spectra[row.start - rows.start, atom.start] = cp.asarray(host[0, 0])
            _copy(spectra, out, rows)
        return out

    def _encode(
        self, data: Prepared, atoms: RealArray, parameters: Parameters, out: RealArray
    ) -> None:
        if not isinstance(data, CudaData) or parameters.opposite:
            host = out if kind_of(out) == "numpy" else np.empty(out.shape)
            self._fallback._encode(self._prepare_on_cpu(data), as_numpy(atoms), parameters, host)
            if host is not out:
                out[...] = cp.asarray(host)
            return
        prepared = CudaAtoms(atoms)
        pairs = self._pairs(data, prepared, parameters)
        for rows, block in self._iterate_blocks(data, 8 * parameters.alpha.size):
            values = [self._encode_block(data, block, prepared, pair) for pair in pairs]
            _copy(values[0] if len(pairs) == 1 else cp.concatenate(values, axis=2), out, rows)

    def _pairs(self, data: CudaData, atoms: CudaAtoms, parameters: Parameters) -> list[Parameters]:
        """Split parameters as `split_pairs` does, where extremes of the data are known."""
        if data.resident is None or parameters.alpha.shape[1] == 1:
            return [parameters]
        return split_pairs(parameters, atoms, data.resident.extremes, self.condition_limit)

    def _encode_block(
        self, data: CudaData, block: Block, atoms: CudaAtoms, parameters: Parameters
    ) -> DeviceArray:
        n, m = parameters.alpha.shape
        values = cp.empty((len(block), n, m))
        routes = value_routes(parameters)
        for route in np.unique(routes):
            index = np.flatnonzero(routes == route)
            part = values if len(index) == n else cp.empty((len(block), len(index), m))
            launcher = Launcher(block, atoms.select(index), self.condition_limit, Failures())
            chosen = parameters.select(index)
            self._encode_route(str(route), launcher, chosen, part)
            self._recompute_failed(data, launcher, chosen, part)
            if len(index) != n:
                values[:, cp.asarray(index)] = part
        return values

    def _trace(
        self, data: CudaData, atoms: CudaAtoms, parameters: Parameters
    ) -> tuple[DeviceArray, Spectra | None]:
        """Divergences of resident data by spectra, and the spectra if they serve the gradient."""
        assert data.resident is not None
        values = cp.empty((data.n_matrices, *parameters.alpha.shape))
        launcher = Launcher(data.resident, atoms, self.condition_limit, Failures())
        spectra = launcher.traced_divergences(on_device(parameters), values)
        if spectra is None:
            self._recompute_failed(data, launcher, parameters, values)
        return values, spectra

    def _recompute_failed(
        self, data: CudaData, launcher: Launcher, parameters: Parameters, values: DeviceArray
    ) -> None:
        """Compute on the CPU the values that no kernel could compute."""
        for row, atom, part in self._iterate_failed(data, launcher.failures):
            host = np.empty((1, 1, values.shape[2]))
            matrix, index = (
                as_numpy(launcher.atoms.matrices[atom]),
                np.arange(len(launcher.atoms))[atom],
            )
            self._fallback._encode(part, matrix, parameters.select(index), host)
            values[row.start - launcher.block.start, atom.start] = cp.asarray(host[0, 0])

    def _encode_route(
        self, route: str, launcher: Launcher, parameters: Parameters, out: DeviceArray
    ) -> None:
        point, extremes = on_device(parameters), launcher.block.extremes
        if route == "logdet":
            launcher.logdet_values(point, out)
        elif route == "spectrum" or not traces_usable(
            launcher.atoms, extremes, self.condition_limit
        ):
            launcher.divergences(point, out)
        else:
            inverse = route == "inverse trace"
            small = _trace_values(launcher.block, launcher.atoms, out[:, :, 0], inverse=inverse)
            if small is not None:
                launcher.recompute(small, point, out)

    def _pullback(self, data: Prepared, atoms: RealArray, request: Request) -> Pullback:
        if not isinstance(data, CudaData) or request.parameters.opposite:
            prepared_on_cpu, host_atoms = self._prepare_on_cpu(data), as_numpy(atoms)
            return self._fallback._pullback(prepared_on_cpu, host_atoms, _host_request(request))
        prepared = CudaAtoms(atoms)
        if request.slopes or request.values:
            result = self._spectral_pullback(data, prepared, request)
        else:
            result = self._pairs_pullback(data, prepared, request)
        self._recompute_lost(result, data, prepared, request)
        return result

    def _recompute_lost(
        self, result: Pullback, data: CudaData, atoms: CudaAtoms, request: Request
    ) -> None:
        """Compute gradients that are not finite again on the CPU."""
        lost = nonfinite_atoms(result.whitened, result.alpha, result.beta)
        if not len(lost) or not bool(cp.isfinite(cp.asarray(request.cotangent)).all()):
            return
        warnings.warn(
            f"the CUDA engine found no finite gradient of {len(lost)} of {len(atoms)} atoms (the "
            f"first is atom {lost[0]}), so the CPU computed them; please report it with the data",
            RuntimeWarning,
            stacklevel=2,
        )
        index = cp.asarray(lost)
        matrices = cp.asnumpy(atoms.matrices[index])
        part = _host_request(request).part(slice(None), lost)
        recomputed = self._fallback._pullback(self._prepare_on_cpu(data), matrices, part)
        for name in ("atoms", "whitened", "alpha", "beta"):
            if getattr(result, name) is not None:
                getattr(result, name)[index] = cp.asarray(getattr(recomputed, name))
        if result.values is not None:
            result.values[:, index] = cp.asarray(recomputed.values)

    def _pairs_pullback(self, data: CudaData, atoms: CudaAtoms, request: Request) -> Pullback:
        """Gradients in atoms alone, one pair of parameters at a time where that is faster."""
        pairs = self._pairs(data, atoms, request.parameters)
        if len(pairs) == 1:
            return self._atoms_pullback(data, atoms, request)
        weights = (request.cotangent[:, :, i : i + 1] for i in range(len(pairs)))
        requests = map(Request, pairs, weights)
        parts = [self._atoms_pullback(data, atoms, pair) for pair in requests]
        gradients, whitened = zip(*((part.atoms, part.whitened) for part in parts), strict=True)
        return Pullback(cp.stack(gradients).sum(axis=0), cp.stack(whitened).sum(axis=0))

    def _atoms_pullback(self, data: CudaData, atoms: CudaAtoms, request: Request) -> Pullback:
        """Gradients in atoms alone, each by the route that its parameters allow."""
        parameters, cotangent = request.parameters, request.cotangent
        if cotangent.shape[2] > 1:
            return self._spectral_pullback(data, atoms, request)
        gradient, whitened = cp.empty(atoms.matrices.shape), cp.empty(atoms.matrices.shape)
        routes = np.full(len(atoms), "spectrum")
        if data.resident is not None:
            extremes = data.resident.extremes
            routes = gradient_routes(parameters, atoms, extremes, self.condition_limit)[:, 0]
        for route in np.unique(routes):
            index = np.flatnonzero(routes == route)
            device_index, weights = cp.asarray(index), cotangent
            if len(index) < len(atoms):
                weights = cotangent[:, device_index if kind_of(cotangent) != "numpy" else index]
            chosen = Request(parameters.select(index), weights)
            part = self._pullback_route(str(route), data, atoms.select(index), chosen)
            gradient[device_index], whitened[device_index] = part.atoms, part.whitened
        return Pullback(gradient, whitened)

    def _pullback_route(
        self, route: str, data: CudaData, atoms: CudaAtoms, request: Request
    ) -> Pullback:
        if route == "spectrum":
            return self._spectral_pullback(data, atoms, request)
        if route == "logdet":
            return self._logdet_pullback(data, atoms, request)
        gradient = cp.zeros(atoms.matrices.shape)
        for rows, block in self._iterate_blocks(data):
            weights = cp.asarray(request.cotangent[rows])[:, :, 0]
            gradient += _trace_gradient(block, atoms, weights, inverse=route == "inverse trace")
        return Pullback(gradient, atoms.whiten(gradient))

    def _spectral_pullback(self, data: CudaData, atoms: CudaAtoms, request: Request) -> Pullback:
        cotangent, sums = request.cotangent, Sums(atoms, request)
        values = cp.empty(cotangent.shape) if request.values else None
        failures = Failures()
        for rows, block in self._iterate_blocks(data):
            launcher = Launcher(block, atoms, self.condition_limit, failures)
            weights = cp.ascontiguousarray(cp.asarray(cotangent[rows]))
            launcher.add_gradient(weights, sums, None if values is None else values[rows])
        whitened = sums.whitened()
        first, second = sums.slopes
        result = Pullback(atoms.congruence(whitened), whitened, first, second, values)
        for rows, atom, part in self._iterate_failed(data, failures):
            matrix, part_request = (
                cp.asnumpy(atoms.matrices[atom]),
                _host_request(request.part(rows, atom)),
            )
            add_part(result, self._fallback._pullback(part, matrix, part_request), rows, atom)
        return result

    def _traced_pullback(self, spectra: Spectra, request: Request) -> Gradients | None:
        """Whitened gradients from spectra; None if some pairs need another route."""
        sums = Sums(spectra.launcher.atoms, request)
        spectra.compute_vectors()
        spectra.launcher.add_vectors(spectra, request.cotangent, sums, None)
        if spectra.count_pending():  # last, since it waits for the device
            return None
        gradients = sums.whitened(), *sums.slopes
        return None if len(nonfinite_atoms(*gradients)) else gradients

    def _logdet_pullback(self, data: CudaData, atoms: CudaAtoms, request: Request) -> Pullback:
        """(N^-1 - B^-1)/alpha summed over the data, N = alpha X + beta B."""
        point = on_device(request.parameters)
        total, weight = cp.zeros(atoms.matrices.shape), cp.zeros((len(atoms), 1, 1))
        for rows, block in self._iterate_blocks(data):
            weights = cp.ascontiguousarray(cp.asarray(request.cotangent[rows]))
            launcher = Launcher(block, atoms, self.condition_limit, Failures())
            launcher.add_inverses(point, weights, total)
            weight += weights.sum(axis=0)[:, :, None]
        total = 0.5 * (total + total.transpose(0, 2, 1))
        gradient = atoms.in_units((total - weight * atoms.inverse) / point[0][:, :, None])
        return Pullback(gradient, atoms.whiten(gradient))

    @staticmethod
    def _iterate_blocks(data: CudaData, row_bytes: int = 1) -> Iterator[tuple[slice, Block]]:
        """Yield rows and their block; results of ``row_bytes`` a row take bounded memory."""
        step = max(1, _OUT_BYTES // row_bytes)
        for block in data.blocks():
            for start in range(0, len(block), step):
                part = block if len(block) <= step else block.part(start, start + step)
                yield slice(part.start, part.start + len(part)), part

    def _iterate_failed(
        self, data: CudaData, failures: Failures
    ) -> Iterator[tuple[slice, slice, Prepared]]:
        """Yield (row, atom, the row prepared for the CPU) where no kernel has a result."""
        pairs = failures.to_list()
        if pairs is None:
            raise ValueError(
                "too many pencils span more than double precision can hold; rescale the variables "
                "of all matrices alike: X -> S X S with a diagonal S"
            )
        for atom, row in pairs:
            matrix = cp.asnumpy(data.working[row : row + 1])
            yield slice(row, row + 1), slice(atom, atom + 1), self._fallback._prepare(matrix)

    def _prepare_on_cpu(self, data: Prepared) -> Prepared:
        return self._fallback._prepare(cp.asnumpy(data.working))

    @property
    def _fallback(self) -> Engine:
        return cpu_engine(self.given_threads, self.accuracy)


def _copy(results: DeviceArray, out: DeviceArray, rows: slice) -> None:
    """Copy results to rows of an array on the device or on the host."""
    if kind_of(out) != "numpy":
        out[rows] = results
    elif out.dtype == np.float64 and out.flags.c_contiguous:
        results.get(out=out[rows])
    else:
        out[rows] = cp.asnumpy(results)


def _columns(block: Block, inverse: bool) -> DeviceArray:
    """Return matrices of the data or their inverses, (n, d * d); computed once."""
    if not inverse:
        return block.matrices.reshape(len(block), -1)
    if "inverses" not in block.cache:
        inverses = cp.linalg.inv(block.matrices)
        inverses = 0.5 * (inverses + inverses.transpose(0, 2, 1))
        block.cache["inverses"] = inverses.reshape(len(block), -1)
    return block.cache["inverses"]


def _trace_values(
    block: Block, atoms: CudaAtoms, out: DeviceArray, *, inverse: bool
) -> DeviceArray:
    """Divergences at (0, 1), or (1, 0) if ``inverse``; returns a mask of those too small."""
    d = atoms.matrices.shape[-1]
    other = atoms.matrices if inverse else atoms.in_units(atoms.inverse)
    unit = float(atoms.exponent[0])
    of_data = block.logdets + (block.exponents - unit) * (d * _LOG_2)
    of_atoms = atoms.logdets + (atoms.exponents - unit) * (d * _LOG_2)
    sign = -1.0 if inverse else 1.0
    traces = cp.matmul(_columns(block, inverse), other.reshape(len(atoms), -1).T)
    out[...] = traces - sign * (of_data[:, None] - of_atoms) - d
    small = out < SMALLEST_TRACE * d
    return small if bool(small.any()) else None


def _trace_gradient(
    block: Block, atoms: CudaAtoms, cotangent: DeviceArray, *, inverse: bool
) -> DeviceArray:
    """At (0, 1) sum_i w_i (B^-1 - B^-1 X_i B^-1), at (1, 0) sum_i w_i (X_i^-1 - B^-1)."""
    precision = atoms.in_units(atoms.inverse)
    summed = cp.matmul(cotangent.T, _columns(block, inverse)).reshape(precision.shape)
    weighted = cotangent.sum(axis=0)[:, None, None] * precision
    if inverse:
        return 0.5 * (summed + summed.transpose(0, 2, 1)) - weighted
    product = cp.matmul(cp.matmul(precision, summed), precision)
    return weighted - 0.5 * (product + product.transpose(0, 2, 1))
