"""How engines are chosen, prepared for, passed on, pickled and misused."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from conftest import (
    EPS,
    engine_names,
    make_engine,
    wishart,
)
from engine_problems import POINTS, has_native, problem

from divlearn.engines import Engine, available_engines, get_engine
from divlearn.spectral import abld_scalar

# --- preparing, passing on, pickling --------------------------------------------------------------


def test_prepared_data_is_taken_back(engine):
    X, B, cotangent = problem(8)
    prepared = engine.prepare(X)
    assert (prepared.n_matrices, prepared.d, prepared.dtype) == (37, 8, np.float64)
    assert prepared.engine == engine.name
    assert engine.prepare(prepared) is prepared
    assert np.array_equal(prepared.matrices, X)
    assert np.array_equal(engine.spectra(prepared, B), engine.spectra(X, B))
    assert np.array_equal(engine.encode(prepared, B, 0.4, 1), engine.encode(X, B, 0.4, 1))
    first, second = (engine.pullback(data, B, 0.4, 1, cotangent) for data in (prepared, X))
    assert np.array_equal(first.atoms, second.atoms)


@pytest.mark.parametrize("other", engine_names())
def test_prepared_data_passes_between_engines(engine, other):
    X, B, _ = problem(8)
    foreign = make_engine(other).prepare(X)
    assert np.array_equal(engine.encode(foreign, B, *POINTS.T), engine.encode(X, B, *POINTS.T))


def test_prepared_atoms_are_those_matrices(engine):
    """Also where engines put variables of growing size in another order."""
    X, B, _ = problem(8)
    grown = np.logspace(-6, 6, 8)
    X, B = (matrices * grown[:, None] * grown for matrices in (X, B))
    atoms = engine.prepare(B)
    assert atoms.order is not None
    expected = engine.encode(X, B, 0.4, 1)
    np.testing.assert_array_equal(engine.encode(X, atoms, 0.4, 1), expected)
    np.testing.assert_array_equal(engine.encode(engine.prepare(X), atoms, 0.4, 1), expected)


def test_pickling(engine):
    X, B, _ = problem(8)
    again = pickle.loads(pickle.dumps(engine))
    assert repr(again) == repr(engine)
    prepared = pickle.loads(pickle.dumps(engine.prepare(X)))
    assert np.array_equal(prepared.matrices, X)
    right = engine.encode(X, B, *POINTS.T)
    assert np.array_equal(again.encode(prepared, B, *POINTS.T), right)


def test_prepare_copies(engine):
    X, B, _ = problem(5)
    changing = X.copy()
    prepared = engine.prepare(changing)
    right = engine.encode(X, B, 0.5, 0.5)
    changing[:] = np.eye(5)
    assert np.array_equal(engine.encode(prepared, B, 0.5, 0.5), right)


# --- errors ---------------------------------------------------------------------------------------


def test_errors_of_the_verbs(engine):
    X, B, cotangent = problem(3)
    n = len(B)
    with pytest.raises(ValueError, match=r"atoms are 5 by 5, but the data is 3 by 3"):
        engine.encode(X, problem(5)[1], 0.5, 0.5)
    with pytest.raises(ValueError, match=r"X has shape \(3, 3\), expected \(n_matrices, d, d\)"):
        engine.spectra(X[0], B)
    with pytest.raises(ValueError, match=r"atoms has shape \(3, 3\)"):
        engine.spectra(X, B[0])
    bad = X.copy()
    bad[4, 0, 0] = np.nan
    with pytest.raises(ValueError, match=r"X\[4\] has a NaN entry at \(0, 0\)"):
        engine.prepare(bad)
    with pytest.raises(ValueError, match=r"atoms\[2\] is indefinite"):
        engine.spectra(X, np.stack([B[0], B[1], np.eye(3) + np.fliplr(np.diag([2.0, 0.0, 2.0]))]))
    for alpha in (np.full(n + 1, 0.5), np.full((1, n, 1), 0.5), np.full((2, n), 0.5), np.empty(0)):
        with pytest.raises(ValueError, match=r"alpha has shape .* \(n_atoms,\) = \(11,\)"):
            engine.encode(X, B, alpha, 0.5)
    with pytest.raises(ValueError, match=r"alpha\[1\] = nan must be finite"):
        engine.encode(X, B[:2], [0.5, np.nan], 0.5)
    with pytest.raises(ValueError, match=r"beta = inf must be finite"):
        engine.encode(X, B, 0.5, np.inf)
    with pytest.raises(TypeError, match=r"alpha has dtype complex128"):
        engine.encode(X, B, 0.5j, 0.5)
    with pytest.raises(TypeError, match=r"beta has dtype <U"):
        engine.encode(X, B, 0.5, "half")
    with pytest.raises(ValueError, match=r"cotangent has shape \(37,\), .* \(37, 11\)"):
        engine.pullback(X, B, 0.5, 0.5, cotangent[:, 0])
    with pytest.raises(ValueError, match=r"cotangent\[\d+, \d+\] = inf must be finite"):
        engine.pullback(X, B, 0.5, 0.5, np.where(cotangent > 2, np.inf, cotangent))
    with pytest.raises(TypeError, match=r"cotangent has dtype complex128"):
        engine.pullback(X, B, 0.5, 0.5, 1j * cotangent)
    with pytest.raises(ValueError, match=r"alpha = 1e\+160 must be finite, at most 1e\+150"):
        engine.encode(X, B, 1e160, 0.5)
    with pytest.raises(ValueError, match=r"alpha is ragged"):
        engine.encode(X, B, [[0.5], [0.5, 0.5]], 0.5)
    with pytest.raises(TypeError, match=r"out is a list, but must be a NumPy array"):
        engine.encode(X, B, 0.5, 0.5, out=[[0.0]])
    with pytest.raises(ValueError, match=r"out has .*float16"):
        engine.encode(X, B, 0.5, 0.5, out=np.empty((len(X), n), np.float16))
    with pytest.raises(ValueError, match=r"share memory"):
        engine.encode(
            X,
            B,
            0.5,
            0.5,
            out=np.lib.stride_tricks.as_strided(np.empty(n), (len(X), n), (0, 8), writeable=True),
        )


def test_float32_atoms_are_judged_as_float32(engine):
    X = wishart(np.random.default_rng(8), 6, 4).astype(np.float32)
    rounded = X.copy()
    rounded[:, 0, 1] *= 1 + 3e-7  # what rounding to float32 leaves behind
    values = engine.encode(X, rounded, 0.5, 0.7)
    assert values.dtype == np.float32
    with pytest.raises(ValueError, match=r"atoms\[0\] is not symmetric"):
        engine.encode(X, rounded.astype(np.float64), 0.5, 0.7)


def test_float32_results_beyond_its_range_are_infinite_without_a_warning(engine):
    X, B = np.float32(1e30) * np.eye(2, dtype=np.float32), 1e-30 * np.eye(2)
    assert np.isinf(engine.encode(X[None], B[None], 0, 1)).all()


def test_opposite_signs(engine):
    """Inside the domain all is well; outside the eigenvalue is named."""
    X = np.array([np.diag([1.0, 2.0]), np.diag([0.25, 3.0])])
    B = np.array([np.eye(2)])
    value = engine.encode(X[:1], B, 0.3, -0.2)[0, 0]
    assert value == pytest.approx(abld_scalar(np.log([1.0, 2.0]), 0.3, -0.2).f.sum(), rel=10 * EPS)
    # alpha > 0 > beta: lam > |beta/alpha|^(1/theta) = 0.5^(1/0.5) = 0.25 at (1, -0.5)
    message = r"data\[1\] and atoms\[0\] has the eigenvalue 0\.25, .*\(0\.25, inf\)"
    with pytest.raises(ValueError, match=message):
        engine.encode(X, B, 1.0, -0.5)
    with pytest.raises(ValueError, match=message):
        engine.pullback(X, B, 1.0, -0.5, np.ones((2, 1)))
    with pytest.raises(ValueError, match=r"has the eigenvalue 3, .*\(0, 2\.71828\)"):
        engine.encode(X[1:], B, -1.0, 1.0)


@pytest.mark.parametrize(
    ("n_threads", "error"),
    [
        (0, ValueError),
        (-1, ValueError),
        (1.0, TypeError),
        (True, TypeError),
        ("2", TypeError),
        (2**70, ValueError),
    ],
)
def test_wrong_n_threads(engine_name, n_threads, error):
    with pytest.raises(error, match=r"n_threads=.* must be"):
        make_engine(engine_name, n_threads)


@pytest.mark.parametrize("accuracy", ["best", 0.0, 1.0, -1e-6, float("nan"), 1, None])
def test_wrong_accuracy(engine_name, accuracy):
    with pytest.raises(ValueError, match=r"accuracy=.* must be one of auto, accurate, fast, or a"):
        make_engine(engine_name, accuracy=accuracy)


# --- choosing an engine ---------------------------------------------------------------------------


def test_get_engine():
    assert get_engine("auto").name == available_engines()[0]
    reference = get_engine("reference", n_threads=3, accuracy="fast")
    assert (reference.name, reference.n_threads, reference.accuracy) == ("reference", 3, "fast")
    assert get_engine(reference) is reference
    assert isinstance(reference, Engine)
    with pytest.raises(ValueError, match=r"engine='gpu' must be 'auto', 'native', .* or 'cuda'"):
        get_engine("gpu")
    with pytest.raises(ValueError, match=r"n_threads=0 must be >= 1"):
        get_engine("auto", n_threads=0)


@pytest.mark.skipif(not has_native, reason="the native engine is not installed or switched off")
def test_instruction_sets():
    from divlearn.engines.native import NativeEngine, instruction_sets

    assert instruction_sets()[-1] == "baseline"
    assert NativeEngine().instruction_set == instruction_sets()[0]
    with pytest.raises(ValueError, match=r"instruction_set='mmx' must be one of .*baseline"):
        NativeEngine(instruction_set="mmx")


def run(code: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_the_native_engine():
    """It works, and says so exactly once."""
    code = """
import warnings, numpy as np
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import divlearn
    X = np.stack([np.eye(2), 2 * np.eye(2)])
    for _ in range(3):
        table = divlearn.pairwise_abld(X, alpha=0, beta=0)
    assert divlearn.get_engine().name == "reference"
    divlearn.mean_abld(X, 0, 0)
print(len(caught), caught[0].category.__name__, caught[0].message, sep="|")
print(table[0, 1])
try:
    divlearn.get_engine("native")
except ValueError as error:
    print(error)
"""
    done = run(code, DIVLEARN_NO_NATIVE="1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("1|UserWarning|divlearn runs on its reference engine")
    assert float(lines[1]) == pytest.approx(np.log(2) ** 2, rel=4 * EPS)
    problem = "does not run here: DIVLEARN_NO_NATIVE switches it off"
    assert problem in lines[0]
    assert problem in lines[2]


def test_why_the_native_engine_does_not_run():
    """Whoever lacks a library needs no compiler."""
    code = """
import sys
class Finder:
    def find_spec(name, path=None, target=None):
        if name == "divlearn.engines._native":
            raise error
sys.meta_path.insert(0, Finder)
for error in (
    ModuleNotFoundError("No module named 'divlearn.engines._native'"),
    ImportError("libgomp.so.1: cannot open"),
):
    import divlearn
    assert divlearn.available_engines() == ("reference",)
    try:
        divlearn.get_engine("native")
    except ValueError as refused:
        print(refused)
    for name in [name for name in sys.modules if name.startswith("divlearn")]:
        del sys.modules[name]
"""
    done = run(code, DIVLEARN_NO_NATIVE="0")
    missing, broken = done.stdout.splitlines()
    assert "(Debian: apt install g++ python3-dev), then install divlearn again" in missing
    assert "cannot be loaded (libgomp.so.1: cannot open)" in broken
