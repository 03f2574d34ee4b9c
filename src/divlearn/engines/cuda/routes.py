"""Routes of the CUDA engine for NumPy arrays: which kernels, and what their sums become."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from divlearn.arrays import DeviceArray, IntArray, RealArray
from divlearn.engines.base import Engine
from divlearn.engines.cpu import cpu_engine
from divlearn.engines.cuda import as_numpy, cp, kind_of
from divlearn.engines.cuda.data import Block, CudaAtoms, CudaData
from divlearn.engines.cuda.kernels import largest_dimension
from divlearn.engines.cuda.pipeline import Device, Failures, Spectra, Sums, on_device
from divlearn.engines.data import (
    Gradients,
    Prepared,
    Pullback,
    Request,
    add_part,
    lost_atoms,
)
from divlearn.engines.parameters import (
    Parameters,
    gradient_routes,
    one_by_one,
    traces_usable,
    value_routes,
)
from divlearn.tolerances import SMALLEST_TRACE

_LOG_2 = float(np.log(2.0))
_OUT_BYTES = 1 << 28  # of results on the device that go elsewhere


def _host_request(request: Request) -> Request:
    return replace(request, cotangent=as_numpy(request.cotangent))


class CudaRoutes(Engine):
    name: ClassVar[str] = "cuda"

    def _prepare(self, matrices: RealArray, order: IntArray | None = None) -> Prepared:
        if matrices.shape[-1] > largest_dimension():
            return Prepared(self.name, matrices, order=order)  # which stays where it is
        return CudaData(matrices, order)

    def _spectra(self, data: Prepared, atoms: RealArray) -> RealArray:
        if not isinstance(data, CudaData):
            return self._fallback._spectra(self._elsewhere(data), atoms)
        shape, prepared = (data.n_matrices, len(atoms), data.d), CudaAtoms(atoms)
        out = np.empty(shape) if data.kind == "numpy" else cp.empty(shape)
        for rows, block in self._rows(data, 8 * data.d * len(atoms)):
            failures = Failures()
            found = Device(block, prepared, self.condition_limit, failures).spectra()
            for row, atom, part in self._failed(data, failures):
                host = self._fallback._spectra(part, as_numpy(atoms[atom]))
                found[row.start - rows.start, atom.start] = cp.asarray(host[0, 0])
            _copy(found, out, rows)
        return out

    def _encode(
        self, data: Prepared, atoms: RealArray, parameters: Parameters, out: RealArray
    ) -> None:
        if not isinstance(data, CudaData) or parameters.opposite:
            host = out if kind_of(out) == "numpy" else np.empty(out.shape)
            self._fallback._encode(self._elsewhere(data), as_numpy(atoms), parameters, host)
            if host is not out:
                out[...] = cp.asarray(host)
            return
        prepared = CudaAtoms(atoms)
        pairs = self._pairs(data, prepared, parameters)
        for rows, block in self._rows(data, 8 * parameters.alpha.size):
            found = [self._encode_block(data, block, prepared, one) for one in pairs]
            _copy(found[0] if len(pairs) == 1 else cp.concatenate(found, axis=2), out, rows)

    def _pairs(self, data: CudaData, atoms: CudaAtoms, parameters: Parameters) -> list[Parameters]:
        """Split parameters as `one_by_one` does, where extremes of the data are known."""
        if data.resident is None or parameters.alpha.shape[1] == 1:
            return [parameters]
        return one_by_one(parameters, atoms, data.resident.extremes, self.condition_limit)

    def _encode_block(
        self, data: CudaData, block: Block, atoms: CudaAtoms, parameters: Parameters
    ) -> DeviceArray:
        n, m = parameters.alpha.shape
        values = cp.empty((len(block), n, m))
        routes = value_routes(parameters)
        for route in np.unique(routes):
            index = np.flatnonzero(routes == route)
            found = values if len(index) == n else cp.empty((len(block), len(index), m))
            device = Device(block, atoms.chosen(index), self.condition_limit, Failures())
            some = parameters.chosen(index)
            self._encode_route(str(route), device, some, found)
            self._mend(data, device, some, found)
            if len(index) != n:
                values[:, cp.asarray(index)] = found
        return values

    def _trace(
        self, data: CudaData, atoms: CudaAtoms, parameters: Parameters
    ) -> tuple[Any, Spectra | None]:
        """Divergences of resident data by spectra, and these if gradients can go on from them."""
        assert data.resident is not None
        values = cp.empty((data.n_matrices, *parameters.alpha.shape))
        device = Device(data.resident, atoms, self.condition_limit, Failures())
        spectra = device.traced_divergences(on_device(parameters), values)
        if spectra is None:
            self._mend(data, device, parameters, values)
        return values, spectra

    def _mend(
        self, data: CudaData, device: Device, parameters: Parameters, values: DeviceArray
    ) -> None:
        """Compute on the CPU the values for which no kernel has an answer."""
        for row, atom, part in self._failed(data, device.failures):
            host = np.empty((1, 1, values.shape[2]))
            one, index = as_numpy(device.atoms.matrices[atom]), np.arange(len(device.atoms))[atom]
            self._fallback._encode(part, one, parameters.chosen(index), host)
            values[row.start - device.block.start, atom.start] = cp.asarray(host[0, 0])

    def _encode_route(
        self, route: str, device: Device, parameters: Parameters, out: DeviceArray
    ) -> None:
        point, extremes = on_device(parameters), device.block.extremes
        if route == "logdet":
            device.logdet_values(point, out)
        elif route == "spectrum" or not traces_usable(device.atoms, extremes, self.condition_limit):
            device.divergences(point, out)
        else:
            inverse = route == "inverse trace"
            small = _trace_values(device.block, device.atoms, out[:, :, 0], inverse=inverse)
            if small is not None:
                device.redo(small, point, out)

    def _pullback(self, data: Prepared, atoms: RealArray, request: Request) -> Pullback:
        if not isinstance(data, CudaData) or request.parameters.opposite:
            elsewhere, host = self._elsewhere(data), as_numpy(atoms)
            return self._fallback._pullback(elsewhere, host, _host_request(request))
        prepared = CudaAtoms(atoms)
        if request.slopes or request.values:
            found = self._spectral_pullback(data, prepared, request)
        else:
            found = self._pairs_pullback(data, prepared, request)
        self._mend_gradients(found, data, prepared, request)
        return found

    def _mend_gradients(
        self, found: Pullback, data: CudaData, atoms: CudaAtoms, request: Request
    ) -> None:
        """Compute gradients that are not finite again, on the CPU."""
        lost = lost_atoms(found.whitened, found.alpha, found.beta)
        if not len(lost) or not bool(cp.isfinite(cp.asarray(request.cotangent)).all()):
            return
        warnings.warn(
            f"the CUDA engine found no finite gradient of {len(lost)} of {len(atoms)} atoms (the "
            f"first is atom {lost[0]}), so the CPU computed them; please report it with the data",
            RuntimeWarning,
            stacklevel=2,
        )
        where = cp.asarray(lost)
        given = cp.asnumpy(atoms.matrices[where])
        some = _host_request(request).part(slice(None), lost)
        again = self._fallback._pullback(self._elsewhere(data), given, some)
        for name in ("atoms", "whitened", "alpha", "beta"):
            if getattr(found, name) is not None:
                getattr(found, name)[where] = cp.asarray(getattr(again, name))
        if found.values is not None:
            found.values[:, where] = cp.asarray(again.values)

    def _pairs_pullback(self, data: CudaData, atoms: CudaAtoms, request: Request) -> Pullback:
        """Gradients in atoms alone, one pair of parameters at a time where that is faster."""
        pairs = self._pairs(data, atoms, request.parameters)
        if len(pairs) == 1:
            return self._atoms_pullback(data, atoms, request)
        weights = (request.cotangent[:, :, i : i + 1] for i in range(len(pairs)))
        requests = map(Request, pairs, weights)
        parts = [self._atoms_pullback(data, atoms, one) for one in requests]
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
            where, weights = cp.asarray(index), cotangent
            if len(index) < len(atoms):
                weights = cotangent[:, where if kind_of(cotangent) != "numpy" else index]
            some = Request(parameters.chosen(index), weights)
            part = self._pullback_route(str(route), data, atoms.chosen(index), some)
            gradient[where], whitened[where] = part.atoms, part.whitened
        return Pullback(gradient, whitened)

    def _pullback_route(
        self, route: str, data: CudaData, atoms: CudaAtoms, request: Request
    ) -> Pullback:
        if route == "spectrum":
            return self._spectral_pullback(data, atoms, request)
        if route == "logdet":
            return self._logdet_pullback(data, atoms, request)
        gradient = cp.zeros(atoms.matrices.shape)
        for rows, block in self._rows(data):
            some = cp.asarray(request.cotangent[rows])[:, :, 0]
            gradient += _trace_gradient(block, atoms, some, inverse=route == "inverse trace")
        return Pullback(gradient, atoms.whiten(gradient))

    def _spectral_pullback(self, data: CudaData, atoms: CudaAtoms, request: Request) -> Pullback:
        cotangent, sums = request.cotangent, Sums(atoms, request)
        values = cp.empty(cotangent.shape) if request.values else None
        failures = Failures()
        for rows, block in self._rows(data):
            device = Device(block, atoms, self.condition_limit, failures)
            weights = cp.ascontiguousarray(cp.asarray(cotangent[rows]))
            device.add_gradient(weights, sums, None if values is None else values[rows])
        whitened = sums.whitened()
        first, second = sums.slopes
        result = Pullback(atoms.congruence(whitened), whitened, first, second, values)
        for rows, atom, part in self._failed(data, failures):
            one, some = cp.asnumpy(atoms.matrices[atom]), _host_request(request.part(rows, atom))
            add_part(result, self._fallback._pullback(part, one, some), rows, atom)
        return result

    def _traced_pullback(self, spectra: Spectra, request: Request) -> Gradients | None:
        """Whitened gradients from kept spectra; None where some pairs need another route."""
        sums = Sums(spectra.device.atoms, request)
        spectra.find_vectors()
        spectra.device.add_vectors(spectra, request.cotangent, sums, None)
        if spectra.waiting():  # asked last, for the device works meanwhile
            return None
        found = sums.whitened(), *sums.slopes
        return None if len(lost_atoms(*found)) else found

    def _logdet_pullback(self, data: CudaData, atoms: CudaAtoms, request: Request) -> Pullback:
        """(N^-1 - B^-1)/alpha summed over the data, N = alpha X + beta B."""
        point = on_device(request.parameters)
        total, weight = cp.zeros(atoms.matrices.shape), cp.zeros((len(atoms), 1, 1))
        for rows, block in self._rows(data):
            some = cp.ascontiguousarray(cp.asarray(request.cotangent[rows]))
            device = Device(block, atoms, self.condition_limit, Failures())
            device.add_inverses(point, some, total)
            weight += some.sum(axis=0)[:, :, None]
        total = 0.5 * (total + total.transpose(0, 2, 1))
        gradient = atoms.in_units((total - weight * atoms.inverse) / point[0][:, :, None])
        return Pullback(gradient, atoms.whiten(gradient))

    @staticmethod
    def _rows(data: CudaData, row_bytes: int = 1) -> Iterator[tuple[slice, Block]]:
        """Yield rows and the block of them, small enough for results of that many bytes a row."""
        step = max(1, _OUT_BYTES // row_bytes)
        for block in data.blocks():
            for start in range(0, len(block), step):
                part = block if len(block) <= step else block.part(start, start + step)
                yield slice(part.start, part.start + len(part)), part

    def _failed(
        self, data: CudaData, failures: Failures
    ) -> Iterator[tuple[slice, slice, Prepared]]:
        """Yield (row, atom, that row prepared for the fall-back) where no kernel has an answer."""
        found = failures.found()
        if found is None:
            raise ValueError(
                "too many pencils span more than double precision can hold; rescale the variables "
                "of all matrices alike: X -> S X S with a diagonal S"
            )
        for atom, row in found:
            one = cp.asnumpy(data.working[row : row + 1])
            yield slice(row, row + 1), slice(atom, atom + 1), self._fallback._prepare(one)

    def _elsewhere(self, data: Prepared) -> Prepared:
        return self._fallback._prepare(cp.asnumpy(data.working))

    @property
    def _fallback(self) -> Engine:
        return cpu_engine(self.given_threads, self.accuracy)


def _copy(found: DeviceArray, out: DeviceArray, rows: slice) -> None:
    """Copy results from the device to some rows of an array, there or on the host."""
    if kind_of(out) != "numpy":
        out[rows] = found
    elif out.dtype == np.float64 and out.flags.c_contiguous:
        found.get(out=out[rows])
    else:
        out[rows] = cp.asnumpy(found)


def _columns(block: Block, inverse: bool) -> DeviceArray:
    """Return matrices of the data or their inverses, (n, d * d); computed once."""
    if not inverse:
        return block.matrices.reshape(len(block), -1)
    if "inverses" not in block.kept:
        inverses = cp.linalg.inv(block.matrices)
        inverses = 0.5 * (inverses + inverses.transpose(0, 2, 1))
        block.kept["inverses"] = inverses.reshape(len(block), -1)
    return block.kept["inverses"]


def _trace_values(
    block: Block, atoms: CudaAtoms, out: DeviceArray, *, inverse: bool
) -> DeviceArray:
    """Do what `_trace_values` of the native engine does, on the device."""
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
