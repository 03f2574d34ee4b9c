"""Machines on tables of kernels, and their compiled form."""

import platform

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist

from divlearn.engines import available_engines
from divlearn.kernels import machines
from divlearn.kernels.machines import PairMachine, decide_pairs, fit_pairs, fit_svc

ATTRIBUTES = ("support_", "n_support_", "dual_coef_", "intercept_")


def problem(n_classes, n=60, apart=2.0):
    """Kernels of vectors, which come class by class, and their codes."""
    rng = np.random.default_rng(n_classes)
    codes = np.sort(np.arange(n) % n_classes)
    vectors = rng.standard_normal((n, 4)) + apart * rng.standard_normal((n_classes, 4))[codes]
    return np.exp(-0.05 * cdist(vectors, vectors, "sqeuclidean")), codes


@pytest.mark.parametrize("fit", [fit_svc, fit_pairs])
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_products_decide_as_the_machine_does(n_classes, fit):
    kernel, codes = problem(n_classes)
    weights = np.linspace(0.1, 1, 60)
    machine = fit(kernel, 3.0, codes, weights)
    assert len(machine.support_) < len(kernel)
    found = decide_pairs(machine, kernel[:, machine.support_])
    expected = fit_svc(kernel, 3.0, codes, weights).decision_function(kernel)
    assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def indefinite():
    rng = np.random.default_rng(0)
    kernel, codes = problem(3)
    noise = rng.standard_normal(kernel.shape)
    return kernel + 0.3 * (noise + noise.T), codes


def copies():
    kernel, codes = problem(3)
    return np.repeat(np.repeat(kernel, 3, axis=0), 3, axis=1), np.repeat(codes, 3)


PROBLEMS = {
    "two classes": problem(2),
    "many classes": problem(7, n=150),
    "one each": problem(5, n=5),
    "hard": problem(3, n=400, apart=0.2),  # so many steps that samples are left out meanwhile
    "indefinite": indefinite(),
    "copies": copies(),
}


@pytest.mark.skipif(available_engines()[0] != "native", reason="there is no compiled engine")
@pytest.mark.parametrize("C", [0.03, 3.0, 1e3])
@pytest.mark.parametrize("name", PROBLEMS)
def test_compiled_machines_are_those_of_libsvm(name, C, monkeypatch):
    from divlearn.engines import _native

    kernel, codes = PROBLEMS[name]
    for weights in (np.ones(len(codes)), np.linspace(0.5, 2, len(codes))):
        expected = fit_svc(kernel, C, codes, weights)
        for instruction_set in _native.instruction_sets():
            with monkeypatch.context() as patch:
                patch.setattr(_native, "instruction_sets", lambda one=instruction_set: [one])
                found = fit_pairs(kernel, C, codes, weights)
            assert isinstance(found, PairMachine)
            for attribute in ATTRIBUTES:
                ours, theirs = getattr(found, attribute), getattr(expected, attribute)
                if platform.machine() in ("x86_64", "AMD64"):
                    assert_array_equal(ours, theirs)
                elif attribute == "intercept_":  # where libsvm is compiled with fused products
                    assert_allclose(ours, theirs, atol=0.01 * C)


def test_the_machine_is_libsvm_itself_where_nothing_is_compiled(monkeypatch):
    monkeypatch.setattr(machines, "is_compiled", lambda: False)
    kernel, codes = problem(3)
    found, expected = (one(kernel, 3.0, codes, np.ones(60)) for one in (fit_pairs, fit_svc))
    for attribute in ATTRIBUTES:
        assert_array_equal(getattr(found, attribute), getattr(expected, attribute))
