"""``metric``, pyRiemann's name for ``divergence``, wherever pyRiemann has it."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from conftest import wishart
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from divlearn import ABKMeans, ABMixture, DivergenceKernel
from divlearn.baselines import KernelLLC
from divlearn.nearest import DivergenceKNN, DivergenceMDM

CLASSES = [DivergenceKNN, DivergenceMDM, DivergenceKernel, ABKMeans, ABMixture]


def data():
    rng = np.random.default_rng(0)
    X = np.concatenate([wishart(rng, 12, 3), 3 * wishart(rng, 12, 3)])
    return X, np.repeat([0, 1], 12)


@pytest.mark.parametrize("made", CLASSES, ids=lambda made: made.__name__)
def test_an_alias_of_divergence(made):
    model = made(metric="riemann")
    assert model.get_params() == made(divergence="riemann").get_params()
    assert "metric" not in {*model.get_params(), *inspect.signature(made).parameters}
    assert clone(model).divergence == "riemann"
    assert model.set_params(metric="logdet") is model
    assert model.divergence == "logdet"
    assert repr(model) == repr(made(divergence="logdet"))
    for wrong in (
        lambda: made(metric="airm", divergence="airm"),
        lambda: model.set_params(metric="airm", divergence="airm"),
    ):
        with pytest.raises(
            TypeError, match="divergence='airm' and metric='airm', two names of one"
        ):
            wrong()
    with pytest.raises(ValueError, match="Invalid parameter 'metrik'"):
        model.set_params(metrik="airm")


def test_in_pipelines_and_searches():
    X, y = data()
    pipeline = make_pipeline(FunctionTransformer(), DivergenceMDM(metric="logdet"))
    search = GridSearchCV(pipeline, {"divergencemdm__metric": ["riemann", "logeuclid"]}, cv=2)
    chosen = search.fit(X, y).best_params_["divergencemdm__metric"]
    assert search.best_estimator_[-1].divergence == chosen


@pytest.mark.parametrize("kernel", ["logeuclid", "Log_Euclidean", "logchol", "logdet", "stein"])
def test_kernels_by_the_same_names(kernel):
    X, y = data()
    KernelLLC(3, kernel=kernel, bandwidth=1.0, n_neighbors=1, random_state=0).fit(X, y).predict(X)
