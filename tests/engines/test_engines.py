"""The verbs of every engine: against the reference, in every route, type and number of threads."""

from __future__ import annotations

import threading
from functools import cache

import mpmath
import numpy as np
import pytest
from conftest import (
    EPS,
    assert_within,
    engine_names,
    frobenius,
    gradient_error,
    in_frame_of,
    log_eigenvalue_error,
    make_engine,
    native_names,
    scaled_condition,
    wishart,
)
from engine_problems import DIMENSIONS, POINTS, problem, sizes, truth, value_error
from numpy.testing import assert_allclose
from scipy.linalg import expm

from divlearn.arrays import to_host
from divlearn.engines import ReferenceEngine

COMPILED = ("native", "cuda")
EVERY = [*engine_names(), *native_names()[1:]]
every_instruction_set = pytest.mark.parametrize("engine_name", EVERY)

# --- against the reference ------------------------------------------------------------------------

every_other = pytest.mark.parametrize(
    "engine_name", [name for name in EVERY if name != "reference"]
)


@every_other
@pytest.mark.parametrize("condition", [10.0, 1e5])
def test_pairs_that_need_no_spectrum(engine, condition):
    """Engines may take these pairs one by one, by traces and determinants."""
    rng = np.random.default_rng(3)
    scales = np.geomspace(1, condition**0.5, 6)
    X, B = (scales[:, None] * wishart(rng, n, 6) * scales for n in (9, 4))
    alpha = np.tile([0.5, 0.0, 1.0], (4, 1))
    cotangent = rng.standard_normal((9, 4, 3))
    known = ReferenceEngine()
    values, expected = (one.encode(X, B, alpha, 1 - alpha) for one in (engine, known))
    np.testing.assert_allclose(values, expected, rtol=1e-10)
    found, right = (
        one.pullback(X, B, alpha, 1 - alpha, cotangent, parameters=False).whitened
        for one in (engine, known)
    )
    np.testing.assert_allclose(found, right, atol=1e-10 * np.abs(right).max())


@every_other
@pytest.mark.parametrize("d", DIMENSIONS)
def test_spectra(engine, d):
    X, B, _ = problem(d)
    t, t_error, _ = truth(d)
    computed = engine.spectra(X, B)
    assert computed.shape == (*sizes(d), d)
    assert computed.dtype == np.float64
    assert (np.diff(computed, axis=-1) >= 0).all()
    assert_within(np.abs(computed - t), t_error)


@every_other
@pytest.mark.parametrize("d", DIMENSIONS)
def test_encode(engine, d):
    X, B, _ = problem(d)
    values = engine.encode(X, B, *POINTS.T)
    assert values.shape == sizes(d)
    assert_within(np.abs(values - truth(d)[2].values), allowed_value_error(d))


@cache
def allowed_value_error(d: int, name: str = "f") -> np.ndarray:
    X, B, _ = problem(d)
    t, t_error, _ = truth(d)
    return value_error(X, B, t, t_error, POINTS, name)


@cache
def allowed_gradient_error(d: int) -> np.ndarray:
    X, B, cotangent = problem(d)
    t, t_error, _ = truth(d)
    # Without eigenvectors, (N^-1 - B^-1)/alpha has the error of an inverse over alpha beta.
    condition = scaled_condition(X)[:, None] + scaled_condition(B)
    product = np.abs(POINTS.prod(axis=1))
    direct = d**1.5 * EPS * condition / np.where(product == 0, 1, product)
    first, second = (p[None, :, None] for p in POINTS.T)
    error = gradient_error(t, first, second, t_error) + direct
    return (np.abs(cotangent) * error).sum(axis=0)


@every_other
@pytest.mark.parametrize(
    ("d", "with_parameters"),
    [*((d, True) for d in DIMENSIONS), *((d, False) for d in DIMENSIONS[::3])],
)
def test_pullback(engine, d, with_parameters):
    X, B, cotangent = problem(d)
    right, allowed = truth(d)[2], allowed_gradient_error(d)
    back = engine.pullback(X, B, *POINTS.T, cotangent, parameters=with_parameters, values=True)
    short = engine.pullback(X, B, *POINTS.T, cotangent, parameters=with_parameters)
    assert short.values is None
    assert_within(np.abs(back.values - right.values), allowed_value_error(d))
    for one in (back, short):
        assert np.array_equal(one.atoms, one.atoms.mT)
        assert_within(frobenius(one.whitened - right.whitened), allowed)
        assert_within(frobenius(in_frame_of(B, one.atoms - right.atoms)), allowed)
        rounding = d * EPS * scaled_condition(B) * frobenius(one.whitened)
        gap = frobenius(in_frame_of(B, one.atoms) - one.whitened)
        assert_within(gap, 2 * rounding)
    if not with_parameters:
        assert back.alpha is None
        assert back.beta is None
        return
    for name in ("alpha", "beta"):
        errors = np.abs(cotangent) * allowed_value_error(d, f"f_{name}")
        gap = np.abs(getattr(back, name) - getattr(right, name))
        assert_within(gap, errors.sum(axis=0))


def part(d: int, n_matrices: int, n_atoms: int) -> tuple[np.ndarray, ...]:
    """The first matrices of a problem, and some atoms."""
    X, B, cotangent = problem(d)
    some = slice(3, 3 + n_atoms)
    return X[:n_matrices], B[some], cotangent[:n_matrices, some]


@cache
def truth_of_part(d: int, n_matrices: int, n_atoms: int, point: tuple[float, float]):
    X, B, cotangent = part(d, n_matrices, n_atoms)
    return ReferenceEngine(1).pullback(X, B, *point, cotangent, values=True)


@every_other
@pytest.mark.parametrize(("n_matrices", "n_atoms"), [(1, 3), (2, 1), (7, 3), (8, 1), (9, 3)])
@pytest.mark.parametrize("d", [3, 8])
def test_any_number_of_matrices(engine, d, n_matrices, n_atoms):
    """Padding of the last group of lanes must not leak into anything."""
    X, B, cotangent = part(d, n_matrices, n_atoms)
    t = truth(d)[0][:n_matrices, 3 : 3 + n_atoms]
    t_error = 2 * log_eigenvalue_error(X, B, t)
    # Not bit by bit: lanes side by side iterate until the slowest of them is done.
    assert_within(np.abs(engine.spectra(X, B) - t), t_error)
    for point in ((0.5, 0.5), (0.0, 1.0), (1.0, 0.0), (0.2, 0.9)):
        right = truth_of_part(d, n_matrices, n_atoms, point)
        points = np.repeat([point], n_atoms, axis=0)
        gap = np.abs(engine.encode(X, B, *point) - right.values)
        assert_within(gap, value_error(X, B, t, t_error, points))
        for with_parameters in (True, False):
            back = engine.pullback(X, B, *point, cotangent, parameters=with_parameters)
            direct = d**1.5 * EPS * (scaled_condition(X)[:, None] + scaled_condition(B)) * 6
            allowed = np.abs(cotangent) * (gradient_error(t, *point, t_error) + direct)
            error = frobenius(back.whitened - right.whitened)
            assert_within(error, allowed.sum(axis=0))


@every_instruction_set
@pytest.mark.parametrize("d", [8])
def test_several_pairs_per_atom(engine, d):
    X, B, _ = problem(d)
    X, B = X[:9], B[:3]
    alpha, beta = np.broadcast_to(POINTS.T[:, None, :], (2, 3, len(POINTS)))
    cotangent = np.random.default_rng(1).standard_normal((len(X), 3, len(POINTS)))
    values = engine.encode(X, B, alpha, beta)
    back = engine.pullback(X, B, alpha, beta, cotangent, values=True)
    assert values.shape == back.values.shape == (len(X), 3, len(POINTS))
    assert back.alpha.shape == back.beta.shape == (3, len(POINTS))
    t = engine.spectra(X, B)
    t_error = 2 * log_eigenvalue_error(X, B, t)
    whitened, allowed = 0.0, 0.0
    for k, point in enumerate(POINTS):
        points = np.repeat([point], 3, axis=0)
        one = ReferenceEngine(1).pullback(X, B, *point, cotangent[..., k], values=True)
        error = value_error(X, B, t, t_error, points)
        assert_within(np.abs(values[..., k] - one.values), error)
        assert_within(np.abs(back.values[..., k] - one.values), error)
        for name in ("alpha", "beta"):
            weighted = np.abs(cotangent[..., k]) * value_error(
                X, B, t, t_error, points, f"f_{name}"
            )
            gap = np.abs(getattr(back, name)[:, k] - getattr(one, name))
            assert_within(gap, weighted.sum(axis=0))
        whitened = whitened + one.whitened
        errors = np.abs(cotangent[..., k]) * gradient_error(t, *point, t_error)
        allowed = allowed + errors.sum(axis=0)
    assert_within(frobenius(back.whitened - whitened), allowed)


def test_one_number_serves_all_atoms(engine):
    X, B, cotangent = problem(5)
    n = len(B)
    values = engine.encode(X, B, 0.3, 0.4)
    assert np.array_equal(values, engine.encode(X, B, [0.3] * n, np.full(n, 0.4)))
    assert np.array_equal(values, engine.encode(X, B, 0.3, np.full((n, 1), 0.4))[..., 0])
    back = engine.pullback(X, B, 0.3, 0.4, cotangent)
    assert back.alpha.shape == back.beta.shape == (n,)


def test_pullback_is_the_derivative_of_encode(engine):
    """Differences of one verb against the other, on the same engine."""
    X, B, cotangent = problem(5)
    alpha, beta = np.abs(POINTS.T) + 0.2
    back = engine.pullback(X, B, alpha, beta, cotangent)
    rng = np.random.default_rng(2)
    S = rng.standard_normal(B.shape)
    S = S + S.mT
    h = EPS ** (1 / 3)  # truncation h^2 and cancellation eps/h balance

    def objective(step_B, step_alpha, step_beta):
        values = engine.encode(X, B + step_B * S, alpha + step_alpha, beta + step_beta)
        return (cotangent * values).sum(axis=0)

    for steps, slope in (
        ((h, 0, 0), (back.atoms * S).sum(axis=(1, 2))),
        ((0, h, 0), back.alpha),
        ((0, 0, h), back.beta),
    ):
        difference = (objective(*steps) - objective(*(-s for s in steps))) / (2 * h)
        scale = np.abs(cotangent).sum(axis=0) * (1 + np.abs(slope).max())
        # third derivatives along S grow with the cube of |B^-1 S|, at most about 1e3 here
        assert_within(np.abs(difference - slope), 1e3 * h**2 * scale)


# --- accuracy routes, types, and where results go -------------------------------------------------


@pytest.mark.parametrize("accuracy", ["auto", "accurate"])
@pytest.mark.parametrize("kind", ["ordinary", "low rank", "clustered", "graded", "on the line"])
@pytest.mark.parametrize(
    ("engine_name", "d"),  # Jacobi in NumPy takes long
    [(name, d) for name in engine_names() for d in (5, 12, 40) if name in COMPILED or d < 12],
)
def test_traces_are_values_and_gradients(engine_name, kind, d, accuracy):
    """The first gradient of a trace goes on from what it kept, the second one starts anew."""
    rng = np.random.default_rng(d)
    X, B = wishart(rng, 9, d), wishart(rng, 4, d)
    if kind == "low rank":
        X = wishart(rng, 9, d, 2) + 1e-6 * np.eye(d)
    elif kind == "clustered":
        X[3:] = B[0] + 1e-13 * X[3:]
    elif kind == "graded":
        X = X * np.outer(*2 * [10.0 ** -np.arange(d % 7).repeat(d)[:d]])
    alpha, beta = (0.4, 0.6) if kind == "on the line" else (np.array([0.7, 1.0, 0.0, 2.0]), 0.9)
    engine = make_engine(engine_name, accuracy=accuracy)
    data, weights = engine.keep(X), rng.standard_normal((9, 4))
    there = engine.place(weights, data)
    values, pull = engine.trace(data, B, alpha, beta)
    right = engine.encode(X, B, alpha, beta)
    assert_allclose(to_host(values), right, rtol=1e-12)
    for parameters in (True, False):
        back = engine.pullback(X, B, alpha, beta, weights, parameters=parameters)
        whitened, *slopes = pull(there, parameters)
        scale = np.abs(back.whitened).max()
        assert_allclose(to_host(whitened), back.whitened, atol=1e-9 * scale)
        for found, wanted in zip(slopes, (back.alpha, back.beta), strict=True):
            assert (found is None) == (wanted is None) == (not parameters)
            if parameters:
                assert_allclose(to_host(found), wanted, rtol=1e-9, atol=1e-12)


def test_usable_atoms(engine):
    rng = np.random.default_rng(0)
    B = wishart(rng, 4, 6)
    data = engine.keep(B)
    assert engine.usable(engine.place(B, data))
    flat = B.copy()
    flat[2] = B[2, 0][:, None] * B[2, 0] / B[2, 0, 0]  # of rank one
    for spoiled in (flat, -B, np.where(np.eye(6) > 0, np.nan, B)):
        assert not engine.usable(engine.place(spoiled, data))


@cache
def logarithms_of(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Matrices and their logarithms, from 50 digits."""
    d, rng = 6, np.random.default_rng(3)
    X = wishart(rng, 11, d)
    if kind == "low rank":
        X = wishart(rng, 11, d, 2) + 1e-6 * np.eye(d)
    elif kind == "graded":
        X = X * np.outer(*2 * [10.0 ** np.array([-9, 0, -3, 2, -6, 1])])
    elif kind == "identity":
        X[4:] = 3 * np.eye(d)
    exact = np.empty_like(X)
    for one, log in zip(X, exact, strict=True):
        with mpmath.workdps(50):
            values, vectors = mpmath.eigsy(mpmath.matrix(one.tolist()))
            product = vectors * mpmath.diag([mpmath.log(value) for value in values]) * vectors.T
        log[:] = np.array(product.tolist(), dtype=float)
    return X, exact


@every_instruction_set
@pytest.mark.parametrize("kind", ["ordinary", "low rank", "graded", "identity"])
def test_logarithms_in_high_precision(engine_name, kind):
    X, exact = logarithms_of(kind)
    for one, right, log in zip(X, exact, make_engine(engine_name).logarithms(X), strict=True):
        allowed = 6 * len(one) * EPS * (scaled_condition(one) + np.abs(log).max())
        assert np.abs(log - right).max() <= allowed


@every_instruction_set
@pytest.mark.parametrize("d", [1, 2, 29, 70])
def test_logarithms_of_many(engine_name, d):
    X = wishart(np.random.default_rng(d), 101, d, 4 * d)
    found = make_engine(engine_name).logarithms(X)
    assert np.array_equal(found, found.mT)
    assert_allclose(expm(found), X, rtol=0, atol=1e-12)


@pytest.mark.parametrize("accuracy", ["auto", "accurate", "fast"])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_accuracy_routes_agree_on_ordinary_data(engine_name, accuracy, d):
    engine = make_engine(engine_name, accuracy=accuracy)
    assert engine.accuracy == accuracy
    X, B, cotangent = problem(d)
    t, t_error, right = truth(d)
    assert_within(np.abs(engine.spectra(X, B) - t), t_error)
    back = engine.pullback(X, B, *POINTS.T, cotangent)
    first, second = (p[None, :, None] for p in POINTS.T)
    allowed = np.abs(cotangent) * gradient_error(t, first, second, t_error)
    assert_within(frobenius(back.whitened - right.whitened), allowed.sum(axis=0))


@pytest.mark.parametrize("d", [2, 5, 8, 18])
def test_accurate_route_is_needed_and_taken(engine_name, d):
    """The eigenvalues of a diagonal pencil are known: quotients of the entries."""
    rng = np.random.default_rng(d)
    values = np.exp2(np.linspace(0, 40, d).round())
    rotation = wishart(rng, 1, d)[0]
    factor = np.linalg.cholesky(rotation)
    X = (factor * values) @ factor.T  # X = L D L^T against L L^T has the spectrum D
    X, B = 0.5 * (X + X.T)[None], (factor @ factor.T)[None]
    auto, fast, accurate = (
        make_engine(engine_name, accuracy=a).spectra(X, B)[0, 0]
        for a in ("auto", "fast", "accurate")
    )
    right = np.log(values)
    exact_to = log_eigenvalue_error(X, B, right[None, None], limit=1.0)[0, 0]
    assert_within(np.abs(auto - right), exact_to)
    assert_within(np.abs(accurate - right), exact_to)
    loose = log_eigenvalue_error(X, B, right[None, None], limit=np.inf)[0, 0]
    assert_within(np.abs(fast - right)[right > 20 * np.log(2)], loose)
    assert np.isfinite(fast).all()


@pytest.mark.parametrize("accuracy", [1e-10, 1e-6, 1e-3])
def test_accuracy_as_a_number_is_kept(engine_name, accuracy):
    """Of spectra that span from 1e2 to 1e14 each errs by about the number at most."""
    rng = np.random.default_rng(0)
    factor = np.linalg.cholesky(wishart(rng, 1, 6)[0])
    # Sixteen of each kind: matrices that share a vector register share the route.
    values = np.stack([np.geomspace(1, 10.0**k, 6) for k in range(2, 15) for _ in range(16)])
    X = (factor * values[:, None, :]) @ factor.T
    X, B = 0.5 * (X + X.mT), (factor @ factor.T)[None]
    exact, found = (
        make_engine(engine_name, accuracy=a).spectra(X, B)[:, 0] for a in ("accurate", accuracy)
    )
    assert 1e-5 * accuracy < np.abs(found - exact).max() < 10 * accuracy


def test_float32(engine):
    for d in (2, 5, 18):
        X, B, cotangent = problem(d)
        X32, B32 = X.astype(np.float32), B.astype(np.float32)
        exact = ReferenceEngine(1).pullback(
            X32.astype(np.float64), B32.astype(np.float64), *POINTS.T, cotangent, values=True
        )
        back = engine.pullback(X32, B32, *POINTS.T, cotangent, values=True)
        small = np.finfo(np.float32).eps
        assert engine.spectra(X32, B32).dtype == np.float32
        values = engine.encode(X32, B32, *POINTS.T)
        assert values.dtype == np.float32
        # The work is done in double precision: one rounding is left.
        np.testing.assert_allclose(values, exact.values, rtol=2 * small)
        np.testing.assert_allclose(back.values, exact.values, rtol=2 * small)
        for name in ("atoms", "whitened", "alpha", "beta"):
            computed, right = getattr(back, name), getattr(exact, name)
            assert computed.dtype == np.float32
            np.testing.assert_allclose(
                computed, right, rtol=2 * small, atol=small * np.abs(right).max()
            )


def test_out_is_filled_and_returned(engine, tmp_path):
    X, B, _ = problem(5)
    shape = (len(X), len(B))
    right = engine.encode(X, B, *POINTS.T)
    plain = np.full(shape, np.nan)
    assert engine.encode(X, B, *POINTS.T, out=plain) is plain
    assert np.array_equal(plain, right)

    mapped = np.memmap(tmp_path / "table", np.float64, "w+", shape=shape)
    engine.encode(X, B, *POINTS.T, out=mapped)
    mapped.flush()
    assert np.array_equal(np.fromfile(tmp_path / "table").reshape(shape), right)

    strided = np.full((len(X), 2 * len(B)), -7.0)
    engine.encode(X, B, *POINTS.T, out=strided[:, ::2])
    assert np.array_equal(strided[:, ::2], right)
    assert (strided[:, 1::2] == -7).all()

    transposed = np.empty(shape[::-1]).T
    engine.encode(X, B, *POINTS.T, out=transposed)
    assert np.array_equal(transposed, right)

    small = np.empty(shape, np.float32)
    engine.encode(X, B, *POINTS.T, out=small)
    assert np.array_equal(small, right.astype(np.float32))

    pairs, alpha = np.full((len(X), len(B), 4), np.nan)[..., ::2], np.full((len(B), 2), 0.3)
    engine.encode(X, B, alpha, 0.4, out=pairs)
    assert np.array_equal(pairs, engine.encode(X, B, alpha, 0.4))


def _frozen(shape):
    out = np.empty(shape)
    out.flags.writeable = False
    return out


@pytest.mark.parametrize(
    "make",
    [
        lambda shape: np.empty(shape[::-1]),
        lambda shape: np.empty(shape[:1]),
        lambda shape: np.empty(shape, int),
        lambda shape: np.empty(shape, complex),
        _frozen,
    ],
    ids=["transposed", "flat", "integer", "complex", "read-only"],
)
def test_out_of_the_wrong_kind(engine, make):
    X, B, _ = problem(5)
    with pytest.raises(ValueError, match=r"out has shape .* must be a writeable .*\(37, 11\)"):
        engine.encode(X, B, *POINTS.T, out=make((len(X), len(B))))


# --- identical results ----------------------------------------------------------------------------


def everything(engine, d: int):
    X, B, cotangent = problem(d)
    long = engine.pullback(X, B, *POINTS.T, cotangent, values=True)
    short = engine.pullback(X, B, *POINTS.T, cotangent, parameters=False)
    return [
        engine.spectra(X, B),
        engine.encode(X, B, *POINTS.T),
        long.atoms,
        long.whitened,
        long.alpha,
        long.beta,
        long.values,
        short.atoms,
        short.whitened,
    ]


@pytest.mark.parametrize("d", [5, 18])
def test_runs_are_identical(engine, d):
    first, second = everything(engine, d), everything(engine, d)
    assert all(np.array_equal(x, y) for x, y in zip(first, second, strict=True))


@pytest.mark.parametrize("d", [5, 18])
def test_threads_do_not_change_a_bit(engine_name, d):
    alone = everything(make_engine(engine_name, 1), d)
    for n_threads in (2, 3):
        again = everything(make_engine(engine_name, n_threads), d)
        for x, y in zip(alone, again, strict=True):
            if engine_name.startswith(COMPILED):
                assert np.array_equal(x, y)
            else:  # BLAS cuts its products by the number of threads
                np.testing.assert_allclose(x, y, rtol=0, atol=d**2 * EPS * np.abs(x).max())


def test_threads_do_not_change_a_bit_when_there_is_work_for_them(engine_name):
    """Enough data to be cut into calls, blocks and partial sums."""
    rng = np.random.default_rng(3)
    n = 20000 if engine_name.startswith(COMPILED) else 500
    X, B = wishart(rng, n, 5), wishart(rng, 3, 5)
    cotangent = rng.standard_normal((n, 3))
    answers = []
    for n_threads in (1, 2, 3, 2):
        engine = make_engine(engine_name, n_threads)
        back = engine.pullback(X, B, [0.0, 0.5, 0.8], [1.0, 0.5, 0.9], cotangent)
        values = engine.encode(X, B, [0.0, 0.5, 0.8], [1.0, 0.5, 0.9])
        answers.append((back.atoms, back.alpha, back.beta, values))
    for other in answers[1:]:
        assert all(np.array_equal(x, y) for x, y in zip(answers[0], other, strict=True))


def test_two_python_threads_at_once(engine):
    X, B, _ = problem(8)
    prepared = engine.prepare(X)
    right = engine.encode(X, B, *POINTS.T)
    wrong = []

    def work():
        for _ in range(5):
            if not np.array_equal(engine.encode(prepared, B, *POINTS.T), right):
                wrong.append(True)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
