"""Kernels of divergences: which are positive definite, by theory and on data."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import rotated, wishart

from divlearn import get_divergence
from divlearn.kernels import DivergenceKernel
from divlearn.kernels.definiteness import measure, theory


def relative_smallest(K: np.ndarray) -> float:
    """Smallest eigenvalue, relative to the largest."""
    eigenvalues = np.linalg.eigvalsh(K)
    return eigenvalues[0] / eigenvalues[-1]


@pytest.mark.parametrize("d", [1, 2, 3, 4, 6])
def test_the_stein_kernel_at_the_scales_of_the_theorem(d):
    # exp(-s S), S in its textbook form: s in {1/2, ..., (d-2)/2} or s >= (d-1)/2.
    allowed = [j / 2 for j in range(1, d)] + [(d - 1) / 2 + extra for extra in (0.01, 0.3, 2)]
    rng = np.random.default_rng(d)
    for s in allowed:
        kernel = DivergenceKernel("stein", s).fit(wishart(rng, 3, d))
        assert kernel.is_psd
        for X in (
            wishart(rng, 60, d),
            wishart(rng, 60, d, dof=d),
            rotated(rng, 60, d, 1e4),
            cayley(spread_around_zero(rng, 60, d, 0.5)),
        ):
            found = kernel.definiteness(X)
            assert found.proved is True
            assert found.on_data
            assert found.smallest > -1e-12


def cayley(Z: np.ndarray) -> np.ndarray:
    """SPD matrices (I + Z)(I - Z)^-1 of symmetric Z, |Z| < 1.

    Then exp(-s S) is det(I - ZW)^-s up to factors, a series with the coefficients that decide:
    for Z of small norm the first negative one shows.
    """
    identity = np.eye(Z.shape[-1])
    X = np.linalg.solve(identity - Z, identity + Z)
    return 0.5 * (X + X.mT)


def spread_around_zero(rng: np.random.Generator, n: int, d: int, radius: float) -> np.ndarray:
    vectors = np.linalg.qr(rng.standard_normal((n, d, d)))[0]
    values = rng.standard_normal((n, d))
    values *= radius / np.abs(values).max(axis=1, keepdims=True)
    return (vectors * values[:, None]) @ vectors.mT


def hexagon() -> np.ndarray:
    """Nine matrices of size 2 for which the coefficient s (s - 1/2) of det Z det W shows."""
    angles = np.pi / 3 * np.arange(6)
    turned = np.array([[np.cos(angles), np.sin(angles)], [np.sin(angles), -np.cos(angles)]])
    scalars = np.multiply.outer([1, -1, 0], np.eye(2))
    return cayley(0.3 * np.concatenate([turned.transpose(2, 0, 1), scalars]))


@pytest.mark.parametrize("s", [0.05, 0.25, 0.45])
def test_the_stein_kernel_below_the_scales_of_the_theorem(s):
    kernel = DivergenceKernel("stein", s).fit(hexagon())
    found = kernel.definiteness()
    assert not kernel.is_psd
    assert found.proved is False
    assert found.smallest < -2e-5
    assert not found.on_data
    assert relative_smallest(kernel(hexagon())) == pytest.approx(found.smallest)
    assert DivergenceKernel("stein", 0.5).fit(hexagon()).definiteness().on_data


def test_the_stein_kernel_between_the_scales_of_the_theorem():
    # For d = 3 the coefficient of det Z det W is s (s - 1/2) (s - 1).
    X = cayley(spread_around_zero(np.random.default_rng(0), 300, 3, 0.3))
    for s in (0.6, 0.75, 0.9):
        assert theory(get_divergence((0.5, 0.5)), s / 4, 3)[0] is False
        assert relative_smallest(DivergenceKernel("stein", s)(X)) < -3e-8
    for s in (0.5, 1.0, 1.25):
        assert theory(get_divergence((0.5, 0.5)), s / 4, 3)[0] is True
        assert relative_smallest(DivergenceKernel("stein", s)(X)) > -1e-13


def test_the_scale_of_a_pair_is_a_quarter_of_that_of_the_name():
    X = wishart(np.random.default_rng(0), 5, 4)
    by_name, by_pair = DivergenceKernel("stein", 1.0), DivergenceKernel((0.5, 0.5), 0.25)
    np.testing.assert_allclose(by_name(X), by_pair(X), rtol=1e-14)
    assert by_name.fit(X).is_psd
    assert by_pair.fit(X).is_psd
    assert not DivergenceKernel((0.5, 0.5), 0.2).fit(X).is_psd


@pytest.mark.parametrize(
    ("point", "scale", "step", "bound"),
    [
        ((0.0, 1.0), 1.0, 1.0, -1e-2),
        ((1.0, 0.0), 0.1, 2.0, -0.1),
        ((0.1, 2.0), 5.0, 0.3, -3e-3),
        ((0.3, 1.0), 1.0, 0.7, -1e-4),
        ((0.5, 1.0), 1.0, 0.3, -3e-7),
    ],
)
@pytest.mark.parametrize("d", [1, 3])
def test_different_alpha_and_beta_are_never_positive_definite(point, scale, step, bound, d):
    X = np.broadcast_to(np.eye(d), (30, d, d)).copy()
    X[:, 0, 0] = np.exp(step * np.arange(30))
    kernel = DivergenceKernel(point, scale).fit(X)
    found = kernel.definiteness()
    assert not kernel.is_psd
    assert found.proved is False
    assert found.smallest < bound


@pytest.mark.parametrize(("d", "scale"), [(2, 0.01), (2, 0.1), (3, 0.05), (4, 0.05)])
def test_gaussians_of_the_affine_invariant_distance(d, scale):
    rng = np.random.default_rng(d)
    vectors = np.linalg.qr(rng.standard_normal((150, d, d)))[0]
    X = (vectors * np.exp(rng.uniform(-6, 6, (150, d)))[:, None]) @ vectors.mT
    kernel = DivergenceKernel((0, 0), scale).fit(0.5 * (X + X.mT))
    assert kernel.definiteness().proved is False
    assert kernel.definiteness().smallest < -1e-3


@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("scale", [1e-3, 0.1, 1.0, 10.0])
def test_numbers_on_a_line(alpha, scale):
    X = np.exp(np.linspace(-5, 5, 40))[:, None, None]
    kernel = DivergenceKernel((alpha, alpha), scale).fit(X)
    assert kernel.is_psd
    assert kernel.definiteness().smallest > -1e-13


def test_what_is_not_known_is_not_claimed():
    X = wishart(np.random.default_rng(0), 9, 3)
    kernel = DivergenceKernel("log-cosh").fit(X)
    found = kernel.definiteness()
    assert not kernel.is_psd
    assert found.proved is None
    assert str(found).startswith("Not proved to be positive definite, nor that it is not: no theor")


def test_definiteness_in_words():
    X = hexagon()
    safe = str(DivergenceKernel("stein", 0.5).fit(X).definiteness())
    assert safe.startswith("Positive definite on every data set: exp(-s S), S the Stein divergence")
    assert "for d=2 exactly for s >= 1/2 (Sra 2012), and here s = 0.5. On 9 mat" in safe
    assert "positive semi-definite up to rounding (smallest eigenvalue" in safe
    unsafe = str(DivergenceKernel("stein", 0.25).fit(X).definiteness())
    assert unsafe.startswith("Not positive definite on every data set")
    assert "but here s = 0.25; the next larger that is: 0.5. On 9 matrices it is ind" in unsafe
    assert "SVC" not in unsafe
    assert "A support vector machine still stops, at a stationary point" in unsafe
    five = theory(get_divergence((0.5, 0.5)), 0.3, 5)[1]
    assert "for d=5 exactly for s in {1/2, ..., 3/2} or s >= 4/2" in five
    assert "here s = 1.2; the next larger that is: 1.5" in five
    assert (
        "for d=3 exactly for s = 1/2 or s >= 2/2" in theory(get_divergence((0.5, 0.5)), 0.3, 3)[1]
    )


def test_indefinite_before_centring_only():
    # 1 - D with D conditionally negative definite, as a kernel of very small scale is.
    points = np.arange(4.0)
    kernel = 1 - (points[:, None] - points) ** 2 / 4
    found = measure(theory(get_divergence((1.0, 1.0)), 1.0, 2), kernel)
    assert found.smallest < -0.1
    assert found.smallest_centred == pytest.approx(0, abs=1e-12)
    assert "but only before centring: a support vector machine does not notice" in str(found)
