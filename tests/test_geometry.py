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
from divlearn.geometry import exp_map, geodesic, inner, log_map, norm, transport

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


def test_maps_agree_with_pyriemann():
    peer = pytest.importorskip("pyriemann.geometry.tangentspace")
    peer_geodesic = pytest.importorskip("pyriemann.geometry.geodesic").geodesic_riemann
    P, Q = random_spd(4, 5, seed=1), random_spd(4, 5, seed=2)
    S, T = random_symmetric(4, 5, seed=3), random_symmetric(4, 5, seed=4)
    for i in range(4):
        close = {"rtol": 1e-8, "atol": 1e-8}
        np.testing.assert_allclose(
            exp_map(P[i], S[i] / 9), peer.exp_map_riemann(S[i] / 9, P[i], Cm12=True), **close
        )
        np.testing.assert_allclose(
            log_map(P, Q)[i], peer.log_map_riemann(Q[i], P[i], C12=True), **close
        )
        np.testing.assert_allclose(
            inner(P, S, T)[i], peer.innerproduct_riemann(S[i], T[i], P[i]), **close
        )
        np.testing.assert_allclose(
            transport(P, Q, S)[i], peer.transport_riemann(S[i], P[i], Q[i]), **close
        )
        np.testing.assert_allclose(geodesic(P, Q, 0.3)[i], peer_geodesic(P[i], Q[i], 0.3), **close)


def test_closed_forms_for_diagonal_matrices():
    p, q, s = np.array([1e-8, 2.0, 3e7]), np.array([3e-8, 5.0, 1e7]), np.array([2e-8, -1.0, 4e7])
    P, Q, S = np.diag(p), np.diag(q), np.diag(s)
    np.testing.assert_allclose(np.diag(exp_map(P, S)), p * np.exp(s / p), rtol=1e-13)
    np.testing.assert_allclose(np.diag(log_map(P, Q)), p * np.log(q / p), rtol=1e-13)
    np.testing.assert_allclose(inner(P, S, Q), (s * q / p**2).sum(), rtol=1e-13)
    np.testing.assert_allclose(norm(P, S), np.linalg.norm(s / p), rtol=1e-13)
    np.testing.assert_allclose(np.diag(transport(P, Q, S)), s * q / p, rtol=1e-13)
    np.testing.assert_allclose(np.diag(geodesic(P, Q, 0.7)), p**0.3 * q**0.7, rtol=1e-13)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), d=st.integers(1, 6))
def test_identities(seed, d):
    P, Q = random_spd(3, d, seed=seed), random_spd(3, d, seed=seed + 1)
    S, T = log_map(P, Q), P @ random_symmetric(3, d, seed=seed + 2) @ P
    T = (T + T.mT) / 2
    size = np.abs(Q).max()
    np.testing.assert_allclose(exp_map(P, S), Q, atol=1e-9 * size)
    np.testing.assert_allclose(geodesic(P, Q, 0), P, atol=1e-9 * np.abs(P).max())
    np.testing.assert_allclose(geodesic(P, Q, 1), Q, atol=1e-9 * size)
    np.testing.assert_allclose(
        geodesic(P, Q, 0.25), exp_map(P, 0.25 * S), atol=1e-9 * (size + np.abs(P).max())
    )
    # Transport is an isometry, and carries the velocity of the geodesic along.
    moved_s, moved_t = transport(P, Q, S), transport(P, Q, T)
    scale = norm(P, S) * norm(P, T)
    assert (np.abs(inner(Q, moved_s, moved_t) - inner(P, S, T)) <= 1e-8 * scale).all()
    np.testing.assert_allclose(norm(Q, moved_s + log_map(Q, P)), 0, atol=1e-7)
    np.testing.assert_allclose(norm(P, T) ** 2, inner(P, T, T), rtol=1e-10)


def test_affine_invariance():
    A = np.random.default_rng(7).standard_normal((4, 4)) + 3 * np.eye(4)
    P, Q, S = random_spd(4, seed=1), random_spd(4, seed=2), random_symmetric(4, seed=3)

    def move(X):
        moved = A @ X @ A.T
        return (moved + moved.T) / 2

    for function, others in ((exp_map, [S / 5]), (log_map, [Q]), (transport, [Q, S])):
        np.testing.assert_allclose(
            function(move(P), *map(move, others)), move(function(P, *others)), rtol=1e-9, atol=1e-9
        )
    np.testing.assert_allclose(inner(move(P), move(S), move(Q)), inner(P, S, Q), rtol=1e-10)


@pytest.mark.parametrize("units", [[1e-5, 1.0, 1e5], [1e-150, 1.0, 1e150]])
def test_maps_are_exact_in_the_units_of_the_variables(units):
    # Powers of two nearby, so that changing the units is exact and results must agree bitwise.
    units = np.exp2(np.round(np.log2(units)))
    P, Q, S = random_spd(3, 3, seed=1), random_spd(3, 3, seed=2), random_symmetric(3, 3, seed=3)

    def move(X):
        return X * units[:, None] * units

    for function, others in ((exp_map, [S]), (log_map, [Q]), (transport, [Q, S])):
        np.testing.assert_array_equal(
            function(move(P), *map(move, others)), move(function(P, *others))
        )


def test_broadcasting_and_symmetry():
    P, Q, S = random_spd(3), random_spd(2, 4, 3), random_symmetric(4, 3)
    assert log_map(P, Q).shape == (2, 4, 3, 3)
    assert transport(P, Q, S).shape == (2, 4, 3, 3)
    assert inner(Q, S, P).shape == norm(Q, S).shape == (2, 4)
    path = geodesic(P, Q[0, 0], np.linspace(0, 1, 7))
    assert path.shape == (7, 3, 3)
    np.testing.assert_array_equal(path, path.mT)
    np.testing.assert_allclose(transport(P, Q, S)[1, 2], transport(P, Q[1, 2], S[2]), rtol=1e-12)


def test_errors_name_the_argument():
    bad, good = np.diag([1.0, -1.0]), np.eye(2)
    with pytest.raises(ValueError, match=r"^base is not positive definite; see check_spd"):
        exp_map(bad, good)
    with pytest.raises(ValueError, match=r"^point has the eigenvalue -1, must be > 0"):
        log_map(good, bad)
    with pytest.raises(ValueError, match=r"^target has the eigenvalue -1, must be > 0"):
        transport(good, bad, good)
    with pytest.raises(ValueError, match=r"^S has shape \(3, 3\), must have d=2"):
        norm(good, np.eye(3))


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
