"""Spectra, divergences and gradients of matrices against 60 digits, at every edge."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from conftest import (
    EPS,
    frobenius,
    graded,
    gradient_error,
    in_frame_of,
    log_eigenvalue_error,
    propagated,
    rotated,
    scaled_condition,
    wishart,
)

from divlearn import abld, abld_grad
from divlearn.spectral import log_generalized_domain
from oracle.high_precision import Pair

POINTS = [
    (0.0, 0.0),  # origin
    (0.0, 1.0),
    (1.0, 0.0),
    (0.0, 0.3),
    (2.5, 0.0),  # axes
    (1e-8, 1e-8),
    (1e-8, 1.0),
    (1.0, 1e-8),
    (0.7, 1e-8),
    (1e-8, 3.0),  # beside them
    (0.5, 0.5),
    (0.3, 0.7),
    (1e-8, 1 - 1e-8),  # alpha + beta = 1
    (1.0, 1.0),
    (0.4, 1.6),  # alpha + beta = 2
    (0.8, 0.1),
    (20.0, 20.0),
    (20.0, 0.5),
    (0.0, 20.0),
    (-0.5, -0.5),
    (-1.0, 0.0),
    (0.0, -0.3),
    (-0.2, -1.7),  # the negative orthant
    (0.3, -0.2),
    (-0.1, 0.2),
    (0.1, -0.1),
    (-0.1, 0.1),
    (0.1, -0.1 - 1e-9),  # opposite signs
]


@cache
def shortcut_error(pair: Pair, alpha: float, beta: float, order: int = 0) -> float:
    """What engines may lose to the forms that need fewer eigenvalues, exponentials or logarithms.

    These subtract logarithms, so their error is absolute: d eps, times the condition number if
    they are log-determinants, over alpha beta (and over a parameter once more for a derivative,
    order 1). They serve only where the result is not small against that.
    """
    d, alpha, beta = pair.d, abs(alpha), abs(beta)
    trace = (alpha, beta) in ((0, 1), (1, 0))
    product = 1.0 if trace else alpha * beta
    least_result = 0.005 if order == 0 else 0.1
    divergence = float(pair.divergence(alpha, beta)) if product else 0.0
    if not product * divergence > least_result * d:
        return 0.0
    on_line = trace or abs(alpha + beta - 1) <= EPS
    condition = scaled_condition(pair.X) + scaled_condition(pair.Y) if on_line else 1.0
    return float(d * EPS * condition / product / (1 if order == 0 else min(alpha, beta)))


def _near(d: int, distance: float) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(d)
    Y = wishart(rng, 1, d)[0]
    factor, S = np.linalg.cholesky(Y), rng.standard_normal((d, d))
    X = Y + distance * factor @ (S + S.T) @ factor.T
    return 0.5 * (X + X.T), Y


@cache
def cases() -> dict[str, Pair]:
    rng = np.random.default_rng(20)
    pairs: dict[str, tuple] = {}
    for d in (1, 2, 3, 5, 8):
        pairs[f"wishart-{d}"] = tuple(wishart(rng, 2, d))
    for d in (1, 3, 8):
        for distance in (1e-3, 1e-6):
            pairs[f"near-{distance:g}-{d}"] = _near(d, distance)
    X, Y = wishart(rng, 2, 3)
    pairs["equal-3"] = (X, X)
    pairs["multiple-3"] = (1.5 * X, X)
    pairs["large-3"] = (1e100 * X, 1e100 * Y)
    pairs["small-3"] = (1e-100 * X, 1e-100 * Y)
    pairs["large-small-3"] = (1e100 * X, 1e-100 * Y)
    pairs["small-large-3"] = (1e-100 * X, 1e100 * Y)
    for d in (3, 8):
        pairs[f"graded-{d}"] = (graded(rng, 1, d, 1e10)[0], wishart(rng, 1, d)[0])
        pairs[f"graded-both-{d}"] = (
            graded(rng, 1, d, 1e10)[0],
            graded(rng, 1, d, 1e10, False)[0],
        )
    pairs["graded-down-3"] = (graded(rng, 1, 3, 1e10, False)[0], wishart(rng, 1, 3)[0])
    pairs["graded-second-3"] = (wishart(rng, 1, 3)[0], graded(rng, 1, 3, 1e10, False)[0])
    pairs["rotated-1e4-5"] = tuple(rotated(rng, 2, 5, 1e4))
    return {name: Pair(*pair) for name, pair in pairs.items()}


CASES = tuple(cases())
NEAR = tuple(name for name in CASES if name.startswith("near"))
WITH_GRADIENT = (
    "wishart-1",
    "wishart-3",
    "near-1e-06-3",
    "equal-3",
    "multiple-3",
    "large-3",
    "small-3",
    "graded-3",
    "graded-down-3",
    "graded-both-3",
)


@cache
def exact_t(pair: Pair) -> np.ndarray:
    return np.array([float(value) for value in pair.t])


@cache
def t_error(pair: Pair) -> np.ndarray:
    return log_eigenvalue_error(pair.X[None], pair.Y[None], exact_t(pair)[None, None])[0, 0]


@cache
def usable(pair: Pair, alpha: float, beta: float) -> bool:
    """Whether the pair lies in the domain, a tenth of the way from its end at least."""
    lower, upper = log_generalized_domain(alpha, beta)
    t = exact_t(pair)
    return bool((t > 0.9 * lower).all() and (t < 0.9 * upper).all())


@cache
def errors(pair: Pair, name: str) -> dict[tuple[float, float], float]:
    """What values, derivatives in a parameter or the gradient may be off by, at usable points."""
    points = [point for point in POINTS if usable(pair, *point)]
    alpha, beta = np.array(points).T[..., None]
    if name == "gradient":
        found = gradient_error(exact_t(pair), alpha, beta, t_error(pair))
    else:
        # With opposite signs `spectral` promises 24 eps over the distance to the end, >= 1/10 here.
        constant = np.where(alpha * beta >= 0, 8, 240)
        found = propagated(name, exact_t(pair), alpha, beta, t_error(pair), constant)
    return dict(zip(points, found.tolist(), strict=True))


def value_error(pair: Pair, alpha: float, beta: float, name: str = "f") -> float:
    return errors(pair, name)[alpha, beta]


def matrix_error(pair: Pair, alpha: float, beta: float) -> float:
    return errors(pair, "gradient")[alpha, beta]


def disagreements(pair: Pair, computed, points, shortcuts: bool) -> list[str]:
    found = []
    for value, (alpha, beta) in zip(computed, points, strict=True):
        exact = float(pair.divergence(alpha, beta))
        if np.isinf(exact) and np.isinf(value):
            continue
        allowed = value_error(pair, alpha, beta)
        if shortcuts and alpha * beta >= 0:
            allowed += shortcut_error(pair, alpha, beta)
        if not abs(value - exact) <= allowed:
            found.append(f"({alpha:g}, {beta:g}): {value!r}, exact {exact!r}, allowed {allowed:g}")
    return found


@pytest.mark.parametrize("name", CASES)
def test_spectra(engine, name):
    pair = cases()[name]
    t = engine.spectra(pair.X[None], pair.Y[None])[0, 0]
    assert (np.diff(t) >= 0).all()
    assert (np.abs(t - exact_t(pair)) <= t_error(pair)).all()
    if name.startswith("graded"):  # the promise for data of condition 1e10
        assert np.abs(np.expm1(t - exact_t(pair))).max() <= 1e-12


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("together", [False, True], ids=["atoms", "pairs"])
def test_encode(engine, name, together):
    """Every point as an atom of its own, or all of them on one atom."""
    pair = cases()[name]
    points = [point for point in POINTS if usable(pair, *point)]
    same = [point for point in points if point[0] * point[1] >= 0]
    for some in (same, [point for point in points if point not in same]):
        if not some:
            continue
        alpha, beta = np.array(some).T
        if together:
            values = engine.encode(pair.X[None], pair.Y[None], alpha[None], beta[None])[0, 0]
        else:
            atoms = np.repeat(pair.Y[None], len(some), axis=0)
            values = engine.encode(pair.X[None], atoms, alpha, beta)[0]
        assert disagreements(pair, values, some, shortcuts=True) == []


@pytest.mark.parametrize("name", CASES)
def test_abld(name):
    pair = cases()[name]
    points = [point for point in POINTS if usable(pair, *point)]
    alpha, beta = np.array(points).T
    assert disagreements(pair, abld(pair.X, pair.Y, alpha, beta), points, shortcuts=False) == []
    # A batch on either side goes through an engine.
    for alpha, beta in points[CASES.index(name) % 4 :: 4]:
        batch = np.stack([pair.X, pair.X])
        first = abld(batch, pair.Y, alpha, beta)
        assert first[0] == first[1]
        assert disagreements(pair, first[:1], [(alpha, beta)], shortcuts=True) == []
        second = abld(pair.Y, batch, beta, alpha)  # D^(a,b)(X||Y) = D^(b,a)(Y||X)
        assert disagreements(pair, second[:1], [(alpha, beta)], shortcuts=True) == []


@pytest.mark.parametrize("name", NEAR)
@pytest.mark.parametrize("alpha_beta", [(0.5, 0.5), (0, 1), (1, 0), (0, 0), (1, 1), (1e-8, 1e-8)])
def test_close_matrices_keep_relative_accuracy(engine, name, alpha_beta):
    """D is about t^2/2, so an error e of t is a relative error 2 e / |t| of D, and no more."""
    pair = cases()[name]
    exact = float(pair.divergence(*alpha_beta))
    value = engine.encode(pair.X[None], pair.Y[None], *alpha_beta)[0, 0]
    largest = np.abs(exact_t(pair)).max()
    assert largest < 0.02
    # sum |t_i| e_i <= d |t| e, against D >= t^2/2 up to a factor 1 + |t| for the member.
    allowed = 2.2 * len(pair.X) * t_error(pair)[0] / largest
    assert abs(value - exact) <= allowed * exact


@cache
def gradient_points(name: str) -> list[tuple[float, float]]:
    """Points where squares of derivatives stay in the range of floating-point numbers.

    Differences at 60 digits take their time: all points for three pairs, every third for others.
    """
    pair, first = cases()[name], WITH_GRADIENT.index(name) % 3
    some = POINTS if name in ("wishart-3", "near-1e-06-3", "graded-3") else POINTS[first::3]
    points = [point for point in some if usable(pair, *point)]
    return [point for point in points if pair.divergence(*point) < 1e100]


@pytest.mark.parametrize("name", WITH_GRADIENT)
def test_gradients_in_the_matrices(name):
    pair = cases()[name]
    for alpha, beta in gradient_points(name):
        gradient = abld_grad(pair.X, pair.Y, alpha, beta)
        allowed = matrix_error(pair, alpha, beta)
        for matrix, computed, exact in (
            (pair.X, gradient.X, pair.X_gradient(alpha, beta)),
            (pair.Y, gradient.Y, pair.Y_gradient(alpha, beta)),
        ):
            assert np.array_equal(computed, computed.T)
            error = frobenius(in_frame_of(matrix, computed - exact))
            assert error <= allowed, (alpha, beta)


@pytest.mark.parametrize("name", WITH_GRADIENT)
def test_gradients_in_the_parameters(name):
    pair = cases()[name]
    for alpha, beta in gradient_points(name):
        gradient = abld_grad(pair.X, pair.Y, alpha, beta)
        for computed, exact, which in (
            (gradient.value, pair.divergence(alpha, beta), "f"),
            (gradient.alpha, pair.alpha_derivative(alpha, beta), "f_alpha"),
            (gradient.beta, pair.beta_derivative(alpha, beta), "f_beta"),
        ):
            error = abs(computed - float(exact))
            assert error <= value_error(pair, alpha, beta, which), (alpha, beta, which)


@pytest.mark.parametrize("name", WITH_GRADIENT)
@pytest.mark.parametrize("with_parameters", [True, False])
def test_pullback(engine, name, with_parameters):
    pair = cases()[name]
    points = np.array(gradient_points(name))
    opposite = points[:, 0] * points[:, 1] < 0
    found = []
    for some in (points[~opposite], points[opposite]):  # one opposite pair turns all to NumPy
        if not len(some):
            continue
        atoms = np.repeat(pair.Y[None], len(some), axis=0)
        weights = np.full((1, len(some)), -1.5)
        back = engine.pullback(pair.X[None], atoms, *some.T, weights, parameters=with_parameters)
        for k, point in enumerate(some.tolist()):
            matrix = -back.atoms[k] / 1.5
            derivatives = (-back.alpha[k] / 1.5, -back.beta[k] / 1.5) if with_parameters else None
            found += pullback_disagreements(pair, point, matrix, -back.whitened[k] / 1.5)
            found += parameter_disagreements(pair, point, derivatives)
    assert found == []


def pullback_disagreements(pair: Pair, point, matrix, whitened) -> list[str]:
    allowed = matrix_error(pair, *point)
    if point[0] * point[1] >= 0:
        allowed += shortcut_error(pair, *point)
    exact = pair.Y_gradient(*point)
    errors = {"atoms": frobenius(in_frame_of(pair.Y, matrix - exact))}
    own = in_frame_of(pair.Y, exact)
    rounding = pair.d * EPS * scaled_condition(pair.Y) * frobenius(own)
    errors["whitened"] = frobenius(whitened - own) - rounding
    return [
        f"{point} {which}: error {error:.2g}, allowed {allowed:.2g}"
        for which, error in errors.items()
        if not error <= allowed
    ]


def parameter_disagreements(pair: Pair, point, derivatives) -> list[str]:
    if derivatives is None:
        return []
    found = []
    exact = pair.alpha_derivative(*point), pair.beta_derivative(*point)
    for name, one, right in zip(("f_alpha", "f_beta"), derivatives, exact, strict=True):
        allowed = value_error(pair, *point, name)
        if point[0] * point[1] > 0:
            allowed += shortcut_error(pair, *point, order=1)
        if not abs(one - float(right)) <= allowed:
            found.append(f"{point} {name}: {one}, exact {float(right)}, allowed {allowed:.2g}")
    return found


@cache
def ordinary(d: int) -> tuple[np.ndarray, np.ndarray, list]:
    rng = np.random.default_rng(d)
    X, B = wishart(rng, {8: 12, 18: 5}[d], d), wishart(rng, 1, d)
    return X, B, [Pair(one, B[0], digits=40) for one in X]


@pytest.mark.parametrize("d", [8, 18])
def test_ordinary_spectra_are_as_good_as_numpy(engine, d):
    X, B, pairs = ordinary(d)
    whitener = np.linalg.inv(np.linalg.cholesky(B[0]))
    exact = np.array([[float(value) for value in pair.eigenvalues] for pair in pairs])
    theirs = np.linalg.eigvalsh(whitener @ X @ whitener.T) / exact - 1
    ours = engine.spectra(X, B)[:, 0] - np.array([exact_t(pair) for pair in pairs])
    # Errors of eigenvalues are bounded in proportion to the largest: relative to this bound, too.
    # Not the largest errors: whose is larger is luck, which depends on the processor.
    bound = exact.max(axis=1, keepdims=True) / exact
    for own, other in ((ours, theirs), (ours / bound, theirs / bound)):
        assert np.sqrt((own**2).mean()) <= 2 * np.sqrt((other**2).mean())
