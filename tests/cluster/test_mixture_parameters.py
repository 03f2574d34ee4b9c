"""Members, concentrations and parameters from log-eigenvalues."""

from __future__ import annotations

import numpy as np
import pytest
from clouds import spectra_of

from divlearn.cluster.parameters import fit_parameters
from divlearn.engines import get_engine
from divlearn.likelihood import (
    fit_likelihood,
    log_normalizer,
    sample_family,
)
from divlearn.likelihood.members import NAMED_MEMBERS, Members, get_members
from divlearn.likelihood.normalizer import differentiate_normalizer, smallest_kappa, solve_kappa
from divlearn.spectral import abld_scalar

PLANE = get_members("learn")


def equal_spectra(*clouds, engine="auto"):
    """Clouds of equal weights around their centres."""
    return spectra_of(*((t, np.ones(len(t))) for t in clouds), engine=engine)


def draws(alpha, beta, kappa, n, d, seed=0):
    """Log-eigenvalues of random matrices relative to the true centre."""
    return np.log(np.linalg.eigvalsh(sample_family(alpha, beta, kappa, n, np.eye(d), seed)))


@pytest.mark.parametrize("members", [PLANE, NAMED_MEMBERS["matrix-f"]])
@pytest.mark.parametrize("difference", [-0.8, 0.0, 0.3, 1.0])
def test_coordinates(members, difference):
    coordinates = np.array([difference, 0.2][: members.n_free])
    alpha, beta = members.place(coordinates)
    assert beta - alpha == pytest.approx(difference, abs=1e-15)
    np.testing.assert_allclose(members.locate(alpha, beta), coordinates, atol=1e-15)
    # Derivatives of a smooth function of (alpha, beta), and differences in the coordinates.
    slopes = members.pull((alpha, beta), np.cos(alpha) * beta, np.sin(alpha))
    if abs(difference) < 1:
        for axis, slope in enumerate(slopes):
            step = 1e-6 * np.eye(members.n_free)[axis]
            ends = [members.place(coordinates + sign * step) for sign in (1, -1)]
            above, below = (np.sin(a) * b for a, b in ends)
            assert slope == pytest.approx((above - below) / 2e-6, rel=1e-6)


def test_the_plane_is_analytic_in_its_coordinates():
    """In difference and product the origin is a point as others: the slope there is t^4 / -12."""
    t, origin = np.array([1.3]), np.zeros(2)
    point = PLANE.place_nearby(origin)
    values = abld_scalar(t, *point, derivatives=("f_alpha", "f_beta"))
    slopes = PLANE.pull(point, values.f_alpha, values.f_beta)[:, 0]
    np.testing.assert_allclose(slopes, [1.3**3 / 6, -(1.3**4) / 12], rtol=1e-6)
    assert PLANE.place(origin) == (0, 0)
    assert sum(PLANE.place_nearby(np.array([0.0, 1.0]))) == 2


@pytest.mark.parametrize(
    ("name", "point"),
    [
        ("wishart", (0, 1)),
        ("Inverse_Wishart", (1, 0)),
        ("riemannian gaussian", (0, 0)),
        ("stein", (0.5, 0.5)),
        ((0.2, 0.9), (0.2, 0.9)),
        ((-0.9, -0.2), (0.2, 0.9)),
    ],
)
def test_names_of_members(name, point):
    members = get_members(name)
    assert (members.alpha, members.beta, members.n_free) == (*point, 0)
    assert members.starts == (point,)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gauss", "or here learn, wishart, inverse-wishart, matrix-f, riemannian-gaussian"),
        ("jeffreys", "is the mean of two divergences"),
        ((1, -1), r"\(alpha, beta\) = \(1, -1\) must not have opposite signs"),
    ],
)
def test_errors_of_members(name, message):
    with pytest.raises(ValueError, match=message):
        get_members(name)


@pytest.mark.parametrize("d", [1, 3, 12])
@pytest.mark.parametrize(("alpha", "beta"), [(0, 0), (0, 1), (0.5, 0.5), (4.0, 0.1)])
@pytest.mark.parametrize("mean", [1e-5, 0.3, 20.0])
def test_concentrations(alpha, beta, mean, d):
    kappa, constant = solve_kappa(alpha, beta, mean, d)
    assert constant == differentiate_normalizer(alpha, beta, kappa, d)
    assert -constant[1][2] == pytest.approx(mean, rel=1e-8)
    margin = 3 * (kappa - smallest_kappa(alpha, beta, d))
    assert solve_kappa(alpha, beta, mean, d, margin=margin)[0] == pytest.approx(kappa, rel=1e-7)


def test_concentrations_have_bounds():
    assert solve_kappa(0, 1, 0.0, 3, largest=1e8)[0] == 1e8
    assert solve_kappa(0, 1, 1e-12, 3, largest=1e8)[0] == 1e8
    kappa, constant = solve_kappa(0, 1, 1e30, 3)  # beyond what numbers can hold
    assert kappa == pytest.approx(1, rel=2e-6)
    assert np.isfinite(constant[0])
    assert solve_kappa(0, 0, 1e30, 1)[0] == pytest.approx(1e-3)


@pytest.mark.parametrize("engine", ["auto", "reference"])
def test_sums_are_those_of_the_scalar_function(engine):
    clouds, shift = [draws(0, 1, 5, n, 3, seed=n) for n in (7, 4)], np.array([0.2, -0.4])
    found = equal_spectra(*clouds, engine=engine).sums(0.3, 0.9, shift)
    for k, cloud in enumerate(clouds):
        values = abld_scalar(cloud - shift[k], 0.3, 0.9)
        known = [values.f, values.f_alpha, values.f_beta, values.f_t]
        np.testing.assert_allclose(found[:, k], [row.sum() / 11 for row in known], rtol=1e-9)


@pytest.mark.parametrize("tied", [True, False])
def test_the_maximum_is_found(tied):
    """No other point nearby is more likely."""
    clouds = [draws(0.2, 0.7, kappa, 60, 3, seed=i) + 0.1 for i, kappa in enumerate((4.0, 9.0))]
    best = fit_parameters(equal_spectra(*clouds), PLANE, (0.5, 0.5), tied=tied)
    (alpha, beta, kappa, _), shift, least = best.densities(), best.shift, best.loss

    def loss(x):
        alpha, beta = np.abs(x[:2])
        kappas = np.exp(x[4:] if not tied else x[[4, 4]])
        if kappas.min() <= smallest_kappa(alpha, beta, 3):
            return np.inf
        each = [
            kappa * abld_scalar(t - s, alpha, beta, derivatives=()).f.sum(axis=1).mean()
            + log_normalizer(alpha, beta, kappa, 3)
            for t, s, kappa in zip(clouds, x[2:4], kappas, strict=True)
        ]
        return np.mean(each)

    point = np.array([alpha[0], beta[0], *shift, *np.log(kappa[: 2 - tied])])
    assert loss(point) == pytest.approx(least, abs=1e-9)
    assert len(set(kappa)) == 2 - tied
    rng = np.random.default_rng(0)
    for size in (0.1, 0.01, 0.003):
        others = [loss(point + size * step) for step in rng.standard_normal((6, len(point)))]
        assert least < min(others)


def test_held_concentrations_stay():
    clouds = [draws(0, 1, 5, 40, 3, seed=i) for i in range(2)]
    best = fit_parameters(
        equal_spectra(*clouds),
        PLANE,
        (0.0, 1.0),
        tied=False,
        kappa=np.array([3.0, 5.0]),
        fixed=np.array([True, False]),
    )
    assert best.kappa[0] == 3
    assert best.kappa[1] != 5


@pytest.mark.parametrize("start", [(0.0, 0.0), (1.0, 1.0)])
def test_no_start_is_a_trap(start):
    """At the origin derivatives in alpha and beta vanish along (1, 1)."""
    spectra = equal_spectra(draws(1.0, 1.0, 6.0, 2000, 3))
    found, best = (fit_parameters(spectra, PLANE, one).densities() for one in (start, (0.9, 1.1)))
    np.testing.assert_allclose(found[:2], best[:2], atol=1e-3)


def test_taking_turns_ends_at_the_joint_maximum():
    """The factor of a centre is all of it that parameters have to do with."""
    X = sample_family(0.1, 0.8, 6.0, 400, np.diag([1.0, 2.0, 3.0]), 0)
    fit = fit_likelihood(X)
    engine = get_engine()
    t = engine.spectra(X, fit.center[None])[:, 0]
    best = fit_parameters(equal_spectra(t), PLANE, (0.0, 1.0))
    assert best.shift == pytest.approx(0, abs=1e-4)
    np.testing.assert_allclose(best.densities()[:2, 0], [fit.alpha, fit.beta], atol=2e-3)


def test_limits_of_the_line():
    members = NAMED_MEMBERS["matrix-f"]
    np.testing.assert_array_equal(members.locate(0, 5), [1.0])
    assert members.place(np.array([1.0])) == (0, 1)
    assert Members(0, 0.3, 0.2).bounds == []


def test_no_kappa_is_solved_from_what_is_no_number():
    with pytest.raises(FloatingPointError, match="the mean divergence is nan that kappa is solved"):
        solve_kappa(0.5, 0.5, np.nan, 3, margin=1.0)
