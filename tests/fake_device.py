"""A device that is none: arrays that refuse to mix with NumPy's, and an engine that keeps them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from divlearn.engines import ReferenceEngine
from divlearn.engines.data import Prepared

_CREATORS = (np.asarray, np.zeros, np.empty)  # np.ones and such hand CuPy what it does not take
_REFUSED = (np.ones, np.full, np.eye, np.identity)


class DeviceArray(NDArrayOperatorsMixin):
    """What CuPy's arrays do: functions of NumPy work on them, but not together with host arrays.

    Sizes of all arrays that cross are written down.
    """

    crossed: ClassVar[list[int]] = []

    def __init__(self, array) -> None:
        self._array = np.asarray(array)

    @classmethod
    def send(cls, array) -> DeviceArray:
        """Copy an array to the device; what is there stays."""
        if isinstance(array, cls):
            return array
        cls.crossed.append(np.size(array))
        return cls(np.array(array))

    def get(self) -> np.ndarray:
        """Copy to the host."""
        self.crossed.append(self._array.size)
        return self._array.copy()

    # ------------------------------------------------------------------ what NumPy asks for

    def __array__(self, *args, **kwargs):
        raise TypeError("an array on the device is not converted; call get()")

    def __array_ufunc__(self, ufunc, method, *inputs, out=(), **kwargs):
        places = {"out": tuple(o._array for o in out)} if out else {}
        return _wrap(getattr(ufunc, method)(*map(_unwrap, inputs), **places, **kwargs))

    def __array_function__(self, function, types, args, kwargs):
        if function is np.asarray:
            return self.send(*args, **kwargs)
        if function in _REFUSED:
            raise TypeError(f"{function.__name__}() got an unexpected keyword argument 'device'")
        if function not in _CREATORS:
            args, kwargs = _unwrap(args), _unwrap(kwargs)
        return _wrap(function(*args, **kwargs))

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(self._array, name)
        if not callable(found):
            return _wrap(found)
        return lambda *args, **kwargs: _wrap(found(*_unwrap(args), **_unwrap(kwargs)))

    def __getitem__(self, key):
        return DeviceArray(self._array[_index(key)])  # a view, as on a device

    def __setitem__(self, key, value):
        self._array[_index(key)] = _unwrap(value)

    def __len__(self):
        return len(self._array)

    def __iter__(self):
        return (DeviceArray(row) for row in self._array)

    def __bool__(self):
        return bool(self._array)

    def __float__(self):
        return float(self._array)

    def __int__(self):
        return int(self._array)


def _wrap(result):
    if isinstance(result, tuple):
        parts = [_wrap(part) for part in result]
        return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)
    numbers = isinstance(result, np.ndarray | np.generic)
    return DeviceArray(result) if numbers else result


def _unwrap(given):
    if isinstance(given, DeviceArray):
        return given._array
    if isinstance(given, np.ndarray) and given.ndim:
        raise TypeError(f"a host array of shape {given.shape} meets arrays on the device")
    if isinstance(given, list | tuple):
        return type(given)(_unwrap(part) for part in given)
    return {k: _unwrap(v) for k, v in given.items()} if isinstance(given, dict) else given


def _index(key):
    """Indices may come from the host."""
    if isinstance(key, tuple):
        return tuple(_index(part) for part in key)
    return key._array if isinstance(key, DeviceArray) else key


@dataclass(eq=False)
class DeviceData(Prepared):
    """Data that was sent to the device; it holds the same prepared by the reference engine."""

    inner: Prepared


class FakeDeviceEngine(ReferenceEngine):
    """The reference engine, with data and results on the device."""

    def keep(self, X):
        data = self.prepare(X)
        DeviceArray.crossed.append(data.working.size)
        return DeviceData(self.name, data.working, data, order=data.order)

    def send(self, array):
        return DeviceArray.send(array)

    def place(self, array, data):
        return DeviceArray.send(array) if isinstance(data, DeviceData) else array

    def take(self, data, rows):
        if not isinstance(data, DeviceData):
            return super().take(data, rows)
        part = super().take(data.inner, np.asarray(_index(rows)))
        return DeviceData(self.name, part.working, part, order=part.order)

    def spectra(self, data, atoms):
        found = super().spectra(*_inside(data, atoms))
        return DeviceArray(found) if isinstance(data, DeviceData) else found

    def encode(self, data, atoms, alpha, beta, *, out=None):
        found = super().encode(*_inside(data, atoms, alpha, beta), out=out)
        return DeviceArray(found) if isinstance(data, DeviceData) else found

    def pullback(self, data, atoms, alpha, beta, cotangent, *, parameters=True, values=False):
        back = super().pullback(
            *_inside(data, atoms, alpha, beta, cotangent), parameters=parameters, values=values
        )
        if not isinstance(data, DeviceData):
            return back
        fields = ("atoms", "whitened", "alpha", "beta", "values")
        found = {name: getattr(back, name) for name in fields}
        return replace(back, **{k: None if v is None else DeviceArray(v) for k, v in found.items()})

    def encode_filters(self, data, filters, alpha, beta):
        found = super().encode_filters(*_inside(data, filters), alpha, beta)
        return DeviceArray(found) if isinstance(data, DeviceData) else found

    def pull_filters(self, data, filters, alpha, beta, cotangent, *, parameters=False):
        inside, filters, cotangent = _inside(data, filters, cotangent)
        known = inside, filters, alpha, beta, cotangent
        gradient, *slopes = super().pull_filters(*known, parameters=parameters)
        return DeviceArray(gradient) if isinstance(data, DeviceData) else gradient, *slopes


def _inside(data, *arrays):
    """Unwrap what is on the device; arrays of the host that go with such data are sent."""
    if not isinstance(data, DeviceData):
        return data, *arrays
    return data.inner, *map(_sent, arrays)


def _sent(array):
    if isinstance(array, Prepared):
        return Prepared.checked(DeviceArray.send(array.matrices)._array)
    return DeviceArray.send(array)._array
