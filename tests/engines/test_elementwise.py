"""Compiled exponentials of arrays, and sums of them, against NumPy, SciPy and mpmath."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy.special import softmax

from divlearn.engines.compiled import decay, pair_losses, power_sums
from divlearn.engines.cpu import available_engines

if "native" not in available_engines():
    pytest.skip("needs the compiled engine", allow_module_level=True)
from divlearn.engines import _native

pytestmark = [
    pytest.mark.parametrize("instruction_set", _native.instruction_sets(), indirect=True),
    pytest.mark.usefixtures("instruction_set"),
]
SIZES = [1, 3, 8, 29]  # with and without entries that fill no vector


@pytest.mark.parametrize("size", SIZES)
def test_decay_has_the_digits_of_mpmath(size):
    x = np.geomspace(1e-12, 700, size)
    expected = [float(mpmath.exp(-mpmath.mpf(0.7) * mpmath.mpf(value))) for value in x]
    # The product of scale and divergence is rounded: half a unit of up to 490.
    np.testing.assert_allclose(decay(x, 0.7), expected, rtol=1.2e-13)
    np.testing.assert_allclose(decay(x[x < 1], 0.7), np.array(expected)[x < 1], rtol=4e-16)


def test_decay_at_the_ends():
    x = np.array([0.0, np.inf, np.nan, 1e300, -1.0])
    np.testing.assert_array_equal(decay(x, 2.0)[:4], [1, 0, np.nan, 0])
    np.testing.assert_allclose(decay(x, 2.0)[4], np.exp(2.0), rtol=4e-16)


def test_decay_keeps_the_shape_and_takes_any_order():
    table = np.random.default_rng(0).gamma(2, size=(13, 7))
    for view in (table.T, table[::2], table[:, 1:4]):
        np.testing.assert_allclose(decay(view, 0.3), np.exp(-0.3 * view), rtol=1e-15)


@pytest.mark.parametrize("size", SIZES)
def test_power_sums_are_moments_of_softmax(size):
    gaps = -np.random.default_rng(size).gamma(1, 5, size=(6, size))
    sums, first, second = power_sums(gaps, 0.8)
    shares = softmax(0.8 * gaps, axis=0)
    np.testing.assert_allclose(sums, np.exp(0.8 * gaps).sum(axis=0), rtol=1e-14)
    np.testing.assert_allclose(first / sums, (shares * gaps).sum(axis=0), rtol=1e-13)
    np.testing.assert_allclose(second / sums, (shares * gaps**2).sum(axis=0), rtol=1e-13)


@pytest.mark.parametrize("size", SIZES)
def test_losses_of_pairs_are_logistic(size):
    n_classes = 5
    decisions = np.random.default_rng(size).normal(scale=30, size=(10, size))
    expected = np.zeros((n_classes, size))
    for pair, (k, other) in enumerate(zip(*np.triu_indices(n_classes, 1), strict=True)):
        expected[k] += np.logaddexp(0, -3 * decisions[pair])
        expected[other] += np.logaddexp(0, 3 * decisions[pair])
    # Each of the four losses has as many decimals as one.
    found = pair_losses(decisions, 3.0, n_classes)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=2e-15)
