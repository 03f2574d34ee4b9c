"""The compiled module itself: it can be interrupted, and refuses arrays it cannot use."""

from __future__ import annotations

import _thread
import operator
import signal
import time
from collections import defaultdict
from contextlib import suppress
from functools import partial

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
def test_kernels_look_at_the_keyboard_between_any_two_tasks(verb):
    """Ctrl-C at the third look ends a kernel in the middle of its work."""
    ended = interrupted(*kernel_calls(n_threads=1)[verb], look=3)
    assert not ended
    assert np.isfinite(NativeEngine(1).encode(np.eye(3)[None], np.eye(3)[None], 0.7, 1.2)).all()


@pytest.mark.parametrize("verb", ["encode", "pullback", "spectra", "box_grams"])
def test_an_interrupt_ends_all_threads(verb):
    ended = interrupted(*kernel_calls(n_threads=2)[verb], look=1)
    assert not ended


def kernel_calls(n_threads):
    """Kernels, and arguments that would keep most of them busy for seconds."""
    X = wishart(np.random.default_rng(0), 1000, 40)
    data, atoms = NativeEngine(1).prepare(X), NativeAtoms(X[:200])
    n, groups = len(atoms.original), -(-len(X) // data.lanes)
    rest = (1e5, n_threads, np.zeros((groups, n), np.uint8))
    start = (ISA, data.arrays(), atoms.arrays())
    point = np.full((n, 1), 0.7), np.full((n, 1), 1.2)
    table, none = np.ones((len(X), n, 1)), np.empty(0)
    image = np.random.default_rng(1).random((40, 16, 16))
    box = [np.array(numbers, np.int64) for numbers in ([0], [16], [0, *[1] * 16, 2], [0, 1])]
    return {
        "spectra": (_native.spectra, *start, np.empty((len(X), n, 40)), *rest),
        "encode": (_native.encode, *start, *point, table, *rest),
        "pullback": (
            _native.pullback,
            *start,
            *point,
            table,
            16,
            np.empty((n, 16, 820)),
            none,
            none,
            none,
            False,
            *rest,
        ),
        "box_grams": (_native.box_grams, ISA, image, np.zeros(40), *box, np.empty((1, 41, 41))),
    }


def interrupted(kernel, *arguments, look):
    """Press Ctrl-C at a look at the keyboard; return whether the kernel has come to its end.

    Nothing but the kernel looks in between: neither `map` nor what it calls is Python code, and
    Python does not look after a missing key of a dictionary as it does after a call.
    """
    press, looks, ended = defaultdict(_thread.interrupt_main), [], []

    def handle(*_):
        if ended:
            return
        looks.append(True)
        if len(looks) == look:
            raise KeyboardInterrupt
        press[len(looks)]

    before = signal.signal(signal.SIGINT, handle)
    time.sleep(0.06)  # kernels look again after 50 milliseconds at the earliest
    try:
        steps = (_thread.interrupt_main, partial(kernel, *arguments), partial(ended.append, True))
        with suppress(KeyboardInterrupt):
            list(map(operator.call, steps))
    finally:
        signal.signal(signal.SIGINT, before)
    return bool(ended)


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


def test_inverses_of_atoms_of_any_size():
    """Powers of two, near both ends of the range, change nothing but the exponents."""
    base = wishart(np.random.default_rng(0), 1, 4)[0]
    exponents = np.array([-1000, -600, 0, 600, 1000])
    atoms = NativeAtoms(np.ldexp(base, exponents[:, None, None]))
    scaled = np.ldexp(atoms.inverse(), exponents[:, None, None])
    np.testing.assert_allclose(scaled, np.broadcast_to(np.linalg.inv(base), (5, 4, 4)), rtol=1e-12)
