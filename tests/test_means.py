"""Centroids: oracles, stationarity, monotone descent, equivariance, weights and errors."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import EPS, frobenius, in_frame_of, rotated, wishart
from scipy.optimize import brentq, minimize_scalar

from divlearn import abld, abld_grad, mean_abld
from divlearn.engines import get_engine
from divlearn.spectral import abld_scalar

POINTS = [
    (0, 0),
    (0, 1),
    (1, 0),
    (0.5, 0.5),
    (1, 1),
    (0.25, 0.75),
    (2, 0.3),
    (0, 0.4),
    (1.7, 0),
    (1e-8, 1e-8),
    (20, 20),
    (0.01, 3),
    (-0.5, -0.5),
    (-1, 0),
    (0, -2),
    (-0.2, -1.3),
]


def ordinary(n: int = 12, d: int = 4, seed: int = 0):
    return wishart(np.random.default_rng(seed), n, d, 3 * d)


def spread_out(n: int = 8, d: int = 4):
    """Eigenvalues over twelve orders of magnitude: steps must be cut."""
    rng = np.random.default_rng(5)
    scale = np.exp(rng.uniform(-7, 7, n))
    return rotated(rng, n, d, 1e5) * scale[:, None, None]


# --- oracles --------------------------------------------------------------------------------------


def within(mean, peer, gradient_norm: float):
    """Relative distance of two centroids, each known up to the norm of its gradient.

    The objective is 1-strongly convex near data of moderate spread up to a factor f_tt >= 0.05,
    so a gradient of norm g is a distance of at most 20 g.
    """
    factor = np.linalg.cholesky(peer)
    whitened = np.linalg.solve(factor, np.linalg.solve(factor, mean).T)
    assert np.linalg.norm(whitened - np.eye(len(mean))) <= 20 * gradient_norm


@pytest.mark.parametrize("weights", [None, np.arange(1.0, 13)])
@pytest.mark.parametrize(("point", "peer"), [((0, 0), "mean_riemann"), ((0.5, 0.5), "mean_logdet")])
def test_against_pyriemann(engine, point, peer, weights):
    means = pytest.importorskip("pyriemann.geometry.mean")
    X = ordinary()
    result = mean_abld(X, *point, sample_weight=weights, engine=engine)
    options = {"tol": 1e-12, "maxiter": 500, "sample_weight": weights}
    assert result.converged
    within(result.mean, getattr(means, peer)(X, **options), 1e-9)


@pytest.mark.parametrize("weights", [None, np.arange(1.0, 13)])
def test_closed_forms(engine, weights):
    X = ordinary()
    share = np.full(12, 1 / 12) if weights is None else weights / weights.sum()
    arithmetic = np.einsum("n,nij->ij", share, X)
    harmonic = np.linalg.inv(np.einsum("n,nij->ij", share, np.linalg.inv(X)))
    condition = float(np.linalg.cond(X).max())
    for point, exact in (((0, 1), arithmetic), ((1, 0), harmonic), ((-1, 0), arithmetic)):
        result = mean_abld(X, *point, sample_weight=weights, engine=engine)
        np.testing.assert_allclose(result.mean, exact, rtol=0, atol=40 * EPS * condition)
        assert np.array_equal(result.mean, result.mean.T)
        assert (result.n_iter, result.converged) == (0, True)
        assert "closed form" in result.message


def test_closed_form_agrees_with_the_iteration_beside_it(engine):
    """(0, 1) is closed, (0, 1 + h) is not: the centroid moves by about h."""
    X = ordinary()
    beside = mean_abld(X, 0, 1 + 1e-7, engine=engine)
    assert beside.n_iter > 0
    np.testing.assert_allclose(beside.mean, mean_abld(X, 0, 1).mean, rtol=0, atol=1e-5)


@pytest.mark.parametrize("point", POINTS)
def test_commuting_data_against_scalar_minimisation(point):
    """Diagonal matrices: each entry has its own centroid in one dimension."""
    rng = np.random.default_rng(2)
    log_x, weights = rng.normal(0, 0.8, (6, 2)), rng.uniform(0.5, 2, 6)
    X = np.exp(log_x)[:, :, None] * np.eye(2)
    mean = mean_abld(X, *point, sample_weight=weights).mean
    off_diagonal = mean - np.diag(np.diag(mean))
    assert np.abs(off_diagonal).max() <= 16 * EPS * np.abs(mean).max()
    for column in range(2):

        def objective(c, column=column):
            t = log_x[:, column] - c
            return weights @ abld_scalar(t, *point, derivatives=()).f

        best = minimize_scalar(objective, (-3, 3), tol=1e-12).x
        # A minimiser found from values alone is good to the square root of epsilon.
        assert abs(np.log(mean[column, column]) - best) <= 20 * np.sqrt(EPS)


# --- the iteration --------------------------------------------------------------------------------


def check_descent(result, X, point):
    assert len(result.history) == result.n_iter + 1
    assert (np.diff(result.history) <= 0).all()
    assert result.history[-1] == result.objective
    assert result.objective == pytest.approx(abld(X, result.mean, *point).mean(), rel=1e-9)


@pytest.mark.parametrize("point", POINTS)
def test_descends_to_a_stationary_point(point):
    X = ordinary()
    result = mean_abld(X, *point)
    check_descent(result, X, point)
    assert result.converged, result.message
    assert result.gradient_norm <= 1e-10
    gradients = in_frame_of(result.mean, abld_grad(X, result.mean, *point).Y)
    # The tolerance, and the rounding of gradients of that size that cancel in the sum.
    rounding = 4 * EPS * float(np.linalg.cond(X).max()) * frobenius(gradients).max()
    assert frobenius(gradients.mean(axis=0)) <= 2 * (1e-10 + rounding)


@pytest.mark.parametrize("point", POINTS)
def test_descends_on_data_over_many_orders_of_magnitude(point):
    """Steps must be cut. Where the objective is flat to rounding, the gradient ends as its root."""
    X = spread_out()
    result = mean_abld(X, *point, max_iter=3000)
    check_descent(result, X, point)
    assert result.gradient_norm <= max(1e-10, np.sqrt(2 * 64 * EPS * result.objective))


def test_beside_the_origin_it_is_as_fast_as_at_the_origin():
    """Nothing happens at the origin: a safe step of length beta g would crawl there."""
    X = spread_out()
    origin = mean_abld(X, 0, 0)
    for tiny in (1e-3, 1e-5, 1e-8, 1e-300):
        beside = mean_abld(X, tiny, tiny)
        assert beside.n_iter <= 2 * origin.n_iter, beside.message
        within(beside.mean, origin.mean, 1e-9 + 100 * tiny)


@pytest.mark.parametrize("point", [(0, 0), (0.5, 0.5), (0.01, 3), (20, 20)])
def test_every_start_leads_to_the_same_centroid(point):
    X = ordinary()
    right = mean_abld(X, *point)
    for start in (X[0], 100 * np.eye(4), 0.01 * wishart(np.random.default_rng(9), 1, 4)[0]):
        result = mean_abld(X, *point, init=start)
        assert result.converged, result.message
        assert (np.diff(result.history) <= 0).all()
        # f_tt may be small far out for (20, 20): distances are gradients over curvature.
        curvature = abld_scalar(
            get_engine("reference").spectra(X, right.mean[None]), *point, derivatives="f_tt"
        ).f_tt.mean()
        within(result.mean, right.mean, 1e-10 / min(curvature, 1))
    again = mean_abld(X, *point, init=right.mean)
    assert again.n_iter <= 1
    assert again.converged


def test_init_is_read_only_input():
    X, start = ordinary(), np.eye(4)
    start.flags.writeable = False
    X.flags.writeable = False
    mean_abld(X, 0.5, 0.5, init=start)
    assert np.array_equal(start, np.eye(4))


@pytest.mark.parametrize("point", POINTS)
def test_congruence_equivariance(point):
    X = ordinary()
    A = np.random.default_rng(3).standard_normal((4, 4)) + 2 * np.eye(4)
    first = mean_abld(X, *point).mean
    second = mean_abld(A @ X @ A.T, *point).mean
    spectra = get_engine("reference").spectra(X, first[None])
    curvature = abld_scalar(spectra, *point, derivatives="f_tt").f_tt.mean()
    within(second, A @ first @ A.T, 2e-10 / min(curvature, 1))


@pytest.mark.parametrize("scale", [1e-150, 1e-100, 1e100, 1e150])
@pytest.mark.parametrize("point", [(0, 0), (0.5, 0.5), (0, 1), (1, 0), (1, 1)])
def test_units_do_not_matter(point, scale):
    X = ordinary()
    within(mean_abld(scale * X, *point).mean / scale, mean_abld(X, *point).mean, 1e-10)


def test_duality():
    """The centroid of the inverses in the dual member is the inverse of the centroid."""
    X = ordinary()
    first = mean_abld(X, 0.3, 0.9).mean
    second = mean_abld(np.linalg.inv(X), 0.9, 0.3).mean
    within(np.linalg.inv(second), first, 1e-9)


# --- weights --------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", [(0, 0), (0.5, 0.5), (0, 1), (1, 0), (2, 0.3)])
def test_weights(point):
    X = ordinary(5)
    counts = np.array([1, 3, 0, 2, 1])
    weighted = mean_abld(X, *point, sample_weight=counts)
    repeated = mean_abld(np.repeat(X, counts, axis=0), *point)
    removed = mean_abld(X[counts > 0], *point, sample_weight=counts[counts > 0])
    within(weighted.mean, repeated.mean, 2e-10)
    within(weighted.mean, removed.mean, 2e-10)
    assert weighted.objective == pytest.approx(repeated.objective, rel=1e-9)
    for scale in (1e-300, 7.0, 1e300):
        scaled = mean_abld(X, *point, sample_weight=counts * scale)
        within(scaled.mean, weighted.mean, 2e-10)


def test_matrices_without_weight_do_not_count():
    """Not even where their divergences are beyond the range of numbers."""
    matrices = np.array([1.0, 2.0, 1e300])[:, None, None]
    found = mean_abld(matrices, 0, 2, sample_weight=[1, 1, 0])
    np.testing.assert_allclose(found.mean, mean_abld(matrices[:2], 0, 2).mean, rtol=1e-9)


@pytest.mark.parametrize("point", POINTS)
def test_one_matrix_is_its_own_centroid(point):
    X = ordinary(1)
    result = mean_abld(X, *point)
    assert result.converged
    within(result.mean, X[0], 1e-10)
    assert abs(result.objective) <= 1e-18
    within(mean_abld(ordinary(3), *point, sample_weight=[0, 1, 0]).mean, ordinary(3)[1], 1e-9)


# --- the result, types, errors --------------------------------------------------------------------


def test_result_is_an_array():
    result = mean_abld(ordinary(), 0.5, 0.5)
    assert np.asarray(result) is result.mean
    copied = np.array(result)
    assert np.array_equal(copied, result.mean)
    copied[0, 0] = 7
    assert result.mean[0, 0] != 7
    assert np.asarray(result, dtype=np.float32).dtype == np.float32
    assert np.linalg.slogdet(result)[0] == 1
    assert abld(result, result.mean, 0, 0) <= 1e-25


def test_message_says_why_it_stopped():
    X = ordinary()
    done = mean_abld(X, 0.5, 0.5)
    assert "gradient norm" in done.message
    assert "<= tol=1e-10" in done.message
    short = mean_abld(X, 0.5, 0.5, max_iter=2)
    assert (short.n_iter, short.converged) == (2, False)
    assert "max_iter=2 reached" in short.message
    assert "> tol=1e-10" in short.message
    assert len(short.history) == 3
    none = mean_abld(X, 0.5, 0.5, max_iter=0, init=np.eye(4))
    assert np.array_equal(none.mean, np.eye(4))
    loose = mean_abld(X, 0.5, 0.5, tol=1e-2)
    assert loose.converged
    assert loose.n_iter < done.n_iter
    assert loose.gradient_norm <= 1e-2


def test_out_of_reach_tolerance_is_said():
    result = mean_abld(ordinary(), 0.3, 0.6, tol=1e-30, max_iter=1000)
    assert not result.converged
    assert result.n_iter < 1000
    assert "no step lowers the objective" in result.message
    assert result.gradient_norm < 1e-13


def test_float32(engine):
    X = ordinary().astype(np.float32)
    result = mean_abld(X, 0.5, 0.5, engine=engine)
    right = mean_abld(X.astype(np.float64), 0.5, 0.5).mean
    assert result.mean.dtype == np.float32
    assert result.converged, result.message
    within(result.mean, right, np.finfo(np.float32).eps)


def test_prepared_data_and_threads(engine):
    X = ordinary()
    right = mean_abld(X, 0.4, 1.2, engine=engine).mean
    assert np.array_equal(mean_abld(engine.prepare(X), 0.4, 1.2, engine=engine).mean, right)
    within(mean_abld(X, 0.4, 1.2, n_threads=1).mean, right, 2e-10)


@pytest.mark.parametrize("accuracy", ["auto", "accurate"])
def test_negative_orthant_is_the_positive_one_with_names_swapped(accuracy):
    X = ordinary()
    engine = get_engine("reference", accuracy=accuracy)
    first, second = (
        mean_abld(X, *point, engine=engine).mean for point in ((-0.3, -1.1), (1.1, 0.3))
    )
    assert np.array_equal(first, second)


ERRORS = [
    ({"alpha": np.nan}, ValueError, r"alpha = nan must be finite"),
    ({"beta": np.inf}, ValueError, r"beta = inf must be finite"),
    ({"beta": -0.5}, ValueError, r"\(0\.5, -0\.5\) must not have opposite signs"),
    ({"alpha": "a"}, (TypeError, ValueError), r"a"),
    ({"sample_weight": [1, 2]}, ValueError, r"sample_weight has shape \(2,\).*\(3,\)"),
    ({"sample_weight": [1, -1, 1]}, ValueError, r"sample_weight\[1\] = -1.0 must be >= 0"),
    ({"sample_weight": [0, 0, 0]}, ValueError, r"sample_weight is zero everywhere"),
    ({"sample_weight": [1, np.nan, 1]}, ValueError, r"sample_weight\[1\] = nan must be finite"),
    ({"init": np.eye(3)}, ValueError, r"init has shape \(3, 3\), but must have \(2, 2\)"),
    ({"init": np.ones((2, 2))}, ValueError, r"init is rank-deficient"),
    ({"init": np.eye(2)[None]}, ValueError, r"init has shape \(1, 2, 2\), expected \(d, d\)"),
    ({"tol": 0}, ValueError, r"tol=0 must be a finite number > 0"),
    ({"tol": np.nan}, ValueError, r"tol=nan must be a finite number > 0"),
    ({"max_iter": -1}, ValueError, r"max_iter=-1 must be >= 0"),
    ({"max_iter": 1.5}, TypeError, r"max_iter=1.5 must be an integer >= 0"),
    ({"alpha": "0.5"}, TypeError, r"alpha has dtype <U3, but must be real numbers"),
    ({"beta": [0.5, 0.5]}, ValueError, r"must be single numbers"),
    ({"sample_weight": ["1"] * 3}, TypeError, r"sample_weight has dtype <U1"),
    ({"X": np.eye(2)}, ValueError, r"X has shape \(2, 2\), expected \(n_matrices, d, d\)"),
    ({"X": np.empty((0, 2, 2))}, ValueError, r"X is empty"),
    ({"X": -np.ones((1, 2, 2))}, ValueError, r"X\[0\] has a diagonal entry -1"),
    ({"engine": "none"}, ValueError, r"engine='none' must be"),
]


@pytest.mark.parametrize(("change", "error", "message"), ERRORS)
def test_errors(change, error, message):
    arguments = {"X": np.stack([np.eye(2)] * 3), "alpha": 0.5, "beta": 0.5} | change
    with pytest.raises(error, match=message):
        mean_abld(**arguments)


@pytest.mark.parametrize("point", [(0, 0), (0.01, 0.01), (0.5, 0.5), (1, 1), (0, 3), (2, 0.5)])
def test_converges_on_few_samples(point):
    """Wishart data with one sample more than variables: wide, but nothing unusual."""
    rng = np.random.default_rng(22)
    for _ in range(4):
        d = int(rng.integers(2, 12))
        factors = rng.standard_normal((6, d, d + 1))
        result = mean_abld(factors @ factors.mT / d, *point)
        assert result.converged, result.message
        assert (np.diff(result.history) <= 0).all()


def test_scalars_against_a_root_finder():
    """d = 1: the centroid solves sum_i f_t(log x_i - log c) = 0."""
    x = np.array([1e-3, 1.0, 1e3, 20.0, 0.05])

    def slope(center: float) -> float:
        return float(abld_scalar(np.log(x) - center, 2.0, 0.5, derivatives="f_t").f_t.sum())

    exact = np.exp(brentq(slope, -10, 10, xtol=1e-14))
    result = mean_abld(x.reshape(-1, 1, 1), 2.0, 0.5, tol=1e-13)
    np.testing.assert_allclose(result.mean, exact, rtol=1e-9)


def test_a_float32_start_is_judged_as_float32():
    X = wishart(np.random.default_rng(5), 6, 4).astype(np.float32)
    start = X[0].copy()
    start[0, 1] *= 1 + 3e-7  # what rounding to float32 leaves behind
    assert mean_abld(X, 0.5, 0.7, init=start).converged
