"""Every public function under hostile input: a right answer, or a sentence that says why not."""

from __future__ import annotations

import numpy as np
import pytest
from hostile_arrays import STRANGE, WRONG, Refused, abused, assert_sound, attempt, definite, stacks
from hypothesis import given
from hypothesis import strategies as st

import divlearn
from divlearn import cluster, datasets, judge, likelihood, plane_map, spd, spectral
from divlearn.sharded import encode, open_shards

pairs = st.sampled_from([(0, 0), (1, 0), (0, 1), (0.5, 0.5), (1, 1), (1e-9, 2), (3, 0.1)])


def labels(X):
    return np.arange(len(X)) % 2


# From X and a pair (alpha, beta) to a result.
FUNCTIONS = {
    "check_spd": lambda X, pair: divlearn.check_spd(X),
    "abld": lambda X, pair: divlearn.abld(X, X, *pair),
    "abld_grad": lambda X, pair: divlearn.abld_grad(X, X, *pair),
    "pairwise_abld": lambda X, pair: divlearn.pairwise_abld(X, alpha=pair[0], beta=pair[1]),
    "divergence_plane": lambda X, pair: divlearn.divergence_plane(X, X, [0, 1], [0.5, 1]),
    "mean_abld": lambda X, pair: divlearn.mean_abld(X, *pair),
    "get_divergence": lambda X, pair: divlearn.get_divergence("stein")(X, X),
    "logm": lambda X, pair: spd.logm(X),
    "sqrtm": lambda X, pair: spd.sqrtm(X),
    "invsqrtm": lambda X, pair: spd.invsqrtm(X),
    "powm": lambda X, pair: spd.powm(X, 0.3),
    "geodesic": lambda X, pair: spd.geodesic(X, X, 0.5),
    "encode": lambda X, pair: encode(X, divlearn.check_spd(X)[:1], *pair),
    "open_shards": lambda X, pair: open_shards(X).n_matrices,
    "log_density": lambda X, pair: likelihood.log_density(X, spd.check_spd(X)[0], 0.5, 0.5, 9.0),
    "fit_member": lambda X, pair: likelihood.fit_member(X, 0, 1),
}
GRID = {"alphas": [0, 1], "betas": [0, 1]}
# These take longer, and fewer examples of them tell as much.
SLOW = {
    "fit_likelihood": lambda X: likelihood.fit_likelihood(X),
    "which_divergence": lambda X: divlearn.which_divergence(X, alphas=[0], betas=[1]).best,
    "which_divergence, labels": lambda X: (
        divlearn.which_divergence(X, labels(X), cv=2, **GRID).best
    ),
    "plane_map": lambda X: plane_map(X, labels(X), **GRID),
}
# Powers of matrices: those of all sizes are answered, whatever is in between.
TOLERANT = {"check_spd", "logm", "sqrtm", "powm", "geodesic", "abld"}


@pytest.mark.parametrize("name", FUNCTIONS)
@abused
@given(stack=stacks, pair=pairs, how=st.sampled_from(sorted(STRANGE)))
def test_strange_matrices(name, stack, pair, how):
    X = STRANGE[how](definite(*stack))
    result = attempt(lambda: FUNCTIONS[name](X, pair))
    if not isinstance(result, Refused):
        assert_sound(result)
    elif name in TOLERANT and how not in (
        "half precision",
        "nearly singular",
        "integers",
        "graded",
    ):
        raise AssertionError(result)


@pytest.mark.parametrize("name", FUNCTIONS)
@abused
@given(stack=stacks, pair=pairs, how=st.sampled_from(sorted(set(WRONG) - {"one axis more"})))
def test_wrong_matrices(name, stack, pair, how):
    X = WRONG[how](definite(*stack))
    n, d = stack[1:]
    if (d == 1 and how == "not symmetric") or (n == d and how == "one axis less"):
        return  # that may be matrices as good as others
    assert isinstance(attempt(lambda: FUNCTIONS[name](X, pair)), Refused)


# Without labels, which_divergence is fit_likelihood and more.
@pytest.mark.parametrize("name", sorted(set(SLOW) - {"fit_likelihood"}))
@pytest.mark.parametrize("how", ["huge", "huge and tiny", "nearly singular", "all equal"])
def test_strange_matrices_and_long_work(name, how):
    X = STRANGE[how](definite(1, 8, 2))
    result = attempt(lambda: SLOW[name](X))
    if not isinstance(result, Refused):
        assert_sound(result)


@pytest.mark.parametrize("name", SLOW)
def test_wrong_matrices_and_long_work(name):
    for how in sorted(set(WRONG) - {"number", "nothing"}):
        X = WRONG[how](definite(1, 8, 2))
        assert isinstance(attempt(lambda X=X: SLOW[name](X)), Refused), how


def test_the_doctor_finds_healthy_what_is_taken():
    for how, change in {**STRANGE, **WRONG}.items():
        X = change(definite(2, 6, 3))
        taken = not isinstance(attempt(lambda X=X: spd.check_spd(X, ndim=3)), Refused)
        result = attempt(lambda X=X: judge.examine(X))
        assert taken == (not isinstance(result, Refused) and result.healthy), how


# ---------------------------------------------------------------------- numbers

NUMBERS = [np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-308, 0, -1, 1.5, None, "a", 1j, [], True]
number = st.sampled_from(NUMBERS)


@abused
@given(t=st.sampled_from([*NUMBERS, np.zeros(0), [1e200], ["a"]]), alpha=number, beta=number)
def test_scalar_functions(t, alpha, beta):
    for call in (
        lambda: spectral.abld_scalar(t, alpha, beta),
        lambda: spectral.log_generalized_domain(alpha, beta),
    ):
        result = attempt(call)
        if not isinstance(result, Refused):
            assert_sound(result)


@abused
@given(alpha=number, beta=number, kappa=number, how=st.sampled_from(["mean", "table", "density"]))
def test_parameters(alpha, beta, kappa, how):
    X = definite(0, 3, 2)
    calls = {
        "mean": lambda: divlearn.mean_abld(X, alpha, beta, tol=kappa),
        "table": lambda: divlearn.pairwise_abld(X, alpha=alpha, beta=beta),
        "density": lambda: likelihood.log_density(X, X[0], alpha, beta, kappa),
    }
    result = attempt(calls[how])
    if not isinstance(result, Refused):
        assert_sound(result)


@abused
@given(true=st.lists(number, max_size=4), found=st.lists(number, max_size=4))
def test_scores_of_clusters(true, found):
    for score in (cluster.matched_f1_score, cluster.pairwise_f1_score):
        result = attempt(lambda score=score: score(true, found))
        if not isinstance(result, Refused):
            assert 0 <= result <= 1


@abused
@given(
    n_clusters=number,
    n_matrices=number,
    d=number,
    separation=number,
    name=st.sampled_from(["wishart", "inverse_wishart", "riemannian_gaussian"]),
)
def test_synthetic_data(n_clusters, n_matrices, d, separation, name):
    make = getattr(datasets, f"make_{name}_clusters")
    result = attempt(lambda: make(n_clusters, n_matrices, d, separation=separation, random_state=0))
    if not isinstance(result, Refused):
        assert_sound(result)
