"""Data and atoms on the device, in the form the kernels take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import IntArray, RealArray
from divlearn.engines.base import Prepared
from divlearn.engines.cuda.arrays import kind_of
from divlearn.engines.cuda.kernels import Layout, kernels_for
from divlearn.engines.cuda.lazy import cp

__all__ = ["Block", "CudaAtoms", "CudaData", "fits"]

_RESIDENT_SHARE = 0.4  # of the free memory that data may take for good
_STREAMED_BYTES = 1 << 30  # of data that is sent again in every call, per block
_NO_FAILURE = np.iinfo(np.int64).max


def _prepared(kernel: str, matrices: Any, *leading: Any) -> tuple[Any, ...]:
    """Run one of the preparing kernels; return exponents, log-determinants and spreads."""
    n, d = matrices.shape[:2]
    kernels = kernels_for(d)
    exponents, logdets, spreads = (cp.empty(n) for _ in range(3))
    failed = cp.full(1, _NO_FAILURE, np.int64)
    trailing = (np.int64(n),) if kernel == "prepare_data" else ()
    arguments = (matrices, *leading, exponents, logdets, spreads, failed, *trailing)
    kernels.launch(kernel, (n,), kernels.layout.preparers, *arguments)
    index = int(failed[0])
    if index != _NO_FAILURE:
        name = "X" if kernel == "prepare_data" else "atoms"
        raise ValueError(
            f"{name}[{index}] has no Cholesky factor in double precision; see check_spd for a "
            "diagnosis and for repair"
        )
    return exponents, logdets, spreads


@dataclass(frozen=True, eq=False)
class Block:
    """Some of the data on the device.

    Attributes
    ----------
    start : index of the first matrix.
    count : matrices among whose factors those of the block are.
    matrices : cupy array (n, d, d), float64.
    factors : cupy array, flat: Cholesky factors of the matrices scaled by 2^-exponent, in the
        order of ``fragments.cuh``.
    exponents, logdets, spreads : cupy arrays (n,), of the scaled matrices.
    """

    start: int
    count: int
    matrices: Any
    factors: Any
    exponents: Any
    logdets: Any
    spreads: Any
    kept: dict[str, Any] = field(default_factory=dict)  # what routes compute once

    @classmethod
    def of(cls, start: int, matrices: Any) -> Block:
        """Send matrices to the device, if they are not there, and factor them."""
        device = cp.ascontiguousarray(cp.asarray(matrices), np.float64)
        n, d = device.shape[:2]
        factors = cp.empty(n * kernels_for(d).layout.factor)
        return cls(start, n, device, factors, *_prepared("prepare_data", device, factors))

    def __len__(self) -> int:
        return len(self.matrices)

    def factors_from(self, row: int) -> Any:
        """Return the factors, from a row on."""
        layout = kernels_for(self.matrices.shape[-1]).layout
        return self.factors[row if layout.d <= 8 else row * layout.factor :]

    def part(self, start: int, stop: int) -> Block:
        """Return some of the rows without copying."""
        rows = slice(start, min(stop, len(self)))
        return Block(
            self.start + start, self.count, self.matrices[rows], self.factors_from(start),
            self.exponents[rows], self.logdets[rows], self.spreads[rows],
            {key: array[rows] for key, array in self.kept.items()},
        )  # fmt: skip

    @cached_property
    def extremes(self) -> tuple[float, float, float]:
        """Largest spread, smallest and largest exponent."""
        found = cp.stack([self.spreads.max(), self.exponents.min(), self.exponents.max()])
        largest, low, high = cp.asnumpy(found).tolist()
        return largest, low, high


@dataclass(frozen=True, eq=False)
class CudaData(Prepared):
    """Data on the device, or on its way there block by block where it is too large.

    Attributes
    ----------
    device : number of the device.
    resident : Block, optional. All of the data, where it fits.
    kind : {"numpy", "cupy", "torch"}, of the data and of every result.
    """

    device: int
    resident: Block | None
    kind: str = "numpy"

    @classmethod
    def of(cls, matrices: Any, order: IntArray | None, kind: str = "numpy") -> CudaData:
        """Prepare checked matrices, a NumPy or a CuPy array, in an order of the variables."""
        on_device = kind_of(matrices) != "numpy"
        resident = Block.of(0, matrices) if on_device or fits(matrices.shape) else None
        return cls("cuda", matrices, cp.cuda.Device().id, resident, kind, order=order)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the matrices alone."""
        return _prepare_again, (cp.asnumpy(self.working), self.order)

    @property
    def on_device(self) -> bool:
        """Whether the matrices are kept on the device alone."""
        return kind_of(self.working) != "numpy"

    @property
    def matrices(self) -> RealArray:
        """The checked matrices as they were passed, a NumPy array."""
        host: RealArray = cp.asnumpy(self.working)
        if self.order is None:
            return host
        back = np.argsort(self.order)
        return np.ascontiguousarray(host[..., back[:, None], back])

    @property
    def there(self) -> Any:
        """The same where results for the data are."""
        if self.kind == "numpy" or self.order is None:
            return self.matrices if self.kind == "numpy" else self.working
        back = cp.asarray(np.argsort(self.order))
        return self.working[:, back[:, None], back]

    @cached_property
    def sizes(self) -> RealArray:
        """Mean logarithm of each variable's variance, in the order of `matrices`."""
        xp = cp if self.on_device else np
        variances = xp.diagonal(self.working, axis1=1, axis2=2).astype(np.float64)
        found: RealArray = cp.asnumpy(xp.log(variances).mean(axis=0))
        return found if self.order is None else found[np.argsort(self.order)]

    def blocks(self) -> Iterator[Block]:
        """All of the data, one block after the other."""
        if self.resident is not None:
            yield self.resident
            return
        step = max(1, _STREAMED_BYTES // (8 * self.d * self.d))
        uploads = _Uploads(step * self.d * self.d)
        starts = range(0, self.n_matrices, step)
        parts = (self.working[start : start + step] for start in starts)
        for start, matrices in zip(starts, uploads.ahead(parts), strict=True):
            yield Block.of(start, matrices)


def fits(shape: tuple[int, ...]) -> bool:
    """Whether matrices of that shape may stay on the device, prepared."""
    n, d = shape[:2]
    size = 8 * n * (2 * d * d + Layout.of(d).factor)
    return bool(size <= _RESIDENT_SHARE * cp.cuda.Device().mem_info[0])


class _Uploads:
    """Sends arrays through pinned memory on a stream of its own, one ahead of their use."""

    def __init__(self, entries: int) -> None:
        self.stream = cp.cuda.Stream(non_blocking=True)
        self.buffers = [cp.cuda.alloc_pinned_memory(8 * entries) for _ in range(2)]
        self.events: list[Any] = [None, None]
        self.turn = 0

    def ahead(self, arrays: Iterable[Any]) -> Iterator[Any]:
        """Yield the arrays on the device, the next one on its way meanwhile."""
        sent = None
        for array in arrays:
            following = self._send(array)
            if sent is not None:
                yield self._received(sent)
            sent = following
        if sent is not None:
            yield self._received(sent)

    def _send(self, array: Any) -> tuple[Any, Any]:
        turn, self.turn = self.turn, 1 - self.turn
        if self.events[turn] is not None:  # the copy before the last has left the buffer
            self.events[turn].synchronize()
        staged = np.frombuffer(self.buffers[turn], np.float64, array.size).reshape(array.shape)
        np.copyto(staged, array)
        target = cp.empty(array.shape)
        ready = cp.cuda.get_current_stream().record()
        self.stream.wait_event(ready)  # whatever used this memory before is done
        target.set(staged, stream=self.stream)
        self.events[turn] = self.stream.record()
        return target, self.events[turn]

    def _received(self, sent: tuple[Any, Any]) -> Any:
        array, event = sent
        cp.cuda.get_current_stream().wait_event(event)
        return array


def _prepare_again(matrices: RealArray, order: IntArray | None) -> CudaData:
    return CudaData.of(matrices, order)


class CudaAtoms:
    """Atoms as the kernels take them, and what turns their sums into gradients.

    Parameters
    ----------
    atoms : array, shape (n_atoms, d, d), on the host or on the device.
    """

    def __init__(self, atoms: Any) -> None:
        n, d = atoms.shape[:2]
        self.matrices = cp.asarray(atoms, np.float64)
        self.factors = cp.empty((n, kernels_for(d).layout.factor))
        padded = cp.empty((n, d, d | 1))
        self.exponents, self.logdets, self.spreads = _prepared(
            "prepare_atoms", self.matrices, padded, self.factors
        )
        self.whitener = cp.ascontiguousarray(padded[:, :, :d])
        self.exponent = cp.asnumpy(self.exponents)
        self.spread = cp.asnumpy(self.spreads)

    def __len__(self) -> int:
        return len(self.matrices)

    def chosen(self, index: NDArray[np.intp]) -> CudaAtoms:
        """Select some of the atoms."""
        if len(index) == len(self):
            return self
        return CudaAtoms(self.matrices[cp.asarray(index)])

    def in_units(self, gradient: Any) -> Any:
        """Undo the scaling of the atoms on something that scales as their inverse."""
        return cp.ldexp(gradient, -self.exponents.astype(np.int32)[:, None, None])

    @cached_property
    def inverse(self) -> Any:
        """Inverse atoms, scaled."""
        product = cp.matmul(self.whitener.transpose(0, 2, 1), self.whitener)
        return 0.5 * (product + product.transpose(0, 2, 1))

    def congruence(self, inner: Any) -> Any:
        """``L_B^-T S L_B^-1``; what overflows is infinite, never NaN."""
        largest = cp.abs(inner).max(axis=(1, 2), keepdims=True)
        exponent = cp.frexp(largest)[1]
        turned = self.whitener.transpose(0, 2, 1)
        product = cp.matmul(cp.matmul(turned, cp.ldexp(inner, -exponent)), self.whitener)
        product = cp.ldexp(0.5 * (product + product.transpose(0, 2, 1)), exponent)
        return self.in_units(product)

    def whiten(self, gradient: Any) -> Any:
        """``L_B^T (gradient) L_B`` for a gradient found without it."""
        factor = cp.linalg.cholesky(self.matrices)
        product = cp.matmul(cp.matmul(factor.transpose(0, 2, 1), gradient), factor)
        return 0.5 * (product + product.transpose(0, 2, 1))
