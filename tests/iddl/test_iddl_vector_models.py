"""Discriminants and ridge regressions beside linear heads, and when they are kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import wishart
from numpy.testing import assert_allclose
from scipy.special import softmax
from sklearn.linear_model import LinearRegression, Ridge

from divlearn import IDDLClassifier, IDDLRegressor, load, save
from divlearn.datasets import make_wishart_clusters
from divlearn.heads.discriminants import RDA, Linear, NoSpreadError
from divlearn.heads.losses import SoftmaxLoss
from divlearn.iddl import Recipe
from divlearn.iddl.judging import Candidate
from divlearn.iddl.learning import Learned, add_vector_models
from divlearn.iddl.training import Joined, Model, Task, VectorModel
from divlearn.log_vectors import log_vectors


@dataclass(frozen=True, eq=False)
class Known(Model):
    """A model whose features are given, the same for every fold."""

    features: np.ndarray = None

    def embed(self, block):
        return self.features[block.rows]


class Block:
    engine = SimpleNamespace(n_threads=1)

    def __init__(self, rows, matrices=None):
        self.rows = rows
        self.data = SimpleNamespace(device_matrices=matrices)

    def __len__(self):
        return len(self.rows)


def problem(scores, features, codes, logarithms=None):
    """Linear scores and features of two folds, to be joined; logarithms that tell nothing."""
    rows = np.arange(len(codes))
    halves = rows[::2], rows[1::2]
    folds = [(halves[1], halves[0]), (halves[0], halves[1])]
    order = np.concatenate(halves)

    def judge(some, where):
        proba = softmax(some, axis=1)[np.arange(len(where)), codes[where]]
        return -np.log(np.maximum(proba, 1e-9)) / len(where)

    # Without a difference of classes, discriminants of these give the same scores to all classes.
    constant = np.tile(rows[: len(rows) // 4], (4, 1)).T.reshape(-1, 1) / 100
    task = SimpleNamespace(
        shards=SimpleNamespace(whole=Block(rows)),
        targets=[(np.eye(2)[codes], None)],
        codes=codes,
        weights=np.full(len(codes), 1 / len(codes)),
        folds=folds,
        n_workers=1,
        factors=lambda some, where: [1 / len(some)] * len(some),
        logarithms=lambda: constant if logarithms is None else logarithms,
        row_losses=judge,
    )
    choice = Candidate(SoftmaxLoss(), 0.1, order, scores[order], judge(scores[order], order))
    head = np.zeros((2, features.shape[1])), np.zeros(2)
    none = np.zeros((1, 1))
    models = [Known(np.zeros((1, 300, 300)), none, none, None, None, head, 300, features)] * 2
    learned = Learned(choice, [choice] * 2, models, [], 1, "learned", [], {})
    return replace(learned, features=[features] * 2), task


@pytest.fixture
def spread():
    """Classes around one point that differ in spread alone: no linear head tells them apart."""
    rng = np.random.default_rng(0)
    codes = np.arange(2000) // 2 % 2
    return np.where(codes == 1, 3.0, 1.0)[:, None] * rng.standard_normal((2000, 3)), codes


def differences(scores):
    """Scores of the second class minus those of the first, which probabilities depend on."""
    return scores[:, 1] - scores[:, 0]


def test_they_see_what_linear_heads_cannot(spread):
    features, codes = spread
    learned, task = problem(np.zeros((2000, 2)), features, codes)
    joined = add_vector_models(learned, task)
    assert joined.choice.held_out_loss < 0.8 * np.log(2)
    assert f"{joined.choice.held_out_loss:.4g} averaged with discriminants" in joined.message
    new = Block(np.arange(300), np.exp(task.logarithms()[:300, :, None]))
    found = Joined(joined.models, joined.vector_models).scores(new)
    expected = by_every_amount(features, codes, features[:300])
    assert sum(np.allclose(3 * differences(found), differences(one)) for one in expected) == 1


def test_logarithms_count_as_much_as_features(spread):
    features, codes = spread
    learned, task = problem(np.zeros((2000, 2)), features[::-1].copy(), codes, features)
    joined = add_vector_models(learned, task)
    of_logarithms = [each for each in joined.vector_models if not len(each.models)]
    assert len(of_logarithms) == 1
    assert of_logarithms[0].weight == pytest.approx(1 / 3)
    found = of_logarithms[0].function.decide(features[:300])
    expected = by_every_amount(features, codes, features[:300])
    assert sum(np.allclose(found, one) for one in expected) == 1


def test_scores_are_a_sum_over_models_and_functions_of_vectors():
    rng, none = np.random.default_rng(0), np.zeros((1, 1))
    codes = np.arange(400) % 3
    models, scores = [], []
    for size in (2, 4, 3):
        features = rng.standard_normal((400, size)) + codes[:, None]
        head = rng.standard_normal((3, size)), rng.standard_normal(3)
        models.append(Known(none[None], none, none, None, None, head, 1, features))
        scores.append(features @ head[0].T + head[1])
    expected, vector_models = np.mean(scores, axis=0), []
    for members, weight in ((np.array([2, 0]), 0.3), (np.array([1]), 0.6)):
        features = np.concatenate([models[member].features for member in members], axis=1)
        gaussians = RDA(features, codes, np.ones(400)).learn(0.5, 0.1)
        expected = expected + weight * gaussians.decide(features)
        vector_models.append(VectorModel(members, weight, gaussians))
    matrices = make_wishart_clusters(1, 400, 3, random_state=0)[0]
    logarithms = log_vectors(matrices)
    for weight in (0.2, 0.4):
        linear = Linear(rng.standard_normal((3, 6)), rng.standard_normal(3))
        expected = expected + weight * (logarithms @ linear.coefficients.T + linear.offsets)
        vector_models.append(VectorModel(np.array([], dtype=int), weight, linear))
    found = Joined(models, vector_models).scores(Block(np.arange(400), matrices))
    assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def by_every_amount(features, codes, new):
    """Scores of discriminants with the amounts to choose from; these are tested elsewhere."""
    known = RDA(features, codes, np.ones(len(codes)))
    every = product((0.1, 0.5, 0.9), (0.003, 0.01, 0.03, 0.1, 0.3))
    return [known.learn(*one).decide(new) for one in every]


def test_each_fold_is_judged_without_itself(spread):
    """Scores of what a fold holds out belong to discriminants of the other fold."""
    features, codes = spread
    learned, task = problem(np.zeros((2000, 2)), features, codes)
    found = add_vector_models(learned, task).fold_choices[0].scores
    train, held = task.folds[0]
    expected = by_every_amount(features[train], codes[train], features[held])
    found = 3 * differences(found[: len(held)])
    assert sum(np.allclose(found, differences(one)) for one in expected) == 1


def test_linear_heads_alone_where_they_are_clearly_better(spread):
    rng = np.random.default_rng(1)
    _, codes = spread
    certain = 4.0 * np.eye(2)[codes]
    learned, task = problem(certain, rng.standard_normal((2000, 3)), codes)
    joined = add_vector_models(learned, task)
    assert joined.message.endswith("averaged with discriminants, not kept")
    assert joined.models is learned.models
    assert joined.vector_models == []


def test_classes_of_single_matrices_have_no_discriminants():
    learned, task = problem(np.zeros((4, 2)), np.eye(4), np.array([0, 0, 1, 1]))
    with pytest.raises(NoSpreadError):
        add_vector_models(learned, task)


@pytest.fixture(scope="module")
def fitted():
    X, y = make_wishart_clusters(3, 30, 4, separation=2, random_state=0)
    return IDDLClassifier(max_iter=2, random_state=0).fit(X, y), X


def test_files_keep_them(fitted, tmp_path):
    model, X = fitted
    assert len(model.vector_models_) == 5  # of the logarithms, and of the features of four folds
    save(model, tmp_path / "model.divlearn")
    found = load(tmp_path / "model.divlearn").predict_proba(X)
    np.testing.assert_array_equal(found, model.predict_proba(X))


def test_many_matrices_are_predicted_as_few(fitted):
    model, X = fitted
    many = model.predict_proba(np.tile(X, (50, 1, 1)))
    assert_allclose(many, np.tile(model.predict_proba(X), (50, 1)), rtol=1e-9, atol=1e-12)


def test_a_given_loss_has_its_linear_head_alone(fitted):
    _, X = fitted
    y = np.arange(len(X)) % 2
    model = IDDLClassifier(
        recipe=Recipe(loss="ridge"), max_iter=0, rank="full", random_state=0
    ).fit(X, y)
    assert model.vector_models_ == []


def test_the_summary_has_their_loss(fitted):
    model, _ = fitted
    loss = model.held_out_losses_["with models of vectors"].sum()
    assert f"Held-out loss {loss:.4g}, averaged with other models" in model.summary()


def test_numbers_have_a_ridge_regression_on_logarithms(tmp_path):
    """The target is a linear function of the logarithms, so this regression has all the weight."""
    X = make_wishart_clusters(1, 90, 4, random_state=0)[0]
    logarithms = log_vectors(X)
    y = logarithms @ np.random.default_rng(0).standard_normal(10)
    model = IDDLRegressor(max_iter=1, random_state=0).fit(X[:60], y[:60])
    (ridge,) = model.vector_models_
    assert ridge.weight > 0.9
    variance = logarithms[:60].var(axis=0).sum()
    expected = [
        Ridge(variance * 10.0 ** (power / 2)).fit(logarithms[:60], y[:60]).coef_
        for power in range(-8, 9)
    ]
    found = ridge.function.coefficients[0] * model.scale_
    assert sum(np.allclose(found, one, rtol=1e-8) for one in expected) == 1
    assert model.score(X[60:], y[60:]) > 0.999
    save(model, tmp_path / "model.divlearn")
    found = load(tmp_path / "model.divlearn").predict(X)
    np.testing.assert_array_equal(found, model.predict(X))


def test_factors_of_numbers_are_non_negative_least_squares():
    rng = np.random.default_rng(0)
    Y, weights = rng.standard_normal((80, 2)), rng.uniform(0.5, 2, 80)
    scores = [Y + rng.standard_normal((80, 2)), 0.5 * Y, -Y]
    task = SimpleNamespace(codes=None, weights=weights, sample_targets=Y)
    rows = rng.permutation(80)[:60]
    found = Task.factors(task, [one[rows] for one in scores], rows)
    columns = np.stack([one[rows].ravel() for one in scores], axis=1)
    model = LinearRegression(positive=True, fit_intercept=False)
    expected = model.fit(columns, Y[rows].ravel(), np.repeat(weights[rows], 2)).coef_
    assert expected[2] == 0 < expected[1]
    assert_allclose(found, expected, atol=1e-12)


def test_one_matrix_many_times_has_no_discriminants():
    """Its logarithms differ by rounding in some folds, and in none of all matrices."""
    X = np.tile(wishart(np.random.default_rng(3), 1, 3), (12, 1, 1))
    model = IDDLClassifier(4, rank="full", max_iter=0, random_state=0).fit(X, np.arange(12) % 2)
    assert model.vector_models_ == []
    np.testing.assert_allclose(model.predict_proba(X[:1]), 0.5, atol=1e-6)
