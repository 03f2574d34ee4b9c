"""Where divergences start: a grid of the plane against a plain search over it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.special import log_softmax
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold

from divlearn import abld, pairwise_abld
from divlearn.datasets import make_wishart_clusters
from divlearn.fitting.calibration import fit_temperature
from divlearn.heads.losses import RidgeLoss
from divlearn.iddl import IDDLClassifier, IDDLRegressor, IDDLTransformer, Recipe

VALUES = [0.0, 0.25, 0.5, 1.0, 1.5, 2.0]
GAMMA = 1e-3


@pytest.fixture(scope="module")
def data():
    return make_wishart_clusters(3, 30, 3, separation=3, random_state=0)


def features(V, seen):
    """Logarithms with an offset, standardised, both by what was seen."""
    offset = 0.1 * seen.mean(axis=0)
    logs, known = np.log(V + offset), np.log(seen + offset)
    return (logs - known.mean(axis=0)) / known.std(axis=0)


def brute_force(X, targets, atoms, folds, judge, points):
    """Losses of every point, with scikit-learn's ridge regression and one divergence at a time."""
    losses = []
    for alpha, beta in points:
        scores = np.zeros(targets.shape)
        for train, held in folds:
            V, W = (pairwise_abld(X[rows], atoms, alpha=alpha, beta=beta) for rows in (train, held))
            ridge = Ridge(alpha=2 * len(train) * GAMMA).fit(features(V, V), targets[train])
            scores[held] = ridge.predict(features(W, V)).reshape(scores[held].shape)
        losses.append(judge(scores))
    return np.array(losses)  # (n_points, n_matrices)


@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_it_finds_what_a_plain_search_finds(data, numbers, tied):
    X, y = data
    atoms = X[[0, 7, 20]]
    folds = list(KFold(3).split(X))
    points = [(a, b) for a, b in product(VALUES, VALUES) if a == b > 0 or not tied]
    if numbers:
        numbers = np.sqrt(np.linalg.eigvalsh(X)[:, -1])
        targets = ((numbers - numbers.mean()) / numbers.std())[:, None]
        losses = brute_force(X, targets, atoms, folds, lambda s: ((s - targets) ** 2)[:, 0], points)
        kind, y = IDDLRegressor, numbers
    else:

        def log_losses(scores):
            temperature, _ = fit_temperature(scores, y, np.full(len(y), 1 / len(y)))
            return -log_softmax(scores / temperature, axis=1)[np.arange(len(y)), y]

        losses = brute_force(X, np.eye(3)[y], atoms, folds, log_losses, points)
        kind = IDDLClassifier
    estimator = kind(
        recipe=Recipe(loss="ridge", init=atoms, penalty=GAMMA),
        divergence="V" if tied else "N",
        cv=KFold(3),
        max_iter=0,
    ).fit(X, y)
    for model, (train, _) in zip(estimator.models_, folds, strict=True):
        judged = losses[:, train].mean(axis=1)  # the point of a fold is chosen without it
        alpha, beta = points[int(np.argmin(judged))]
        assert np.sort(judged)[1] > 1.0001 * np.min(judged)  # by more than digits
        assert (model.alpha == alpha).all()
        assert (model.beta == beta).all()
    assert estimator.alpha_.shape == (9, 1)


@pytest.mark.parametrize("cv", [None, 3])
@pytest.mark.parametrize(
    ("pair", "divergence"),
    [((1.5, 0.25), "N"), ((0.0, 1.0), "S"), ((1.0, 0.0), "N"), ((0.5, 0.5), "V")],
)
def test_it_finds_the_divergence_that_made_the_data(data, pair, divergence, cv):
    X, _ = data
    hidden = X[:1]
    regressor = IDDLRegressor(
        recipe=Recipe(loss=RidgeLoss(plain=True), init=hidden, penalty=1e-8),
        divergence=divergence,
        cv=cv,
        max_iter=0,
        random_state=0,
    )
    y = abld(X, hidden[0], *pair)
    regressor.fit(X, y)
    assert (regressor.alpha_ == pair[0]).all()
    assert (regressor.beta_ == pair[1]).all()
    np.testing.assert_allclose(regressor.predict(X), y, rtol=1e-3, atol=1e-3)


def test_learning_starts_there(data):
    X, y = data
    recipe = Recipe(loss="ridge", init="samples", penalty=GAMMA)
    options = {"n_atoms": 3, "cv": None, "random_state": 0}
    grid = IDDLClassifier(divergence="N", recipe=recipe, max_iter=0, **options).fit(X, y)
    pair = grid.alpha_[0, 0], grid.beta_[0, 0]
    given = IDDLClassifier(divergence=[pair], recipe=recipe, max_iter=3, **options).fit(X, y)
    learned = IDDLClassifier(divergence="N", recipe=recipe, max_iter=3, **options).fit(X, y)
    started = replace(recipe, start=pair)
    again = IDDLClassifier(divergence="N", recipe=started, max_iter=3, **options).fit(X, y)
    np.testing.assert_array_equal(again.alpha_, learned.alpha_)
    np.testing.assert_array_equal(learned.alpha_, given.alpha_)
    np.testing.assert_array_equal(learned.atoms_, given.atoms_)


def test_it_says_where(data, capsys):
    X, y = data
    IDDLClassifier(
        n_atoms=3, recipe=Recipe(init="samples"), divergence="N", max_iter=0, cv=2, verbose=1
    ).fit(X, y)
    assert "divergences start at alpha=" in capsys.readouterr().out


def test_encoders_and_fixed_divergences(data):
    X, y = data
    encoder = IDDLTransformer(
        n_atoms=3, recipe=Recipe(init="samples"), divergence="N", max_iter=0, cv=3
    )
    assert encoder.fit_transform(X, y).shape == (90, 9)
    assert encoder.alpha_[0, 0] in VALUES
    with pytest.raises(ValueError, match="divergence='N' is chosen by y, which is None"):
        encoder.fit(X)
    stein = encoder.set_params(divergence="stein").fit(X, y)
    assert (stein.alpha_ == 0.5).all()


BAD = ["gird", "jeffreys", [], [(1.0, 1.0, 1.0)], [(-1.0, 1.0)], [(np.nan, 1.0)], [("a", 1)], 3]


@pytest.mark.parametrize("divergence", BAD, ids=str)
def test_bad_divergences(data, divergence):
    X, y = data
    with pytest.raises(ValueError, match=r"divergence=.* must (be|hold)"):
        IDDLClassifier(n_atoms=3, recipe=Recipe(init="samples"), divergence=divergence).fit(X, y)
