"""IDDLClassifier as users and scikit-learn see it."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import StackingClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from divlearn import pairwise_abld
from divlearn.datasets import make_wishart_clusters
from divlearn.heads.losses import HingeLoss, RidgeLoss
from divlearn.iddl import IDDLClassifier, Recipe, judging, learning
from divlearn.iddl.training import Task

EYES = np.eye(4)[None]
FAST = {"n_atoms": 6, "rank": "full", "cv": 2, "max_iter": 3, "random_state": 0}


@pytest.fixture(scope="module")
def data():
    X, y = make_wishart_clusters(3, 40, 4, separation=4, random_state=0)
    return X[::2], y[::2], X[1::2], y[1::2]


def test_it_learns(data):
    X, y, X_test, y_test = data
    classifier = IDDLClassifier(random_state=0).fit(X, y)
    assert classifier.score(X_test, y_test) > 0.85
    n_atoms = 4 * 3 * (len(X) // 9)  # of four folds and three classes: one for three matrices
    assert classifier.atoms_.shape == (n_atoms, 4, 4)
    assert classifier.alpha_.shape == classifier.beta_.shape == (n_atoms, 3)
    assert (classifier.alpha_ >= 0).all()
    assert "held-out loss" in classifier.message_
    assert classifier.loss_ in ("softmax", "ridge")


@pytest.mark.parametrize(
    ("loss", "solver", "cv"),
    [
        ("ridge", "joint", None),
        ("ridge", "joint", 3),
        ("ridge", "bcd", None),
        ("hinge", "joint", None),
        ("hinge", "stochastic", None),
        ("softmax", "joint", None),
        ("softmax", "bcd", 2),
        ("softmax", "stochastic", 2),
    ],
)
def test_losses_and_solvers(data, loss, solver, cv):
    X, y, X_test, y_test = data
    # An iteration of block-coordinate descent is a round of all blocks.
    options = FAST | {"cv": cv, "max_iter": 1 if solver == "bcd" else 2}
    # The penalty is chosen alike for all.
    penalty = "auto" if (loss, solver) == ("ridge", "joint") else 1e-2
    recipe = Recipe(loss=loss, solver=solver, penalty=penalty)
    classifier = IDDLClassifier(recipe=recipe, **options).fit(X, y)
    assert classifier.score(X_test, y_test) > 0.75
    probabilities = classifier.predict_proba(X_test)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert log_loss(y_test, probabilities) < 0.8 * np.log(3)
    np.testing.assert_array_equal(
        classifier.classes_[probabilities.argmax(axis=1)], classifier.predict(X_test)
    )


@pytest.mark.parametrize("divergence", ["S", "V", "N", "burg", (0.3, 0.8)])
def test_divergences(data, divergence):
    X, y, X_test, y_test = data
    classifier = IDDLClassifier(
        divergence=divergence, recipe=Recipe(loss="ridge"), **FAST | {"cv": None}
    ).fit(X, y)
    assert classifier.score(X_test, y_test) > 0.7
    alpha, beta = classifier.alpha_, classifier.beta_
    if divergence == "S":
        assert (alpha == alpha[0]).all()
        assert (beta == beta[0]).all()
    if divergence == "V":
        np.testing.assert_array_equal(alpha, beta)
    if divergence == "burg":
        assert alpha.max() == 0
        assert beta.min() == beta.max() == 1


def test_fixed_dictionary_and_fixed_parameters(data):
    X, y, _, _ = data
    options = FAST | {"cv": None}
    start = IDDLClassifier(recipe=Recipe(loss="ridge"), **options | {"max_iter": 0}).fit(X, y)
    np.testing.assert_allclose(start.alpha_ + start.beta_, 1)
    parameters = IDDLClassifier(
        recipe=Recipe(learn="divergences"), divergence="learn", **options
    ).fit(X, y)
    np.testing.assert_allclose(parameters.atoms_, start.atoms_, rtol=1e-12)
    assert not np.allclose(parameters.alpha_, [1, 0, 1])
    with pytest.raises(ValueError, match=r"needs pairs to learn, and divergence='line' has none"):
        IDDLClassifier(recipe=Recipe(learn="divergences")).fit(X, y)
    atoms = IDDLClassifier(recipe=Recipe(learn="atoms"), **options).fit(X, y)
    np.testing.assert_array_equal(atoms.alpha_, start.alpha_)
    assert not np.allclose(atoms.atoms_, start.atoms_)
    assert start.n_iter_ == 0
    identity = IDDLClassifier(recipe=Recipe(init="identity"), **options | {"max_iter": 0}).fit(X, y)
    np.testing.assert_allclose(identity.atoms_, np.broadcast_to(np.eye(4), (6, 4, 4)), atol=1e-12)
    given = IDDLClassifier(recipe=Recipe(init=X[:6]), **options | {"max_iter": 0}).fit(X, y)
    np.testing.assert_allclose(given.atoms_, X[:6], rtol=1e-10)


def test_history(data):
    X, y, _, _ = data
    one = IDDLClassifier(recipe=Recipe(loss="ridge"), **FAST | {"cv": None}).fit(X, y).history_
    assert {
        "objective",
        "gradient_norm",
        "block",
        "alpha",
        "beta",
        "seconds",
        "eigenproblems",
    } <= set(one)
    assert len(one["objective"]) == 4
    assert (np.diff(one["objective"]) <= 0).all()
    several = IDDLClassifier(recipe=Recipe(loss="ridge"), **FAST | {"cv": 3}).fit(X, y).history_
    assert set(several["model"]) == {0, 1, 2}
    assert len(several["held_out_loss"]) == 2


@pytest.fixture
def judged_by(monkeypatch):
    """Let held-out losses be those that are given, in turn; the last is for all that follow."""
    losses = []

    def give(some):
        losses[:] = some

    def judge(task, scores, rows):
        return np.full(len(rows), (losses.pop(0) if losses[1:] else losses[0]) / len(rows))

    monkeypatch.setattr(Task, "row_losses", judge)
    return give


@pytest.mark.parametrize(
    ("losses", "kept"),
    [((1, 2, 3), "the start is"), ((3, 1, 2), "the learned model is"), ((3, 2, 1), "both are")],
)
def test_start_learned_and_average_compete(judged_by, losses, kept):
    X, y = make_wishart_clusters(3, 20, 3, separation=2, random_state=0)
    options = {"recipe": Recipe(loss="softmax", penalty=0.01), "cv": 3, "random_state": 0}
    judged_by([0])
    start = IDDLClassifier(max_iter=0, **options).fit(X, y)
    judged_by(losses)  # of the start, of what was learned, of their average
    model = IDDLClassifier(max_iter=3, **options).fit(X, y)
    said = "held-out loss {} at the start, {} after 3 iterations, {} with both averaged; {} kept"
    assert model.message_ == f"{said.format(*losses, kept)}; max_iter=3 reached"
    assert all(one.startswith("max_iter=3 reached; size of") for one in model.stop_reasons_)
    assert model.n_iter_ == (0 if kept == "the start is" else 3)
    np.testing.assert_allclose(model.history_["held_out_loss"], losses[:2])
    if kept == "the start is":
        np.testing.assert_array_equal(model.atoms_, start.atoms_)
    assert len(model.starts_) == (3 if kept == "both are" else 0)
    if kept == "both are":
        alone = copy(model)
        alone.starts_ = []
        mean = alone._scores(X) / 2 + start._scores(X) / 2
        expected = softmax(mean / model.temperature_, axis=1)
        np.testing.assert_allclose(model.predict_proba(X), expected)


def test_different_reasons_to_stop_are_counted():
    said = learning.say_reasons(["done; size 3", "max_iter=3 reached", "done; size 4"])
    assert said == "2 of 3 models: done; 1 of 3 models: max_iter=3 reached"


def test_heads_of_a_fold_are_chosen_without_it():
    """Each of three heads is the best on two of three folds, and bad on the third."""
    rows = [np.arange(2) + 2 * k for k in range(3)]
    folds = [(np.setdiff1d(np.arange(6), held), held) for held in rows]
    candidates = []
    for k in range(3):
        losses, scores = np.full(6, 0.1), np.full((6, 1), float(k))
        losses[rows[k]] = 1.0 + k / 10
        candidates.append(judging.Candidate(None, k, np.arange(6), scores, losses))
    chooser = partial(judging.best_candidate, candidates)
    best, fold_choices = judging.choose_for_folds(chooser, folds)
    assert best.penalty == 0
    assert [choice.penalty for choice in fold_choices] == [0, 1, 2]
    assert judging.nested_loss(fold_choices, folds) == pytest.approx(6.6)


def test_paper_preset(data):
    X, y, X_test, y_test = data
    paper = IDDLClassifier.paper("V")
    assert paper.recipe.solver == "bcd"
    assert IDDLClassifier.paper("V", solver="joint").recipe.solver == "joint"
    paper.set_params(n_atoms=6, max_iter=2, random_state=0)
    assert paper.fit(X, y).score(X_test, y_test) > 0.6
    assert paper.loss_ == "ridge"
    assert not paper.models_[0].head[1].any()
    assert len(paper.models_) == 1
    assert paper.models_[0].offset is None  # the head sees the divergences
    again = clone(paper).fit(X, y)
    np.testing.assert_array_equal(again.decision_function(X), paper.decision_function(X))
    hinge = IDDLClassifier.paper(loss="hinge").recipe.loss
    assert hinge.name == "hinge"
    assert hinge.plain
    with pytest.raises(ValueError, match="loss='log' must be one of ridge, hinge, softmax"):
        IDDLClassifier.paper(loss="log")


def test_the_authors_code_preset(data):
    """With no iteration: matrices of every class, (1, 1), and the head that the code solves for."""
    X, y, _, _ = data
    code = IDDLClassifier.paper("V", code=True)
    assert code.get_params()["max_iter"] == 3
    code.set_params(n_atoms=6, max_iter=0, random_state=0).fit(X, y)
    assert code.penalty_ == 10 / len(X)
    assert (code.alpha_ == 1).all()
    assert (code.beta_ == 1).all()
    gaps = np.abs(code.atoms_[:, None] - X).max(axis=(2, 3))
    assert gaps.min(axis=1).max() < 1e-12
    assert y[gaps.argmin(axis=1)].tolist() == [0, 0, 1, 1, 2, 2]
    V = pairwise_abld(X, code.atoms_, alpha=1, beta=1)
    W = np.linalg.solve(V.T @ V + 2 * 10 * np.eye(6), V.T @ np.eye(3)[y])
    np.testing.assert_allclose(code.models_[0].head[0], W.T, rtol=1e-5, atol=1e-8)
    assert IDDLClassifier.paper("A", code=True).divergence == "A"


def test_the_penalty_whose_learned_models_do_best_is_chosen(data, judged_by):
    X, y, _, _ = data
    judged_by([3.0, 1.0, 2.0, 4.0])  # from the largest penalty on
    assert IDDLClassifier.paper("A").set_params(n_atoms=6, max_iter=1).fit(X, y).penalty_ == 0.1
    with pytest.raises(ValueError, match="cv=3 must be None with penalty"):
        IDDLClassifier(recipe=Recipe(penalty="cv"), cv=3).fit(X, y)


def test_the_same_seed_gives_the_same_model(data):
    X, y, X_test, _ = data
    first, second = (
        IDDLClassifier(recipe=Recipe(loss="ridge"), **FAST).fit(X, y) for _ in range(2)
    )
    np.testing.assert_array_equal(first.predict_proba(X_test), second.predict_proba(X_test))


def test_labels_of_any_kind_and_two_classes(data):
    X, y, X_test, y_test = data
    names = np.array(["ash", "birch", "cedar"])
    classifier = IDDLClassifier(recipe=Recipe(loss="ridge"), **FAST).fit(X, names[y])
    assert set(classifier.predict(X_test)) <= set(names)
    two = y < 2
    binary = IDDLClassifier(recipe=Recipe(loss="softmax"), **FAST).fit(X[two], y[two])
    scores = binary.decision_function(X_test[y_test < 2])
    assert scores.ndim == 1
    np.testing.assert_array_equal(binary.predict(X_test[y_test < 2]), (scores > 0).astype(int))
    np.testing.assert_allclose(
        binary.predict_proba(X_test[y_test < 2])[:, 1], 1 / (1 + np.exp(-scores)), rtol=1e-9
    )


def test_congruence_changes_no_probability(data):
    X, y, X_test, _ = data
    A = np.random.default_rng(0).standard_normal((4, 4))
    # k-means is not invariant
    options = FAST | {"recipe": Recipe(loss="ridge", init="samples")}
    before = IDDLClassifier(**options).fit(X, y).predict_proba(X_test)
    after = IDDLClassifier(**options).fit(A @ X @ A.T, y).predict_proba(A @ X_test @ A.T)
    np.testing.assert_allclose(after, before, atol=1e-5)


def test_weights(data):
    X, y, X_test, _ = data
    recipe = Recipe(loss="ridge", init=X[:6], penalty=1e-2)
    options = {"recipe": recipe, "cv": None, "max_iter": 3}
    counts = np.random.default_rng(0).integers(1, 3, len(X))
    weighted = IDDLClassifier(**options).fit(X, y, sample_weight=counts)
    repeated = IDDLClassifier(**options).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    np.testing.assert_allclose(weighted.atoms_, repeated.atoms_, rtol=1e-4)
    heavy = IDDLClassifier(class_weight={0: 50, 1: 1, 2: 1}, **options).fit(X, y)
    assert (heavy.predict(X_test) == 0).mean() > (weighted.predict(X_test) == 0).mean()


def test_inside_other_tools(data):
    X, y, X_test, y_test = data
    fast = IDDLClassifier(recipe=Recipe(loss="ridge"), **FAST | {"cv": None})
    calibrated = CalibratedClassifierCV(fast, cv=2).fit(X, y)
    assert calibrated.predict_proba(X_test).shape == (60, 3)
    flat = make_pipeline(
        FunctionTransformer(lambda Z: Z.reshape(len(Z), -1)), LogisticRegression(max_iter=2000)
    )
    stack = StackingClassifier([("iddl", fast), ("flat", flat)], cv=2).fit(X, y)
    assert stack.score(X_test, y_test) > 0.7


def test_groups_reach_the_splitter(data):
    X, y, _, _ = data
    groups = np.arange(len(X)) % 3
    classifier = IDDLClassifier(recipe=Recipe(loss="ridge"), **FAST | {"cv": GroupKFold(3)})
    classifier.fit(X, y, groups=groups)
    assert len(classifier.models_) == 3


def test_verbose_says_what_it_weighs(data, capsys):
    X, y, _, _ = data
    IDDLClassifier(verbose=1, **FAST).fit(X, y)
    said = capsys.readouterr().out
    assert "loss softmax, penalty=" in said or "loss ridge, penalty=" in said
    assert "held-out loss" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_atoms": 0}, r"n_atoms=0 must be >= 1 and <= n_matrices=60"),
        ({"n_atoms": 61}, r"n_atoms=61 must be >= 1 and <= n_matrices=60; change n_atoms"),
        ({"n_atoms": "many"}, r"n_atoms='many' must be"),
        ({"n_atoms": 2.5}, r"n_atoms=2.5 must be"),
        ({"divergence": "Q"}, r"divergence='Q' must be"),
        (
            {"recipe": Recipe(loss="log")},
            r"loss='log' must be auto, ridge, hinge, softmax or a Loss",
        ),
        ({"recipe": "bcd"}, r"recipe='bcd' must be a Recipe or None"),
        ({"recipe": Recipe(solver="adam")}, r"solver='adam' must be one of joint, bcd, stochastic"),
        ({"recipe": Recipe(learn="head")}, r"learn='head' must be one of both, atoms, diverg"),
        ({"recipe": Recipe(penalty=-1)}, r"penalty=-1 must be"),
        ({"recipe": Recipe(penalty=0)}, r'penalty=0 must be "auto" or a finite number > 0'),
        ({"recipe": Recipe(penalty=np.ones(2))}, r"penalty=array\(\[1., 1.\]\) must be"),
        ({"recipe": Recipe(penalty="big")}, r"penalty='big' must be"),
        ({"recipe": Recipe(atoms_per_class=0)}, r"atoms_per_class=0 must be"),
        ({"divergence": "V", "recipe": Recipe(start=(1, -1))}, "must hold pairs"),
        ({"divergence": "V", "recipe": Recipe(start=(1, (2, 3)))}, "must hold pairs"),
        ({"recipe": Recipe(start=(1, 1))}, r"start=\(1, 1\) is for .*'S', 'V' or 'N', not 'line'"),
        ({"recipe": Recipe(penalty_per_matrix=True)}, "a number to divide, not penalty='auto'"),
        ({"recipe": Recipe(penalty=1, penalty_per_matrix="no")}, "'no' must be True or False"),
        ({"n_atoms": 2, "recipe": Recipe(init=EYES)}, "init has 1 matrix, must have n_atoms=2;"),
        ({"recipe": Recipe(init=0 * EYES)}, 'drop .* or pass regularize="shrink" to check_spd$'),
        ({"max_iter": -1}, r"max_iter=-1 must be"),
        ({"cv": 1}, r"cv=1 must be an integer >= 2"),
        ({"recipe": Recipe(init="zeros")}, r"init='zeros' must be one of class-kmeans"),
        ({"recipe": Recipe(init=np.eye(3)[None])}, r"init has matrices of size 3, must be 4"),
        ({"engine": "gpu"}, r"engine='gpu' must be"),
    ],
)
def test_bad_parameters(data, options, message):
    X, y, _, _ = data
    with pytest.raises(ValueError, match=message):
        IDDLClassifier(**FAST | options).fit(X, y)


def test_bad_data(data):
    X, y, _, _ = data
    classifier = IDDLClassifier(recipe=Recipe(loss="ridge"), **FAST)
    with pytest.raises(ValueError, match=r"y holds the one class 0, must hold >= 2"):
        classifier.fit(X[y == 0], y[y == 0])
    with pytest.raises(ValueError, match=r"X\[0\] .*rank-deficient"):
        classifier.fit(np.ones((10, 3, 3)), np.arange(10) % 2)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        classifier.fit(X, y[:-1])
    with pytest.raises(ValueError, match="expecting 4"):
        classifier.fit(X, y).predict(np.eye(3)[None])


# what must work


def test_small_and_odd_data():
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((12, 8, 20))
    few = factors @ factors.mT  # fewer matrices than entries
    fast = IDDLClassifier(recipe=Recipe(loss="ridge"), **FAST)
    assert fast.fit(few, np.arange(12) % 2).score(few, np.arange(12) % 2) > 0.5
    one = Recipe(loss="ridge", atoms_per_class=1)
    each = IDDLClassifier(recipe=one, max_iter=2, random_state=0)
    assert each.fit(few, np.arange(12)).score(few, np.arange(12)) == 1  # one matrix per class
    scalars = np.exp(rng.standard_normal((30, 1, 1)))  # d = 1
    large = (scalars[:, 0, 0] > 1).astype(int)
    assert fast.fit(scalars, large).score(scalars, large) > 0.9
    same = np.repeat(few[:2], 10, axis=0)  # duplicates
    assert fast.fit(same, np.repeat([0, 1], 10)).score(same, np.repeat([0, 1], 10)) == 1


def test_condition_of_1e12():
    X, y = make_wishart_clusters(2, 30, 4, separation=6, random_state=0)
    scale = np.diag([1e-6, 1e-2, 1.0, 1.0])
    hard = scale @ X @ scale
    assert np.linalg.cond(hard).min() > 1e11
    classifier = IDDLClassifier(recipe=Recipe(loss="ridge"), **FAST).fit(hard[::2], y[::2])
    assert classifier.score(hard[1::2], y[1::2]) > 0.8


def test_many_classes():
    X, y = make_wishart_clusters(60, 4, 3, separation=20, random_state=0)
    classifier = IDDLClassifier(
        max_iter=1, cv=2, recipe=Recipe(loss="ridge", penalty=1e-3), random_state=0
    )
    assert classifier.fit(X, y).score(X, y) > 0.1


def test_features_are_standardised_logarithms(data):
    """Scores of ridge regression on them, with scikit-learn's."""
    X, y, X_test, _ = data
    recipe = Recipe(loss="ridge", init=X[:5], penalty=1e-2)
    model = IDDLClassifier(divergence="stein", recipe=recipe, cv=None, max_iter=0).fit(X, y)
    V, W = (pairwise_abld(Z, X[:5], alpha=0.5, beta=0.5) for Z in (X, X_test))
    logarithms = FunctionTransformer(lambda D: np.log(D + 0.1 * V.mean(axis=0)))
    ridge = make_pipeline(logarithms, StandardScaler(), Ridge(alpha=2 * len(X) * 1e-2))
    scores = model.decision_function(X_test) * model.temperature_
    expected = ridge.fit(V, np.eye(3)[y]).predict(W)
    np.testing.assert_allclose(scores, expected, rtol=1e-6, atol=1e-8)


def test_plain_features_are_the_divergences(data):
    """Scores of ridge regression on divergences, with scikit-learn's."""
    X, y, X_test, _ = data
    loss = RidgeLoss(bias=False, plain=True)
    recipe = Recipe(loss=loss, init=X[:5], penalty=1e-2)
    model = IDDLClassifier(divergence="stein", recipe=recipe, cv=None, max_iter=0).fit(X, y)
    V, W = (pairwise_abld(Z, X[:5], alpha=0.5, beta=0.5) for Z in (X, X_test))
    ridge = Ridge(alpha=2 * len(X) * 1e-2, fit_intercept=False).fit(V, np.eye(3)[y])
    scores = model.decision_function(X_test) * model.temperature_
    np.testing.assert_allclose(scores, ridge.predict(W), rtol=1e-6, atol=1e-8)


def test_the_loss_of_version_0_2_is_that_of_the_recipe():
    message = (
        r"loss='hinge' is a field of the recipe since version 0.3; pass recipe=Recipe\(loss='h"
    )
    with pytest.warns(FutureWarning, match=message) as caught:
        old = IDDLClassifier(loss="hinge", recipe=Recipe(penalty=1e-2))
    assert caught[0].filename == __file__
    assert (old.recipe.loss, old.recipe.penalty) == ("hinge", 1e-2)
    assert "loss" not in old.get_params()
    with pytest.warns(FutureWarning, match="loss='ridge' is a field"):
        old.set_params(loss="ridge", rank=1)  # as searches do, also of a step of a pipeline
    assert (old.recipe.loss, old.recipe.penalty, old.rank) == ("ridge", 1e-2, 1)


def test_a_loss_of_ones_own(data):
    X, y, _, _ = data
    recipe = Recipe(init=X[:5], penalty=1e-2)
    named, wide = (
        IDDLClassifier(recipe=replace(recipe, loss=loss), cv=None, max_iter=0).fit(X, y)
        for loss in ("hinge", HingeLoss(margin=2.0))
    )
    assert not np.allclose(wide.models_[0].head[0], named.models_[0].head[0])
    assert clone(wide).recipe.loss.name == "hinge"


def test_nothing_is_learned_where_nothing_is_wrong():
    X, y = make_wishart_clusters(2, 500, 3, separation=30, random_state=0)
    plain = IDDLClassifier(cv=2, random_state=0)
    model = clone(plain).fit(X, y)
    assert model.n_iter_ == 0
    assert {one.atoms.shape[2] for one in model.models_} == {3}
    assert model.message_.endswith("all held-out matrices are right without learning")
    y[0] = 1 - y[0]  # one is wrong
    assert clone(plain).fit(X, y).n_iter_ > 0
    y[0] = 1 - y[0]
    one = clone(plain).set_params(max_iter=1).fit(X, y)
    assert one.history_["model"].max() == 1  # that of each fold
    few = clone(plain).fit(X[:90], y[:90])
    assert "held-out loss" in few.message_
    assert "without learning" not in few.message_


@pytest.mark.parametrize(("rank", "max_iter"), [("auto", "auto"), ("full", 3), (1, "auto")])
def test_one_model_where_nothing_can_be_held_out(rank, max_iter):
    X, y = make_wishart_clusters(3, 8, 3, random_state=0)
    given = {"rank": rank, "max_iter": max_iter, "random_state": 0}
    given["recipe"] = Recipe(loss="softmax")
    first = np.unique(y, return_index=True)[1]
    for some, labels, groups in [(X, y, y), (X[first], y[first], None)]:
        folds = IDDLClassifier(**given).fit(some, labels, groups=groups)
        single = IDDLClassifier(cv=None, **given).fit(some, labels, groups=groups)
        np.testing.assert_array_equal(folds.predict_proba(X), single.predict_proba(X))
        assert np.isnan(folds.oof_proba_).all()
    assert (IDDLClassifier(rank=rank, max_iter=max_iter).fit(X, y, groups=y).predict(X) == y).all()
