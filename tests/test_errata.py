"""What the paper prints about learning, and what is right; see docs/errata.md.

Errata of the divergence itself are in tests/oracle/test_errata.py. Labels are the paper's. Each
test shows the printed form to be wrong by differences or by the objective it should minimise, and
what divlearn does to be right.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from conftest import EPS, wishart
from iddl_problems import solve
from scipy.optimize import approx_fprime

from divlearn import get_engine
from divlearn.heads.losses import HingeLoss, RidgeLoss
from divlearn.spd import powm

ALPHA, BETA = np.array([0.7, 0.3]), np.array([0.4, 0.9])


def encoded(n: int = 12, d: int = 3, n_classes: int = 3):
    """Data, atoms, their divergences V (n, n_atoms) and one-hot labels."""
    rng = np.random.default_rng(7)
    X, atoms = wishart(rng, n, d, 4 * d), wishart(rng, len(ALPHA), d, 4 * d)
    labels = np.eye(n_classes)[np.arange(n) % n_classes]
    return X, atoms, get_engine("reference").encode(X, atoms, ALPHA, BETA), labels


# --- eq. W ----------------------------------------------------------------------------------------


def ridge_objective(W, V, labels, gamma: float) -> float:
    """f_1 summed over the data, as printed: the penalty is inside the sum, N times."""
    return 0.5 * ((labels - V @ W.T) ** 2).sum() + len(V) * gamma * (W**2).sum()


def test_eq_W_needs_the_factor_of_the_penalty():
    """Printed: (V V^T + gamma I_d)^-1; right for f_1 as printed: (V V^T + 2 N gamma I_n)^-1."""
    _, _, V, labels = encoded()
    gamma, n = 0.05, len(V)
    gram = V.T @ V  # n_atoms by n_atoms, so that the identity must be of that size, not of d

    def closed_form(penalty):
        return labels.T @ V @ np.linalg.inv(gram + penalty * np.eye(len(gram)))

    def slope(W):
        return -(labels - V @ W.T).T @ V + 2 * n * gamma * W

    printed, right = closed_form(gamma), closed_form(2 * n * gamma)
    assert np.abs(slope(printed)).max() > 0.01
    assert np.abs(slope(right)).max() <= 1e3 * EPS * np.abs(labels.T @ V).max()
    assert ridge_objective(right, V, labels, gamma) < ridge_objective(printed, V, labels, gamma)
    ours = solve(RidgeLoss(bias=False), V, labels, np.full(n, 1 / n), gamma)
    np.testing.assert_allclose(ours.head[0], right, rtol=1e-10)


def test_eq_W_is_not_of_the_size_of_the_matrices():
    """Printed: I_d; V V^T is n_atoms by n_atoms, whatever d is."""
    X, atoms, V, _ = encoded()
    assert (V.T @ V).shape == (len(atoms), len(atoms))
    assert len(atoms) != X.shape[-1]


# --- eq. update_bk_rr, update_a_rr ----------------------------------------------------------------


def test_gradients_of_atoms_and_parameters_sum_over_the_data():
    """Printed: zeta_i^k grad D(X_i || B_k), of one i; right: the sum over all i."""
    X, atoms, V, labels = encoded()
    engine, W = get_engine("reference"), np.random.default_rng(0).standard_normal((3, len(ALPHA)))
    zeta = -(labels - V @ W.T) @ W

    def loss(alpha):
        scores = engine.encode(X, atoms, alpha, BETA) @ W.T
        return 0.5 * ((labels - scores) ** 2).sum()

    differences = approx_fprime(ALPHA, loss, 1e-7)
    one_by_one = np.array(
        [
            engine.pullback(X[i : i + 1], atoms, ALPHA, BETA, zeta[i : i + 1]).alpha
            for i in range(len(X))
        ]
    )
    for printed in one_by_one:
        assert np.abs(printed - differences).max() > 0.1 * np.abs(differences).max()
    right = engine.pullback(X, atoms, ALPHA, BETA, zeta)
    np.testing.assert_allclose(one_by_one.sum(axis=0), right.alpha, rtol=1e-12)
    np.testing.assert_allclose(right.alpha, differences, rtol=1e-5)

    direction = wishart(np.random.default_rng(1), len(atoms), 3)

    def along(step):
        scores = engine.encode(X, atoms + step[0] * direction, ALPHA, BETA) @ W.T
        return 0.5 * ((labels - scores) ** 2).sum()

    slope = approx_fprime(np.zeros(1), along, 1e-7)[0]
    assert (right.atoms * direction).sum() == pytest.approx(slope, rel=1e-5)


# --- structured SVM -------------------------------------------------------------------------------


def hinge(V, W, bias, labels, margin: float = 1.0) -> float:
    """f_2 without its penalty, summed over the data."""
    scores = V @ W.T + bias
    true = (labels * scores).sum(axis=1, keepdims=True)
    return float((np.maximum(scores - true + margin, 0) * (1 - labels)).sum())


def test_xi_of_the_structured_svm_has_the_other_sign():
    """Printed: xi_i = -sum 1(.) (w_j - w_y); right: + . As printed, descent would ascend."""
    _, _, V, labels = encoded()
    W = np.random.default_rng(3).standard_normal((3, V.shape[1]))
    bias = np.array([0.1, -0.2, 0.05])
    scores = V @ W.T + bias
    true = (labels * scores).sum(axis=1, keepdims=True)
    active = ((scores - true + 1 > 0) & (labels == 0)).astype(float)
    right = active @ W - active.sum(axis=1, keepdims=True) * (labels @ W)
    differences = approx_fprime(
        V.ravel(), lambda v: hinge(v.reshape(V.shape), W, bias, labels), 1e-8
    ).reshape(V.shape)
    np.testing.assert_allclose(right, differences, atol=1e-5)
    assert np.abs(-right - differences).max() > 1
    assert hinge(V + 1e-3 * right, W, bias, labels) > hinge(V, W, bias, labels)
    ours = HingeLoss().expand(scores, labels).slopes @ W  # rounded within a fiftieth of the margin
    np.testing.assert_allclose(ours, right, atol=1e-12)


def test_the_bias_of_the_structured_svm_is_a_column():
    """Printed: W in R^{(L+1) x n}, bias in the last row; right: L x (n+1), last column."""
    _, _, V, labels = encoded()
    W, bias = np.arange(6.0).reshape(3, 2), np.array([1.0, -1.0, 0.5])
    extended = np.concatenate([V, np.ones((len(V), 1))], axis=1)  # v gets a last entry of one
    column = np.concatenate([W, bias[:, None]], axis=1)
    np.testing.assert_allclose(extended @ column.T, V @ W.T + bias)
    printed_shape = (labels.shape[1] + 1, V.shape[1])
    assert printed_shape[1] != extended.shape[1]  # the product W v does not exist


# --- Theorem 2 ------------------------------------------------------------------------------------


def log_det(A, B, p: float, q: float):
    """Log det(p (A B)^q + I) at 40 digits; A B has the eigenvalues of L^T A L with B = L L^T."""
    with mpmath.workdps(40):
        factor = mpmath.cholesky(mpmath.matrix(B.tolist()))
        values = mpmath.eigsy(factor.T * mpmath.matrix(A.tolist()) * factor, eigvals_only=True)
        return sum(mpmath.log(1 + p * value**q) for value in values)


def theorem_2(A, B, p: float, q: float):
    root, inverse_root = powm(A, 0.5), powm(A, -0.5)
    power = powm(root @ B @ root, q)
    inner = power @ np.linalg.inv(np.eye(len(A)) + p * power)
    return p * q * np.linalg.inv(B) @ inverse_root @ inner @ root


@pytest.mark.parametrize("q", [0.8, -0.8, -2.5])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_theorem_2_holds_for_every_real_power(q, scale):
    """Printed: for q >= 0, and p |A^1/2 B A^1/2| <= 1 in the proof; q = -theta is needed."""
    A, B = wishart(np.random.default_rng(5), 2, 3, 12) * np.sqrt(scale)
    p, step = 1.7, 1e-12
    gradient = theorem_2(A, B, p, q)
    for i in range(3):
        for j in range(i, 3):
            change = np.zeros((3, 3))
            change[i, j] = change[j, i] = step
            with mpmath.workdps(40):
                rise = log_det(A, B + change, p, q) - log_det(A, B - change, p, q)
            # The steps of B are rounded to its last digit.
            moved = (B + change) - (B - change)
            assert float(rise) == pytest.approx((gradient * moved).sum(), rel=1e-8)


@pytest.mark.parametrize(("alpha", "beta"), [(0.7, 0.4), (0.5, 0.5)])
def test_eq_15_has_the_power_minus_theta(alpha, beta):
    """Printed: logdet(rho (Z Y)^theta + I)/nu + logdet(Y)/beta; right: with -theta.

    Z = X^-1 and rho = alpha/beta; up to a constant, that is, as a function of Y.
    """
    rng = np.random.default_rng(6)
    X, Y, other = wishart(rng, 3, 3, 12) * np.array([1, 1, 2])[:, None, None]
    theta, Z = alpha + beta, np.linalg.inv(X)
    engine = get_engine("reference")
    difference = np.diff(engine.encode(X[None], np.stack([Y, other]), alpha, beta)[0])[0]

    def eq_15(B, power):
        return float(log_det(Z, B, alpha / beta, power)) / (alpha * beta) + (
            np.linalg.slogdet(B)[1] / beta
        )

    printed = eq_15(other, theta) - eq_15(Y, theta)
    right = eq_15(other, -theta) - eq_15(Y, -theta)
    assert abs(printed - difference) > 1
    assert right == pytest.approx(difference, rel=1e-10)
