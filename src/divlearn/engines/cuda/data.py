"""Data and atoms on the device, and checks of them; `check_spd` raises the errors, on the host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from divlearn import tolerances
from divlearn.arrays import DeviceArray, IntArray, RealArray, as_real
from divlearn.engines.cuda import Handle, as_cupy, cp, kind_of
from divlearn.engines.cuda.kernels import Layout, kernels_for, largest_dimension
from divlearn.engines.data import Prepared, check_cotangent_shape, permute
from divlearn.engines.parameters import Extremes
from divlearn.engines.pencil import no_factor
from divlearn.spd import check_spd

_RESIDENT_SHARE = 0.4  # of the free memory that prepared data may take
_STREAMED_BYTES = 1 << 30  # per block of data that is sent again in every call
_INVERTING_BLOCKS = 4096
_NO_FAILURE = np.iinfo(np.int64).max


def _factor_matrices(kernel: str, matrices: DeviceArray, *leading: DeviceArray) -> DeviceArray:
    """Factor matrices by a kernel; return exponents, log-determinants and spreads, (3, n)."""
    n, d = matrices.shape[:2]
    kernels = kernels_for(d)
    sizes = cp.empty((3, n))
    failed = cp.full(1, _NO_FAILURE, np.int64)
    trailing = (np.int64(n),) if kernel == "prepare_data" else ()
    arguments = (matrices, *leading, *sizes, failed, *trailing)
    kernels.launch(kernel, (n,), kernels.layout.prepare_threads, *arguments)
    index = int(failed[0])
    if index != _NO_FAILURE:
        raise no_factor(f"{'X' if kernel == 'prepare_data' else 'atoms'}[{index}]")
    return sizes


def _factor_inverses(matrices: DeviceArray, *, of_atoms: bool) -> tuple[DeviceArray, DeviceArray]:
    """Factors of inverse pencils, and the errors of eigenvalues by factorizing, in units of eps."""
    n, d = matrices.shape[:2]
    kernels = kernels_for(d)
    factors, errors = cp.empty(n * kernels.layout.factor), cp.empty(n)
    blocks = min(n, _INVERTING_BLOCKS)
    scratch = cp.empty((blocks, d, d | 1))
    arguments = matrices, scratch, factors, errors, np.int64(n), np.int32(of_atoms)
    kernels.launch("prepare_inverses", (blocks,), kernels.layout.prepare_threads, *arguments)
    return factors, errors


def factors_from(factors: DeviceArray, row: int, d: int) -> DeviceArray:
    """View of the factors of data from a row on; small ones are stored entry by entry."""
    return factors[row if d <= 8 else row * kernels_for(d).layout.factor :]


@dataclass(frozen=True, eq=False)
class Block:
    """Some of the data on the device, as CuPy arrays."""

    start: int  # index of the first matrix
    count: int  # matrices in the array of factors, of which the block may be a part
    matrices: DeviceArray  # (n, d, d), float64
    factors: DeviceArray  # flat Cholesky factors, scaled by 2^-exponent, as in fragments.cuh
    exponents: DeviceArray  # (n,)
    logdets: DeviceArray  # (n,), of the scaled matrices
    spreads: DeviceArray  # (n,)
    cache: dict[str, DeviceArray] = field(default_factory=dict)  # cache of the routes

    @classmethod
    def of(cls, start: int, matrices: DeviceArray) -> Block:
        """Send matrices to the device, unless they are on it, and factor them."""
        device = cp.ascontiguousarray(cp.asarray(matrices), np.float64)
        n, d = device.shape[:2]
        factors = cp.empty(n * kernels_for(d).layout.factor)
        return cls(start, n, device, factors, *_factor_matrices("prepare_data", device, factors))

    def __len__(self) -> int:
        return len(self.matrices)

    def part(self, start: int, stop: int) -> Block:
        rows = slice(start, min(stop, len(self)))
        names = "matrices", "exponents", "logdets", "spreads"
        return replace(
            self,
            start=self.start + start,
            factors=factors_from(self.factors, start, self.matrices.shape[-1]),
            cache={key: array[rows] for key, array in self.cache.items()},
            **{name: getattr(self, name)[rows] for name in names},
        )

    @cached_property
    def inverses(self) -> tuple[DeviceArray, DeviceArray]:
        return _factor_inverses(self.matrices, of_atoms=False)

    @cached_property
    def extremes(self) -> Extremes:
        extremes = cp.stack([self.spreads.max(), self.exponents.min(), self.exponents.max()])
        largest, low, high = cp.asnumpy(extremes).tolist()
        return largest, low, high


class CudaData(Prepared):
    """Checked matrices on the device, or sent block by block if they are too large.

    ``kind`` is the library of the data and of every result: "numpy", "cupy" or "torch".
    """

    def __init__(
        self, matrices: DeviceArray, order: IntArray | None = None, kind: str = "numpy"
    ) -> None:
        super().__init__("cuda", matrices, order=order)
        self.device, self.kind = cp.cuda.Device().id, kind
        is_resident = self.on_device or fits(matrices.shape)
        self.resident = Block.of(0, matrices) if is_resident else None

    def __reduce__(self) -> tuple[type, tuple[RealArray, IntArray | None]]:
        return CudaData, (cp.asnumpy(self.working), self.order)

    @property
    def on_device(self) -> bool:
        return kind_of(self.working) != "numpy"

    @property
    def matrices(self) -> RealArray:
        host: RealArray = cp.asnumpy(self.working)
        return host if self.order is None else permute(host, np.argsort(self.order))

    @property
    def device_matrices(self) -> DeviceArray:
        if self.kind == "numpy" or self.order is None:
            return self.matrices if self.kind == "numpy" else self.working
        return permute_on_device(self.working, np.argsort(self.order))

    def blocks(self) -> Iterator[Block]:
        if self.resident is not None:
            yield self.resident
            return
        step = max(1, _STREAMED_BYTES // (8 * self.d * self.d))
        starts = range(0, self.n_matrices, step)
        parts = (self.working[start : start + step] for start in starts)
        uploads = _upload_ahead(parts, step * self.d * self.d)
        for start, matrices in zip(starts, uploads, strict=True):
            yield Block.of(start, matrices)


def fits(shape: tuple[int, ...]) -> bool:
    """Whether matrices of that shape may stay on the device, prepared."""
    n, d = shape[:2]
    size = 8 * n * (2 * d * d + Layout(d).factor)
    return bool(size <= _RESIDENT_SHARE * cp.cuda.Device().mem_info[0])


def _upload_ahead(arrays: Iterable[RealArray], entries: int) -> Iterator[DeviceArray]:
    """Send arrays through pinned memory on a separate stream, one ahead of their use."""
    stream = cp.cuda.Stream(non_blocking=True)
    buffers = [cp.cuda.alloc_pinned_memory(8 * entries) for _ in range(2)]
    events: list[Handle] = [None, None]
    uploads: list[tuple[DeviceArray, Handle]] = []  # arrays, and events after their copies
    for count, array in enumerate(arrays):
        slot = count % 2
        if events[slot] is not None:  # the copy before the last has read the buffer
            events[slot].synchronize()
        staged = np.frombuffer(buffers[slot], np.float64, array.size).reshape(array.shape)
        np.copyto(staged, array)
        target = cp.empty(array.shape)
        ready = cp.cuda.get_current_stream().record()
        stream.wait_event(ready)  # earlier uses of this memory are complete
        target.set(staged, stream=stream)
        events[slot] = stream.record()
        uploads.append((target, events[slot]))
        if count:
            yield _wait_for(*uploads.pop(0))
    for upload in uploads:
        yield _wait_for(*upload)


def _wait_for(array: DeviceArray, event: Handle) -> DeviceArray:
    cp.cuda.get_current_stream().wait_event(event)
    return array


class CudaAtoms:
    """Atoms in the form of the kernels, and the conversion of sums to gradients."""

    def __init__(self, atoms: DeviceArray) -> None:
        n, d = atoms.shape[:2]
        self.matrices = cp.asarray(atoms, np.float64)
        self.factors = cp.empty((n, kernels_for(d).layout.factor))
        padded = cp.empty((n, d, d | 1))
        sizes = _factor_matrices("prepare_atoms", self.matrices, padded, self.factors)
        self.exponents, self.logdets, self.spreads = sizes
        self.whitener = cp.ascontiguousarray(padded[:, :, :d])
        self.exponent, _, self.spread = cp.asnumpy(sizes)

    def __len__(self) -> int:
        return len(self.matrices)

    def select(self, index: NDArray[np.intp]) -> CudaAtoms:
        return self if len(index) == len(self) else CudaAtoms(self.matrices[cp.asarray(index)])

    def in_units(self, gradient: DeviceArray) -> DeviceArray:
        return cp.ldexp(gradient, -self.exponents.astype(np.int32)[:, None, None])

    @cached_property
    def inverses(self) -> tuple[DeviceArray, DeviceArray]:
        return _factor_inverses(self.matrices, of_atoms=True)

    @cached_property
    def inverse(self) -> DeviceArray:
        product = cp.matmul(self.whitener.transpose(0, 2, 1), self.whitener)
        return 0.5 * (product + product.transpose(0, 2, 1))

    def congruence(self, inner: DeviceArray) -> DeviceArray:
        """``L_B^-T S L_B^-1``; overflow gives infinity, never NaN."""
        exponent = cp.frexp(cp.abs(inner).max(axis=(1, 2), keepdims=True))[1]
        transposed = self.whitener.transpose(0, 2, 1)
        product = cp.matmul(cp.matmul(transposed, cp.ldexp(inner, -exponent)), self.whitener)
        product = cp.ldexp(0.5 * (product + product.transpose(0, 2, 1)), exponent)
        return self.in_units(product)

    def whiten(self, gradient: DeviceArray) -> DeviceArray:
        factor = cp.linalg.cholesky(self.matrices)
        product = cp.matmul(cp.matmul(factor.transpose(0, 2, 1), gradient), factor)
        return 0.5 * (product + product.transpose(0, 2, 1))


def checkable(X: DeviceArray) -> bool:
    """Whether `check_on_device` can check an array: float matrices that the kernels take."""
    is_float = getattr(X, "dtype", None) in (np.float32, np.float64) and X.ndim == 3
    return bool(is_float and X.shape[1] == X.shape[2] <= largest_dimension() and 0 not in X.shape)


def check_on_device(X: DeviceArray, name: str = "X") -> DeviceArray:
    """Check SPD matrices as `check_spd` does; return a new, exactly symmetric device array."""
    if checkable(X):
        transposed, diagonal = X.transpose(0, 2, 1), cp.diagonal(X, axis1=1, axis2=2)
        units = cp.sqrt(cp.abs(diagonal))
        tolerance = tolerances.asymmetry(X.dtype) * units[:, :, None] * units[:, None, :]
        valid = (cp.abs(X - transposed) <= tolerance).all() & (diagonal > 0).all()
        symmetric = 0.5 * X + 0.5 * transposed
        if bool(valid & cp.isfinite(X).all()) and all_definite(symmetric):
            return symmetric
    return cp.asarray(check_spd(cp.asnumpy(X), ndim=3, name=name))


def all_definite(X: DeviceArray, margin: float = 1.0) -> bool:
    """Whether all matrices, diagonals about one, exceed the tolerance of `check_spd`."""
    d = X.shape[-1]
    exponent = cp.frexp(cp.diagonal(X, axis1=1, axis2=2).astype(np.float64))[1] // 2
    units = cp.ldexp(cp.ones(exponent.shape), -exponent)
    scaled = X * units[:, :, None] * units[:, None, :]
    scaled -= margin * tolerances.positive_definite(d, X.dtype) * cp.eye(d)
    try:
        Block.of(0, scaled)
    except ValueError:
        return False
    return True


def permute_on_device(matrices: DeviceArray, order: IntArray) -> DeviceArray:
    index = cp.asarray(order)
    return cp.ascontiguousarray(matrices[:, index[:, None], index])


def check_cotangent(cotangent: DeviceArray, shape: tuple[int, ...]) -> DeviceArray:
    check_cotangent_shape(tuple(cotangent.shape), shape)
    if cotangent.dtype.kind != "f" or not bool(cp.isfinite(cotangent).all()):
        return cp.asarray(as_real(cp.asnumpy(cotangent), "cotangent"))
    return cp.ascontiguousarray(cotangent, np.float64)


def check_device_out(out: DeviceArray, shape: tuple[int, ...], dtype: np.dtype) -> DeviceArray:
    if out is None:
        return cp.empty(shape, dtype)
    target = as_cupy(out)
    if target.shape != shape or target.dtype.kind != "f" or not target.flags.c_contiguous:
        raise ValueError(
            f"out has shape {target.shape} and dtype {target.dtype}, but must be a contiguous "
            f"floating-point array of shape {shape} on the device of the data"
        )
    return target
