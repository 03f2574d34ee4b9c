"""The reject option: what is left of predictions, and how often that is right."""

from __future__ import annotations

import numpy as np
import pytest
from pyriemann.tangentspace import TangentSpace
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from divlearn import CalibratedClassifier, DivergenceMDM, TangentRegressor, predict_or_reject
from divlearn.datasets import make_wishart_clusters

X, CODES = make_wishart_clusters(3, 400, 3, separation=1.6, random_state=0)
TRAIN, TEST = slice(0, None, 2), slice(1, None, 2)
NAMES = np.array(["bark", "moss", "sand"])[CODES]


@pytest.mark.parametrize(
    "classifier",
    [
        CalibratedClassifier(DivergenceMDM(), random_state=0),
        make_pipeline(TangentSpace(), LogisticRegression()),
    ],
    ids=["divlearn", "pyRiemann"],
)
@pytest.mark.parametrize("bound", [0.5, 0.85])
def test_what_is_kept_is_right_as_often_as_the_bound_says(classifier, bound):
    model = classifier.fit(X[TRAIN], NAMES[TRAIN])
    found = predict_or_reject(model, X[TEST], bound)
    sure = found != "unsure"
    expected = np.array([row.max() >= bound for row in model.predict_proba(X[TEST])])
    np.testing.assert_array_equal(sure, expected)
    assert 0 < sure.mean() < 1
    np.testing.assert_array_equal(found[sure], model.predict(X[TEST])[sure])
    right = found[sure] == NAMES[TEST][sure]
    assert right.mean() > bound - 2 * np.sqrt(bound * (1 - bound) / sure.sum())
    assert right.mean() > (model.predict(X[TEST]) == NAMES[TEST]).mean()


def test_numbers_become_nan_or_what_is_asked_for():
    model = DivergenceMDM().fit(X[TRAIN], CODES[TRAIN])
    everything = predict_or_reject(model, X[TEST], 0)
    np.testing.assert_array_equal(everything, model.predict(X[TEST]))
    assert np.isnan(predict_or_reject(model, X[TEST], 1.0)).all()
    assert set(predict_or_reject(model, X[TEST], 0.5, -1).tolist()) == {-1, 0, 1, 2}
    assert set(predict_or_reject(model, X[TEST], 0.5, "?").tolist()) == {"?", 0, 1, 2}
    small = DivergenceMDM().fit(X[TRAIN], CODES[TRAIN].astype(np.uint8))  # as in masks of images
    for unsure in (-1, 999, 2.5):
        assert set(predict_or_reject(small, X[TEST], 0.5, unsure).tolist()) == {unsure, 0, 1, 2}


@pytest.mark.parametrize(
    "names",
    [
        np.array([2**60, 2**60 + 1, 3]),
        np.array([True, False]),
        np.array(["2026-01-01", "2026-01-02", "2026-01-03"], dtype="datetime64[D]"),
    ],
    ids=["large numbers", "flags", "dates"],
)
def test_classes_stay_what_they_are(names):
    some = len(names) > CODES
    model = DivergenceMDM().fit(X[some], names[CODES[some]])
    found = predict_or_reject(model, X[some], 0.5)
    sure = np.array([one in names.tolist() for one in found.tolist()])
    assert 0 < sure.mean() <= 1
    assert found[sure].tolist() == model.predict(X[some])[sure].tolist()
    assert all(one != one for one in found[~sure].tolist())  # not a number


def test_long_words_are_kept_whole():
    model = DivergenceMDM().fit(X[TRAIN], NAMES[TRAIN])
    assert set(predict_or_reject(model, X[TEST], 1.0, "not sure enough")) == {"not sure enough"}


def test_what_is_refused():
    model = DivergenceMDM().fit(X[TRAIN], NAMES[TRAIN])
    with pytest.raises(ValueError, match=r"bound=70 must be a number from 0 to 1"):
        predict_or_reject(model, X, 70)
    with pytest.raises(ValueError, match=r"unsure='moss' must not be one of the classes"):
        predict_or_reject(model, X, 0.7, "moss")
    with pytest.raises(
        ValueError, match=r"classifier is a TangentRegressor, which predicts numbers"
    ):
        predict_or_reject(TangentRegressor(), X, 0.7)
    without = make_pipeline(TangentSpace(), LinearSVC()).fit(X[TRAIN], NAMES[TRAIN])
    with pytest.raises(ValueError, match=r"must have predict_proba; wrap it in Calibrated"):
        predict_or_reject(without, X, 0.7)
