"""What the paper prints about the divergence and its gradient, and what is right.

Each test shows the printed form to be wrong against high precision, and ours to be right.
Labels of equations and tables are the paper's.
"""

from __future__ import annotations

import numpy as np
import pytest
from conftest import EPS, wishart

from divlearn import abld, abld_grad, get_divergence
from divlearn.spd import logm, powm
from divlearn.spectral import abld_scalar, log_generalized_domain
from oracle.high_precision import Pair

RTOL = 1e3 * EPS  # condition numbers here are below 100


def a_pair(d: int = 3):
    return wishart(np.random.default_rng(4), 2, d, 4 * d)


def test_abld_lambda_divides_all_of_it_by_nu():
    """Printed: (1/nu) sum log(.) - d log theta; right: (1/nu) [sum log(.) - d log theta]."""
    X, Y = a_pair()
    alpha, beta = 0.7, 0.9
    pair = Pair(X, Y)
    exact = float(pair.divergence(alpha, beta))
    lam = np.array([float(value) for value in pair.eigenvalues])
    logs = np.log(alpha * lam**beta + beta * lam**-alpha).sum()
    printed = logs / (alpha * beta) - 3 * np.log(alpha + beta)
    right = (logs - 3 * np.log(alpha + beta)) / (alpha * beta)
    assert abs(printed - exact) > 0.1
    assert right == pytest.approx(exact, rel=RTOL)
    assert abld(X, Y, alpha, beta) == pytest.approx(exact, rel=RTOL)


def test_airm_is_the_limit_with_a_factor_of_one_half():
    """Printed: ||Log||_F^2 as the limit at the origin; right: one half of it, gradient likewise."""
    X, Y = a_pair()
    whitener = powm(X, -0.5)
    squared = (logm(whitener @ Y @ whitener) ** 2).sum()
    limit = float(Pair(X, Y).divergence(1e-12, 1e-12))
    assert squared == pytest.approx(2 * limit, rel=1e-10)  # 1e-12 beside the origin
    assert abld(X, Y, 0, 0) == pytest.approx(squared / 2, rel=RTOL)
    gradient = Pair(X, Y).Y_gradient(0.0, 0.0)
    np.testing.assert_allclose(abld_grad(X, Y, 0, 0).Y, gradient, rtol=0, atol=RTOL)
    assert get_divergence("airm")(X, Y) == pytest.approx(squared, rel=RTOL)


def test_burg_is_not_at_one_one():
    """Printed: Burg at (1, 1); right: the limit (0, 1). (1, 1) is logdet((XY^-1 + YX^-1)/2)."""
    X, Y = a_pair()
    quotient = X @ np.linalg.inv(Y)
    burg = np.trace(quotient) - np.linalg.slogdet(quotient)[1] - 3
    cosh = np.linalg.slogdet((quotient + np.linalg.inv(quotient)) / 2)[1]
    at_one_one, at_zero_one = (float(Pair(X, Y).divergence(alpha, 1.0)) for alpha in (1.0, 0.0))
    assert abs(at_one_one - burg) > 0.1
    assert at_zero_one == pytest.approx(burg, rel=RTOL)
    assert at_one_one == pytest.approx(cosh, rel=RTOL)
    assert abld(X, Y, 0, 1) == pytest.approx(burg, rel=RTOL)
    assert abld(X, Y, 1, 1) == pytest.approx(cosh, rel=RTOL)


def test_jeffreys_only_after_symmetrising():
    """Printed: Jeffreys at (+-1, 0); right: the mean of both directions there."""
    X, Y = a_pair()
    quotient = X @ np.linalg.inv(Y)
    jeffreys = np.trace(quotient + np.linalg.inv(quotient)) / 2 - 3
    pair, back = Pair(X, Y), Pair(Y, X)
    for alpha in (1.0, -1.0):
        one, other = float(pair.divergence(alpha, 0.0)), float(back.divergence(alpha, 0.0))
        assert abs(one - jeffreys) > 0.1
        assert (one + other) / 2 == pytest.approx(jeffreys, rel=RTOL)
    assert get_divergence("jeffreys")(X, Y) == pytest.approx(jeffreys, rel=RTOL)


def printed_gradient(X, Y, alpha: float, beta: float):
    """rho theta Y^-1 Z^-1/2 P^theta (I + rho P^theta)^-1 Z^1/2 + Y^-1/beta, as printed.

    rho = alpha/beta, theta = alpha + beta, Z = X^-1 and P = Z^1/2 Y Z^1/2.
    """
    rho, theta, d = alpha / beta, alpha + beta, len(X)
    root, inverse_root = powm(X, -0.5), powm(X, 0.5)  # Z^1/2 and Z^-1/2
    power = powm(root @ Y @ root, theta)
    inner = power @ np.linalg.inv(np.eye(d) + rho * power)
    inverse = np.linalg.inv(Y)
    return rho * theta * inverse @ inverse_root @ inner @ root + inverse / beta


def corrected_gradient(X, Y, alpha: float, beta: float):
    """-(theta/beta^2) Y^-1 Z^-1/2 U diag(1/(delta^theta + rho)) U^T Z^1/2 + Y^-1/beta.

    With delta and U of P = Z^1/2 Y Z^1/2 inverted, that is of the eigenvalues of X Y^-1.
    """
    rho, theta = alpha / beta, alpha + beta
    root, inverse_root = powm(X, -0.5), powm(X, 0.5)
    delta, U = np.linalg.eigh(root @ Y @ root)
    inner = (U / (delta**theta + rho)) @ U.T
    inverse = np.linalg.inv(Y)
    return -theta / beta**2 * inverse @ inverse_root @ inner @ root + inverse / beta


@pytest.mark.parametrize(("alpha", "beta"), [(0.5, 0.5), (1.0, 1.0), (0.7, 0.2)])
def test_printed_gradient_does_not_vanish_at_equal_matrices(alpha, beta):
    X, Y = a_pair()
    assert np.abs(printed_gradient(X, X, alpha, beta)).max() > 0.1
    assert np.abs(abld_grad(X, X, alpha, beta).Y).max() <= RTOL
    exact = Pair(X, Y).Y_gradient(alpha, beta)
    assert np.abs(printed_gradient(X, Y, alpha, beta) - exact).max() > 0.1
    np.testing.assert_allclose(abld_grad(X, Y, alpha, beta).Y, exact, rtol=0, atol=RTOL)
    corrected = corrected_gradient(X, Y, alpha, beta)
    np.testing.assert_allclose(corrected, exact, rtol=0, atol=10 * RTOL)


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, -0.5), (2.0, -0.1)])
def test_domain_of_theorem_1_is_turned_round(alpha, beta):
    """Printed: lam > |alpha/beta|^(1/theta), which excludes X = Y; right: |beta/alpha|."""
    theta = alpha + beta
    printed, right = abs(alpha / beta) ** (1 / theta), abs(beta / alpha) ** (1 / theta)
    assert printed > 1  # lam = 1, that is X = Y, would be outside, where D = 0

    def mixture(lam):
        return (alpha * lam**beta + beta * lam**-alpha) / theta

    assert mixture(right * (1 + 1e-9)) > 0 > mixture(right * (1 - 1e-9))
    lower, upper = log_generalized_domain(alpha, beta)
    assert lower == pytest.approx(np.log(right), rel=4 * EPS)
    assert upper == np.inf
    assert abld(np.eye(2), np.eye(2), alpha, beta) == 0
    with pytest.raises(ValueError, match="eigenvalue"):
        abld(np.diag([1.0, 0.99 * right]), np.eye(2), alpha, beta)


@pytest.mark.parametrize("angle", np.linspace(0, np.pi / 2, 5))
def test_no_discontinuity_at_the_origin(angle):
    """Printed: D is discontinuous at the origin; right: along every ray it goes to t^2/2."""
    X, Y = a_pair()
    origin, slope = abld(X, Y, 0, 0), abld_grad(X, Y, 0, 0)
    direction = np.cos(angle), np.sin(angle)
    for distance in (1e-2, 1e-4, 1e-6, 1e-12, 1e-300):
        beside = abld(X, Y, *(distance * x for x in direction))
        linear = distance * (direction[0] * slope.alpha + direction[1] * slope.beta)
        # What is left is quadratic, with derivatives of f of the size of t^4.
        largest = max(abs(float(value)) for value in Pair(X, Y).t)
        assert abs(beside - origin - linear) <= distance**2 * 3 * largest**4 + RTOL * origin


def test_negative_orthant_is_redundant():
    """Printed: try both orthants; right: D^(-a,-b) = D^(b,a), nothing new is to be found there."""
    X, Y = a_pair()
    rng = np.random.default_rng(0)
    for alpha, beta in rng.uniform(0, 3, (10, 2)):
        negative = float(Pair(X, Y).divergence(-alpha, -beta))
        assert negative == pytest.approx(float(Pair(X, Y).divergence(beta, alpha)), rel=RTOL)
        assert abld(X, Y, -alpha, -beta) == pytest.approx(negative, rel=RTOL)


def test_derivative_in_alpha_is_right_and_beta_needs_both_swaps():
    """eq. abld_grad_a is right; for beta swap alpha and beta and turn lam round as well."""
    t, alpha, beta = 0.8, 0.6, 1.1
    turned, half_turned = abld_scalar(-t, beta, alpha), abld_scalar(t, beta, alpha)
    right = abld_scalar(t, alpha, beta).f_beta
    assert turned.f_alpha == pytest.approx(right, rel=8 * EPS)
    assert abs(half_turned.f_alpha - right) > 0.01
