"""The constant Z at many digits: quadrature over eigenvalues, gamma functions, Pfaffians of erf."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from divlearn.likelihood.normalizer import differentiate_normalizer, log_normalizer

from .high_precision import scalar


def log_multigamma(a: mpf, d: int) -> mpf:
    gammas = sum(mpmath.loggamma(a - mpf(j) / 2) for j in range(d))
    return mpf(d * (d - 1)) / 4 * mpmath.log(mpmath.pi) + gammas


def log_orbit(d: int) -> mpf:
    """Logarithm of the volume that integration over eigenvectors contributes."""
    return mpf(d * d) / 2 * mpmath.log(mpmath.pi) - log_multigamma(mpf(d) / 2, d)


POINTS = [(0.0, 0.0, 0.7), (0.3, 1.1, 2.5), (0.0, 0.5, 1.5), (2.0, 2.0, 4.0), (1e-3, 1.0, 3.0)]


@pytest.mark.parametrize(("alpha", "beta", "kappa"), POINTS)
def test_one_eigenvalue(alpha, beta, kappa):
    with mpmath.workdps(20):

        def weight(x):
            return mpmath.exp(-kappa * scalar(x, alpha, beta))

        expected = mpmath.log(mpmath.quad(weight, [-80, -20, -5, 0, 3, 8, 40]))
    assert log_normalizer(alpha, beta, kappa, 1) == pytest.approx(float(expected), abs=1e-11)


@pytest.mark.parametrize(("alpha", "beta", "kappa"), [(0.3, 1.1, 2.5), (2.0, 2.0, 4.0)])
def test_two_eigenvalues(alpha, beta, kappa):
    """The density of eigenvalues, in (x, gap), where the kink of |sinh| lies on the edge."""

    def log_weight(x):
        mixture = (alpha * np.exp(beta * x) + beta * np.exp(-alpha * x)) / (alpha + beta)
        return -kappa / (alpha * beta) * np.log(mixture)

    def nodes(*edges):
        """Nodes and weights of Gauss and Legendre between one edge and the next."""
        lower, upper = np.array(edges[:-1])[:, None], np.array(edges[1:])[:, None]
        x, w = np.polynomial.legendre.leggauss(100)
        half = (upper - lower) / 2
        return (lower + half * (x + 1)).ravel(), (half * w).ravel()

    (x, x_weights), (gap, gap_weights) = nodes(-40, -10, 0, 8), nodes(0, 4, 12, 48)
    weights = np.exp(log_weight(x) + log_weight(x + gap[:, None]))
    total = gap_weights * 2 * np.sinh(gap / 2) @ weights @ x_weights
    expected = np.log(total) + float(log_orbit(2))
    assert log_normalizer(alpha, beta, kappa, 2) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("d", [3, 8, 20])
@pytest.mark.parametrize("share", ["1e-3", "0.1", "0.5"])
@pytest.mark.parametrize("margin", [0.01, 5.0, 2000.0])
def test_matrix_f(share, margin, d):
    """Near the end of the line the closed form cancels in double precision."""
    alpha = float(share)
    beta = 1 - alpha
    kappa = (d - 1) / 2 * beta + margin
    with mpmath.workdps(50):
        a, b, k = mpf(alpha), mpf(beta), mpf(kappa)
        K = k / (a * b)
        expected = d * (a * K * mpmath.log(b / a) - K * mpmath.log(b))
        expected += log_multigamma(k / b, d) + log_multigamma(k / a, d) - log_multigamma(K, d)
    assert log_normalizer(alpha, beta, kappa, d) == pytest.approx(float(expected), abs=1e-9)
    found = differentiate_normalizer(alpha, beta, kappa, d)[0]
    assert found == pytest.approx(float(expected), abs=1e-9)


@pytest.mark.parametrize(
    ("d", "kappa"),
    [(d, kappa) for d in (2, 3, 6, 13) for kappa in (0.05, 1.0, 12.0, 500.0)] + [(30, 5.0)],
)
def test_riemannian_gaussian(d, kappa):
    """At the origin the double integrals are error functions."""
    with mpmath.workdps(300):
        k = mpf(kappa)
        exponents = [mpf(2 * j - d + 1) / 2 for j in range(d)]
        A = mpmath.zeros(d + d % 2)
        errors = {n: mpmath.erf(n / (2 * mpmath.sqrt(k))) for n in range(1 - d, d)}
        for i in range(d):
            for j in range(d):
                A[i, j] = errors[j - i]
            if d % 2:
                A[i, d], A[d, i] = 1, -1
        expected = mpmath.log(mpmath.det(A)) / 2 + log_orbit(d)
        # What is common to a row of the double and of the single integrals:
        expected += sum(p * p for p in exponents) / (2 * k)
        expected += mpf(d) / 2 * mpmath.log(2 * mpmath.pi / k)
    assert log_normalizer(0, 0, kappa, d) == pytest.approx(float(expected), abs=1e-9, rel=1e-13)
