"""Routes of the CUDA engine for NumPy arrays: which kernels, and what their sums become."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from divlearn.arrays import DeviceArray, IntArray, RealArray
from divlearn.engines.base import Engine, Prepared, Pullback, add_part, lost_atoms
from divlearn.engines.cpu import cpu_engine
from divlearn.engines.cuda.arrays import as_numpy, cp, kind_of
from divlearn.engines.cuda.data import Block, CudaAtoms, CudaData
from divlearn.engines.cuda.kernels import largest_dimension
from divlearn.engines.cuda.pipeline import Device, Failures, Spectra
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


def _on_device(parameters: Parameters) -> tuple[DeviceArray, DeviceArray]:
    alpha, beta = cp.asarray(np.stack([parameters.alpha, parameters.beta]))
    return alpha, beta


class CudaRoutes(Engine):
    name: ClassVar[str] = "cuda"

    def _prepare(self, matrices: RealArray, order: IntArray | None = None) -> Prepared:
        if matrices.shape[-1] > largest_dimension():
            return Prepared(self.name, matrices, order=order)  # which stays where it is
        return CudaData.of(matrices, order)

    def _spectra(self, data: Prepared, atoms: RealArray) -> RealArray:
        if not isinstance(data, CudaData):
            return self._fallback._spectra(self._elsewhere(data), atoms)
        out = np.empty((data.n_matrices, len(atoms), data.d))
        for rows, found in self._spectra_blocks(data, atoms):
            found.get(out=out[rows])
        return out

    def _spectra_blocks(self, data: CudaData, atoms: RealArray) -> Iterator[tuple[slice, Any]]:
        """Yield rows and their log-eigenvalues (rows, n_atoms, d) on the device."""
        prepared = CudaAtoms(atoms)
        for start, stop, block in self._row_blocks(data, 8 * data.d * len(atoms)):
            failures = Failures()
            found = Device(block, prepared, self.condition_limit, failures).spectra()
            for row, atom, part in self._failed(data, failures):
                host = self._fallback._spectra(part, as_numpy(atoms[atom]))
                found[row.start - start, atom.start] = cp.asarray(host[0, 0])
            yield slice(start, stop), found

    def _encode(
        self, data: Prepared, atoms: RealArray, parameters: Parameters, out: RealArray
    ) -> None:
        if not isinstance(data, CudaData) or parameters.opposite:
            self._fallback._encode(self._elsewhere(data), as_numpy(atoms), parameters, out)
            return
        direct = out.dtype == np.float64 and out.flags.c_contiguous
        for rows, values in self._encode_blocks(data, atoms, parameters):
            if direct:
                values.get(out=out[rows])
            else:
                out[rows] = cp.asnumpy(values)

    def _encode_blocks(
        self, data: CudaData, atoms: RealArray, parameters: Parameters
    ) -> Iterator[tuple[slice, Any]]:
        """Yield rows and their values (rows, n_atoms, m) on the device."""
        prepared = CudaAtoms(atoms)
        pairs = self._pairs(data, prepared, parameters)
        for start, stop, block in self._row_blocks(data, 8 * parameters.alpha.size):
            found = [self._encode_block(data, block, prepared, one) for one in pairs]
            yield slice(start, stop), found[0] if len(pairs) == 1 else cp.concatenate(found, axis=2)

    def _pairs(self, data: CudaData, atoms: CudaAtoms, parameters: Parameters) -> list[Parameters]:
        """Split parameters as `one_by_one` does, where extremes of the data are known."""
        if data.resident is None or parameters.alpha.shape[1] == 1:
            return [parameters]
        return one_by_one(parameters, data.resident.extremes, atoms, self.condition_limit)

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
        spectra = device.traced_divergences(*_on_device(parameters), values)
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
        alpha, beta = _on_device(parameters)
        if route == "logdet":
            device.logdet_values(alpha, beta, out)
        elif route == "spectrum" or not traces_usable(
            device.block.extremes, device.atoms, self.condition_limit
        ):
            device.divergences(alpha, beta, out)
        else:
            inverse = route == "inverse trace"
            small = _trace_values(device.block, device.atoms, out[:, :, 0], inverse=inverse)
            if small is not None:
                device.redo(small, alpha, beta, out)

    def _pullback(
        self,
        data: Prepared,
        atoms: RealArray,
        parameters: Parameters,
        cotangent: RealArray,
        with_parameters: bool,
        with_values: bool,
    ) -> Pullback:
        if not isinstance(data, CudaData) or parameters.opposite:
            return self._fallback._pullback(
                self._elsewhere(data),
                as_numpy(atoms),
                parameters,
                cotangent,
                with_parameters,
                with_values,
            )
        result = self._device_pullback(
            data, atoms, parameters, cotangent, with_parameters, with_values
        )
        fields = (result.atoms, result.whitened, result.alpha, result.beta, result.values)
        found: list[Any] = [None if array is None else cp.asnumpy(array) for array in fields]
        return Pullback(*found)

    def _device_pullback(
        self,
        data: CudaData,
        atoms: RealArray,
        parameters: Parameters,
        cotangent: DeviceArray,
        with_parameters: bool,
        with_values: bool,
    ) -> Pullback:
        """Do the same with results on the device; the cotangent may be there too."""
        prepared = CudaAtoms(atoms)
        if with_parameters or with_values:
            found = self._spectral_pullback(
                data, prepared, parameters, cotangent, with_parameters, with_values
            )
        else:
            found = self._pairs_pullback(data, prepared, parameters, cotangent)
        self._mend_gradients(found, data, prepared, parameters, cotangent)
        return found

    def _mend_gradients(
        self,
        found: Pullback,
        data: CudaData,
        atoms: CudaAtoms,
        parameters: Parameters,
        cotangent: DeviceArray,
    ) -> None:
        """Compute gradients that are not finite again, on the CPU."""
        lost = lost_atoms(found)
        if not len(lost) or not bool(cp.isfinite(cp.asarray(cotangent)).all()):
            return
        warnings.warn(
            f"the CUDA engine found no finite gradient of {len(lost)} of {len(atoms)} atoms (the "
            f"first is atom {lost[0]}), so the CPU computed them; please report it with the data",
            RuntimeWarning,
            stacklevel=2,
        )
        where = cp.asarray(lost)
        again = self._fallback._pullback(
            self._elsewhere(data),
            cp.asnumpy(atoms.matrices[where]),
            parameters.chosen(lost),
            as_numpy(cotangent)[:, lost],
            found.alpha is not None,
            found.values is not None,
        )
        for name in ("atoms", "whitened", "alpha", "beta"):
            if getattr(found, name) is not None:
                getattr(found, name)[where] = cp.asarray(getattr(again, name))
        if found.values is not None:
            found.values[:, where] = cp.asarray(again.values)

    def _pairs_pullback(
        self, data: CudaData, prepared: CudaAtoms, parameters: Parameters, cotangent: DeviceArray
    ) -> Pullback:
        """Gradients in atoms alone, one pair of parameters at a time where that is faster."""
        pairs = self._pairs(data, prepared, parameters)
        if len(pairs) == 1:
            return self._atoms_pullback(data, prepared, parameters, cotangent)
        parts = [
            self._atoms_pullback(data, prepared, one, cotangent[:, :, i : i + 1])
            for i, one in enumerate(pairs)
        ]
        gradients, whitened = zip(*((part.atoms, part.whitened) for part in parts), strict=True)
        return Pullback(cp.stack(gradients).sum(axis=0), cp.stack(whitened).sum(axis=0))

    def _atoms_pullback(
        self, data: CudaData, prepared: CudaAtoms, parameters: Parameters, cotangent: DeviceArray
    ) -> Pullback:
        """Gradients in atoms alone, each by the route that its parameters allow."""
        if cotangent.shape[2] > 1:
            return self._spectral_pullback(data, prepared, parameters, cotangent, False, False)
        shape = prepared.matrices.shape
        gradient, whitened = cp.empty(shape), cp.empty(shape)
        routes = np.full(len(prepared), "spectrum")
        if data.resident is not None:
            routes = gradient_routes(
                parameters, data.resident.extremes, prepared, self.condition_limit
            )
        for route in np.unique(routes):
            index = np.flatnonzero(routes == route)
            some, picked = prepared.chosen(index), parameters.chosen(index)
            where = cp.asarray(index)
            weights = cotangent
            if len(index) < len(prepared):
                weights = cotangent[:, where if kind_of(cotangent) != "numpy" else index]
            if route == "spectrum":
                part = self._spectral_pullback(data, some, picked, weights, False, False)
            elif route == "logdet":
                part = self._logdet_pullback(data, some, picked, weights)
            else:
                part = self._trace_pullback(data, some, weights, inverse=route == "inverse trace")
            gradient[where], whitened[where] = part.atoms, part.whitened
        return Pullback(gradient, whitened)

    def _spectral_pullback(
        self,
        data: CudaData,
        atoms: CudaAtoms,
        parameters: Parameters,
        cotangent: DeviceArray,
        with_parameters: bool,
        with_values: bool,
    ) -> Pullback:
        n, m = parameters.alpha.shape
        alpha, beta = _on_device(parameters)
        first, second = (cp.zeros((n, m)) if with_parameters else None for _ in range(2))
        values = cp.empty((data.n_matrices, n, m)) if with_values else None
        inner = cp.zeros(atoms.matrices.shape)
        failures = Failures()
        for block in data.blocks():
            rows = slice(block.start, block.start + len(block))
            device = Device(block, atoms, self.condition_limit, failures)
            weights = cp.ascontiguousarray(cp.asarray(cotangent[rows]))
            some = None if values is None else values[rows]
            device.add_gradient(alpha, beta, weights, inner, first, second, some)
        whitened = -0.5 * (inner + inner.transpose(0, 2, 1))
        result = Pullback(atoms.congruence(whitened), whitened, first, second, values)
        for row, atom, part in self._failed(data, failures):
            extra = self._fallback._pullback(
                part,
                cp.asnumpy(atoms.matrices[atom]),
                parameters.chosen(np.arange(n)[atom]),
                cp.asnumpy(cotangent[row, atom]),
                with_parameters,
                with_values,
            )
            add_part(result, extra, row, atom, cp.asarray)
        return result

    def _traced_pullback(
        self,
        spectra: Spectra,
        parameters: Parameters,
        cotangent: DeviceArray,
        with_parameters: bool,
    ) -> tuple[Any, Any, Any] | None:
        """Whitened gradients from kept spectra; None where some pairs need another route."""
        device, (n, m) = spectra.device, parameters.alpha.shape
        first, second = (cp.zeros((n, m)) if with_parameters else None for _ in range(2))
        inner = cp.zeros(device.atoms.matrices.shape)
        spectra.find_vectors()
        sums = inner, first, second, None
        device.add_vectors(spectra, *_on_device(parameters), cotangent, *sums)
        if spectra.waiting():  # asked last, for the device works meanwhile
            return None
        whitened = -0.5 * (inner + inner.transpose(0, 2, 1))
        found = Pullback(whitened, whitened, first, second)
        return None if len(lost_atoms(found)) else (whitened, first, second)

    def _logdet_pullback(
        self, data: CudaData, atoms: CudaAtoms, parameters: Parameters, cotangent: DeviceArray
    ) -> Pullback:
        """(N^-1 - B^-1)/alpha summed over the data, N = alpha X + beta B."""
        alpha, beta = _on_device(parameters)
        total, weight = cp.zeros(atoms.matrices.shape), cp.zeros((len(atoms), 1, 1))
        for block in data.blocks():
            rows = slice(block.start, block.start + len(block))
            some = cp.ascontiguousarray(cp.asarray(cotangent[rows]))
            device = Device(block, atoms, self.condition_limit, Failures())
            device.add_inverses(alpha, beta, some, total)
            weight += some.sum(axis=0)[:, :, None]
        total = 0.5 * (total + total.transpose(0, 2, 1))
        gradient = atoms.in_units((total - weight * atoms.inverse) / alpha[:, :, None])
        return Pullback(gradient, atoms.whiten(gradient))

    def _trace_pullback(
        self, data: CudaData, atoms: CudaAtoms, cotangent: DeviceArray, *, inverse: bool
    ) -> Pullback:
        gradient = cp.zeros(atoms.matrices.shape)
        for block in data.blocks():
            some = cp.asarray(cotangent[block.start : block.start + len(block)])[:, :, 0]
            gradient += _trace_gradient(block, atoms, some, inverse=inverse)
        return Pullback(gradient, atoms.whiten(gradient))

    def _row_blocks(self, data: CudaData, row_bytes: int) -> Iterator[tuple[int, int, Block]]:
        """Yield (start, stop, block of those rows), small enough for their results."""
        step = max(1, _OUT_BYTES // row_bytes)
        for block in data.blocks():
            for start in range(0, len(block), step):
                part = block if len(block) <= step else block.part(start, start + step)
                yield part.start, part.start + len(part), part

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
    own = cotangent.sum(axis=0)[:, None, None] * precision
    if inverse:
        return 0.5 * (summed + summed.transpose(0, 2, 1)) - own
    product = cp.matmul(cp.matmul(precision, summed), precision)
    return own - 0.5 * (product + product.transpose(0, 2, 1))
