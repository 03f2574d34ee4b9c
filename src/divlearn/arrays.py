"""Types of arrays, their host or device, and conversion to real numbers."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

RealArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]
Indices = NDArray[np.intp]
Labels = NDArray[Any]  # of classes or groups: numbers or text
DeviceArray = Any  # of NumPy or CuPy, which has no types


def to_host(array: Any) -> RealArray:
    """Bring an array from a device; one of NumPy stays as it is."""
    return array if isinstance(array, np.ndarray) else array.get()


def on_device(array: Any) -> bool:
    """Whether an array is on a device."""
    return not isinstance(array, np.ndarray)


def to_device_of(array: Any, like: Any) -> RealArray:
    """Move an array to the device of another; NumPy cannot mix host and device."""
    if type(array) is type(like):
        return array
    return to_host(array) if isinstance(like, np.ndarray) else np.asarray(array, like=like)


def array_or_list(values: Any) -> Any:
    """Convert to an array; return a ragged list as it is."""
    try:
        return np.asarray(values)
    except ValueError:
        return values


def as_real(values: ArrayLike, name: str, *, largest: float = np.inf) -> RealArray:
    """Convert to float64; raise unless all values are finite real numbers."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} is ragged: its rows differ in length") from error
    check_real(array, name)
    real: RealArray = array.astype(np.float64)
    good = np.abs(real) <= min(largest, np.finfo(np.float64).max)
    if not good.all():
        index = [int(i) for i in np.argwhere(~good)[0]]
        where = f"{name}{index}" if index else name
        limit = "" if np.isinf(largest) else f", at most {largest:g} in magnitude"
        raise ValueError(f"{where} = {real[tuple(index)]} must be finite{limit}")
    return real


def check_real(array: np.ndarray, name: str, fix: str = "") -> None:
    """Raise where an array holds anything but real numbers, finite or not."""
    if array.dtype.kind not in "buif":
        raise TypeError(f"{name} has dtype {array.dtype}, but must be real numbers{fix}")


def as_axis(values: ArrayLike, name: str) -> RealArray:
    """Convert the values of one parameter of a grid to float64 of shape (n,), n >= 1."""
    axis = as_real(values, name)
    if axis.ndim != 1 or axis.size == 0:
        raise ValueError(f"{name} has shape {axis.shape}, but must have shape (n,) with n >= 1")
    return axis
