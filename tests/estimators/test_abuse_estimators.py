"""Every estimator under hostile input: it learns and predicts, or a sentence says why not."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hostile_arrays import EXAMPLES, STRANGE, WRONG, Refused, abused, attempt, definite, numbers
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import divlearn
from divlearn import baselines
from divlearn.iddl import Recipe

pytestmark = pytest.mark.usefixtures("small_grids_everywhere")

SEED = {"random_state": 0}
MEMBERS = ("tangent rbf", "tangent lda")
ESTIMATORS = {
    "IDDLClassifier": divlearn.IDDLClassifier(3, rank="full", max_iter=1, cv=2, **SEED),
    "IDDLClassifier, paper": divlearn.IDDLClassifier.paper().set_params(
        n_atoms=3, max_iter=1, **SEED
    ),
    "IDDLClassifier, stochastic": divlearn.IDDLClassifier(
        3,
        rank="full",
        recipe=Recipe(loss="softmax", penalty=1e-2, solver="stochastic"),
        max_iter=1,
        cv=None,
        **SEED,
    ),
    "IDDLRegressor": divlearn.IDDLRegressor(3, rank="full", max_iter=1, cv=2, **SEED),
    "IDDLTransformer": divlearn.IDDLTransformer(
        3, rank="full", max_iter=1, cv=2, recipe=Recipe(loss="ridge"), **SEED
    ),
    "SPDClassifier": divlearn.SPDClassifier(MEMBERS, cv=2, **SEED),
    "SPDRegressor": divlearn.SPDRegressor(("kernel", "tangent ridge"), cv=2, **SEED),
    "ABKMeans": divlearn.ABKMeans(2, n_init=1, **SEED),
    "ABKMeans, learned": divlearn.ABKMeans(2, "learn", n_init=1, **SEED),
    "KarcherKMeans": divlearn.KarcherKMeans(2, n_init=1, **SEED),
    "LogEuclideanKMeans": divlearn.LogEuclideanKMeans(2, n_init=1, **SEED),
    "ABMixture": divlearn.ABMixture(2, "wishart", max_iter=20, **SEED),
    "DivergenceKernelClassifier": divlearn.DivergenceKernelClassifier(
        [0, 0.5], [0.5, 1], [0.5, 2], [1, 10], cv=2, **SEED
    ),
    "DivergenceKernel": divlearn.DivergenceKernel(),
    "DivergenceKNN": divlearn.DivergenceKNN(1),
    "DivergenceMDM": divlearn.DivergenceMDM(),
    "Recenter": divlearn.Recenter(),
    "Recenter, stretching": divlearn.Recenter("burg", stretch=True),
    "LogEuclideanSVM": baselines.LogEuclideanSVM(**SEED),
    "LEML": baselines.LEML(8, max_iter=1, **SEED),
    "RSPDL": baselines.RSPDL(2, penalty=0.1, max_iter=1, **SEED),
    "KernelLLC": baselines.KernelLLC(4, **SEED),
    "KernelSparseCoding": baselines.KernelSparseCoding(3, penalty=0.1, max_iter=1, **SEED),
}
# Matrices as small as the smallest numbers have no inverse in double precision.
LEARNED_FROM = sorted(set(STRANGE) - {"subnormal"})
LAYOUTS = ("read-only", "fortran", "lists", "backwards", "long", "huge", "tiny")
METHODS = ("predict", "predict_proba", "transform", "decision_function", "score_samples")
few = settings(abused, max_examples=max(2, EXAMPLES // 6))


@cache
def data():
    y = np.arange(12) % 2
    return definite(0, 12, 2) * (1 + 2 * y)[:, None, None], y


@cache
def fitted(name):
    return clone(ESTIMATORS[name]).fit(*data())


def answers(model, X):
    return {name: getattr(model, name)(X) for name in METHODS if hasattr(model, name)}


def learn(name, X):
    """What an estimator has learned from X, and says of it."""
    model = clone(ESTIMATORS[name]).fit(X, data()[1])
    # Of what no fold holds out nothing is said, and histories begin before there are gradients.
    silent = ("oof_proba_", "history_", "members_")
    learned = {key: value for key, value in vars(model).items() if key not in silent}
    return {**learned, **answers(model, X)}


def assert_no_nan(found):
    for key, value in found.items():
        for array in numbers(value):
            assert not np.isnan(array).any(), key


@pytest.mark.parametrize("name", ESTIMATORS)
@few
@given(how=st.sampled_from(LEARNED_FROM))
def test_learning_from_strange_matrices(name, how):
    found = attempt(lambda: learn(name, STRANGE[how](data()[0])))
    if not isinstance(found, Refused):
        assert_no_nan(found)
    else:
        assert how not in LAYOUTS, found


@pytest.mark.parametrize("name", ESTIMATORS)
@few
@given(how=st.sampled_from(LEARNED_FROM))
def test_answers_to_strange_matrices(name, how):
    found = attempt(lambda: answers(fitted(name), STRANGE[how](data()[0])))
    if not isinstance(found, Refused):
        assert_no_nan(found)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_wrong_matrices(name):
    for how, spoil in WRONG.items():
        X = spoil(data()[0])
        assert isinstance(attempt(lambda X=X: learn(name, X)), Refused), how
        assert isinstance(attempt(lambda X=X: answers(fitted(name), X)), Refused), how


@pytest.mark.parametrize("name", ESTIMATORS)
def test_layouts_do_not_matter(name):
    X, _ = data()
    expected = answers(fitted(name), X)
    for how in ("read-only", "fortran", "strided", "transposed", "lists", "other byte order"):
        for method, values in answers(fitted(name), STRANGE[how](X)).items():
            np.testing.assert_array_equal(values, expected[method], err_msg=how)


LABELS = {
    "nan": lambda y: np.where(y == 0, np.nan, 1.0),
    "none": lambda y: None,
    "too few": lambda y: y[:-1],
    "too many": lambda y: np.append(y, 0),
    "columns": lambda y: np.stack([y, y, y], axis=1)[:, :, None],
    "infinite": lambda y: np.where(y == 0, np.inf, 1.0),
    "no class": lambda y: y[:0],
}


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, kind in ESTIMATORS.items()
        if hasattr(kind, "score") and not hasattr(kind, "n_clusters") and name not in ("ABMixture",)
    ],
)
def test_wrong_labels(name):
    X, y = data()
    for how, spoil in LABELS.items():
        model, labels = clone(ESTIMATORS[name]), spoil(y)
        assert isinstance(attempt(lambda m=model, y=labels: m.fit(X, y)), Refused), how


WEIGHTS = {
    "nan": np.full(12, np.nan),
    "negative": -np.ones(12),
    "zero": np.zeros(12),
    "few": np.ones(3),
    "words": np.full(12, "a"),
    "infinite": np.full(12, np.inf),
}


@pytest.mark.parametrize(
    "name",
    [
        "IDDLClassifier",
        "IDDLRegressor",
        "ABKMeans",
        "ABMixture",
        "DivergenceMDM",
        "SPDClassifier",
    ],
)
def test_wrong_weights(name):
    X, y = data()
    model = clone(ESTIMATORS[name])
    for how, weights in WEIGHTS.items():
        assert isinstance(attempt(lambda w=weights: model.fit(X, y, sample_weight=w)), Refused), how
