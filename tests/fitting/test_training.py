"""Training on folds: candidates, choice, calibration, and members of the committee."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer, log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC

from divlearn.committee import CalibratedClassifier, SPDClassifier
from divlearn.datasets import make_wishart_clusters
from divlearn.engines import get_engine
from divlearn.fitting.calibration import calibrate, log_probabilities
from divlearn.fitting.folds import fit_grouped
from divlearn.fitting.labelled import label
from divlearn.fitting.training import Grid, HeldOutClassifier, Training, choose, coordinate_grid
from divlearn.nearest import DivergenceKNN, DivergenceMDM


def flat(X):
    return X.reshape(len(X), -1)


class Neighbours(HeldOutClassifier):
    """Scikit-learn's neighbours of entries: all that a subclass has to say."""

    def __init__(self, counts=(1, 5), cv=4, random_state=0, engine="auto", regularize="raise"):
        self.counts, self.cv, self.random_state = counts, cv, random_state
        self.engine, self.regularize = engine, regularize

    def _grid(self, training):
        return Grid([(("n_neighbors", count),) for count in self.counts])

    def _learner(self, training, number):
        rows, data = training.parts[number][0], training.data
        return lambda one: KNeighborsClassifier(**dict(one)).fit(
            flat(data.matrices[rows]), data.codes[rows]
        )

    def _decide(self, model, training, number):
        return self._scores(model, training.data.matrices[training.parts[number][1]])

    def _decide_new(self, new):
        return self._scores(self.model_, new.matrices)

    def _scores(self, model, X):
        return np.log(model.predict_proba(flat(X)) + 0.01)


@pytest.fixture(scope="module")
def data():
    X, y = make_wishart_clusters(3, 30, 3, separation=2, random_state=0)
    return X, np.array(["cat", "dog", "eel"])[y]


def test_a_subclass_is_a_classifier_that_chooses_and_calibrates(data):
    X, y = data
    model = Neighbours().fit(X, y)
    assert model.best_params_["n_neighbors"] == 5
    assert set(model.predict(X)) == {"cat", "dog", "eel"}
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    assert len(model.cv_results_["mean_test_score"]) == 2
    right = model.classes_[model.oof_proba_.argmax(axis=1)] == y
    assert model.held_out_accuracy_ == right.mean()
    assert f"held-out accuracy {right.mean():.3f}" in model.message_


def test_scores_are_means_over_folds_of_calibrated_likelihoods(data):
    X, y = data
    folds = list(StratifiedKFold(4, shuffle=True, random_state=3).split(X, y))
    model = Neighbours((5,), cv=folds).fit(X, y)
    codes = np.unique(y, return_inverse=True)[1]
    scores = np.zeros((90, 3, 1))
    for train, held in folds:
        plain = KNeighborsClassifier(5).fit(flat(X[train]), codes[train])
        scores[held, :, 0] = np.log(plain.predict_proba(flat(X[held])) + 0.01)
    form, temperature = calibrate(scores, codes, np.ones(90))
    likelihoods = log_probabilities(scores, form, temperature)[np.arange(90), codes]
    expected = np.mean([likelihoods[held].mean() for _, held in folds])
    assert model.cv_results_["mean_test_score"][0] == pytest.approx(expected, rel=1e-3)
    assert model.calibration_[1] == pytest.approx(temperature, rel=1e-6)


def test_the_calibration_of_a_fold_has_seen_neither_its_labels_nor_models_of_them(data):
    X, y = data
    codes = np.unique(y, return_inverse=True)[1]
    folds = list(StratifiedKFold(4, shuffle=True, random_state=3).split(X, y))

    def figures(codes):
        model = Neighbours((5,), cv=folds)
        training = Training(label(X, codes, np.ones(90), None), folds, get_engine())
        model.classes_ = np.arange(3)
        held_out, grid = model._hold_out(training), Grid([(("n_neighbors", 5),)])
        return choose(training, held_out, grid, grid).probabilities

    own = folds[0][1]
    changed = codes.copy()
    changed[own] = np.roll(codes[own], 1)
    before, after = figures(codes), figures(changed)
    np.testing.assert_array_equal(before[own], after[own])
    assert (before != after).any()


def test_parameters_are_tried_in_turn():
    grid = coordinate_grid([(C, gamma) for C in (1, 2, 3) for gamma in (1, 2, 3, 4)])
    assert grid.candidates == [(2, 1), (2, 2), (2, 3), (2, 4)]
    assert grid.refine((2, 1)) == [(1, 1), (3, 1)]
    alone = coordinate_grid([(1,), (2,), (3,)])
    assert alone.candidates == [(1,), (2,), (3,)]
    assert alone.refine((1,)) == []
    assert coordinate_grid([()]).candidates == [()]


def test_features_are_computed_once(data):
    X, y = data
    training = Training(label(X, y, np.ones(90), None), [], get_engine())
    calls = []
    assert [training.cached("key", lambda: calls.append(1) or 7) for _ in range(2)] == [7, 7]
    assert len(calls) == 1


# --- classifiers of users as members


def pipeline():
    return make_pipeline(FunctionTransformer(flat), LinearDiscriminantAnalysis())


def test_a_pipeline_is_a_member_in_one_line(data):
    X, y = data
    model = SPDClassifier(["tangent lda", ("mine", pipeline())], random_state=0).fit(X, y)
    assert list(model.members_) == ["tangent lda", "mine"]
    assert sum(model.weights_.values()) == pytest.approx(1)
    mine = model.members_["mine"]
    expected = pipeline().fit(X, y)
    np.testing.assert_array_equal(mine.predict(X), expected.predict(X))
    np.testing.assert_array_equal(mine.estimator_.predict_proba(X), expected.predict_proba(X))
    assert np.isfinite(mine.oof_proba_).all()
    assert model.oof_accuracy_["mine"] == mine.held_out_accuracy_
    again = clone(model)
    assert again.members[1][1] is not model.members[1][1]


@pytest.mark.usefixtures("small_grids")
def test_every_member_works_alone(data):
    X, y = (one[::3] for one in data)
    model = SPDClassifier(cv=2, random_state=0).fit(X, y)
    for name, member in model.members_.items():
        assert set(member.predict(X)) <= {"cat", "dog", "eel"}, name
        alone = clone(member).fit(X, y)
        assert (alone.predict(X) == member.predict(X)).mean() > 0.8, name


def test_weights_and_groups_reach_the_estimator(data):
    X, y = data
    seen = {}

    class Spy(KNeighborsClassifier):
        def fit(self, X, y, sample_weight=None, groups=None):
            seen["weights"], seen["groups"] = sample_weight, groups
            return super().fit(flat(X), y)

        def predict_proba(self, X):
            return super().predict_proba(flat(X))

    weights, groups = np.linspace(1, 2, 90), np.arange(90) // 3
    CalibratedClassifier(Spy(), cv=3).fit(X, y, weights, groups)
    np.testing.assert_allclose(seen["weights"], weights / weights.mean())
    np.testing.assert_array_equal(seen["groups"], groups)


def test_a_frozen_classifier_may_know_more_classes(data):
    X, y = data
    frozen, kept = FrozenEstimator(pipeline().fit(X, y)), y != "cat"
    model = CalibratedClassifier(frozen, random_state=0).fit(X[kept], y[kept])
    expected = frozen.predict_proba(X)[:, 1:].argmax(axis=1)  # of "dog" and "eel"
    np.testing.assert_array_equal(model.predict(X), np.array(["dog", "eel"])[expected])


def test_scores_must_be_those_of_the_classes(data):
    X, y = data
    frozen = FrozenEstimator(pipeline().fit(X[y != "cat"], y[y != "cat"]))
    message = r"has 2 scores of the classes \['dog', 'eel'\], must have one for each of \['cat'"
    with pytest.raises(ValueError, match=message):
        CalibratedClassifier(frozen).fit(X, y)
    pairs = make_pipeline(FunctionTransformer(flat), SVC(decision_function_shape="ovo"))
    with pytest.raises(ValueError, match=r"Pipeline has 6 scores of the classes \[0, 1, 2, 3\]"):
        CalibratedClassifier(pairs).fit(X, np.arange(90) % 4)
    with pytest.raises(ValueError, match=r"the highest score of Pipeline .* must be >= 50%"):
        CalibratedClassifier(pairs).fit(X, y)  # three classes have three pairs
    pairs.set_params(svc__decision_function_shape="ovr")
    model = CalibratedClassifier(pairs, random_state=0).fit(X, y)
    assert model.held_out_accuracy_ > 0.5  # one third by chance


def test_a_search_gets_groups_and_a_last_step_weights():
    rng = np.random.default_rng(0)
    X, y, groups = rng.standard_normal((30, 2)), np.arange(30) % 2, np.arange(30) // 3
    search = GridSearchCV(KNeighborsClassifier(), {"n_neighbors": [1, 3]}, cv=GroupKFold(3))
    assert fit_grouped(search, X, y, groups, None).best_score_ > 0
    weights = np.where(y == 1, 1.0, 1e-9)
    steps = make_pipeline(FunctionTransformer(), LogisticRegression())
    assert fit_grouped(steps, X, y, groups, weights).predict(X).all()


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("mine", FunctionTransformer())], "must have fit, and decision_function"),
        ([("tangent lda", pipeline())], "must be a new name and a classifier"),
        (["tangent lda", "tangent lda"], "'tangent lda' is named twice"),
        ([("a", pipeline()), ("a", pipeline())], "'a' is named twice"),
    ],
)
def test_bad_members(data, members, message):
    with pytest.raises(ValueError, match=message):
        SPDClassifier(members).fit(*data)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("divergence", ["euclidean", "wasserstein"])
def test_scores_are_calibrated_in_their_own_unit(n_classes, divergence):
    """As divergences of EEG in volts, of which probabilities are equal up to rounding."""
    X, y = make_wishart_clusters(n_classes, 40, 3, separation=4, random_state=1)
    model = CalibratedClassifier(DivergenceMDM(divergence), random_state=0)
    expected = model.fit(X[::2], y[::2]).predict_proba(X[1::2])
    assert model.score(X[1::2], y[1::2]) > 0.6
    for unit in (1e-12, 1e12):
        found = model.fit(unit * X[::2], y[::2]).predict_proba(unit * X[1::2])
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_decisions_of_means_are_those_of_probabilities(n_classes):
    X, y = make_wishart_clusters(n_classes, 20, 3, separation=2, random_state=0)
    model = DivergenceMDM(class_weight={0: 3}).fit(X, y)
    scores, probabilities = model.decision_function(X), model.predict_proba(X)
    if n_classes == 2:
        np.testing.assert_allclose(expit(scores), probabilities[:, 1], atol=1e-12)
        tiny = DivergenceMDM("euclidean").fit(1e-12 * X, y)
        area = roc_auc_score(y, DivergenceMDM("euclidean").fit(X, y).decision_function(X))
        assert get_scorer("roc_auc")(tiny, 1e-12 * X, y) == pytest.approx(area)
    else:
        np.testing.assert_allclose(softmax(scores, axis=1), probabilities, atol=1e-12)


def test_votes_of_zero_do_not_flatten_probabilities():
    """Their logarithms say too much: no temperature suited them, and probabilities were equal."""
    X, y = make_wishart_clusters(3, 70, 4, separation=2, random_state=1)
    train, test = slice(0, 60), slice(60, None)
    neighbours = DivergenceKNN(5)
    found = CalibratedClassifier(neighbours, random_state=0).fit(X[train], y[train])
    smoothed = 1 + 5 * neighbours.fit(X[train], y[train]).predict_proba(X[test])  # by Laplace
    expected = log_loss(y[test], smoothed / smoothed.sum(axis=1, keepdims=True))
    assert expected < np.log(3) - 0.1
    assert log_loss(y[test], found.predict_proba(X[test])) < expected + 0.02
