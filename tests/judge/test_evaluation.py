"""Classifiers side by side: the same folds, paired differences, and what is said of them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.stats import binomtest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline

from divlearn.committee import SPDClassifier
from divlearn.datasets import make_wishart_clusters
from divlearn.judge import Evaluation, default_classifiers, evaluate, which_divergence
from divlearn.judge.significance import compare_paired
from divlearn.nearest import DivergenceKNN, DivergenceMDM
from divlearn.tangent import TangentRegressor
from divlearn.transfer import Recenter

CLASSIFIERS = {"near": DivergenceKNN(1, "airm"), "mean": DivergenceMDM("airm")}


@pytest.fixture(scope="module")
def data():
    X, y = make_wishart_clusters(3, 20, 3, separation=2, random_state=0)
    return X, np.array(["bark", "moss", "sand"])[y]


class Recorder(ClassifierMixin, BaseEstimator):
    """Remembers which matrices it was shown."""

    seen: list = []  # noqa: RUF012

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.seen.append(X[:, 0, 0])
        return self

    def predict(self, X):
        assert not np.isin(X[:, 0, 0], self.seen[-1]).any()
        return np.full(len(X), self.classes_[0])


def test_every_matrix_is_predicted_by_a_model_that_never_saw_it(data):
    X, y = data
    Recorder.seen.clear()
    found = evaluate(X, y, {"recorder": Recorder()}, cv=4)
    assert len(Recorder.seen) == 4
    assert all(len(seen) == 45 for seen in Recorder.seen)
    assert found.correct("recorder").mean() == pytest.approx(1 / 3)


def test_classifiers_are_given_labels(data):
    """So may be weights of classes, and a fitted classifier that others have."""
    X, y = data
    weighted = DivergenceMDM(class_weight={"bark": 0.2, "moss": 1, "sand": 1})
    other = np.where(y == "moss", "lichen", y)  # in the place of "moss" among the classes
    frozen = FrozenEstimator(DivergenceMDM().fit(X, other))
    found = evaluate(X, y, {"weighted": weighted, "frozen": frozen}, cv=4, random_state=0)
    folds = StratifiedKFold(4, shuffle=True, random_state=0)
    named = cross_val_predict(weighted, X, y, cv=folds)
    assert found.accuracy("weighted") == pytest.approx((named == y).mean())
    assert found.accuracy("frozen") == pytest.approx((frozen.predict(X) == y).mean())
    assert found.confusion("frozen")[:, 1].sum() == 0


def test_errors_name_the_classifier_and_its_training_part(data):
    X, y = data
    rows = np.r_[np.flatnonzero(y == "bark")[:2], np.flatnonzero(y == "moss")]
    message = "committee, fitted to 17 of 22 matrices: class bark has 1 matrix, must have >= 2"
    with pytest.raises(ValueError, match=message):
        evaluate(X[rows], y[rows], {"committee": SPDClassifier(("tangent lda",))})


def test_few_groups_cannot_be_significant_and_the_summary_says_so():
    """Even if every matrix is classified right."""
    X, y = make_wishart_clusters(2, 20, 3, separation=30, random_state=0)
    groups = np.arange(40) % 5
    found = evaluate(X, y, CLASSIFIERS, groups=groups)
    assert found.accuracy("near") == found.accuracy("mean") == 1
    assert found.p_chance == pytest.approx(2 / 2**5)
    assert "With so few groups p is 0.062 or more; pass more of them." in found.summary()
    assert "With so few" not in evaluate(X, y, CLASSIFIERS).summary()
    grid = {"cv": 2, "alphas": [0], "betas": [0]}
    answer = which_divergence(X, y, groups=groups, **grid)
    assert answer.p_chance == answer.p_least == pytest.approx(3 / 2**5)
    assert "With so few groups p is 0.094 or more; pass more of them." in answer.summary()
    three, classes = make_wishart_clusters(3, 12, 3, separation=30, random_state=0)
    answer = which_divergence(three, classes, groups=np.arange(36) % 4, **grid)  # above chance
    assert "significantly" in answer.summary()
    assert answer.summary().endswith("With so few groups p is 0.12 or more; pass more of them.")
    shuffled = np.random.default_rng(0).permutation(y)
    assert "With so few" not in which_divergence(X, shuffled, **grid).summary()


def test_tables(data):
    X, y = data
    found = evaluate(X, y, CLASSIFIERS, cv=5, random_state=1)
    rows = found.table()
    assert [row.accuracy for row in rows] == sorted((row.accuracy for row in rows), reverse=True)
    assert rows[0].name == found.best
    assert rows[0].versus_best.difference == 0
    for row in rows:
        named = found.classes[found.predictions[row.name]]
        assert row.accuracy == pytest.approx((named == y).mean())
        np.testing.assert_array_equal(found.confusion(row.name), confusion_matrix(y, named))
    paired = found.compare("near", "mean")
    assert paired.first_only == (found.correct("near") & ~found.correct("mean")).sum()
    again = evaluate(X, y, CLASSIFIERS, cv=5, random_state=1)
    for name in CLASSIFIERS:
        np.testing.assert_array_equal(found.predictions[name], again.predictions[name])


def test_paired_differences_against_scipy():
    rng = np.random.default_rng(0)
    first, second = rng.random(200) < 0.8, rng.random(200) < 0.7
    paired = compare_paired(first, second)
    difference = first.astype(float) - second
    assert paired.difference == pytest.approx(difference.mean())
    assert paired.standard_error == pytest.approx(difference.std() / np.sqrt(200))
    test = binomtest(paired.first_only, paired.first_only + paired.second_only)
    assert paired.p_value == pytest.approx(test.pvalue)
    assert compare_paired(first, first).p_value == 1


def make(n=100, **right):
    """An evaluation where each classifier gets the given number right."""
    codes = np.arange(n) % 2
    predictions = {name: np.where(np.arange(n) < k, codes, 1 - codes) for name, k in right.items()}
    seconds = dict.fromkeys(right, 1.0)
    return Evaluation(np.array([0, 1]), codes, predictions, seconds, 5, np.arange(n), "")


def test_five_groups_cannot_tell_classifiers_apart():
    codes = np.arange(60) % 3
    worse = np.where(np.arange(60) < 30, codes, (codes + 1) % 3)
    predictions, seconds = {"one": codes, "two": worse}, {"one": 1.0, "two": 1.0}
    found = Evaluation(
        np.arange(3), codes, predictions, seconds, 5, np.arange(60), "", np.arange(60) % 5
    )
    assert found.compare("one", "two").p_value == pytest.approx(2 / 2**5)  # all groups agree
    assert found.summary().endswith(
        "No other is significantly worse (exact sign-flip test over groups). With so few groups p "
        "is 0.062 or more; pass more of them."
    )


def test_summaries():
    assert make(one=90).summary().endswith("on 100 held-out matrices.")
    text = make(one=90, two=89).summary()
    assert "held-out matrices, the highest of 2 and therefore optimistic. No other is" in text
    assert text.endswith("No other is significantly worse (exact sign-flip test over matrices).")
    text = make(one=90, two=70, three=40).summary()
    assert "All others are significantly worse. The next is two, 20.0 +- 4.0" in text
    assert text.endswith("(max-T sign-flip test over matrices, adjusted for all pairs).")
    assert "Not significantly worse: two (max-T" in make(one=90, two=89, three=40).summary()


def test_p_values_hold_for_the_best_of_many():
    """Two are compared exactly; a third makes the same difference less sure."""
    two, three = make(one=90, two=80), make(one=90, two=80, three=85)
    alone = two.table()[1].versus_best
    assert alone == two.compare("one", "two")
    adjusted = three.table()[2].versus_best
    assert adjusted.difference == alone.difference
    assert adjusted.p_value > alone.p_value
    assert three.table()[0].versus_best.p_value == 1


def test_differences_do_not_count_without_signal():
    """Both are right about as often as a coin; one names the larger class only."""
    assert "No classifier is significantly better than chance" in make(one=60, two=20).summary()
    assert make(one=60, two=20).table()[1].versus_best.p_value > 0.05
    assert make(one=60, two=20).compare("one", "two").p_value < 0.001
    codes, random = np.arange(100) % 5 // 4, np.random.default_rng(0)
    said = {"larger class": np.zeros(100, dtype=np.intp), "coin": random.integers(0, 2, 100)}
    seconds = dict.fromkeys(said, 1.0)
    found = Evaluation(np.array([0, 1]), codes, said, seconds, 5, np.arange(100), "")
    assert found.best == "larger class"
    assert found.p_chance > 0.05
    assert "No classifier is significantly better than chance" in found.summary()


def test_groups_stay_together(data):
    X, y = data
    groups = np.arange(60) // 4
    Recorder.seen.clear()
    evaluate(X, y, {"recorder": Recorder()}, cv=3, groups=groups)
    for seen in Recorder.seen:
        inside = np.isin(X[:, 0, 0], seen)
        assert all(len(set(inside[groups == group])) == 1 for group in range(15))


def test_numbers_of_numpy(data):
    found = evaluate(*data, CLASSIFIERS, cv=np.int64(2))
    expected = evaluate(*data, CLASSIFIERS, cv=2)
    assert found.n_folds == 2
    for name in CLASSIFIERS:
        np.testing.assert_array_equal(found.predictions[name], expected.predictions[name])


def test_defaults_are_estimators():
    names = default_classifiers(3)
    assert len(names) >= 9
    assert names["SPDClassifier"].random_state == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cv": 1}, "cv=1 must be an integer >= 2"),
        ({"groups": np.zeros(60)}, "class bark has 1 group, must have >= 2"),
        ({"classifiers": {}}, "must be a dict of >= 1 estimators by name"),
        ({"classifiers": [DivergenceMDM()]}, "must be a dict of >= 1 estimators by name"),
        ({"classifiers": np.zeros(2)}, "must be a dict of >= 1 estimators by name"),  # as X or y
        ({"classifiers": {"mine": TangentRegressor()}}, r"\['mine'\] is a TangentRegressor, .*r2"),
        (
            {"classifiers": {"two": make_pipeline(Recenter(), TangentRegressor())}},
            r"classifiers\['two'\] is a Pipeline, which predicts numbers, must predict classes",
        ),
    ],
)
def test_errors(data, options, message):
    with pytest.raises(ValueError, match=message):
        evaluate(*data, **{"classifiers": CLASSIFIERS, **options})


def test_one_fold_is_singular(data):
    fold = next(StratifiedKFold(2).split(*data))
    assert evaluate(*data, {"near": CLASSIFIERS["near"]}, cv=[fold]).message == "1 fold completed"


def test_a_matrix_held_out_twice_counts_once():
    X, y = make_wishart_clusters(2, 20, 3, separation=1, random_state=0)
    folds = list(StratifiedKFold(4).split(X, y))
    known = {"airm": DivergenceMDM(), "burg": DivergenceMDM("burg"), "one": DivergenceKNN()}
    once, twice = (evaluate(X, y, known, cv=cv) for cv in (folds, folds * 2))
    np.testing.assert_allclose(twice.p_chance, once.p_chance, rtol=1e-8)
    for row, other in zip(twice.table(), once.table(), strict=True):
        expected = other.standard_error * np.sqrt(40 / 39)  # groups lose a degree of freedom
        np.testing.assert_allclose(row.standard_error, expected, rtol=1e-8)
        np.testing.assert_allclose(row.versus_best.p_value, other.versus_best.p_value, atol=0.02)
    assert "on 40 held-out matrices" in twice.summary()
    assert twice.test == once.test


@pytest.mark.parametrize("judge", [which_divergence, partial(evaluate, classifiers=CLASSIFIERS)])
def test_copies_in_training_and_test_data_are_told(judge):
    """Without signal, neighbours of copies are always right."""
    X, _ = make_wishart_clusters(1, 30, 3, random_state=0)
    y, groups = np.arange(30) % 2, np.arange(60) % 30
    twice, labels = np.concatenate([X, X]), np.concatenate([y, y])
    with pytest.warns(UserWarning, match=r"X repeats 30 matrices, such as X\[0\] in X\[30\]"):
        judge(twice, labels, cv=2)
    with pytest.warns(UserWarning, match="X repeats 1 matrix, such"):
        judge(twice[:31], labels[:31], groups=np.arange(31) // 2, cv=2)
    judge(twice, labels, groups=groups, cv=2)  # together


def test_names_that_are_not_compared(data):
    found = evaluate(*data, CLASSIFIERS, cv=2)
    with pytest.raises(ValueError, match="name='mdm' must be one of near, mean"):
        found.compare("near", "mdm")
