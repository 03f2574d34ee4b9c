"""The formulas that bound errors elsewhere, against the definition at high precision."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from mpmath import mpf
from scalar_slopes import slope, value

from oracle.high_precision import SCALAR_DIGITS, scalar

STEP = mpf(10) ** -60
SAME = [(0, 0), (0, 1), (1, 0), (0.5, 0.5), (1, 1), (1e-9, 1e-7), (1e-10, 2), (3, 1e-12), (20, 9)]
OPPOSITE = [(0.5, -0.5), (0.3, -0.3 + 1e-9), (0.7, -0.2), (-0.2, 0.9)]
CASES = [(t, *point) for point in SAME for t in (-30.0, -1.5, -1e-3, 1e-7, 0.4, 2.0, 60.0)]
CASES += [(t, *point) for point in OPPOSITE for t in (-0.4, 1e-7, 0.9)]
BY = {"f": "", "f_t": "t", "f_alpha": "a", "f_beta": "b"}


def difference(at, letters: str) -> mpf:
    """Central differences of the definition by t, alpha (a) and beta (b)."""
    if not letters:
        return scalar(*at)
    moved = np.eye(3, dtype=int)["tab".index(letters[0])]
    ahead, behind = (
        [x + sign * int(k) * STEP for x, k in zip(at, moved, strict=True)] for sign in (1, -1)
    )
    return (difference(ahead, letters[1:]) - difference(behind, letters[1:])) / (2 * STEP)


def expected(letters: str) -> list[float]:
    with mpmath.workdps(SCALAR_DIGITS):
        return [float(difference([mpf(x) for x in case], letters)) for case in CASES]


@pytest.mark.parametrize("name", BY)
def test_slopes(name):
    found = slope(name, *np.transpose(CASES))  # 1e-270: what differences lose of 400 digits
    np.testing.assert_allclose(found, expected("t" + BY[name]), rtol=1e-6, atol=1e-270)


@pytest.mark.parametrize("name", ["f", "f_alpha", "f_beta"])
def test_values(name):
    np.testing.assert_allclose(value(name, *np.transpose(CASES)), expected(BY[name]), rtol=1e-3)
