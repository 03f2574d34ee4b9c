"""The three verbs on every engine: against the reference, at their edges, and their manners."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from functools import cache

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
    propagated,
    rotated,
    scaled_condition,
    wishart,
)
from oracle.high_precision import Pair

from divlearn.engines import Engine, ReferenceEngine, available_engines, get_engine
from divlearn.spectral import abld_scalar

DIMENSIONS = (1, 2, 3, 4, 5, 7, 8, 9, 16, 18, 23, 29, 33, 42, 65, 102)
# One atom per kind of member: every route of an engine in one call.
POINTS = np.array([
    (0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (0.5, 0.5), (0.3, 0.7), (1.0, 1.0), (0.0, 0.7), (1.3, 0.0),
    (0.8, 0.4), (-0.4, -0.9), (-0.5, -0.5),
])  # fmt: skip
has_native = "native" in available_engines()


def sizes(d: int) -> tuple[int, int]:
    """Numbers of matrices and of atoms: not multiples of any number of lanes."""
    return (37, len(POINTS)) if d <= 8 else (9, len(POINTS))


@cache
def problem(d: int):
    rng = np.random.default_rng(100 + d)
    n_matrices, n_atoms = sizes(d)
    X, B = wishart(rng, n_matrices, d), wishart(rng, n_atoms, d)
    cotangent = rng.standard_normal((n_matrices, n_atoms))
    return X, B, cotangent


@cache
def truth(d: int):
    """The reference engine's answers and the error any engine may have."""
    X, B, cotangent = problem(d)
    engine = ReferenceEngine(1)
    t = engine.spectra(X, B)
    back = engine.pullback(X, B, *POINTS.T, cotangent, values=True)
    t_error = 2 * log_eigenvalue_error(X, B, t)  # both engines err
    return t, t_error, back


def value_error(X, B, t, t_error, points, name: str = "f"):
    """Rounding and, where an engine may subtract logarithms instead, their absolute error."""
    alpha, beta = (p[None, :, None] for p in points.T)
    product = np.abs(alpha * beta)[..., 0]
    trace = (product == 0) & (np.abs(alpha + beta)[..., 0] == 1)
    line = trace | (np.abs(np.abs(alpha + beta)[..., 0] - 1) <= EPS)
    condition = scaled_condition(X)[:, None] + scaled_condition(B)[None, :]
    absolute = X.shape[-1] * EPS * np.where(line, condition, 1)
    scale = np.where(trace, 1.0, np.where(product > 0, 1 / np.maximum(product, 0.01), 0.0))
    if name != "f":
        least = np.minimum(np.abs(alpha), np.abs(beta))[..., 0]
        scale = np.where(product > 0, scale / np.maximum(least, 0.1), 0.0)
    return propagated(name, t, alpha, beta, t_error) + 2 * absolute * scale


# --- against the reference ------------------------------------------------------------------------


@pytest.mark.parametrize("d", DIMENSIONS)
def test_spectra(engine, d):
    X, B, _ = problem(d)
    t, t_error, _ = truth(d)
    computed = engine.spectra(X, B)
    assert computed.shape == (*sizes(d), d)
    assert computed.dtype == np.float64
    assert (np.diff(computed, axis=-1) >= 0).all()
    assert_within(np.abs(computed - t), t_error)


@pytest.mark.parametrize("d", DIMENSIONS)
def test_encode(engine, d):
    X, B, _ = problem(d)
    t, t_error, back = truth(d)
    values = engine.encode(X, B, *POINTS.T)
    assert values.shape == sizes(d)
    assert_within(np.abs(values - back.values), value_error(X, B, t, t_error, POINTS))


@pytest.mark.parametrize("with_parameters", [True, False])
@pytest.mark.parametrize("d", DIMENSIONS)
def test_pullback(engine, d, with_parameters):
    X, B, cotangent = problem(d)
    t, t_error, right = truth(d)
    back = engine.pullback(X, B, *POINTS.T, cotangent, parameters=with_parameters, values=True)
    short = engine.pullback(X, B, *POINTS.T, cotangent, parameters=with_parameters)
    assert short.values is None
    assert_within(np.abs(back.values - right.values), value_error(X, B, t, t_error, POINTS))

    # Without eigenvectors, (N^-1 - B^-1)/alpha has the error of an inverse over alpha beta.
    weight, condition = np.abs(cotangent), scaled_condition(X)[:, None] + scaled_condition(B)
    product = np.abs(POINTS.prod(axis=1))
    direct = d**1.5 * EPS * condition / np.where(product == 0, 1, product)
    first, second = (p[None, :, None] for p in POINTS.T)
    allowed = (weight * (gradient_error(t, first, second, t_error) + direct)).sum(axis=0)
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
        errors = value_error(X, B, t, t_error, POINTS, f"f_{name}")
        gap = np.abs(getattr(back, name) - getattr(right, name))
        assert_within(gap, (weight * errors).sum(axis=0))


@pytest.mark.parametrize("n_atoms", [1, 3])
@pytest.mark.parametrize("n_matrices", [1, 2, 7, 8, 9, 37])
@pytest.mark.parametrize("d", [3, 8])
def test_any_number_of_matrices(engine, d, n_matrices, n_atoms):
    """Padding of the last group of lanes must not leak into anything."""
    X, B, cotangent = problem(d)
    X, B, cotangent = X[:n_matrices], B[3 : 3 + n_atoms], cotangent[:n_matrices, 3 : 3 + n_atoms]
    t = truth(d)[0][:n_matrices, 3 : 3 + n_atoms]
    t_error = 2 * log_eigenvalue_error(X, B, t)
    # Not bit by bit: lanes side by side iterate until the slowest of them is done.
    assert_within(np.abs(engine.spectra(X, B) - t), t_error)
    for point in ((0.5, 0.5), (0.0, 1.0), (1.0, 0.0), (0.2, 0.9)):
        right = ReferenceEngine(1).pullback(X, B, *point, cotangent, values=True)
        points = np.repeat([point], n_atoms, axis=0)
        gap = np.abs(engine.encode(X, B, *point) - right.values)
        assert_within(gap, value_error(X, B, t, t_error, points))
        for with_parameters in (True, False):
            back = engine.pullback(X, B, *point, cotangent, parameters=with_parameters)
            direct = d**1.5 * EPS * (scaled_condition(X)[:, None] + scaled_condition(B)) * 6
            allowed = np.abs(cotangent) * (gradient_error(t, *point, t_error) + direct)
            error = frobenius(back.whitened - right.whitened)
            assert_within(error, allowed.sum(axis=0))


@pytest.mark.parametrize("d", [2, 8])
def test_several_pairs_per_atom(engine, d):
    X, B, _ = problem(d)
    B = B[:3]
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


@pytest.mark.parametrize("accuracy", ["auto", "accurate", "fast"])
@pytest.mark.parametrize("d", [1, 2, 5, 9])
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

    pairs = np.full((len(X), len(B), 4), np.nan)[..., ::2]
    engine.encode(X, B, np.full((len(B), 2), 0.3), 0.4, out=pairs)
    assert np.array_equal(pairs[..., 0], engine.encode(X, B, 0.3, 0.4))


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
        engine.spectra(X, B), engine.encode(X, B, *POINTS.T), long.atoms, long.whitened, long.alpha,
        long.beta, long.values, short.atoms, short.whitened,
    ]  # fmt: skip


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
            if engine_name == "reference":  # BLAS cuts its products by the number of threads
                np.testing.assert_allclose(x, y, rtol=0, atol=d**2 * EPS * np.abs(x).max())
            else:
                assert np.array_equal(x, y)


def test_threads_do_not_change_a_bit_when_there_is_work_for_them(engine_name):
    """Enough data to be cut into calls, blocks and partial sums."""
    rng = np.random.default_rng(3)
    n = 500 if engine_name == "reference" else 20000
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
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert not wrong


# --- degenerate and extreme pencils ---------------------------------------------------------------


def degenerate(kind: str, d: int):
    """Matrices, an atom and the log-eigenvalues they have by construction."""
    rng = np.random.default_rng(d)
    B = wishart(rng, 1, d)
    if kind == "equal":
        return B.repeat(9, axis=0), B, np.zeros((9, d))
    if kind == "multiple":
        scale = np.exp2(np.arange(-4, 5))
        return scale[:, None, None] * B, B, np.log(scale)[:, None].repeat(d, axis=1)
    if kind == "diagonal":
        X, B = rng.uniform(0.5, 2, (9, d)), rng.uniform(0.5, 2, (1, d))
        return X[:, :, None] * np.eye(d), B[:, :, None] * np.eye(d), np.sort(np.log(X / B))
    values = np.ones((9, d))
    if kind == "repeated":
        values[:, : d // 2] = 4.0
    else:  # a cluster
        values *= 1 + 1e-12 * np.arange(d)
    factor = np.linalg.cholesky(B[0])
    X = (factor * values[:, None, :]) @ factor.T
    return 0.5 * (X + X.mT), B, np.sort(np.log(values))


@pytest.mark.parametrize("d", [1, 2, 3, 8, 18, 33])
@pytest.mark.parametrize("kind", ["equal", "multiple", "diagonal", "repeated", "cluster"])
def test_degenerate_spectra(engine, kind, d):
    X, B, t = degenerate(kind, d)
    t_error = log_eigenvalue_error(X, B, t[:, None])
    computed = engine.spectra(X, B)
    assert_within(np.abs(computed[:, 0] - t), t_error[:, 0])
    cotangent = np.ones((len(X), 1))
    for point in ((0.0, 0.0), (0.5, 0.5), (0.7, 1.1), (0.0, 1.0)):
        right = abld_scalar(t, *point)
        for with_parameters in (True, False):
            back = engine.pullback(X, B, *point, cotangent, parameters=with_parameters)
            # The trace of the whitened gradient is -sum f_t: no eigenvector enters.
            allowed = gradient_error(t[:, None], *point, t_error).sum() * np.sqrt(d)
            if not with_parameters and sum(point) == 1:
                allowed += len(X) * d**2 * EPS * 2 * scaled_condition(B)[0] * 4
            assert abs(np.trace(back.whitened[0]) + right.f_t.sum()) <= allowed
            assert np.isfinite(back.atoms).all()
        back = engine.pullback(X, B, *point, cotangent)
        points = np.array([point])
        for name in ("alpha", "beta"):
            allowed = value_error(X, B, t[:, None], t_error, points, f"f_{name}").sum()
            assert abs(getattr(back, name)[0] - getattr(right, f"f_{name}").sum()) <= allowed


@pytest.mark.parametrize("x_scale", [1e-150, 1e-100, 1.0, 1e100, 1e150])
@pytest.mark.parametrize("b_scale", [1e-150, 1e-100, 1.0, 1e100, 1e150])
def test_scales_only_shift_the_spectrum(engine, x_scale, b_scale):
    X, B, _ = problem(5)
    t, t_error, _ = truth(5)
    shift = np.log(x_scale) - np.log(b_scale)
    computed = engine.spectra(X * x_scale, B * b_scale)
    # Scaling rounds every entry (one eps each side), and t is larger.
    allowed = 2 * t_error + 4 * EPS * abs(shift)
    assert_within(np.abs(computed - shift - t), allowed)


@pytest.mark.parametrize("scale", [1e-150, 1e-100, 1e100, 1e150])
def test_common_scale_changes_no_divergence(engine, scale):
    X, B, cotangent = problem(5)
    t, t_error, right = truth(5)
    back = engine.pullback(X * scale, B * scale, *POINTS.T, cotangent, values=True)
    allowed = 2 * value_error(X, B, t, t_error, POINTS)
    assert_within(np.abs(engine.encode(X * scale, B * scale, *POINTS.T) - right.values), allowed)
    assert_within(np.abs(back.values - right.values), allowed)
    first, second = (p[None, :, None] for p in POINTS.T)
    errors = np.abs(cotangent) * gradient_error(t, first, second, 2 * t_error)
    assert_within(frobenius(back.whitened - right.whitened), errors.sum(axis=0))
    gap = in_frame_of(B, back.atoms * scale - right.atoms)
    assert_within(frobenius(gap), errors.sum(axis=0))


EXTREMES = {
    "wide": (np.diag([1e-150, 1e150]), np.eye(2)),
    "wide-atom": (np.eye(2), np.diag([1e-150, 1e150])),
    "crossed": (np.diag([1e-150, 1e150]), np.diag([1e150, 1e-150])),
    "far": (1e150 * np.eye(2), 1e-150 * np.eye(2)),
    "far-back": (1e-150 * np.eye(2), 1e150 * np.eye(2)),
    "tiny": (1e-300 * np.eye(2), 1e-300 * np.diag([1.0, 2.0])),
    "huge": (1e300 * np.eye(2), 1e300 * np.diag([1.0, 2.0])),
}


EXTREME_POINTS = [*POINTS.tolist(), [20, 20], [1e-8, 1e-8], [5, 0], [0, 5]]


@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_spectra_and_divergences(engine, name):
    X, B = (matrix[None] for matrix in EXTREMES[name])
    right = np.sort(np.log(np.diag(X[0]) / np.diag(B[0])))
    assert_within(np.abs(engine.spectra(X, B)[0, 0] - right), 4 * EPS * np.abs(right).max())
    for alpha, beta in EXTREME_POINTS:
        value = engine.encode(X, B, alpha, beta)[0, 0]
        exact = abld_scalar(right, alpha, beta).f.sum()
        rounding = propagated("f", right, alpha, beta, 4 * EPS * np.abs(right).max())
        overflow = np.isinf(exact) and np.isinf(value)
        assert overflow or abs(value - exact) <= 2 * rounding, (alpha, beta, value, exact)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("with_parameters", [True, False])
@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_gradients_are_never_nan(engine, name, with_parameters):
    """What exceeds the range of floating-point numbers is infinite."""
    X, B = (matrix[None] for matrix in EXTREMES[name])
    found = []
    for alpha, beta in EXTREME_POINTS:
        back = engine.pullback(X, B, alpha, beta, [[1.0]], parameters=with_parameters, values=True)
        results = vars(back).items()
        found += [
            f"{which} at ({alpha:g}, {beta:g})"
            for which, array in results
            if array is not None and np.isnan(array).any()
        ]
    assert found == []


@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_gradients_at_the_origin(engine, name):
    """f_t = t, so nothing overflows: -diag(t) in the frame of the atom, in the order of B."""
    X, B = (matrix[None] for matrix in EXTREMES[name])
    t = np.log(np.diag(X[0]) / np.diag(B[0]))
    back = engine.pullback(X, B, 0, 0, [[1.0]])
    np.testing.assert_allclose(back.whitened[0], -np.diag(t), rtol=8 * EPS, atol=4 * EPS)
    unit = np.diag(B[0])
    np.testing.assert_allclose(np.diag(back.atoms[0]) * unit, -t, rtol=8 * EPS, atol=4 * EPS)
    allowed = 16 * EPS * np.abs(t).max() * (t**2).sum() + EPS**3  # cubes may cancel
    assert_within(abs(back.beta[0] - (t**3).sum() / 6), allowed)


# --- preparing, passing on, pickling --------------------------------------------------------------


def test_prepared_data_is_taken_back(engine):
    X, B, cotangent = problem(8)
    prepared = engine.prepare(X)
    assert (prepared.n_matrices, prepared.d, prepared.dtype) == (37, 8, np.float64)
    assert prepared.engine == engine.name
    assert engine.prepare(prepared) is prepared
    assert np.array_equal(prepared.matrices, X)
    assert np.array_equal(engine.spectra(prepared, B), engine.spectra(X, B))
    assert np.array_equal(engine.encode(prepared, B, 0.4, 1), engine.encode(X, B, 0.4, 1))
    first, second = (engine.pullback(data, B, 0.4, 1, cotangent) for data in (prepared, X))
    assert np.array_equal(first.atoms, second.atoms)


@pytest.mark.parametrize("other", engine_names())
def test_prepared_data_passes_between_engines(engine, other):
    X, B, _ = problem(8)
    foreign = make_engine(other).prepare(X)
    assert np.array_equal(engine.encode(foreign, B, *POINTS.T), engine.encode(X, B, *POINTS.T))


def test_pickling(engine):
    X, B, _ = problem(8)
    again = pickle.loads(pickle.dumps(engine))
    assert repr(again) == repr(engine)
    prepared = pickle.loads(pickle.dumps(engine.prepare(X)))
    assert np.array_equal(prepared.matrices, X)
    right = engine.encode(X, B, *POINTS.T)
    assert np.array_equal(again.encode(prepared, B, *POINTS.T), right)


def test_prepare_copies(engine):
    X, B, _ = problem(5)
    changing = X.copy()
    prepared = engine.prepare(changing)
    right = engine.encode(X, B, 0.5, 0.5)
    changing[:] = np.eye(5)
    assert np.array_equal(engine.encode(prepared, B, 0.5, 0.5), right)


# --- errors ---------------------------------------------------------------------------------------


def test_errors_of_the_verbs(engine):
    X, B, cotangent = problem(3)
    n = len(B)
    with pytest.raises(ValueError, match=r"atoms are 5 by 5, but the data is 3 by 3"):
        engine.encode(X, problem(5)[1], 0.5, 0.5)
    with pytest.raises(ValueError, match=r"X has shape \(3, 3\), expected \(n_matrices, d, d\)"):
        engine.spectra(X[0], B)
    with pytest.raises(ValueError, match=r"atoms has shape \(3, 3\)"):
        engine.spectra(X, B[0])
    bad = X.copy()
    bad[4, 0, 0] = np.nan
    with pytest.raises(ValueError, match=r"X\[4\] has a NaN entry at \(0, 0\)"):
        engine.prepare(bad)
    with pytest.raises(ValueError, match=r"atoms\[2\] is indefinite"):
        engine.spectra(X, np.stack([B[0], B[1], np.eye(3) + np.fliplr(np.diag([2.0, 0.0, 2.0]))]))
    for alpha in (np.full(n + 1, 0.5), np.full((1, n, 1), 0.5), np.full((2, n), 0.5), np.empty(0)):
        with pytest.raises(ValueError, match=r"alpha has shape .* \(n_atoms,\) = \(11,\)"):
            engine.encode(X, B, alpha, 0.5)
    with pytest.raises(ValueError, match=r"alpha\[1\] = nan must be finite"):
        engine.encode(X, B[:2], [0.5, np.nan], 0.5)
    with pytest.raises(ValueError, match=r"beta = inf must be finite"):
        engine.encode(X, B, 0.5, np.inf)
    with pytest.raises(TypeError, match=r"alpha has dtype complex128"):
        engine.encode(X, B, 0.5j, 0.5)
    with pytest.raises(TypeError, match=r"beta has dtype <U"):
        engine.encode(X, B, 0.5, "half")
    with pytest.raises(ValueError, match=r"cotangent has shape \(37,\), .* \(37, 11\)"):
        engine.pullback(X, B, 0.5, 0.5, cotangent[:, 0])
    with pytest.raises(ValueError, match=r"cotangent\[\d+, \d+\] = inf must be finite"):
        engine.pullback(X, B, 0.5, 0.5, np.where(cotangent > 2, np.inf, cotangent))
    with pytest.raises(TypeError, match=r"cotangent has dtype complex128"):
        engine.pullback(X, B, 0.5, 0.5, 1j * cotangent)
    with pytest.raises(ValueError, match=r"alpha = 1e\+160 must be finite, at most 1e\+150"):
        engine.encode(X, B, 1e160, 0.5)
    with pytest.raises(ValueError, match=r"alpha is ragged"):
        engine.encode(X, B, [[0.5], [0.5, 0.5]], 0.5)
    with pytest.raises(TypeError, match=r"out is a list, but must be a NumPy array"):
        engine.encode(X, B, 0.5, 0.5, out=[[0.0]])
    with pytest.raises(ValueError, match=r"out has .*float16"):
        engine.encode(X, B, 0.5, 0.5, out=np.empty((len(X), n), np.float16))
    with pytest.raises(ValueError, match=r"share memory"):
        engine.encode(
            X,
            B,
            0.5,
            0.5,
            out=np.lib.stride_tricks.as_strided(np.empty(n), (len(X), n), (0, 8), writeable=True),
        )


def test_float32_atoms_are_judged_as_float32(engine):
    X = wishart(np.random.default_rng(8), 6, 4).astype(np.float32)
    rounded = X.copy()
    rounded[:, 0, 1] *= 1 + 3e-7  # what rounding to float32 leaves behind
    values = engine.encode(X, rounded, 0.5, 0.7)
    assert values.dtype == np.float32
    with pytest.raises(ValueError, match=r"atoms\[0\] is not symmetric"):
        engine.encode(X, rounded.astype(np.float64), 0.5, 0.7)


def test_float32_results_beyond_its_range_are_infinite_without_a_warning(engine):
    X, B = np.float32(1e30) * np.eye(2, dtype=np.float32), 1e-30 * np.eye(2)
    assert np.isinf(engine.encode(X[None], B[None], 0, 1)).all()


def test_opposite_signs(engine):
    """Inside the domain all is well; outside the eigenvalue is named."""
    X = np.array([np.diag([1.0, 2.0]), np.diag([0.25, 3.0])])
    B = np.array([np.eye(2)])
    value = engine.encode(X[:1], B, 0.3, -0.2)[0, 0]
    assert value == pytest.approx(abld_scalar(np.log([1.0, 2.0]), 0.3, -0.2).f.sum(), rel=10 * EPS)
    # alpha > 0 > beta: lam > |beta/alpha|^(1/theta) = 0.5^(1/0.5) = 0.25 at (1, -0.5)
    message = r"data\[1\] and atoms\[0\] has the eigenvalue 0\.25, .*\(0\.25, inf\)"
    with pytest.raises(ValueError, match=message):
        engine.encode(X, B, 1.0, -0.5)
    with pytest.raises(ValueError, match=message):
        engine.pullback(X, B, 1.0, -0.5, np.ones((2, 1)))
    with pytest.raises(ValueError, match=r"has the eigenvalue 3, .*\(0, 2\.71828\)"):
        engine.encode(X[1:], B, -1.0, 1.0)


@pytest.mark.parametrize(
    ("n_threads", "error"),
    [(0, ValueError), (-1, ValueError), (1.0, TypeError), (True, TypeError), ("2", TypeError)],
)
def test_wrong_n_threads(engine_name, n_threads, error):
    with pytest.raises(error, match=r"n_threads=.* must be"):
        make_engine(engine_name, n_threads)


def test_wrong_accuracy(engine_name):
    with pytest.raises(ValueError, match=r"accuracy='best' must be one of auto, accurate, fast"):
        make_engine(engine_name, accuracy="best")


# --- choosing an engine ---------------------------------------------------------------------------


def test_get_engine():
    assert get_engine("auto").name == available_engines()[0]
    assert get_engine().n_threads == len(os.sched_getaffinity(0))
    reference = get_engine("reference", n_threads=3, accuracy="fast")
    assert (reference.name, reference.n_threads, reference.accuracy) == ("reference", 3, "fast")
    assert get_engine(reference) is reference
    assert isinstance(reference, Engine)
    with pytest.raises(ValueError, match=r"engine='gpu' must be 'auto', 'native' or 'reference'"):
        get_engine("gpu")
    with pytest.raises(ValueError, match=r"n_threads=0 must be >= 1"):
        get_engine("auto", n_threads=0)


@pytest.mark.skipif(not has_native, reason="the native engine is not installed or switched off")
def test_instruction_sets():
    from divlearn.engines.native import NativeEngine, instruction_sets

    assert instruction_sets()[-1] == "baseline"
    assert NativeEngine().instruction_set == instruction_sets()[0]
    with pytest.raises(ValueError, match=r"instruction_set='mmx' must be one of .*baseline"):
        NativeEngine(instruction_set="mmx")


def run(code: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip


def test_without_the_native_engine():
    """It works, and says so exactly once."""
    code = """
import warnings, numpy as np
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import divlearn
    X = np.stack([np.eye(2), 2 * np.eye(2)])
    for _ in range(3):
        table = divlearn.pairwise_abld(X, alpha=0, beta=0)
    assert divlearn.get_engine().name == "reference"
    divlearn.mean_abld(X, 0, 0)
print(len(caught), caught[0].category.__name__, caught[0].message, sep="|")
print(table[0, 1])
try:
    divlearn.get_engine("native")
except ValueError as error:
    print(error)
"""
    done = run(code, DIVLEARN_NO_NATIVE="1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("1|UserWarning|divlearn runs on its reference engine")
    assert float(lines[1]) == pytest.approx(np.log(2) ** 2, rel=4 * EPS)
    assert "engine='native' is not installed or was switched off" in lines[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
def test_fork_after_use(engine_name):
    """A child has none of its parent's threads; it must compute all the same, and not hang."""
    code = f"""
import os, sys, warnings
import numpy as np
sys.path.insert(0, {os.path.dirname(__file__)!r})
from conftest import make_engine, wishart
warnings.simplefilter("ignore", DeprecationWarning)
engine = make_engine({engine_name!r}, 2)
rng = np.random.default_rng(0)
n = 200 if {engine_name!r} == "reference" else 20000
X, B = wishart(rng, n, 5), wishart(rng, 2, 5)
prepared = engine.prepare(X)
def both():
    back = engine.pullback(prepared, B, 0.4, 0.8, np.ones((n, 2)))
    return engine.encode(prepared, B, 0.4, 0.8).tobytes() + back.atoms.tobytes()
right = both()
child = os.fork()
if child == 0:
    os._exit(0 if both() == right else 3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert both() == right
"""
    if engine_name != "reference" and not has_native:
        pytest.skip("the native engine is not installed or switched off")
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_rotated_matrices_of_high_condition(engine):
    """Condition 1e8 without grading: eps times the condition is all that can be asked."""
    rng = np.random.default_rng(8)
    X, B = rotated(rng, 5, 8, 1e8), wishart(rng, 2, 8)
    t = ReferenceEngine(1, "accurate").spectra(X, B)
    allowed = 2 * log_eigenvalue_error(X, B, t)
    assert_within(np.abs(engine.spectra(X, B) - t), allowed)


# --- variables of very different size, in any order -----------------------------------------------


@pytest.mark.parametrize("graded", ["data", "atoms", "both"])
def test_graded_variables_in_any_order(engine, graded):
    """Condition 1e10 from units alone: eigenvalues to 1e-12, however the variables are ordered."""
    rng = np.random.default_rng(11)
    d = 6
    scales = np.geomspace(1.0, 1e5, d)[rng.permutation(d)]
    X, B = wishart(rng, 3, d, 3 * d), wishart(rng, 2, d, 3 * d)
    units = scales[:, None] * scales
    X = X * units if graded != "atoms" else X
    B = B * units if graded != "data" else B
    found = engine.spectra(X, B)
    for i, x in enumerate(X):
        for k, atom in enumerate(B):
            exact = np.array([float(t) for t in Pair(x, atom).t])
            assert_within(np.abs(found[i, k] - np.sort(exact)), 1e-12)


def test_gradients_follow_a_permutation_of_the_variables(engine):
    """Sorting the variables inside must not show outside: atoms and their frames come back."""
    rng = np.random.default_rng(12)
    d, scales = 5, np.array([1.0, 1e4, 1e-3, 30.0, 1e2])
    X, B = wishart(rng, 7, d) * np.outer(scales, scales), wishart(rng, 3, d)
    weight = rng.standard_normal((7, 3))
    given = engine.pullback(X, B, 0.7, 1.2, weight)
    order = np.argsort(-scales)
    ordered = engine.pullback(
        X[:, order[:, None], order], B[:, order[:, None], order], 0.7, 1.2, weight
    )
    size = np.abs(ordered.atoms).max()
    difference = np.abs(given.atoms[:, order[:, None], order] - ordered.atoms).max()
    assert difference <= 1e-10 * size
    L = np.linalg.cholesky(B)
    in_frame = L.mT @ given.atoms @ L
    np.testing.assert_allclose(given.whitened, in_frame, rtol=0, atol=1e-9 * np.abs(in_frame).max())
    np.testing.assert_allclose(given.alpha, ordered.alpha, rtol=1e-10)
    prepared = engine.prepare(X)
    assert np.array_equal(prepared.matrices, X)
    assert np.array_equal(pickle.loads(pickle.dumps(prepared)).matrices, X)
