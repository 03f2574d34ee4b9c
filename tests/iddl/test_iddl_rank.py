"""Atoms of lower rank: their objective, where they start, what is averaged, and what they find."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import eigh
from sklearn.model_selection import GroupKFold

from divlearn import IDDLClassifier, IDDLRegressor, IDDLTransformer, load, save
from divlearn.heads.losses import SoftmaxLoss
from divlearn.heads.samples import FeatureMap
from divlearn.iddl import Recipe
from divlearn.iddl.atoms import Filters, initial_filters, make_variant
from divlearn.iddl.judging import Candidate
from divlearn.iddl.learning import Learned, join_ranks
from divlearn.iddl.objective import Objective, Settings
from divlearn.iddl.training import Model
from divlearn.sharded.opening import open_data
from divlearn.spd import invsqrtm


def filtered(n=240, d=10, seed=0):
    """Recordings of which one hidden source has another variance in the second class."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    sources = rng.standard_normal((n, d, 60))
    sources[y == 1, 0] *= 1.8
    mixed = rng.standard_normal((d, d)) @ sources
    return mixed @ mixed.mT / 60, y


@pytest.mark.parametrize("divergence", ["line", [(0.7, 1.2), (0.3, 0.4)]])
@pytest.mark.parametrize("rank", [1, 2])
def test_gradients_of_the_objective_are_differences(divergence, rank):
    X, y = filtered(n=40, d=5)
    rng = np.random.default_rng(1)
    variant = make_variant(divergence, 3, rank=rank)
    start = Filters(0.3 * rng.standard_normal((3, 5, rank)), variant.start, invsqrtm(X.mean(0)))
    shards, targets = open_data(X), [(np.eye(2)[y], np.full(40, 1 / 40))]
    n_values = variant.alpha_index.shape[1] + 1
    objective = Objective(
        shards,
        targets,
        variant,
        FeatureMap(np.tile(np.append(np.full(n_values - 1, 0.1), 0.0), 3)),
        Settings(SoftmaxLoss(), 1e-2, tether=0.1),
        anchors=start.frames + 0.1,
    )
    gradient = objective.gradient(objective.trial(start))
    step, h = rng.standard_normal(len(gradient)), 1e-6
    ends = [objective.trial(objective.move(start, s * h * step)).value for s in (1, -1)]
    if isinstance(divergence, str):
        step[start.frames.size :] = 0  # fixed
    assert_allclose(gradient @ step, (ends[0] - ends[1]) / (2 * h), rtol=1e-5)


def test_filters_start_at_common_spatial_patterns():
    X, y = filtered()
    means = np.stack([X[y == label].mean(axis=0) for label in (0, 1)])
    filters = initial_filters(X, means, 30, 1, np.random.RandomState(0))
    values, vectors = eigh(means[1], X.mean(axis=0))
    pattern = vectors[:, np.abs(np.log(values)).argmax()]
    first = filters[1, :, 0]
    assert_allclose(abs(first @ pattern) / np.linalg.norm(first) / np.linalg.norm(pattern), 1)
    # Each whitens its centre, also those that are random because patterns are used up.
    for number, one in enumerate(filters):
        assert_allclose(one.T @ means[number % 2] @ one, np.eye(1), atol=1e-9)


@pytest.mark.parametrize("rank", [1, 3])
def test_a_low_rank_finds_the_source(rank):
    X, y = filtered()
    model = IDDLClassifier(rank=rank, random_state=0).fit(X[:120], y[:120])
    assert model.score(X[120:], y[120:]) > 0.9
    assert {one.shape[1:] for one in model.filters_} == {(10, rank)}


def test_auto_averages_ranks():
    X, y = filtered(n=120)
    options = {"recipe": Recipe(loss="softmax"), "random_state": 0, "max_iter": 1, "cv": 2}
    model = IDDLClassifier(**options).fit(X, y)
    ranks = {one.atoms.shape[2] for one in model.models_}
    assert ranks == {10, 1, 4}
    assert model.atoms_.shape[1:] == (10, 10)
    assert "held-out losses of ranks" in model.message_
    # The mean over models is the mean over ranks of scores on one scale.
    single = [
        IDDLClassifier(rank=one, **options).fit(X, y).decision_function(X) for one in ("full", 1, 4)
    ]
    mean = np.mean(single, axis=0)
    found = model.decision_function(X) * model.temperature_
    assert_allclose(found, mean, atol=1e-6 * np.abs(mean).max())


@pytest.mark.parametrize(("noise", "kept"), [(0.1, [8, 1]), (9.0, [8])])
def test_full_rank_alone_where_it_is_clearly_better(noise, kept):
    rng = np.random.default_rng(0)
    rows, codes = np.arange(100), np.arange(100) % 2
    folds = [(rows[50:], rows[:50]), (rows[:50], rows[50:])]
    task = SimpleNamespace(
        folds=folds,
        factors=lambda scores, rows: [1 / len(scores)] * len(scores),
        row_losses=lambda scores, rows: np.logaddexp(0, (1 - 2 * codes[rows]) * scores[:, 0]) / 100,
    )

    def learned(scores, size):
        choice = Candidate(SoftmaxLoss(), 0.1, rows, scores, task.row_losses(scores, rows))
        none = np.zeros((2, 1))
        head = np.ones((1, 1)), np.ones(1)
        model = Model(np.zeros((2, 8, size)), none, none, None, None, head)
        return Learned(choice, [choice] * 2, [model], [], 1, "", [], {})

    true = (2.0 * codes - 1 + 0.1 * rng.standard_normal(100))[:, None]
    other = true + noise * rng.standard_normal((100, 1))
    joined = join_ranks([learned(true, 8), learned(other, 1)], task)
    assert [one.atoms.shape[2] for one in joined.models] == kept
    assert_allclose(joined.choice.scores, (true + other) / 2 if len(kept) == 2 else true)


def test_groups_decide_as_for_full_rank():
    X, y = filtered(n=60)
    groups = np.arange(60) // 10
    folds = list(GroupKFold(3).split(X, y, groups))
    model = IDDLClassifier(4, cv=folds, max_iter=1, random_state=0).fit(X, y)
    assert np.isfinite(model.oof_proba_).all()


def test_files_keep_filters(tmp_path):
    X, y = filtered(n=80)
    model = IDDLClassifier(2, cv=2, max_iter=1, random_state=0).fit(X, y)
    save(model, tmp_path / "model.divlearn")
    again = load(tmp_path / "model.divlearn")
    assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_a_regressor_of_rank_one():
    X, _ = filtered(n=200)
    direction = np.random.default_rng(3).standard_normal(10)
    y = np.log(direction @ X @ direction)
    model = IDDLRegressor(rank=1, random_state=0).fit(X[::2], y[::2])
    assert model.score(X[1::2], y[1::2]) > 0.95


@pytest.mark.parametrize(("rank", "width"), [(1, 1), (2, 4)])
def test_a_transformer_of_lower_rank(rank, width):
    X, y = filtered(n=80)
    model = IDDLTransformer(rank=rank, max_iter=1, random_state=0).fit(X, y)
    n_features = sum(width * len(one) for one in model.filters_)
    assert model.transform(X).shape == (80, n_features)
    assert len(model.get_feature_names_out()) == n_features
    with pytest.raises(ValueError, match=f"rank={rank} is learned by y, which is None; pass y"):
        IDDLTransformer(rank=rank).fit(X)


def test_bad_ranks():
    X, y = filtered(n=40)
    with pytest.raises(ValueError, match='rank=0 must be >= 1, or "auto" or "full"'):
        IDDLClassifier(rank=0).fit(X, y)
    with pytest.raises(ValueError, match="rank=2 needs solver='joint', not 'bcd'"):
        IDDLClassifier(rank=2, recipe=Recipe(solver="bcd")).fit(X, y)
    full = IDDLClassifier(2, rank=10, max_iter=1, random_state=0).fit(X, y)
    assert full.filters_ == []


def test_few_matrices_get_the_scores_of_many():
    X, y = filtered(n=90, d=6)
    model = IDDLClassifier(n_atoms=4, max_iter=2, cv=3, random_state=0).fit(X, y)
    many = np.concatenate([X] * 3)  # so many that each model encodes them itself
    expected = model.decision_function(many)[: len(X)]
    assert_allclose(model.decision_function(X), expected, rtol=1e-10, atol=1e-12)


def test_learned_pairs_leave_the_line_they_start_on():
    X, y = filtered(n=90, d=6)
    start = [(0.5, 0.5), (0.25, 0.75)]
    options = {"rank": 2, "max_iter": 4, "cv": None, "random_state": 0}
    model = IDDLClassifier(4, divergence=start, **options).fit(X, y)
    (filters,) = model.models_
    assert (np.abs(filters.alpha + filters.beta - 1) > 1e-3).any(axis=0).all()
