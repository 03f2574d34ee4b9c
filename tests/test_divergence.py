"""abld, its gradients, tables of pairs and maps of the plane: values, invariances, errors."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import (
    EPS,
    assert_within,
    frobenius,
    gradient_error,
    in_frame_of,
    log_eigenvalue_error,
    propagated,
    scaled_condition,
    wishart,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from divlearn import abld, abld_grad, divergence_plane, get_engine, pairwise_abld
from divlearn.spd import logm, powm
from divlearn.spectral import abld_scalar

POINTS = [(0, 0), (0, 1), (1, 0), (0.5, 0.5), (1, 1), (0.3, 1.4), (-0.6, -0.2), (0.3, -0.2)]


def pairs(n: int = 4, d: int = 4, seed: int = 0):
    rng = np.random.default_rng(seed)
    return wishart(rng, n, d), wishart(rng, n, d)


def spectra(X, Y):
    """t (n, 1, d) of matching pairs, and the error t may have."""
    t, error = [], []
    for x, y in zip(X, Y, strict=True):
        one = get_engine("reference").spectra(x[None], y[None])
        t.append(one[0])
        error.append(2 * log_eigenvalue_error(x[None], y[None], one)[0])
    return np.array(t)[:, 0], np.array(error)[:, 0]


def tolerance(X, Y, alpha, beta, name="f"):
    """Twice what one evaluation may err, plus what engines lose where they need no eigenvalues.

    There they subtract log-determinants, which err by d eps times the condition number, but only
    where the result, times alpha beta off the axes, is not small against that.
    """
    t, error = spectra(X, Y)
    d, product = X.shape[-1], abs(alpha * beta) or 1.0
    small = product * abld_scalar(t, alpha, beta, derivatives=()).f.sum(axis=-1) <= 0.005 * d
    condition = scaled_condition(X) + scaled_condition(Y)
    absolute = 0.0 if small.all() else np.where(small, 0, d * EPS * condition / product)
    return 2 * propagated(name, t, alpha, beta, error, 240) + absolute


# --- shapes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x_shape", "y_shape", "a_shape", "b_shape"),
    [
        ((), (), (), ()),
        ((3,), (), (), ()),
        ((), (3,), (), ()),
        ((3,), (3,), (), ()),
        ((3,), (1,), (), ()),
        ((1,), (1,), (), ()),
        ((2, 1), (3,), (), ()),
        ((2, 3), (), (), ()),
        ((), (2, 3), (), ()),
        ((), (), (3,), ()),
        ((), (), (), (3,)),
        ((), (), (2, 1), (3,)),
        ((3,), (), (3,), ()),
        ((3,), (), (), (2, 1)),
        ((2, 1, 1), (3, 1), (4,), (1,)),
    ],
)
def test_broadcasting(x_shape, y_shape, a_shape, b_shape):
    rng = np.random.default_rng(1)
    X, Y = (wishart(rng, int(np.prod(s)), 3).reshape(*s, 3, 3) for s in (x_shape, y_shape))
    alpha, beta = rng.uniform(0.2, 1.5, a_shape), rng.uniform(0.2, 1.5, b_shape)
    leading = np.broadcast_shapes(x_shape, y_shape, a_shape, b_shape)
    values, gradient = abld(X, Y, alpha, beta), abld_grad(X, Y, alpha, beta)
    assert np.shape(values) == leading
    assert np.shape(gradient.value) == np.shape(gradient.alpha) == np.shape(gradient.beta)
    assert np.shape(gradient.value) == leading
    assert gradient.X.shape == gradient.Y.shape == (*leading, 3, 3)
    Xs, Ys = (np.broadcast_to(M, (*leading, 3, 3)) for M in (X, Y))
    alphas, betas = (np.broadcast_to(p, leading) for p in (alpha, beta))
    for index in np.ndindex(leading):
        one = float(alphas[index]), float(betas[index])
        pair = Xs[index], Ys[index]
        allowed = tolerance(pair[0][None], pair[1][None], *one)[0]
        assert_within(abs(values[index] - abld(*pair, *one)), allowed)
        alone = abld_grad(*pair, *one)
        for name in ("value", "X", "Y", "alpha", "beta"):
            # Element by element the same operations: the same bits.
            assert np.array_equal(getattr(gradient, name)[index], getattr(alone, name)), name


def test_a_single_pair_gives_scalars():
    X, Y = (M[0] for M in pairs())
    for value in (abld(X, Y, 0.5, 0.5), abld_grad(X, Y, 0.5, 0.5).value):
        assert isinstance(value, np.float64)
    assert isinstance(abld_grad(X, Y, 0.5, 0.5).alpha, np.float64)
    assert isinstance(abld(X.astype("f"), Y.astype("f"), 0.5, 0.5), np.float32)


# --- closed forms ---------------------------------------------------------------------------------


def logdet(X):
    return np.linalg.slogdet(X)[1]


def trace_of_quotient(X, Y):
    return np.trace(np.linalg.solve(Y, X), axis1=-2, axis2=-1)


CLOSED_FORMS = {
    (0, 1): lambda X, Y: trace_of_quotient(X, Y) - logdet(X) + logdet(Y) - X.shape[-1],
    (1, 0): lambda X, Y: trace_of_quotient(Y, X) + logdet(X) - logdet(Y) - X.shape[-1],
    (0.5, 0.5): lambda X, Y: 4 * (logdet((X + Y) / 2) - (logdet(X) + logdet(Y)) / 2),
    (0.25, 0.75): lambda X, Y: (
        (logdet(0.25 * X + 0.75 * Y) - 0.25 * logdet(X) - 0.75 * logdet(Y)) / (0.25 * 0.75)
    ),
    (1, 1): lambda X, Y: logdet((X @ np.linalg.inv(Y) + Y @ np.linalg.inv(X)) / 2),
}


@pytest.mark.parametrize("point", CLOSED_FORMS)
@pytest.mark.parametrize("d", [1, 2, 5, 12])
def test_closed_forms(point, d):
    X, Y = pairs(5, d, seed=d)
    exact = CLOSED_FORMS[point](X, Y)
    # The closed forms themselves subtract log-determinants and traces of inverses.
    own = 4 * d * EPS * (np.linalg.cond(X) + np.linalg.cond(Y)) * (1 + np.abs(exact))
    allowed = tolerance(X, Y, *point) + own
    assert_within(np.abs(abld(X, Y, *point) - exact), allowed)
    assert_within(np.abs(abld(X, Y[0], *point)[0] - exact[0]), allowed[0])


# --- properties -----------------------------------------------------------------------------------

seeds = st.integers(0, 2**32 - 1)
dimensions = st.integers(1, 6)
positive = st.one_of(st.floats(0, 3), st.sampled_from([0.0, 1e-300, 1e-12, 1e-8, 0.5, 1.0, 2.0]))
unhurried = settings(deadline=None, max_examples=10)


def one_pair(seed: int, d: int):
    rng = np.random.default_rng(seed)
    X, Y = wishart(rng, 2, d, 2 * d + 4)
    return rng, X[None], Y[None]


@unhurried
@given(seeds, dimensions, positive, positive)
def test_affine_invariance(seed, d, alpha, beta):
    rng, X, Y = one_pair(seed, d)
    A = rng.standard_normal((d, d)) + 2 * np.eye(d)
    moved_X, moved_Y = (A @ M @ A.T for M in (X, Y))
    # Rounding of A M A^T is relative to |A| |M| |A^T|, hence amplified by the condition of A.
    amplified = 4 * d * np.linalg.cond(A) ** 2
    t, error = spectra(X, Y)
    allowed = 2 * propagated("f", t, alpha, beta, amplified * error)
    assert_within(np.abs(abld(moved_X, moved_Y, alpha, beta) - abld(X, Y, alpha, beta)), allowed)


@unhurried
@given(seeds, dimensions, positive, positive, st.booleans())
def test_duality_and_negation(seed, d, alpha, beta, negative):
    _, X, Y = one_pair(seed, d)
    if negative:
        alpha, beta = -alpha, -beta
    value, allowed = abld(X, Y, alpha, beta), 2 * tolerance(X, Y, alpha, beta)
    assert_within(np.abs(abld(Y, X, beta, alpha) - value), allowed)
    assert_within(np.abs(abld(X, Y, -beta, -alpha) - value), allowed)
    assert_within(
        np.abs(abld(np.linalg.inv(X), np.linalg.inv(Y), beta, alpha) - value), 1e3 * allowed
    )


@unhurried
@given(seeds, dimensions, positive, positive, st.sampled_from([0.25, 0.5, 2.0, 3.0]))
def test_homogeneity(seed, d, alpha, beta, c):
    """f(t; c alpha, c beta) = f(c t; alpha, beta)/c^2, and c t belongs to (Y^-1/2 X Y^-1/2)^c."""
    _, X, Y = one_pair(seed, d)
    whitener = powm(Y, -0.5)
    W = whitener @ X @ whitener
    W, identity = 0.5 * (W + W.mT), np.eye(d)[None]
    power = powm(W, c)
    left, right = abld(W, identity, c * alpha, c * beta), abld(power, identity, alpha, beta) / c**2
    t, _ = spectra(W, identity)
    error = d * EPS * np.linalg.cond(power)[:, None] * 16  # powers are known to eps cond
    allowed = 2 * propagated("f", c * t, alpha, beta, error) / c**2
    assert_within(np.abs(left - right), allowed + 2 * tolerance(W, identity, c * alpha, c * beta))


@unhurried
@given(seeds, dimensions, positive, positive, st.booleans())
def test_eulers_relation(seed, d, alpha, beta, negative):
    """alpha D_alpha + beta D_beta = sum t f_t - 2 D, where sum t f_t is <grad_X, X log(Y^-1 X)>."""
    _, X, Y = one_pair(seed, d)
    if negative:
        alpha, beta = -alpha, -beta
    g = abld_grad(X, Y, alpha, beta)
    factor = np.linalg.cholesky(X)
    inner = in_frame_of(X, g.X)  # f_t in the frame of X
    whitened = np.linalg.solve(factor, np.linalg.solve(factor, Y).mT)
    t_in_frame = -logm(0.5 * (whitened + whitened.mT))
    radial = (inner * t_in_frame).sum(axis=(1, 2))
    t, error = spectra(X, Y)
    allowed = (
        2 * propagated("f", t, alpha, beta, error)
        + abs(alpha) * propagated("f_alpha", t, alpha, beta, error)
        + abs(beta) * propagated("f_beta", t, alpha, beta, error)
        + frobenius(t_in_frame) * gradient_error(t, alpha, beta, error)
        + 4 * frobenius(inner) * np.sqrt(d) * error[:, 0]
    )
    gap = np.abs(alpha * g.alpha + beta * g.beta - radial + 2 * g.value)
    assert_within(gap, allowed)


@unhurried
@given(seeds, dimensions, positive, positive)
def test_positive_unless_equal(seed, d, alpha, beta):
    _, X, Y = one_pair(seed, d)
    assert abld(X, Y, alpha, beta)[0] > 0
    # For X = Y the spectrum is 1 up to its error e, and D is at most about d e^2.
    _, error = spectra(X, X)
    assert 0 <= abld(X, X, alpha, beta)[0] <= d * error[0, 0] ** 2
    g = abld_grad(X, X, alpha, beta)
    assert_within(frobenius(in_frame_of(X, g.X)), np.sqrt(d) * error[:, 0])
    assert_within(frobenius(in_frame_of(X, g.Y)), np.sqrt(d) * error[:, 0])


@unhurried
@given(seeds, dimensions, positive, positive)
def test_gradients_against_differences(seed, d, alpha, beta):
    rng, X, Y = one_pair(seed, d)
    S, T = (M + M.mT for M in rng.standard_normal((2, 1, d, d)))
    # Relative directions: both matrices stay positive definite.
    S, T = (np.linalg.cholesky(M) @ D @ np.linalg.cholesky(M).mT / d for M, D in ((X, S), (Y, T)))
    g = abld_grad(X, Y, alpha, beta)
    slope = (g.X * S).sum() + (g.Y * T).sum() + 0.5 * g.alpha[0] - 0.25 * g.beta[0]

    def difference(h):
        ahead = abld(X + h * S, Y + h * T, alpha + 0.5 * h, beta - 0.25 * h)
        behind = abld(X - h * S, Y - h * T, alpha - 0.5 * h, beta + 0.25 * h)
        return float((ahead - behind)[0] / (2 * h))

    # A central difference errs by c h^2: those at h and 2 h differ by three times that.
    h = EPS ** (1 / 3)
    near, far = difference(h), difference(2 * h)
    rounding = float(tolerance(X, Y, alpha, beta)[0]) / h
    assert abs(near - slope) <= 0.5 * abs(far - near) + 4 * rounding


# --- tables and maps ------------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS[:-1])
def test_pairwise(engine, point):
    X, Y = pairs(4, 3)
    alpha, beta = point
    table = pairwise_abld(X, Y, alpha=alpha, beta=beta, engine=engine)
    assert table.shape == (4, 4)
    for i in range(4):
        row = X[i].repeat(4).reshape(3, 3, 4).transpose(2, 0, 1)
        assert_within(np.abs(table[i] - abld(row, Y, *point)), tolerance(row, Y, *point))


@pytest.mark.parametrize("n", [1, 5, 65])
@pytest.mark.parametrize("point", [(0, 0), (0.5, 0.5), (1, 1), (0, 1), (0.3, 0.9), (-0.5, -0.5)])
def test_pairwise_with_itself(engine, n, point):
    X = wishart(np.random.default_rng(2), n, 3)
    table = pairwise_abld(X, alpha=point[0], beta=point[1], engine=engine)
    assert (np.diag(table) == 0).all()
    full = pairwise_abld(X, X, alpha=point[0], beta=point[1], engine=engine)
    off = ~np.eye(n, dtype=bool)
    condition = scaled_condition(X).max() ** 2
    np.testing.assert_allclose(table[off], full[off], rtol=1e3 * EPS * condition)
    if point[0] == point[1]:
        np.testing.assert_allclose(table, table.T, rtol=1e3 * EPS * condition)
    elif n > 1:
        assert not np.allclose(table, table.T)


def test_pairwise_into_a_memory_map(engine, tmp_path):
    X, Y = pairs(9, 3)
    right = pairwise_abld(X, Y, alpha=0.3, beta=0.4, engine=engine)
    out = np.memmap(tmp_path / "table", np.float64, "w+", shape=(9, 9))
    assert pairwise_abld(X, Y, alpha=0.3, beta=0.4, engine=engine, out=out) is out
    out.flush()
    assert np.array_equal(np.fromfile(tmp_path / "table").reshape(9, 9), right)
    many = wishart(np.random.default_rng(3), 70, 2)
    square = np.memmap(tmp_path / "square", np.float64, "w+", shape=(70, 70))
    pairwise_abld(many, alpha=0.5, beta=0.5, engine=engine, out=square)
    assert np.array_equal(square, pairwise_abld(many, alpha=0.5, beta=0.5, engine=engine))
    small = np.empty((9, 9), np.float32)
    pairwise_abld(X, Y, alpha=0.3, beta=0.4, engine=engine, out=small)
    assert np.array_equal(small, right.astype(np.float32))


def test_pairwise_takes_prepared_data_and_rejects_a_wrong_out(engine):
    X, Y = pairs(9, 3)
    prepared = engine.prepare(X)
    right = pairwise_abld(X, Y, alpha=0.3, beta=0.4, engine=engine)
    assert np.array_equal(pairwise_abld(prepared, Y, alpha=0.3, beta=0.4, engine=engine), right)
    itself = pairwise_abld(prepared, alpha=0.3, beta=0.4, engine=engine)
    assert np.array_equal(itself, pairwise_abld(X, alpha=0.3, beta=0.4, engine=engine))
    for other in (None, Y):
        with pytest.raises(ValueError, match=r"out has shape \(9, 8\) .* shape \(9, 9\)"):
            pairwise_abld(X, other, alpha=0.5, beta=0.5, engine=engine, out=np.empty((9, 8)))
    many = wishart(np.random.default_rng(3), 70, 2)
    with pytest.raises(ValueError, match=r"out has .*int64.* must be a writeable floating-point"):
        pairwise_abld(many, alpha=0.5, beta=0.5, engine=engine, out=np.empty((70, 70), int))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("point", [(0.3, 0.4), (0.2, 0.8), (0.0, 1.0), (-0.5, -0.1)])
def test_the_smaller_of_two_prepared_sets_may_be_on_either_side(engine, point, dtype):
    X, Y = wishart(np.random.default_rng(5), 12, 3), wishart(np.random.default_rng(6), 7, 3)
    alpha, beta = point
    expected = abld(X[:, None], Y.astype(dtype), alpha, beta)
    many, few = engine.prepare(X), engine.prepare(Y.astype(dtype))
    for _ in range(2):
        found = pairwise_abld(many, few, alpha=alpha, beta=beta, engine=engine)
        np.testing.assert_allclose(found, expected, rtol=1e-10)
        found = pairwise_abld(few, many, alpha=beta, beta=alpha, engine=engine)
        np.testing.assert_allclose(found, expected.T, rtol=1e-10)


def test_pairwise_float32(engine):
    X = wishart(np.random.default_rng(4), 70, 3).astype(np.float32)
    table = pairwise_abld(X, alpha=0.5, beta=0.5, engine=engine)
    assert table.dtype == np.float32
    double = pairwise_abld(X.astype(np.float64), alpha=0.5, beta=0.5, engine=engine)
    np.testing.assert_allclose(table, double, rtol=2 * np.finfo(np.float32).eps)


def test_plane(engine):
    X, Y = pairs(4, 3)
    alphas, betas = [0.0, 1e-8, 0.5], [0.0, 0.5, 1.0, 20.0]
    plane = divergence_plane(X, Y, alphas, betas, engine=engine)
    assert plane.shape == (4, 4, 3, 4)
    for i in range(4):
        row = np.broadcast_to(X[i], X.shape)
        for j, alpha in enumerate(alphas):
            for k, beta in enumerate(betas):
                gap = np.abs(plane[i, :, j, k] - abld(row, Y, alpha, beta))
                t, error = spectra(row, Y)
                allowed = 2 * propagated("f", t, alpha, beta, error)
                if alpha * beta > 1e-3:  # there engines may subtract logarithms
                    allowed = allowed + 2 * 3 * EPS / (alpha * beta)
                assert_within(gap, allowed)


def test_plane_out_and_errors(engine):
    X, Y = pairs(4, 3)
    right = divergence_plane(X, Y, [0.5, 1], [0.0, 1.0], engine=engine)
    out = np.empty((4, 4, 2, 2))
    assert divergence_plane(X, Y, [0.5, 1], [0, 1], engine=engine, out=out) is out
    assert np.array_equal(out, right)
    strided = np.full((4, 4, 2, 4), -1.0)
    divergence_plane(X, Y, [0.5, 1], [0, 1], engine=engine, out=strided[..., ::2])
    assert np.array_equal(strided[..., ::2], right)
    assert (strided[..., 1::2] == -1).all()
    assert divergence_plane(X, Y, 0.5, 1, engine=engine).shape == (4, 4, 1, 1)
    with pytest.raises(ValueError, match=r"out has shape \(3,\).*\(4, 4, 2, 2\)"):
        divergence_plane(X, Y, [0.5, 1], [0, 1], engine=engine, out=np.empty(3))
    with pytest.raises(ValueError, match=r"alphas has shape \(1, 2\).*one-dimensional"):
        divergence_plane(X, Y, [[0.5, 1]], [0, 1], engine=engine)
    with pytest.raises(ValueError, match=r"has the eigenvalue"):
        divergence_plane(X, Y, [5.0], [-4.0], engine=engine)


# --- bad and unusual input ------------------------------------------------------------------------

GOOD = np.array([[2.0, 1.0], [1.0, 2.0]])


def _with(value, row=0, column=1):
    bad = np.stack([GOOD, GOOD]).astype(type(value) if isinstance(value, complex) else float)
    bad[1, row, column] = bad[1, column, row] = value
    return bad


BAD = {
    "nan": (_with(np.nan), ValueError, r"\[1\] has a NaN entry at \(0, 1\)"),
    "infinite": (_with(np.inf), ValueError, r"\[1\] has a infinite entry at \(0, 1\)"),
    "asymmetric": (np.array([GOOD, [[2, 1], [0, 2]]]), ValueError, r"\[1\] is not symmetric.*1 at"),
    "indefinite": (_with(3.0), ValueError, r"\[1\] is indefinite: smallest eigenvalue -1 "),
    "rank-deficient": (_with(2.0), ValueError, r"\[1\] is rank-deficient: numerical rank 1 of 2"),
    "zero diagonal": (_with(0.0, 1, 1), ValueError, r"\[1\] has a diagonal entry 0 at \(1, 1\)"),
    "not square": (np.ones((2, 2, 3)), ValueError, r"\(2, 2, 3\).* 2 by 3, not square"),
    "empty": (np.empty((0, 2, 2)), ValueError, r"is empty, shape \(0, 2, 2\)"),
    "zero by zero": (np.empty((2, 0, 0)), ValueError, r"is empty, shape \(2, 0, 0\)"),
    "a vector": (np.ones(3), ValueError, r"has shape \(3,\), expected \(\.\.\., d, d\)"),
    "a number": (1.0, ValueError, r"has shape \(\), expected \(\.\.\., d, d\)"),
    "complex": (GOOD + 1j, ValueError, r"is complex but not Hermitian: .* = 2 at \(0, 0\)"),
    "object": (GOOD.astype(object), TypeError, r"has dtype object"),
    "string": (GOOD.astype(str), TypeError, r"has dtype <U"),
    "ragged": ([[1.0, 0.0], [0.0]], ValueError, r"is ragged"),
    "wrong dimension": (np.eye(3), ValueError, r"3 by 3, but .* 2 by 2.*same dimension"),
}


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("function", [abld, abld_grad])
@pytest.mark.parametrize("side", ["X", "Y"])
def test_bad_matrices(function, side, kind):
    bad, error, message = BAD[kind]
    arguments = (bad, GOOD) if side == "X" else (GOOD, bad)
    if kind == "wrong dimension":
        message = r"X is . by ., but Y is . by .; both must have the same dimension"
    else:
        message = f"^{side}.*{message}"
    with pytest.raises(error, match=message):
        function(*arguments, 0.5, 0.5)


@pytest.mark.parametrize("kind", [k for k in BAD if k != "wrong dimension"])
def test_bad_matrices_in_tables(kind):
    bad, error, message = BAD[kind]
    if kind in ("a vector", "a number"):
        message = r"expected \(n_matrices, d, d\)"
    elif kind in ("complex", "object", "string"):
        bad = bad[None]
    elif kind == "ragged":
        bad = [bad]
    good = np.stack([GOOD, GOOD])
    with pytest.raises(error, match=f"X.*{message}"):
        pairwise_abld(bad, good, alpha=0.5, beta=0.5)
    with pytest.raises(error, match=message):
        pairwise_abld(good, bad, alpha=0.5, beta=0.5)
    with pytest.raises(error, match=f"Y.*{message}"):
        divergence_plane(good, bad, [0.5], [0.5])


@pytest.mark.parametrize("function", [abld, abld_grad])
@pytest.mark.parametrize(
    ("alpha", "beta", "error", "message"),
    [
        (np.nan, 0.5, ValueError, r"alpha ?= ?nan.*finite"),
        (0.5, np.inf, ValueError, r"beta ?= ?inf.*finite"),
        (0.5, -np.inf, ValueError, r"beta ?= ?-inf.*finite"),
        (0.5j, 0.5, TypeError, r"alpha has dtype complex128"),
        (0.5, "1", TypeError, r"beta has dtype <U1"),
        (None, 0.5, TypeError, r"alpha has dtype object"),
        ([0.5, np.nan, 0.5], 0.5, ValueError, r"alpha.*nan.*finite"),
    ],
)
@pytest.mark.parametrize("batch", [(), (3,)])
def test_bad_parameters(function, alpha, beta, error, message, batch):
    X = np.broadcast_to(GOOD, (*batch, 2, 2))
    with pytest.raises(error, match=message):
        function(X, np.eye(2), alpha, beta)


@pytest.mark.parametrize("function", [abld, abld_grad])
def test_leading_dimensions_that_do_not_broadcast(function):
    X, Y = pairs(3, 2)[0], pairs(4, 2)[1]
    message = r"X \(3,\), Y \(4,\), alpha \(\) and beta \(\) do not broadcast.*pairwise_abld"
    with pytest.raises(ValueError, match=message):
        function(X, Y, 0.5, 0.5)
    with pytest.raises(ValueError, match=r"alpha \(2,\)"):
        function(X, X, [0.5, 0.6], 0.5)


@pytest.mark.parametrize("function", [abld, abld_grad])
@pytest.mark.parametrize(
    ("alpha", "beta", "interval"),
    [
        (1.0, -0.5, r"\(0\.25, inf\)"),  # |beta/alpha|^(1/theta) = 0.5^2
        (-0.5, 1.0, r"\(0, 4\)"),  # 2^(1/0.5)
        (1.0, -1.0, r"\(0\.367879, inf\)"),  # e^(-1/alpha)
        (-1.0, 1.0, r"\(0, 2\.71828\)"),
    ],
)
@pytest.mark.parametrize("bad", [0.2, 5.0])
def test_opposite_signs(function, alpha, beta, interval, bad):
    """Each eigenvalue is tested: two bad factors of a determinant would look like a good one."""
    low = alpha > 0
    if (bad < 1) != low:
        assert np.isfinite(abld(np.diag([bad, bad, 1.0]), np.eye(3), alpha, beta))
        return
    X = np.diag([bad, bad, 1.0])
    for first, second in ((X, np.eye(3)), (X[None], np.eye(3)), (X[None], np.eye(3)[None])):
        with pytest.raises(ValueError, match=rf"eigenvalue {bad:g}, .*{interval}.*same sign"):
            function(first, second, alpha, beta)
    inside = np.diag([1.0, 1.1, 0.9])
    assert abld(inside, np.eye(3), alpha, beta) > 0


def test_opposite_signs_name_the_pair():
    X = np.stack([np.eye(2)] * 3)
    X[2, 0, 0] = 0.01
    with pytest.raises(ValueError, match=r"X and Y\[2\] has the eigenvalue 0\.01"):
        abld_grad(X, np.stack([np.eye(2)] * 3), 1.0, -0.5)


def test_integers_lists_and_small_floats_are_converted():
    exact = abld(GOOD, np.eye(2), 0.5, 0.5)
    assert abld([[2, 1], [1, 2]], np.eye(2, dtype=int), 0.5, 0.5) == exact
    assert abld(GOOD.astype(np.uint8), np.eye(2, dtype=bool), 0.5, 0.5) == exact
    half = abld(GOOD.astype(np.float16), np.eye(2, dtype=np.float16), 0.5, 0.5)
    assert half.dtype == np.float32
    assert abld(GOOD.astype(np.float32), np.eye(2), 0.5, 0.5).dtype == np.float64
    table = pairwise_abld([[[2, 1], [1, 2]]], [[[1, 0], [0, 1]]], alpha=0, beta=1)
    assert table[0, 0] == pytest.approx(4 - np.log(3) - 2, rel=10 * EPS)


def test_inputs_are_left_alone_and_any_layout_works(engine):
    X, Y = pairs(6, 3)
    kept = X.copy(), Y.copy()
    rights = abld(X, Y, 0.5, 0.5), pairwise_abld(X, Y, alpha=0, beta=1, engine=engine)
    for M in (X, Y):
        M.flags.writeable = False
    strange_X = np.asfortranarray(X)
    strange_Y = np.repeat(np.repeat(Y, 2, axis=0), 2, axis=2)[::2, :, ::2]
    swapped = X.astype(X.dtype.newbyteorder())
    reversed_X = np.ascontiguousarray(X[::-1])[::-1]
    for first in (X, strange_X, swapped, reversed_X):
        for second in (Y, strange_Y):
            assert np.array_equal(abld(first, second, 0.5, 0.5), rights[0])
            abld_grad(first, second, 0.5, 0.5)
            table = pairwise_abld(first, second, alpha=0, beta=1, engine=engine)
            assert np.array_equal(table, rights[1])
    assert np.array_equal(X, kept[0])
    assert np.array_equal(Y, kept[1])


def test_float32_gradients():
    X, Y = (M.astype(np.float32) for M in pairs(3, 4))
    g, right = abld_grad(X, Y, 0.4, 0.9), abld_grad(X.astype(float), Y.astype(float), 0.4, 0.9)
    for name in ("value", "X", "Y", "alpha", "beta"):
        computed = getattr(g, name)
        assert computed.dtype == np.float32
        assert np.array_equal(computed, getattr(right, name).astype(np.float32))


def test_mixed_precision_is_computed_in_the_wider_one():
    X, Y = pairs(6, 4)
    single = X.astype(np.float32)
    one_by_one = [abld(x, Y[0], 0.3, 0.8) for x in single.astype(np.float64)]
    for batch in (abld(single, Y[0], 0.3, 0.8), abld(Y[0], single, 0.8, 0.3)):
        assert batch.dtype == np.float64
        np.testing.assert_allclose(batch, one_by_one, rtol=1e-12)
    assert pairwise_abld(single, Y, alpha=0.3, beta=0.8).dtype == np.float64
    assert pairwise_abld(Y, single, alpha=0.3, beta=0.8).dtype == np.float64


def test_errors_name_the_parameter_whichever_argument_is_the_batch():
    X, Y = pairs(3, 2)
    for first, second in ((X, Y[0]), (X[0], Y), (X, Y)):
        with pytest.raises(ValueError, match=r"^alpha = nan"):
            abld(first, second, np.nan, 0.5)
        with pytest.raises(ValueError, match=r"pencil of X and Y"):
            abld(first * 1e-6, second, 1.0, -0.5)


def test_masked_entries_are_refused():
    X, _ = pairs(3, 2)
    with pytest.raises(ValueError, match=r"X has masked entries"):
        abld(np.ma.masked_greater(X, 0.0), np.eye(2), 0.5, 0.5)
