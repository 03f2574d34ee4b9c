"""Mixtures of exp(-kappa D) / Z: densities, maxima and what is recovered."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import gamma, invwishart, wishart

from divlearn.cluster import ABMixture, pairwise_f1_score
from divlearn.cluster.em import describe
from divlearn.cluster.mixture import TOLERANCE
from divlearn.datasets import make_inverse_wishart_clusters, make_wishart_clusters
from divlearn.likelihood import fit_likelihood, fit_member, log_density, sample_family

CENTERS = np.array([np.diag([1.0, 1.0, 1.0]), np.diag([9.0, 2.0, 0.5]), np.diag([0.3, 0.1, 2.0])])


def log_volume(X):
    """Logarithm of det(X)^{(d+1)/2}: from densities in dX to the invariant ones, added."""
    return 0.5 * (X.shape[-1] + 1) * np.linalg.slogdet(X)[1]


def three_clusters(alpha, beta, kappas, n=80):
    """Draws around `CENTERS`, and where they come from."""
    parts = [
        sample_family(alpha, beta, kappa, n, center, seed)
        for seed, (kappa, center) in enumerate(zip(kappas, CENTERS, strict=True))
    ]
    return np.concatenate(parts), np.repeat([0, 1, 2], n)


@pytest.mark.parametrize("name", ["wishart", "inverse-wishart"])
@pytest.mark.parametrize("share", ["all", "none"])
def test_densities_of_scipy(name, share):
    make = make_wishart_clusters if name == "wishart" else make_inverse_wishart_clusters
    X, _ = make(2, [30, 40], 3, random_state=0)
    mixture = ABMixture(2, name, share=share, random_state=0).fit(X)
    densities = np.empty((2, len(X)))
    for k, (center, kappa) in enumerate(zip(mixture.means_, mixture.kappa_, strict=True)):
        dof = 2 * kappa
        if name == "wishart":
            densities[k] = wishart.logpdf(X.transpose(1, 2, 0), dof, center / dof)
        else:
            densities[k] = invwishart.logpdf(X.transpose(1, 2, 0), dof, center * dof)
    known = logsumexp(densities + np.log(mixture.weights_)[:, None], axis=0) + log_volume(X)
    np.testing.assert_allclose(mixture.score_samples(X), known, rtol=1e-9)
    assert mixture.score(X) == pytest.approx(mixture.lower_bound_, abs=1e-9)


@pytest.mark.parametrize(
    ("share", "divergence"),
    [("all", "learn"), ("all", "matrix-f"), ("divergence", "wishart"), ("none", "learn")],
)
def test_the_bound_never_falls(share, divergence, set_tolerance):
    """Overlapping clusters, and more components than there are."""
    set_tolerance("mixtures", 3e-2)
    X, _ = make_wishart_clusters(2, 12, 2, separation=3, random_state=1)
    mixture = ABMixture(3, divergence, share=share, init=X[::9]).fit(X)
    history = mixture.history_
    assert np.diff(history["lower_bound"]).min() > -1e-9
    assert len(history["lower_bound"]) == mixture.n_iter_ + 1
    assert history["kappa"].shape == (mixture.n_iter_ + 1, 3)
    assert mixture.converged_
    assert "rose by" in mixture.message_
    n_points, n_kappas = len(set(mixture.alpha_)), len(set(mixture.kappa_))
    assert n_points == 1 or share == "none"
    assert (n_kappas == 1) == (share == "all")


def test_one_component_is_the_maximum_of_the_family(set_tolerance):
    set_tolerance("mixtures", 1e-9)
    X = sample_family(0.2, 0.7, 3.0, 60, np.diag([1.0, 2.0]), 0)
    for divergence, known in [("learn", fit_likelihood(X)), ("stein", fit_member(X, 0.5, 0.5))]:
        mixture = ABMixture(1, divergence).fit(X)
        expected = known.log_likelihood + log_volume(X).mean()
        assert mixture.lower_bound_ == pytest.approx(expected, abs=1e-6)
        np.testing.assert_allclose(mixture.means_[0], known.center, rtol=1e-3, atol=1e-3)
        here = log_density(
            X, mixture.means_[0], mixture.alpha_[0], mixture.beta_[0], mixture.kappa_[0]
        )
        np.testing.assert_allclose(mixture.score_samples(X), here + log_volume(X), atol=1e-9)


def test_gamma_variables(set_tolerance):
    """1 x 1 Wishart matrices."""
    set_tolerance("mixtures", 1e-10)
    X = gamma(3.0, scale=2.0).rvs(300, random_state=0)
    mixture = ABMixture(1, "wishart").fit(X[:, None, None])
    shape, _, scale = gamma.fit(X, floc=0)
    assert mixture.kappa_[0] == pytest.approx(shape, rel=1e-4)
    assert mixture.means_[0, 0, 0] == pytest.approx(shape * scale, rel=1e-6)
    known = gamma.logpdf(X, mixture.kappa_[0], scale=mixture.means_[0, 0, 0] / mixture.kappa_[0])
    np.testing.assert_allclose(mixture.score_samples(X[:, None, None]), known + np.log(X))


def test_members_are_recognised():
    """As Wishart matrices are in the example of `ABMixture`."""
    X, _ = three_clusters(0.0, 0.0, (2.0, 2.0, 2.0), n=60)
    mixture, name = ABMixture(3, init=CENTERS).fit(X), "riemannian-gaussian"
    # The difference is known to n^(-1/2), the sum only to n^(-1/4) near the origin.
    assert mixture.beta_[0] - mixture.alpha_[0] == pytest.approx(0, abs=0.3)
    fits = mixture.compare(X)
    assert f"That is {name}" in describe(fits)
    learned = fits.pop("learned")
    assert min(fits.values(), key=lambda fit: fit.bic).name == name
    assert all(learned.log_likelihood > fit.log_likelihood - 0.1 for fit in fits.values())
    assert fits[name].p_value > 1e-3
    assert learned.n_parameters == 2 + 3 * 6 + 3
    assert learned.bic > fits[name].bic


def test_few_matrices_per_component_prove_nothing():
    """Wishart matrices, for which the BIC prefers the learned member by luck."""
    X, _ = make_wishart_clusters(1, 6, 3, random_state=0)
    fits = ABMixture(3, random_state=0).fit(X).compare(X)
    assert fits["learned"].bic < min(fit.bic for name, fit in fits.items() if name != "learned")
    assert "beats" not in describe(fits)


def test_no_special_case_is_likelier_than_the_learned_member():
    """From these components, "wishart" finds another maximum, which is higher by 3.5."""
    X, _ = make_wishart_clusters(2, 20, 8, separation=4, random_state=4)
    fits = ABMixture(3, n_init=1, random_state=4).fit(X).compare(X)
    assert max(fits.values(), key=lambda fit: round(fit.log_likelihood, 2)).name == "learned"


def test_the_fit_itself_is_as_likely_as_named_members():
    """A fit that followed the likelihood alone ended 0.5 below one of Wishart matrices."""
    X, _ = make_wishart_clusters(4, 20, 2, separation=1, random_state=8)
    mixture = ABMixture(4, random_state=0).fit(X)
    named = ABMixture(4, "wishart", init=mixture.means_).fit(X)
    assert named.lower_bound_ <= mixture.lower_bound_ + TOLERANCE


def test_a_member_without_name_beats_the_named():
    """Wishart matrices to the power 1/3: D^(0, 1) of X^3 is 9 D^(0, 3) of X."""
    X, _ = make_wishart_clusters(1, 500, 2, condition=1, random_state=0)
    values, vectors = np.linalg.eigh(X)
    X = (vectors * values[:, None] ** (1 / 3)) @ vectors.mT
    fits = ABMixture().fit(X).compare(X)
    assert "That beats every named member" in describe(fits)
    learned, named = fits["learned"], fits["wishart"]
    points = [(float(fit.alpha[0]), float(fit.beta[0])) for fit in (learned, named)]
    densities = [fit_member(X, *point).log_density(X) for point in points]
    expected = np.sqrt(len(X)) * np.std(densities[0] - densities[1], ddof=1)
    assert named.standard_error == pytest.approx(expected, rel=1e-2)


def test_parameters_of_a_mixture_are_recovered(set_tolerance):
    X, y = three_clusters(0.0, 1.0, (4.0, 10.0, 25.0), n=150)
    mixture = ABMixture(3, "wishart", share="divergence", random_state=0).fit(X)
    order = np.argsort(mixture.kappa_)
    np.testing.assert_allclose(mixture.kappa_[order], [4, 10, 25], rtol=0.1)
    np.testing.assert_allclose(mixture.means_[order], CENTERS, rtol=0.15, atol=0.15)
    np.testing.assert_allclose(mixture.weights_, 1 / 3, atol=0.02)
    assert pairwise_f1_score(y, mixture.predict(X)) > 0.97
    set_tolerance("mixtures", 1e-2)  # the first steps are enough
    free = ABMixture(3, "matrix-f", share="none", init=mixture.means_).fit(X)
    assert free.lower_bound_ > mixture.lower_bound_


def test_draws_of_a_mixture_lead_back_to_it():
    X, _ = three_clusters(0.0, 1.0, (5.0, 5.0, 5.0))
    first = ABMixture(3, "wishart", random_state=0).fit(X)
    drawn, labels = first.sample(900)
    assert drawn.shape == (900, 3, 3)
    assert np.all(np.diff(labels) >= 0)
    assert pairwise_f1_score(labels, first.predict(drawn)) > 0.95
    again = ABMixture(3, "wishart", init=first.means_).fit(drawn)
    np.testing.assert_allclose(again.means_, first.means_, rtol=0.15, atol=0.1)
    np.testing.assert_allclose(again.weights_, first.weights_, atol=0.05)
    assert again.kappa_[0] == pytest.approx(first.kappa_[0], rel=0.1)


def test_congruences_change_nothing(set_tolerance):
    set_tolerance("mixtures", 1e-2)  # as many steps in both frames
    X, _ = three_clusters(0.0, 1.0, (5.0, 5.0, 5.0), n=20)
    A = np.array([[2.0, 1, 0], [0, 1, 3], [0, 0, 0.05]])
    here, there = (ABMixture(3, "burg", random_state=0).fit(data) for data in (X, A @ X @ A.T))
    np.testing.assert_array_equal(here.predict(X), there.predict(A @ X @ A.T))
    np.testing.assert_allclose(here.score_samples(X), there.score_samples(A @ X @ A.T), rtol=1e-5)
    np.testing.assert_allclose(there.means_, A @ here.means_ @ A.T, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(there.kappa_, here.kappa_, rtol=1e-4)


def test_inverses_swap_the_parameters(set_tolerance):
    set_tolerance("mixtures", 1e-2)
    X = sample_family(0.1, 0.8, 5.0, 40, CENTERS[1], 0)
    here, there = (ABMixture().fit(data) for data in (X, np.linalg.inv(X)))
    np.testing.assert_allclose(there.alpha_, here.beta_, atol=1e-3)
    np.testing.assert_allclose(there.beta_, here.alpha_, atol=1e-3)
    np.testing.assert_allclose(there.means_, np.linalg.inv(here.means_), rtol=1e-3, atol=1e-4)
    inverse = there.score_samples(np.linalg.inv(X))
    np.testing.assert_allclose(inverse, here.score_samples(X), atol=1e-3)


def test_moves_leave_local_maxima():
    """From the same matrices as centres; there are no moves where they are given."""
    X, y = make_wishart_clusters(4, 15, 8, dof=10, random_state=0)
    rows = np.random.RandomState(1).choice(60, 4, replace=False, p=np.full(60, 1 / 60))
    stuck = ABMixture(4, "wishart", init=X[rows]).fit(X)
    moved = ABMixture(4, "wishart", init="random", random_state=1).fit(X)
    assert pairwise_f1_score(y, stuck.predict(X)) < 0.9
    assert pairwise_f1_score(y, moved.predict(X)) == 1
    assert moved.lower_bound_ > stuck.lower_bound_ + 0.5
    assert moved.n_iter_ > stuck.n_iter_


def test_bic_counts_components():
    X, _ = three_clusters(0.0, 1.0, (8.0, 8.0, 8.0), n=25)
    mixture = ABMixture([2, 3, 4], "wishart", random_state=0).fit(X)
    assert mixture.n_components_ == 3
    assert list(mixture.bics_) == [2, 3, 4]
    assert mixture.bic(X) == pytest.approx(mixture.bics_[3], rel=1e-9)
    n_parameters = 2 + 3 * 6 + 1
    assert mixture.aic(X) == pytest.approx(2 * n_parameters - 2 * len(X) * mixture.score(X))
    assert mixture.bic(X) - mixture.aic(X) == pytest.approx(n_parameters * (np.log(len(X)) - 2))
