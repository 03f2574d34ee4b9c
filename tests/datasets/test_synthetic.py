"""Synthetic clusters: closed forms, quadrature, SciPy and exact samplers say what they must be.

Statistical tests have fixed seeds. Each bounds a z-score by 4.5 (a right sampler exceeds it with
probability 7e-6 per number) or a Kolmogorov-Smirnov p-value from below by 1e-3.
"""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import linalg, special, stats

from divlearn.datasets.riemannian_gaussian import (
    make_riemannian_gaussian_clusters,
    parabola,
    sample_log_eigenvalues,
)
from divlearn.datasets.synthetic import (
    make_inverse_wishart_clusters,
    make_recordings,
    make_wishart_clusters,
)
from divlearn.divergence import pairwise_abld
from divlearn.spd import check_spd

FAMILIES = (make_wishart_clusters, make_inverse_wishart_clusters, make_riemannian_gaussian_clusters)
LARGEST_Z = 4.5
SMALLEST_P = 1e-3


@pytest.fixture(params=FAMILIES, ids=["wishart", "inverse_wishart", "riemannian_gaussian"])
def make(request):
    return request.param


def one_cluster(make, n, d, seed, **options):
    """Draws of one cluster, and its centre."""
    X, _, centers = make(1, n, d, random_state=seed, return_centers=True, **options)
    return X, centers[0]


def assert_mean(draws, expected):
    """Assert that independent draws, along the first axis, have this mean."""
    z = (draws.mean(axis=0) - expected) / (draws.std(axis=0) / np.sqrt(len(draws)))
    assert np.abs(z).max() < LARGEST_Z, z


def assert_same_law(draws, reference):
    """Compare draws with other draws, or with a distribution function."""
    test = stats.ks_1samp if callable(reference) else stats.ks_2samp
    assert test(draws, reference).pvalue > SMALLEST_P


def log_eigenvalues(X, C):
    """Of C^-1 X, by NumPy."""
    whitener = np.linalg.inv(np.linalg.cholesky(C))
    return np.log(np.linalg.eigvalsh(whitener @ X @ whitener.T))


# --- shape, order and seed ------------------------------------------------------------------------


def test_shapes_types_and_strict_definiteness(make):
    X, y, centers = make(4, 6, 5, random_state=0, return_centers=True)
    assert X.shape == (24, 5, 5)
    assert centers.shape == (4, 5, 5)
    assert X.dtype == centers.dtype == np.float64
    assert np.issubdtype(y.dtype, np.integer)
    np.testing.assert_array_equal(check_spd(X), X)
    np.testing.assert_array_equal(check_spd(centers), centers)


def test_shuffled_unless_told_otherwise(make):
    ordered = np.repeat([0, 1, 2], [3, 1, 4])
    y = make(3, [3, 1, 4], 2, random_state=0)[1]
    assert (np.sort(y) == ordered).all()
    assert (y != ordered).any()
    np.testing.assert_array_equal(make(3, [3, 1, 4], 2, random_state=0, shuffle=False)[1], ordered)


def test_labels_name_the_nearest_centre(make):
    """Far apart, every matrix is nearest to the centre its label names, shuffled or not."""
    for shuffle in (True, False):
        X, y, centers = make(
            5, 20, 6, separation=30, shuffle=shuffle, random_state=1, return_centers=True
        )
        np.testing.assert_array_equal(pairwise_abld(X, centers, alpha=0, beta=0).argmin(1), y)


def test_the_seed_decides_and_the_global_generator_is_left_alone(make):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = make(3, 5, 3, random_state=0, return_centers=True)
    make(3, 5, 3)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    again = make(3, 5, 3, random_state=np.random.RandomState(0), return_centers=True)
    other = make(3, 5, 3, random_state=1, return_centers=True)
    for one, same, different in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(one, same)
        assert (one != different).any()


def test_float32_is_float64_rounded(make):
    single, y, centers = make(3, 5, 4, random_state=0, dtype=np.float32, return_centers=True)
    double, same, exact = make(3, 5, 4, random_state=0, return_centers=True)
    assert single.dtype == centers.dtype == np.float32
    np.testing.assert_array_equal(y, same)
    np.testing.assert_array_equal(single, double.astype(np.float32))
    np.testing.assert_array_equal(centers, exact.astype(np.float32))


def test_little_memory_beside_the_matrices(make):
    make(2, 2, 10, random_state=0)
    tracemalloc.start()
    X = make(2, 7_000, 10, random_state=0)[0]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * X.nbytes


# --- centres --------------------------------------------------------------------------------------


def rms_distance(centers):
    """Root mean square of the affine-invariant distances of all pairs."""
    pairs = [(A, B) for i, A in enumerate(centers) for B in centers[:i]]
    return np.sqrt(np.mean([(np.log(linalg.eigvalsh(A, B)) ** 2).sum() for A, B in pairs]))


@pytest.mark.parametrize("d", [1, 2, 5, 60])
@pytest.mark.parametrize("separation", [0.5, 10.0])
def test_separation_is_the_distance_of_centres_in_units_of_sigma(make, d, separation):
    centers = make(6, 1, d, separation=separation, random_state=d, return_centers=True)[2]
    sigma = (d + 2) ** -0.5
    assert rms_distance(centers) == pytest.approx(separation * sigma, rel=2e-4)


@pytest.mark.parametrize(
    ("make", "spread", "squares"),
    [
        (make_wishart_clusters, {"dof": [6.5, 20, 90]}, [2 / 6.5, 2 / 20, 2 / 90]),
        (make_inverse_wishart_clusters, {"dof": [6.5, 20, 90]}, [2 / 6.5, 2 / 20, 2 / 90]),
        (make_riemannian_gaussian_clusters, {"sigma": [0.1, 0.7, 1.1]}, [0.01, 0.49, 1.21]),
    ],
)
def test_sigma_of_unequal_clusters_is_their_root_mean_square(make, spread, squares):
    centers = make(3, 1, 4, separation=7, random_state=0, return_centers=True, **spread)[2]
    assert rms_distance(centers) == pytest.approx(7 * np.sqrt(np.mean(squares)), rel=2e-4)


@pytest.mark.parametrize("d", [1, 10])
@pytest.mark.parametrize(
    ("make", "alpha", "beta"), [(make_wishart_clusters, 0, 1), (FAMILIES[2], 0, 0)]
)
def test_two_clusters_are_as_hard_to_tell_apart_for_any_d(make, alpha, beta, d):
    """The likelihood ratio errs with probability Phi(-s / 2), up to a quarter of it."""
    n = max(20_000 // d, 2500)
    X, y, centers = make(2, n, d, separation=3, random_state=d, return_centers=True)
    wrong = np.mean(pairwise_abld(X, centers, alpha=alpha, beta=beta).argmin(1) != y)
    assert wrong == pytest.approx(stats.norm.cdf(-1.5), rel=0.25)


def test_no_separation_makes_centres_equal(make):
    centers = make(3, 2, 5, separation=0, random_state=0, return_centers=True)[2]
    np.testing.assert_array_equal(centers, np.broadcast_to(centers[0], centers.shape))


@pytest.mark.parametrize("condition", [1, 10, 1e6])
def test_condition_is_that_of_the_matrix_amid_the_centres(make, condition):
    centers = make(2, 2, 5, separation=0, condition=condition, random_state=0, return_centers=True)[
        2
    ]
    assert np.linalg.cond(centers[0]) == pytest.approx(condition, rel=1e-6)
    assert np.linalg.slogdet(centers[0])[1] == pytest.approx(0, abs=1e-8)


def test_affine_invariants_do_not_depend_on_the_condition(make):
    """One seed, two conditions: the same data but for one congruence of everything."""
    spectra = []
    for condition in (1, 1e3):
        X, _, centers = make(3, 4, 4, condition=condition, random_state=0, return_centers=True)
        spectra.append(log_eigenvalues(X, centers[0]))
    np.testing.assert_allclose(*spectra, rtol=1e-9, atol=1e-9)


# --- Wishart and inverse Wishart ------------------------------------------------------------------


@pytest.mark.parametrize(("d", "dof"), [(1, 0.7), (4, 4.5), (5, 14)])
def test_wishart_moments(d, dof):
    X, C = one_cluster(make_wishart_clusters, 20_000, d, d, dof=dof)
    variance = np.diag(C)[:, None] * np.diag(C) + C**2
    assert_mean(X, C)
    assert_mean((X - C) ** 2, variance / dof)
    log_det = np.linalg.slogdet(X)[1] - np.linalg.slogdet(C)[1]
    half = (dof - np.arange(d)) / 2
    assert_mean(log_det, special.digamma(half).sum() + d * np.log(2 / dof))
    centred = log_det - special.digamma(half).sum() - d * np.log(2 / dof)
    assert_mean(centred**2, special.polygamma(1, half).sum())


@pytest.mark.parametrize(("d", "dof"), [(1, 14), (3, 15.5), (5, 20)])
def test_inverse_wishart_moments(d, dof):
    X, C = one_cluster(make_inverse_wishart_clusters, 20_000, d, d, dof=dof)
    rest = dof - d
    diagonal = np.diag(C)[:, None] * np.diag(C)
    assert_mean(X, C)
    assert_mean((X - C) ** 2, ((rest + 1) * C**2 + (rest - 1) * diagonal) / (rest * (rest - 3)))
    assert_mean(np.linalg.inv(X), np.linalg.inv(C) * dof / (rest - 1))
    log_det = np.linalg.slogdet(X)[1] - np.linalg.slogdet(C)[1]
    half = (dof - np.arange(d)) / 2
    assert_mean(log_det, d * np.log((rest - 1) / 2) - special.digamma(half).sum())


def test_each_cluster_has_its_own_dof():
    X, y, centers = make_wishart_clusters(
        2, 4000, 3, dof=[4, 40], random_state=0, return_centers=True
    )
    for cluster, dof in enumerate((4, 40)):
        draws, C = X[y == cluster], centers[cluster]
        assert_mean(draws, C)
        assert_mean((draws - C) ** 2, (np.diag(C)[:, None] * np.diag(C) + C**2) / dof)


# --- the Riemannian Gaussian ----------------------------------------------------------------------


def mean_square_by_quadrature(d, sigma):
    """E[d(X, C)^2] = E|t|^2 by the trapezoid rule on a grid of all d log-eigenvalues."""
    grid = np.linspace(-6 * sigma - sigma**2 * d, 6 * sigma + sigma**2 * d, 121)
    t = np.meshgrid(*d * [grid], indexing="ij", sparse=True)
    squares = sum(one**2 for one in t)
    density = np.exp(-squares / (2 * sigma**2))
    for i in range(d):
        for j in range(i):
            density = density * np.sinh(np.abs(t[i] - t[j]) / 2)
    return (density * squares).sum() / density.sum()


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.0])
def test_mean_squared_distance_by_quadrature(d, sigma):
    X, C = one_cluster(make_riemannian_gaussian_clusters, 5000, d, d, sigma=sigma)
    assert_mean((log_eigenvalues(X, C) ** 2).sum(axis=1), mean_square_by_quadrature(d, sigma))


@pytest.mark.parametrize("sigma", [0.2, 1.0, 3.0])
def test_two_rows_by_quadrature(sigma):
    """The difference u of the log-eigenvalues has the density exp(-u^2/4 sigma^2) sinh(u/2)."""
    t, _ = sample_log_eigenvalues(parabola(sigma), 40_000, 2, np.random.RandomState(0))
    u = np.linspace(0, 12 * sigma + 3 * sigma**2, 20_001)
    cumulated = np.cumsum(np.exp(-(u**2) / (4 * sigma**2)) * np.sinh(u / 2))
    assert_same_law(t[:, 1] - t[:, 0], lambda at: np.interp(at, u, cumulated / cumulated[-1]))
    assert_same_law(t.sum(axis=1) / (sigma * np.sqrt(2)), stats.norm.cdf)
    correlation = stats.spearmanr(t[:, 1] - t[:, 0], t.sum(axis=1)).statistic
    assert abs(correlation) * np.sqrt(len(t)) < LARGEST_Z


def gaussian_by_rejection(n, d, sigma, rng):
    """Log-eigenvalues from full Gaussian matrices S = log X, by a bound that is proved.

    The density of S is exp(-|S|^2 / 2 sigma^2) prod sinh(u/2)/(u/2) over the differences u of its
    eigenvalues, and sinh(u/2)/(u/2) <= exp(u^2/24). The sum of u^2 is d |S - (tr S/d) I|^2.
    """
    wide = (sigma**-2 - d / 12) ** -0.5
    G = rng.standard_normal((n, d, d))
    S = (G + G.mT) / 2
    trace = np.trace(S, axis1=1, axis2=2)[:, None, None] / d * np.eye(d)
    t = np.linalg.eigvalsh(wide * (S - trace) + sigma * trace)
    half = np.abs(t[:, :, None] - t[:, None, :])[:, *np.triu_indices(d, 1)] / 2
    log_ratio = (np.log(np.sinh(half) / half) - half**2 / 6).sum(axis=1)
    return t[np.log(rng.uniform(size=n)) < log_ratio]


@pytest.mark.parametrize(("d", "sigma"), [(3, 1.2), (8, 0.6)])
def test_against_exact_rejection(d, sigma):
    t, _ = sample_log_eigenvalues(parabola(sigma), 5_000, d, np.random.RandomState(0))
    exact = gaussian_by_rejection(20_000, d, sigma, np.random.default_rng(1))
    assert len(exact) > 1500
    for k in range(d):
        assert_same_law(t[:, k], exact[:, k])
    assert_same_law((t**2).sum(axis=1), (exact**2).sum(axis=1))
    assert_same_law(np.diff(t).min(axis=1), np.diff(exact).min(axis=1))


@pytest.mark.parametrize(("n", "d", "sigma"), [(2000, 10, 1.8), (600, 30, 1.0), (100, 60, 0.1)])
def test_identities_for_any_d(n, d, sigma):
    """The trace is normal, and E sum t V'(t) = d + E sum_{i<j} (u/2) coth(u/2), by parts."""
    t, _ = sample_log_eigenvalues(parabola(sigma), n, d, np.random.RandomState(0))
    assert_same_law(t.sum(axis=1) / (sigma * np.sqrt(d)), stats.norm.cdf)
    half = (t[:, :, None] - t[:, None, :])[:, *np.tril_indices(d, -1)] / 2
    virial = (t**2).sum(axis=1) / sigma**2 - (half / np.tanh(half)).sum(axis=1)
    assert_mean(virial, d)


@pytest.mark.parametrize(("d", "dof"), [(1, 1.5), (2, 2.2), (8, 9)])
def test_other_potentials(d, dof):
    """kappa times the Burg divergence is a Wishart matrix: exponential tails on one side."""

    def burg(t):
        return dof / 2 * (np.expm1(t) - t), dof / 2 * np.expm1(t), dof / 2 * np.exp(t)

    t, _ = sample_log_eigenvalues(burg, 5000, d, np.random.RandomState(0))
    X, _ = one_cluster(make_wishart_clusters, 5000, d, 1, dof=dof, condition=1)
    reference = np.log(np.linalg.eigvalsh(X))
    for statistic in (np.min, np.max, np.sum):
        assert_same_law(statistic(t, axis=1), statistic(reference, axis=1))
    assert_same_law((t**2).sum(axis=1), (reference**2).sum(axis=1))


def test_potentials_that_hold_nothing_together():
    def weak(t):
        return 0.9 * (np.expm1(t) - t), 0.9 * np.expm1(t), 0.9 * np.exp(t)

    with pytest.raises(ValueError, match=r"lets 3 .* beyond 300 .* \(d - 1\) / 2 = 1 on"):
        sample_log_eigenvalues(weak, 10, 3, np.random.RandomState(0))
    with pytest.raises(ValueError, match=r"\d of \d+ candidates were accepted, must be >= 0.1%"):
        sample_log_eigenvalues(parabola(5.0), 10, 20, np.random.RandomState(0))


def test_directions_are_uniform():
    X, _ = one_cluster(make_riemannian_gaussian_clusters, 5000, 4, 0, condition=1)
    vectors = np.linalg.eigh(X)[1]
    for column in range(4):
        assert_same_law(vectors[:, 1, column] ** 2, stats.beta(0.5, 1.5).cdf)
    signs = np.sign(vectors[:, 0, 0] * vectors[:, 1, 0])
    assert_mean(signs, 0)


def test_draws_are_independent(make):
    """No matrix comes twice, as rejections of a chain would, and neighbours know nothing."""
    X, C = one_cluster(make, 10_000, 3, 0)
    squares = 2 * pairwise_abld(X, C[None], alpha=0, beta=0)[:, 0]
    assert len(np.unique(squares)) == len(X)
    for lag in (1, 2, 5):
        correlation = stats.spearmanr(squares[lag:], squares[:-lag]).statistic
        assert abs(correlation) * np.sqrt(len(X)) < LARGEST_Z


def test_each_cluster_has_its_own_sigma():
    X, y, centers = make_riemannian_gaussian_clusters(
        3, 1000, 2, sigma=[0.2, 1.0, 0.2], random_state=0, return_centers=True
    )
    squares = 2 * pairwise_abld(X, centers, alpha=0, beta=0)[np.arange(3000), y]
    for cluster, sigma in enumerate((0.2, 1.0, 0.2)):
        assert_mean(squares[y == cluster], mean_square_by_quadrature(2, sigma))


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"n_clusters": 0}, ValueError, "n_clusters=0 must be >= 1"),
        ({"n_clusters": 2.0}, TypeError, "n_clusters=2.0 must be an integer >= 1"),
        ({"d": 0}, ValueError, "d=0 must be >= 1"),
        ({"d": True}, TypeError, "d=True must be an integer >= 1"),
        ({"n_per_cluster": 0}, ValueError, "n_per_cluster=0 must be >= 1"),
        ({"n_per_cluster": [3, 0, 1]}, ValueError, "n_per_cluster=0 must be >= 1"),
        ({"n_per_cluster": [3, 1.5, 1]}, TypeError, "n_per_cluster=1.5 must be an integer"),
        (
            {"n_per_cluster": [3, 4]},
            ValueError,
            r"n_per_cluster has shape \(2,\), must be one number or one per cluster: 3",
        ),
        ({"separation": -1}, ValueError, "separation=-1 must be one number >= 0"),
        ({"separation": [1, 2]}, ValueError, r"separation=\[1, 2\] must be one number >= 0"),
        ({"separation": np.nan}, ValueError, "separation = nan must be finite"),
        ({"condition": 0.5}, ValueError, "condition=0.5 must be one number >= 1"),
        ({"condition": "10"}, TypeError, "condition has dtype <U2, but must be real numbers"),
        ({"dtype": int}, ValueError, "dtype=<class 'int'> must be float32 or float64"),
        ({"random_state": "seed"}, ValueError, "seed"),
        ({"separation": 1e3}, ValueError, "separation=1000, .* lower separation or condition$"),
        ({"condition": 1e18}, ValueError, r"condition=1e\+18 .* float64 cannot tell from singular"),
        (
            {"condition": 1e9, "dtype": "float32"},
            ValueError,
            "float32 cannot tell from singular ones; .* or pass dtype=np.float64",
        ),
    ],
)
def test_bad_arguments(make, options, error, message):
    arguments = {"n_clusters": 3, "n_per_cluster": 4, "d": 3, "random_state": 0, **options}
    with pytest.raises(error, match=message):
        make(**arguments)


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (FAMILIES[0], {"dof": 2}, r"dof=2 must be > d - 1 = 2, or all are singular; raise dof"),
        (FAMILIES[0], {"dof": [5, 1, 9]}, r"dof\[1\]=1 must be > d - 1 = 2"),
        (FAMILIES[0], {"dof": [5, 9]}, r"dof has shape \(2,\), must be one number or .* 3"),
        (FAMILIES[0], {"dof": np.inf}, "dof = inf must be finite"),
        (FAMILIES[0], {"dof": 2.001}, "cannot tell from singular ones; raise dof, lower"),
        (FAMILIES[1], {"dof": 4}, r"dof=4 must be > d \+ 1 = 4, or E\[X\] is infinite; raise dof"),
        (FAMILIES[2], {"sigma": 0}, r"sigma=0 must be >= 1.5e-08 and <= 4.25 for d=3 in float64"),
        (FAMILIES[2], {"sigma": [1, 5, 1]}, r"sigma\[1\]=5 must be >= 1.5e-08 and <= 4.25"),
        (FAMILIES[2], {"sigma": 3, "dtype": "float32"}, r"sigma=3 must be .* <= 2.82 .* float32"),
        (FAMILIES[2], {"sigma": 4.2}, "cannot tell from singular ones; lower sigma, lower"),
    ],
)
def test_bad_spreads(make, options, message):
    with pytest.raises(ValueError, match=message):
        make(3, 100, 3, random_state=0, **options)


# --- recordings -----------------------------------------------------------------------------------


def test_artifacts_have_rank_one_and_the_share_that_was_asked_for():
    """With the same seed, recordings with and without artifacts differ by them alone."""
    clean, y, subjects = make_recordings(400, artifacts=0, random_state=0)
    X, same_y, same_subjects = make_recordings(400, artifacts=0.25, random_state=0)
    np.testing.assert_array_equal(y, same_y)
    np.testing.assert_array_equal(subjects, same_subjects)
    sizes = np.linalg.svd(X - clean, compute_uv=False)
    hit = sizes[:, 0] > 0
    assert stats.binomtest(int(hit.sum()), 400, 0.25).pvalue > SMALLEST_P
    assert (sizes[hit, 1] < 1e-12 * sizes[hit, 0]).all()
    ratio = np.linalg.norm((X - clean)[hit]) / np.linalg.norm(clean[hit])
    assert 4 < ratio < 12  # eight, but for chance


def test_subjects_differ_by_the_shift_alone():
    """Without a shift, the covariance of a variant of a class is the same for all subjects."""
    for shift, same in ((0.0, True), (1.0, False)):
        X, y, subjects = make_recordings(
            48, 3, 4000, n_classes=1, n_subjects=2, shift=shift, artifacts=0, random_state=0
        )
        assert set(y.tolist()) == {0}
        first, second = (X[subjects == s] @ X[subjects == s].mT / 4000 for s in (0, 1))
        assert (np.linalg.norm(first - second) < 0.1 * np.linalg.norm(first)) == same


def test_classes_are_equally_frequent_within_subjects():
    _, y, subjects = make_recordings(random_state=0)
    for subject in range(12):
        assert np.ptp(np.bincount(y[subjects == subject])) <= 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_times": 0}, "n_times=0 must be"),
        ({"n_subjects": -1}, "n_subjects=-1 must be"),
        ({"shift": -0.1}, "shift=-0.1 must be >= 0"),
        ({"artifacts": 1.5}, "artifacts=1.5 between 0 and 1"),
    ],
)
def test_wrong_recordings(options, message):
    with pytest.raises(ValueError, match=message):
        make_recordings(**options)
