"""ABMixture as an estimator: scikit-learn's rules, hard data, interrupts and messages."""

from __future__ import annotations

import pickle
import re
from functools import cache

import numpy as np
import pytest
from interrupting import stop_at
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from divlearn.cluster import ABKMeans, ABMixture
from divlearn.datasets import make_wishart_clusters
from divlearn.fitting import listen

X, y = make_wishart_clusters(3, 20, 3, separation=8, random_state=0)


def quick(n_components=3, divergence="wishart", **options):
    return ABMixture(n_components, divergence, random_state=0, **options)


@pytest.fixture(autouse=True)
def few_steps(set_tolerance):
    """Fits that are not compared with a maximum end soon."""
    set_tolerance("mixtures", 1e-2)


@cache
def fitted() -> ABMixture:
    """The mixture of three components, which nobody changes."""
    return quick().fit(X)


def test_probabilities():
    mixture = fitted()
    probabilities = mixture.predict_proba(X)
    assert probabilities.shape == (60, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(probabilities.argmax(axis=1), mixture.predict(X))
    np.testing.assert_array_equal(quick().fit_predict(X), mixture.predict(X))
    np.testing.assert_allclose(mixture.weights_.sum(), 1)


def test_repetition_and_copies():
    first = fitted()
    copy, other = pickle.loads(pickle.dumps(first)), clone(first).fit(X)
    for model in (copy, other):
        np.testing.assert_array_equal(model.score_samples(X), first.score_samples(X))
    np.testing.assert_array_equal(first.sample(5)[0], first.sample(5)[0])


def test_more_starts_are_never_worse():
    one, two = (quick(2, init="random", n_init=n_init).fit(X[::4]) for n_init in (1, 2))
    assert two.lower_bound_ >= one.lower_bound_


@pytest.mark.parametrize("init", ["k-means++", "random", X[::20]])
def test_starts(init):
    mixture = quick(init=init).fit(X)
    assert mixture.lower_bound_ == pytest.approx(fitted().lower_bound_, abs=1e-3)


def test_weights_of_matrices():
    """A weight is a number of repetitions, but for its unit."""
    mixture = quick(init=X[::20])
    weights = np.arange(60) % 3
    weighted = clone(mixture).fit(X, sample_weight=weights)
    repeated = clone(mixture).fit(np.repeat(X, weights, axis=0))
    scaled = clone(mixture).fit(X, sample_weight=1e-3 * weights)
    for other in (repeated, scaled):
        np.testing.assert_allclose(weighted.means_, other.means_, rtol=1e-6)
        np.testing.assert_allclose(weighted.kappa_, other.kappa_, rtol=1e-6)
        assert weighted.lower_bound_ == pytest.approx(other.lower_bound_, abs=1e-8)


def test_in_company():
    search = GridSearchCV(quick(), {"n_components": [1, 3]}, cv=2)
    search.fit(X)
    assert search.best_params_ == {"n_components": 3}
    pipeline = make_pipeline(FunctionTransformer(), quick())
    assert pipeline.fit(X).predict(X).shape == (60,)
    assert pipeline.score(X) == fitted().score(X)


# ------------------------------------------------------------------ hard data


def test_fewer_matrices_than_rows():
    few, _ = make_wishart_clusters(2, 3, 8, random_state=0)
    mixture = quick(2).fit(few)
    assert np.isfinite(mixture.score_samples(few)).all()
    assert "fewer than 5 matrices" in mixture.message_


@pytest.mark.parametrize("share", ["all", "divergence", "none"])
@pytest.mark.parametrize("divergence", ["learn", "wishart"])
def test_equal_matrices(share, divergence):
    """The likelihood is unbounded: kappa ends at its limit, which is said."""
    mixture = quick(2, divergence, share=share).fit(np.repeat(X[:1], 12, axis=0))
    assert mixture.kappa_.max() == 1e8
    assert "kappa at its limit 1e+08" in mixture.message_
    np.testing.assert_allclose(mixture.means_[mixture.weights_.argmax()], X[0], rtol=1e-6)
    assert np.isfinite(mixture.score_samples(X[:2])).all()


def test_nearly_equal_matrices_are_not_called_equal():
    """They differ a billion times more than by rounding, and k-means tells the clusters apart."""
    rng = np.random.default_rng(0)
    scatter = rng.standard_normal((40, 3, 3)) + 5 * (np.arange(40) % 2)[:, None, None] * np.eye(3)
    near = np.eye(3) + 1e-6 * (scatter + scatter.mT)
    message = quick(2).fit(near).message_
    assert "differ by a relative 1e-4 or less" in message
    assert "rounding" not in message
    labels = ABKMeans(2, random_state=0).fit(near).labels_
    np.testing.assert_array_equal(labels == labels[0], np.arange(40) % 2 == 0)


def test_lonely_matrices_get_no_kappa_of_their_own():
    far = np.concatenate([X[y == 0], 1e4 * X[:1]])
    mixture = quick(2, share="none", init=far[[0, -1]]).fit(far)
    assert mixture.weights_.min() == pytest.approx(1 / 21, rel=1e-6)
    assert mixture.kappa_.max() < 100
    assert "component 1 has fewer than 5 matrices and the kappa of the start" in mixture.message_


def test_more_components_than_different_matrices():
    mixture = quick(3).fit(np.repeat(X[:2], 6, axis=0))
    assert np.isfinite(mixture.lower_bound_)
    assert set(mixture.predict(X[:2])) <= {0, 1, 2}


def test_every_matrix_its_own_component():
    mixture = quick(6).fit(X[:6])
    assert sorted(mixture.predict(X[:6])) == list(range(6))


def test_numbers():
    numbers = np.concatenate([np.full(9, 1.0), np.full(9, 50.0)])
    numbers *= np.random.default_rng(0).uniform(0.8, 1.2, 18)
    labels = quick(2, "learn").fit_predict(numbers[:, None, None])
    assert len(set(labels[:9])) == len(set(labels[9:])) == 1
    assert labels[0] != labels[-1]


def test_wide_and_graded_matrices():
    """Units that differ by 1e6, and one matrix that is far from all."""
    units = np.diag([1e6, 1.0, 1e-6])
    data = units @ np.concatenate([X, 1e12 * X[:1]]) @ units
    mixture = quick().fit(data)
    assert np.isfinite(mixture.lower_bound_)
    assert np.isfinite(mixture.predict_proba(data)).all()


def test_single_precision():
    narrow, wide = quick().fit(X.astype(np.float32)), fitted()
    np.testing.assert_array_equal(narrow.predict(X), wide.predict(X))
    np.testing.assert_allclose(narrow.kappa_, wide.kappa_, rtol=1e-3)


# ------------------------------------------------------------------ what it says


def test_interrupts_keep_the_best_so_far():
    with listen(stop_at("iterations", 1)):
        mixture = quick(3, init="random", n_init=2).fit(X)
    assert mixture.message_.startswith("interrupted by the user in iteration 2")
    assert mixture.n_iter_ == 1
    assert not mixture.converged_
    assert mixture.predict(X).shape == (60,)
    with listen(stop_at("numbers of components", 2)):
        several = quick([1, 2, 3]).fit(X)
    assert list(several.bics_) == [1, 2]
    assert "interrupted after 2 of 3 n_components" in several.message_
    with pytest.raises(KeyboardInterrupt), listen(stop_at("iterations", 1)):
        mixture.compare(X)  # likelihoods are compared at their maxima
    with pytest.raises(KeyboardInterrupt), listen(stop_at("numbers of components", 0)):
        quick().fit(X)


def test_an_interrupt_in_a_move_keeps_what_was_found():
    """Two centres start in one cluster, so that one of them moves."""
    with listen(stop_at("moves", 1)):
        mixture = ABMixture(3, "wishart", init="random", random_state=2).fit(X)
    assert mixture.message_.startswith("interrupted by the user in a move")
    assert np.isfinite(mixture.score(X))


def test_progress(capsys):
    quick(verbose=2, n_init=2).fit(X)
    told = capsys.readouterr().out
    assert re.search(r"\[ABMixture\] \d+ s: .*; 1 of \d+ iterations, log-likelihood", told)
    assert "0 of 1 numbers of components; 2 of 2 starts, objective" in told
    assert re.search(r"1 of 1 numbers of components, BIC -?[\d.]+ with 3\n$", told)
    quick(1).fit(X)
    assert capsys.readouterr().out == ""


def test_too_few_iterations():
    with pytest.warns(ConvergenceWarning, match="max_iter=1 reached"):
        mixture = quick(4, max_iter=1, init="random").fit(X)
    assert not mixture.converged_


def test_summaries():
    some = X[::4]
    told = quick(2, init=X[::30]).fit(some).summary(some)
    assert told.startswith("The likelihood of 2 components is largest at alpha = ")
    assert "likelihood-ratio p = " in told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"n_components": 61},
            "n_components=61 must be >= 1 and <= 60, the number of matrices, or",
        ),
        ({"n_components": 0}, "n_components=0 must be >= 1"),
        ({"n_components": "auto"}, "n_components='auto' must be an integer >= 1 and <= 60"),
        ({"n_components": []}, r"n_components is empty, must hold at least one integer"),
        ({"divergence": "gauss"}, "divergence='gauss' must be one of"),
        ({"divergence": (1, -1)}, "must not have opposite signs"),
        ({"share": "some"}, "share='some' must be one of all, divergence, none"),
        ({"init": "best"}, "init='best' must be one of"),
        ({"init": X[:2]}, r"init has shape \(2, 3, 3\), but must have \(3, 3, 3\)"),
        ({"n_init": 0}, "n_init=0 must be >= 1"),
        ({"max_iter": 0}, "max_iter=0 must be >= 1"),
    ],
)
def test_errors(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        ABMixture(**{"n_components": 3, **options}).fit(X)


def test_errors_of_data():
    with pytest.raises(ValueError, match=r"n_matrices=1 with a weight > 0 .* must be >= 2"):
        quick(1).fit(X[:1])
    with pytest.raises(ValueError, match="n_matrices=1 with a weight > 0"):
        quick(1).fit(X, sample_weight=np.eye(60)[0])
    with pytest.raises(NotFittedError):
        quick().predict(X)
    mixture = fitted()
    for method in (mixture.predict, mixture.compare, mixture.bic):
        with pytest.raises(ValueError, match="size 2, but ABMixture is expecting 3"):
            method(X[:, :2, :2])
    with pytest.raises(ValueError, match="n_samples=0 must be >= 1"):
        mixture.sample(0)
