"""All classifiers: in pipelines, searches and pickles, and what they refuse in the same words."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from test_abuse_estimators import ESTIMATORS, answers, data

import divlearn
from divlearn import baselines

pytestmark = pytest.mark.usefixtures("small_grids_everywhere")

CLASSIFIERS = {name: model for name, model in ESTIMATORS.items() if is_classifier(model)} | {
    "LEML": baselines.LEML(20, 0.3, max_iter=2, random_state=0),
    "DivergenceMDM, chosen": divlearn.DivergenceMDM("choose", cv=2, random_state=0),
    "NearestClassifier": divlearn.NearestClassifier(cv=2, random_state=0),
    "TangentClassifier": divlearn.TangentClassifier("rbf", cv=2, random_state=0),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_in_a_pipeline_of_a_search_and_pickled(name):
    X, y = data()
    pipeline = make_pipeline(FunctionTransformer(lambda X: 2 * X), CLASSIFIERS[name])
    step = pipeline.steps[-1][0]
    grid = {f"{step}__regularize": ["shrink"]}
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise")
    model = search.fit(X, np.array(["one", "two"])[y]).best_estimator_[-1]
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert set(search.predict(X)) <= {"one", "two"}
    again = pickle.loads(pickle.dumps(model))
    for method, values in answers(model, 2 * X).items():
        np.testing.assert_array_equal(getattr(again, method)(2 * X), values)
    assert not hasattr(clone(model), "classes_")


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_what_is_refused(name):
    (X, y), model = data(), clone(CLASSIFIERS[name])
    with pytest.raises(ValueError, match=r"y has 11 rows, but X has 12 matrices"):
        model.fit(X, y[1:])
    with pytest.raises(ValueError, match=r"y holds the one class 0, must hold >= 2"):
        model.fit(X, 0 * y)
    with pytest.raises(ValueError, match=r"requires y to be passed, but the target y is None"):
        model.fit(X, None)
    with pytest.raises(ValueError, match=r"^X\[3\] has a diagonal entry"):
        model.fit(np.where(np.arange(12)[:, None, None] == 3, -X, X), y)
    expected = f"X has matrices of size 3, but {type(model).__name__} is expecting 2"
    with pytest.raises(ValueError, match=expected):
        model.fit(X, y).predict(np.eye(3)[None])
