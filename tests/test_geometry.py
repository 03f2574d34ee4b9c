"""Matrix functions and the affine-invariant maps, against independent implementations."""

from __future__ import annotations

import itertools

import mpmath
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given, settings
from hypothesis import strategies as st

from divlearn import geometry, spd
from divlearn.geometry import geodesic

pytestmark = pytest.mark.filterwarnings("error")


def random_spd(*shape: int, seed: int = 0) -> np.ndarray:
    d = shape[-1]
    factors = np.random.default_rng(seed).standard_normal((*shape, d + 3))
    return factors @ factors.mT


def random_symmetric(*shape: int, seed: int = 0) -> np.ndarray:
    square = np.random.default_rng(seed).standard_normal((*shape, shape[-1]))
    return square + square.mT


FUNCTIONS = {
    "sqrtm": (spd.sqrtm, scipy.linalg.sqrtm),
    "invsqrtm": (spd.invsqrtm, lambda X: scipy.linalg.inv(scipy.linalg.sqrtm(X))),
    "logm": (spd.logm, scipy.linalg.logm),
    "expm": (spd.expm, scipy.linalg.expm),
    "powm": (
        lambda X: spd.powm(X, -0.3),
        lambda X: scipy.linalg.fractional_matrix_power(X, -0.3),
    ),
}
POSITIVE = [name for name in FUNCTIONS if name != "expm"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_matrix_functions_agree_with_scipy(name):
    ours, theirs = FUNCTIONS[name]
    X = random_spd(2, 3, 4) / 10
    result = ours(X)
    assert result.shape == X.shape
    np.testing.assert_array_equal(result, result.mT)
    for index in np.ndindex(2, 3):
        np.testing.assert_allclose(result[index], theirs(X[index]), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("exponent", [-300, -100, 100, 300])
def test_matrix_functions_at_extreme_scales(exponent):
    X, scale = random_spd(3, 4), 10.0**exponent
    np.testing.assert_allclose(spd.sqrtm(scale * X), spd.sqrtm(X) * np.sqrt(scale), rtol=1e-11)
    np.testing.assert_allclose(
        spd.invsqrtm(scale * X), spd.invsqrtm(X) / np.sqrt(scale), rtol=1e-11
    )
    np.testing.assert_allclose(spd.powm(scale * X, 1), scale * X, rtol=1e-11)
    np.testing.assert_allclose(
        spd.logm(scale * X), spd.logm(X) + np.log(scale) * np.eye(4), atol=1e-11
    )


def test_expm_takes_any_sign_and_inverts_logm():
    S = random_symmetric(5, 3)
    np.testing.assert_allclose(spd.logm(spd.expm(S)), S, atol=1e-12)
    np.testing.assert_allclose(
        spd.expm(np.diag([-2.0, 0.0, 3.0])), np.diag(np.exp([-2.0, 0.0, 3.0])), rtol=1e-14
    )


def test_powers_broadcast():
    X = random_spd(3, 3)
    powers = np.array([-1.0, 0.0, 2.0])
    expected = [np.linalg.inv(X[0]), np.eye(3), X[2] @ X[2]]
    np.testing.assert_allclose(spd.powm(X, powers), expected, rtol=1e-10, atol=1e-12)
    assert spd.powm(X[0], powers).shape == (3, 3, 3)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_matrix_functions_keep_float32(name):
    X = np.eye(2, dtype="float32")
    assert FUNCTIONS[name][0](X).dtype == np.float32
    assert FUNCTIONS[name][0](X.astype(int)).dtype == np.float64


@pytest.mark.parametrize("name", POSITIVE)
def test_non_positive_eigenvalues_point_to_check_spd(name):
    X = np.stack([np.eye(2), np.array([[1.0, 2.0], [2.0, 1.0]]), np.zeros((2, 2))])
    message = r"^X\[1\] has the eigenvalue -1, must be > 0 .*\(2 of 3 matrices .*see check_spd"
    with pytest.raises(ValueError, match=message):
        FUNCTIONS[name][0](X)


def test_matrix_functions_name_other_faults():
    with pytest.raises(ValueError, match="X is not symmetric"):
        spd.sqrtm([[1.0, 0.5], [0.0, 1.0]])
    with pytest.raises(ValueError, match="Y has a NaN entry"):
        spd.expm([[np.nan, 0.0], [0.0, 1.0]], name="Y")
    with pytest.raises(ValueError, match=r"from 0 to 1e\+03, does not fit float64; rescale X"):
        spd.expm(np.diag([0.0, 1000.0]))


# --- the affine-invariant geometry


def test_geodesics_agree_with_pyriemann():
    peer = pytest.importorskip("pyriemann.geometry.geodesic").geodesic_riemann
    P, Q = random_spd(4, 5, seed=1), random_spd(4, 5, seed=2)
    for i in range(4):
        np.testing.assert_allclose(geodesic(P, Q, 0.3)[i], peer(P[i], Q[i], 0.3), rtol=1e-8)


def test_geodesics_of_diagonal_matrices():
    p, q = np.array([1e-8, 2.0, 3e7]), np.array([3e-8, 5.0, 1e7])
    found = geodesic(np.diag(p), np.diag(q), 0.7)
    np.testing.assert_allclose(np.diag(found), p**0.3 * q**0.7, rtol=1e-13)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), d=st.integers(1, 6))
def test_ends_of_geodesics_and_affine_invariance(seed, d):
    P, Q = random_spd(3, d, seed=seed), random_spd(3, d, seed=seed + 1)
    size = np.abs(P).max() + np.abs(Q).max()
    np.testing.assert_allclose(geodesic(P, Q, 0), P, atol=1e-9 * size)
    np.testing.assert_allclose(geodesic(P, Q, 1), Q, atol=1e-9 * size)
    A = np.random.default_rng(seed).standard_normal((d, d)) + 3 * np.eye(d)
    there, back = (0.5 * (M + M.mT) for M in (A @ P @ A.T, A @ Q @ A.T))
    moved = geodesic(there, back, 0.4)
    expected = A @ geodesic(P, Q, 0.4) @ A.T
    np.testing.assert_allclose(moved, expected, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("units", [[1e-5, 1.0, 1e5], [1e-150, 1.0, 1e150]])
def test_geodesics_are_exact_in_the_units_of_the_variables(units):
    # Powers of two nearby, so that changing the units is exact and results must agree bitwise.
    units = np.exp2(np.round(np.log2(units)))
    P, Q = random_spd(3, 3, seed=1), random_spd(3, 3, seed=2)
    in_units = units[:, None] * units
    np.testing.assert_array_equal(
        geodesic(P * in_units, Q * in_units, 0.3), geodesic(P, Q, 0.3) * in_units
    )


def test_paths_of_geodesics():
    P, Q = random_spd(3), random_spd(3, seed=5)
    path = geodesic(P, Q, np.linspace(0, 1, 7))
    assert path.shape == (7, 3, 3)
    np.testing.assert_array_equal(path, path.mT)


def test_errors_name_the_argument():
    bad, good = np.diag([1.0, -1.0]), np.eye(2)
    with pytest.raises(ValueError, match=r"^start is not positive definite; see check_spd"):
        geodesic(bad, good, 0.5)
    with pytest.raises(ValueError, match=r"^end has the eigenvalue -1, must be > 0"):
        geodesic(good, bad, 0.5)
    with pytest.raises(ValueError, match=r"^end has shape \(3, 3\), must have d=2"):
        geodesic(good, np.eye(3), 0.5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_equilibrate(dtype):
    X = np.array([[1e-30, 0.0], [0.0, 1e30]], dtype=dtype)
    scaled, scale = geometry.equilibrate(X)
    assert scaled.dtype == scale.dtype == dtype
    assert ((np.diag(scaled) >= 0.5) & (np.diag(scaled) < 2)).all()
    np.testing.assert_array_equal(np.diag(scaled) / scale / scale, np.diag(X))
    assert (np.frexp(scale)[0] == 0.5).all()


@pytest.mark.parametrize("scales", list(itertools.permutations((1e-6, 1.0, 1e6))))
def test_logarithm_of_graded_matrices_in_any_order(scales):
    """Variables of very different units: every order keeps full accuracy (condition 1e24)."""
    X = random_spd(3, seed=5) * np.outer(scales, scales)
    with mpmath.workdps(60):
        values, vectors = mpmath.eigsy(mpmath.matrix(X.tolist()))
        logarithm = vectors * mpmath.diag([mpmath.log(value) for value in values]) * vectors.T
        exact = np.array(logarithm.tolist(), dtype=float)
    np.testing.assert_allclose(spd.logm(X), exact, rtol=0, atol=1e-14 * np.abs(exact).max())
