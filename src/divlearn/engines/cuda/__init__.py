"""The CUDA engine: arrays of CuPy, which is imported at its first use, and tensors of torch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from divlearn.arrays import DeviceArray

Handle = Any  # an object of CuPy or torch other than an array


class _CuPy:
    """CuPy, imported when an attribute is needed; sources can be read without it."""

    def __getattr__(self, name: str) -> Handle:
        if name.startswith("__"):  # from tools that inspect modules
            raise AttributeError(name)
        value = getattr(import_module("cupy"), name)
        setattr(self, name, value)  # later lookups skip this method
        return value


cp: Handle = _CuPy()


def kind_of(array: DeviceArray) -> str:
    """Library of an array: "cupy" or "torch" on a GPU, "numpy" for anything else."""
    package = type(array).__module__.partition(".")[0]
    if package == "cupy":
        return "cupy"
    return "torch" if package == "torch" and array.is_cuda else "numpy"


def as_cupy(array: DeviceArray) -> DeviceArray:
    """View an array as one of CuPy; copy it to the current device if it is not on it."""
    if kind_of(array) == "torch":
        return cp.from_dlpack(array.detach())
    return cp.asarray(array)


def as_numpy(array: DeviceArray) -> DeviceArray:
    """Copy an array to the host; arrays of the host are returned unchanged."""
    kind = kind_of(array)
    if kind == "torch":
        return array.detach().cpu().numpy()
    return cp.asnumpy(array) if kind == "cupy" else array


def as_kind(array: DeviceArray, kind: str) -> DeviceArray:
    if array is None or kind == "cupy":
        return array
    if kind == "numpy":
        return cp.asnumpy(array)
    import torch.utils.dlpack

    return torch.utils.dlpack.from_dlpack(array)


@contextmanager
def current(array: DeviceArray) -> Iterator[None]:
    """Work on the device of an array; if it is a torch tensor, on torch's stream too."""
    kind = kind_of(array)
    if kind == "numpy":
        yield
    elif kind == "cupy":
        with array.device:
            yield
    else:
        import torch

        stream = torch.cuda.current_stream(array.device)
        with cp.cuda.Device(array.device.index), _shared_stream(stream):
            yield


def _shared_stream(stream: Handle) -> Handle:
    if hasattr(cp.cuda.Stream, "from_external") and hasattr(stream, "__cuda_stream__"):
        return cp.cuda.Stream.from_external(stream)
    with warnings.catch_warnings():  # torch is too old for `from_external`
        warnings.simplefilter("ignore", DeprecationWarning)
        return cp.cuda.ExternalStream(stream.cuda_stream)
