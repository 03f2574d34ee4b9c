"""The CUDA engine: kernels compiled at first use, for NumPy arrays and for arrays on a GPU."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import numpy as np

from divlearn.arrays import DeviceArray, IntArray, RealArray, array_or_list
from divlearn.engines.cuda import as_cupy, as_kind, as_numpy, cp, current, kind_of
from divlearn.engines.cuda.data import (
    CudaAtoms,
    CudaData,
    all_definite,
    check_cotangent,
    check_device_out,
    check_on_device,
    checkable,
    fits,
    permute_on_device,
)
from divlearn.engines.cuda.filters import LARGEST_RANK, encode_filters, pull_filters
from divlearn.engines.cuda.kernels import largest_dimension
from divlearn.engines.cuda.routes import CudaRoutes
from divlearn.engines.data import (
    Gradients,
    Prepared,
    Pull,
    Request,
    check_same_size,
    check_values,
    is_descending,
    typical_sizes,
)
from divlearn.engines.parameters import Parameters, value_routes
from divlearn.engines.projected import line_of
from divlearn.spd import check_spd
from divlearn.tolerances import USABLE_MARGIN


class CudaEngine(CudaRoutes):
    """Kernels on an NVIDIA GPU, float64 inside. See `Engine`.

    Results are the same from run to run. The engine of the CPU computes what the kernels cannot:
    parameters of opposite signs, d > 128, and eigenvalues whose squares are out of range.
    """

    table_entries = 1 << 28

    def prepare(self, X: DeviceArray) -> Prepared:
        """Factor data on the device; results of CuPy arrays and torch tensors stay on it."""
        if isinstance(X, Prepared):
            return super().prepare(X)
        kind = kind_of(X)
        matrices = array_or_list(X) if kind == "numpy" else X
        if kind == "numpy" and not (checkable(matrices) and fits(matrices.shape)):
            return super().prepare(matrices)
        with current(X):
            return self._prepare_checked(check_on_device(as_cupy(matrices)), kind)

    def keep(self, X: DeviceArray) -> Prepared:
        is_prepared = isinstance(X, Prepared)
        if isinstance(X, CudaData) or (not is_prepared and kind_of(X) != "numpy"):
            return self.prepare(X)
        matrices = X.matrices if is_prepared else array_or_list(X)
        if not (checkable(matrices) and fits(matrices.shape)):
            return self.prepare(X)
        on_device = cp.asarray(matrices)
        return self._prepare_checked(on_device, "cupy") if is_prepared else self.prepare(on_device)

    def send(self, array: RealArray) -> DeviceArray:
        return cp.asarray(array) if checkable(array) and fits(array.shape) else array

    def place(self, array: DeviceArray, data: Prepared) -> DeviceArray:
        if self._kind(data) == "numpy":
            return as_numpy(array)
        with self._on_device_of(data):
            return as_kind(as_cupy(array), self._kind(data))

    def take(self, data: Prepared, rows: IntArray) -> Prepared:
        if not (isinstance(data, CudaData) and data.on_device):
            return super().take(data, rows)
        with self._on_device_of(data):
            matrices = data.working[cp.asarray(rows)]
            if data.order is not None:
                matrices = permute_on_device(matrices, np.argsort(data.order))
            return self._prepare_checked(matrices, data.kind)

    def _prepare_checked(
        self, matrices: DeviceArray, kind: str, sizes: RealArray | None = None
    ) -> Prepared:
        """Prepare checked matrices on the device, variables in descending order of size."""
        if matrices.shape[-1] > largest_dimension():
            raise ValueError(
                f"d={matrices.shape[-1]} must be <= {largest_dimension()} for arrays on this GPU; "
                "pass NumPy arrays, which the engine of the CPU takes"
            )
        if sizes is None:
            sizes = typical_sizes(matrices)
        if is_descending(sizes):
            return CudaData(matrices, None, kind)
        order = np.argsort(-sizes, kind="stable")
        return CudaData(permute_on_device(matrices, order), order, kind)

    def _check(self, data: DeviceArray, atoms: DeviceArray) -> tuple[DeviceArray, DeviceArray]:
        prepared: DeviceArray = self.prepare(data)
        if not (isinstance(prepared, CudaData) and prepared.on_device):
            return super()._check(prepared, as_numpy(atoms))
        checked = self._check_atoms(atoms)
        check_same_size(prepared, checked)
        sizes = prepared.sizes - typical_sizes(checked)
        if not is_descending(sizes if prepared.order is None else sizes[prepared.order]):
            matrices = prepared.working
            if prepared.order is not None:
                matrices = permute_on_device(matrices, np.argsort(prepared.order))
            prepared = self._prepare_checked(matrices, prepared.kind, sizes)
        if prepared.order is not None:
            checked = permute_on_device(checked, prepared.order)
        return prepared, as_numpy(checked) if prepared.kind == "numpy" else checked

    @staticmethod
    def _check_atoms(atoms: DeviceArray) -> DeviceArray:
        """Check atoms in their own precision, on the device if possible; return a device array."""
        if isinstance(atoms, Prepared):
            checked = as_cupy(atoms.working).astype(np.float64, copy=False)
            order = atoms.order
            return checked if order is None else permute_on_device(checked, np.argsort(order))
        matrices = array_or_list(atoms) if kind_of(atoms) == "numpy" else as_cupy(atoms)
        if checkable(matrices):
            checked = check_on_device(cp.asarray(matrices), "atoms")
        else:
            checked = cp.asarray(check_spd(as_numpy(matrices), ndim=3, name="atoms"))
        return checked.astype(np.float64, copy=False)

    def trace(
        self, data: DeviceArray, atoms: DeviceArray, alpha: DeviceArray, beta: DeviceArray
    ) -> tuple[DeviceArray, Pull]:
        n_atoms = atoms.n_matrices if isinstance(atoms, Prepared) else len(atoms)
        resolved = Parameters(as_numpy(alpha), as_numpy(beta), n_atoms)
        spectral = not resolved.opposite and (value_routes(resolved) == "spectrum").all()
        if not (spectral and isinstance(data, CudaData) and data.on_device):
            return super().trace(data, atoms, alpha, beta)
        with self._on_device_of(data):
            prepared, checked = self._check(data, atoms)
            if prepared.order is not None:  # gradients would need `restore_order`
                return super().trace(data, atoms, alpha, beta)
            values, spectra = self._trace(prepared, CudaAtoms(checked), resolved)
            check_values(self.name, values)
            values = values.reshape(len(values), *resolved.shape)

        def pull(cotangent: DeviceArray, parameters: bool) -> Gradients:
            nonlocal spectra
            first_spectra, spectra = spectra, None  # only once: vectors overwrite the reflectors
            gradients = None
            if first_spectra is not None:
                with self._on_device_of(data):
                    weights = check_cotangent(as_cupy(cotangent), values.shape)
                    weights = weights.reshape(len(weights), *resolved.alpha.shape)
                    request = Request(resolved, weights, parameters)
                    gradients = self._traced_pullback(first_spectra, request)
            if gradients is None:
                back = self.pullback(data, atoms, alpha, beta, cotangent, parameters=parameters)
                return back.whitened, back.alpha, back.beta
            whitened, first, second = gradients
            if first is not None and second is not None:
                first, second = resolved.restore(first, second)
            finish = self._finish
            return finish(whitened, data), finish(first, data), finish(second, data)

        return self._finish(values, data), pull

    def _encode_filters(
        self, data: Prepared, filters: DeviceArray, alpha: RealArray, beta: RealArray
    ) -> DeviceArray:
        line = self._line(data, filters, alpha, beta)
        if line is None:
            return super()._encode_filters(data, filters, alpha, beta)
        with self._on_device_of(data):
            return encode_filters(data.working, self._in_order(data, filters), *line)

    def _pull_filters(
        self,
        data: Prepared,
        filters: DeviceArray,
        alpha: RealArray,
        beta: RealArray,
        cotangent: DeviceArray,
        *,
        parameters: bool,
    ) -> Gradients:
        line = None if parameters else self._line(data, filters, alpha, beta)
        if line is None:
            arguments = data, filters, alpha, beta, cotangent
            return super()._pull_filters(*arguments, parameters=parameters)
        with self._on_device_of(data):
            gradient = pull_filters(data.working, self._in_order(data, filters), *line, cotangent)
            return (
                gradient if data.order is None else gradient[:, np.argsort(data.order)],
                None,
                None,
            )

    @staticmethod
    def _in_order(data: Prepared, filters: DeviceArray) -> DeviceArray:
        """Return filters on the device, variables in the order of the data."""
        array = as_cupy(filters)
        return array if data.order is None else array[:, data.order]

    @staticmethod
    def _line(
        data: Prepared, filters: DeviceArray, alpha: RealArray, beta: RealArray
    ) -> tuple[RealArray, RealArray] | None:
        """Return the pairs if kernels support them: alpha + beta = 1, the same for all filters."""
        is_resident = isinstance(data, CudaData) and data.kind != "numpy"
        return line_of(alpha, beta) if is_resident and filters.shape[-1] <= LARGEST_RANK else None

    def usable(self, atoms: DeviceArray) -> bool:
        if kind_of(atoms) == "numpy":
            return super().usable(atoms)
        matrices = as_cupy(atoms)
        return bool(cp.isfinite(matrices).all()) and all_definite(matrices, USABLE_MARGIN)

    def _on_device_of(self, data: DeviceArray) -> AbstractContextManager[object]:
        if isinstance(data, CudaData):
            return cp.cuda.Device(data.device)
        return nullcontext() if isinstance(data, Prepared) else current(data)

    def _on_host(self, parameter: DeviceArray) -> DeviceArray:
        return as_numpy(parameter)

    def _weights(
        self, cotangent: DeviceArray, shape: tuple[int, ...], data: Prepared
    ) -> DeviceArray:
        if self._kind(data) == "numpy":
            return super()._weights(as_numpy(cotangent), shape, data)
        return check_cotangent(as_cupy(cotangent), shape)

    def _target(self, out: DeviceArray, shape: tuple[int, ...], data: Prepared) -> DeviceArray:
        if self._kind(data) == "numpy":
            return super()._target(out, shape, data)
        return check_device_out(out, shape, data.dtype)

    def _deliver(self, array: DeviceArray, data: Prepared) -> DeviceArray:
        kind = self._kind(data)
        return as_numpy(array) if kind == "numpy" else as_kind(cp.asarray(array), kind)

    @staticmethod
    def _kind(data: DeviceArray) -> str:
        if isinstance(data, Prepared):
            return data.kind if isinstance(data, CudaData) else "numpy"
        return kind_of(data)
