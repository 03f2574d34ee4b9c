"""The compiled module itself: it can be interrupted, and refuses arrays it cannot use."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
from conftest import wishart

from divlearn.engines import available_engines

if "native" not in available_engines():
    pytest.skip("the compiled engine is not installed", allow_module_level=True)

from divlearn.engines import ReferenceEngine, _native, native
from divlearn.engines.native import NativeEngine
from divlearn.engines.packing import NativeAtoms

ISA = _native.instruction_sets()[0]


@pytest.mark.parametrize("verb", ["encode", "pullback", "spectra"])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_an_interrupt_is_answered_long_before_the_work_is_done(verb, n_threads):
    # Jobs that a shell starts in the background ignore interrupts, and so would this one.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        _interrupt(verb, n_threads)
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt(verb, n_threads):
    X = wishart(np.random.default_rng(0), 2000, 40)
    engine = NativeEngine(n_threads, accuracy="accurate")  # minutes of work
    data = engine.prepare(X)
    arguments = {
        "spectra": (data, X[:1000]),
        "encode": (data, X, 0.7, 1.2),
        "pullback": (data, X, 0.7, 1.2, np.ones((2000, 2000))),
    }[verb]
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    start = time.perf_counter()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        getattr(engine, verb)(*arguments)
    assert time.perf_counter() - start < 10  # a second, but for a busy machine
    # Nothing is left behind: the engine goes on working.
    assert np.isfinite(engine.encode(X[:3], X[:2], 0.7, 1.2)).all()


def test_unknown_instruction_sets_are_refused():
    with pytest.raises(ValueError, match=r"instruction set 'abacus' is not available"):
        _native.lanes("abacus")
    with pytest.raises(ValueError, match=r"instruction_set='abacus' must be one of"):
        NativeEngine(instruction_set="abacus")


def test_arrays_of_the_wrong_size_are_refused():
    X = wishart(np.random.default_rng(1), 5, 3)
    data, atoms = NativeEngine(1).prepare(X), NativeAtoms(X[:2])
    failed = np.zeros((1, 2), np.uint8)
    with pytest.raises(ValueError, match=r"wrong size of spectra"):
        _native.spectra(ISA, data.arrays(), atoms.arrays(), np.empty((5, 2, 2)), 1e5, 1, failed)
    with pytest.raises(ValueError, match=r"wrong size of failure marks"):
        _native.spectra(
            ISA, data.arrays(), atoms.arrays(), np.empty((5, 2, 3)), 1e5, 1, failed[:, :1].copy()
        )
    short = _native.DataArrays(
        5, 3, data.factor[:-8], data.matrix, data.logdet, data.exponent, data.spread
    )
    with pytest.raises(ValueError, match=r"wrong size of packed factors"):
        _native.spectra(ISA, short, atoms.arrays(), np.empty((5, 2, 3)), 1e5, 1, failed)


def test_packed_arrays_must_be_aligned():
    X = wishart(np.random.default_rng(2), 5, 3)
    data, atoms = NativeEngine(1).prepare(X), NativeAtoms(X[:2])
    raw = np.empty(data.factor.size + 9)
    offset = (-raw.ctypes.data // 8) % 8 + 1  # one double past a cache line
    factor = raw[offset : offset + data.factor.size]
    factor[:] = data.factor
    crooked = _native.DataArrays(5, 3, factor, data.matrix, data.logdet, data.exponent, data.spread)
    with pytest.raises(ValueError, match=r"not aligned to the vector width"):
        _native.spectra(
            ISA, crooked, atoms.arrays(), np.empty((5, 2, 3)), 1e5, 1, np.zeros((1, 2), np.uint8)
        )


def test_atoms_without_a_factor_are_named():
    indefinite = np.array([np.eye(2), [[1.0, 2.0], [2.0, 1.0]]])
    with pytest.raises(ValueError, match=r"atoms\[1\] has no Cholesky factor"):
        NativeAtoms(indefinite)


def test_large_dimensions_take_lapack(monkeypatch):
    rng = np.random.default_rng(3)
    X, weight = wishart(rng, 6, 4), rng.standard_normal((6, 2))
    right = ReferenceEngine(1).pullback(X, X[:2], 0.7, 1.2, weight, values=True)
    monkeypatch.setattr(native, "_LAPACK_DIMENSION", 4)
    found = NativeEngine(1).pullback(X, X[:2], 0.7, 1.2, weight, values=True)
    for name, value in vars(right).items():
        assert np.array_equal(getattr(found, name), value), name
