"""Threads that fit candidates: the same results for any number, and no more of them than cores."""

from __future__ import annotations

import os
from threading import Barrier, get_ident

import numpy as np
import pytest
from joblib import Parallel, cpu_count, delayed, parallel_config
from sklearn import clone, config_context
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline

from divlearn.baselines import RSPDL, KernelSparseCoding, LogEuclideanSVM
from divlearn.cluster import ABMixture, KarcherKMeans
from divlearn.committee import CalibratedClassifier, SPDClassifier, SPDRegressor
from divlearn.datasets import make_wishart_clusters
from divlearn.engines import get_engine
from divlearn.fitting.held_out import Memo
from divlearn.fitting.labelled import engine_of
from divlearn.fitting.selection import HeldOut, nest_folds
from divlearn.iddl import IDDLClassifier
from divlearn.kernels import DivergenceKernelClassifier
from divlearn.nearest import DivergenceMDM, NearestClassifier
from divlearn.tangent import TangentClassifier
from divlearn.threads import count_jobs
from divlearn.tolerances import LEARNING_ACCURACY
from divlearn.transfer import Recenter

pytestmark = pytest.mark.usefixtures("small_grids_everywhere")


@pytest.fixture(scope="module")
def data():
    return make_wishart_clusters(3, 8, 3, separation=3, random_state=0)


ESTIMATORS = {
    "logistic": TangentClassifier("logistic", cv=3),
    "rbf": TangentClassifier("rbf", cv=3),
    "kernel": DivergenceKernelClassifier(scales=(0.5, 2), C=(1, 10), cv=3),
    "nearest": NearestClassifier(cv=3),
    "svm": LogEuclideanSVM("rbf"),
    "sparse codes": KernelSparseCoding(kernel="stein", max_iter=1),
    "conic codes": RSPDL(max_iter=1),
    "iddl": IDDLClassifier(3, max_iter=1, cv=3),
    "committee": SPDClassifier(("tangent logistic", "kernel"), cv=3),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_number_of_threads_does_not_change_a_bit(name, data):
    found = []
    for n_jobs in (1, 3):
        model = ESTIMATORS[name].set_params(n_jobs=n_jobs, random_state=0).fit(*data)
        found.append([model.oof_proba_, model.predict_proba(data[0])])
    np.testing.assert_array_equal(found[0], found[1])


def test_threads_of_an_engine_do_not_change_clusters(data):
    for estimator in (ABMixture(2, "wishart", random_state=0), KarcherKMeans(3, random_state=0)):
        fitted = [clone(estimator).set_params(n_jobs=n).fit(data[0]) for n in (1, 3)]
        np.testing.assert_array_equal(*(model.predict(data[0]) for model in fitted))
        np.testing.assert_array_equal(*(model.score(data[0]) for model in fitted))


def test_an_engine_given_by_name_has_the_threads_and_the_accuracy_asked_for(data):
    one = IDDLClassifier(engine="reference", n_jobs=2)
    engine = engine_of(one, LEARNING_ACCURACY)
    assert (engine.name, engine.n_threads, engine.accuracy) == ("reference", 2, LEARNING_ACCURACY)
    mine = get_engine("reference", 3)
    assert engine_of(one.set_params(engine=mine)) is mine


def test_threads_leave_out_no_regressor(data):
    X, _ = data
    y = np.linalg.slogdet(X)[1]
    fitted = [SPDRegressor(cv=3, n_jobs=n_jobs, random_state=0).fit(X, y) for n_jobs in (1, 3)]
    assert [len(one.members_) for one in fitted] == [5, 5]
    np.testing.assert_array_equal(*(one.oof_prediction_ for one in fitted))
    np.testing.assert_array_equal(*(one.predict(X) for one in fitted))


def test_candidates_are_fitted_side_by_side():
    """Every fit waits for another one."""
    barrier, threads = Barrier(2, timeout=60), set()

    def decide(candidate, number):
        barrier.wait()
        threads.add(get_ident())
        return np.zeros(2)

    folds = [(np.array([0, 1]), np.array([2, 3])), (np.array([2, 3]), np.array([0, 1]))]
    nest = nest_folds(folds, np.array([0, 1, 0, 1]))
    HeldOut(decide, None, folds, nest, nested=False, n_jobs=2).compute(["a", "b"], [0, 1])
    assert len(threads) == 2


def test_threads_wait_for_what_one_of_them_computes():
    memo, barrier, calls = Memo(), Barrier(4, timeout=60), []

    def ask():
        barrier.wait()
        return memo.cached("key", lambda: calls.append(1) or 7)

    assert Parallel(n_jobs=4, prefer="threads")(delayed(ask)() for _ in range(4)) == [7] * 4
    assert len(calls) == 1


def test_members_of_a_committee_get_its_number_of_threads(data):
    members = ("tangent lda", "nearest mean", ("mine", CalibratedClassifier(Flat())))
    fitted = SPDClassifier(members, cv=2, n_jobs=2, random_state=0).fit(*data).members_
    assert fitted["tangent lda"].n_jobs == fitted["mine"].n_jobs == 2
    default = SPDClassifier(members, cv=2, random_state=0).fit(*data).members_
    assert default["tangent lda"].n_jobs is None
    assert default["mine"].n_jobs == 1  # an estimator may have threads of its own


def test_settings_of_scikit_learn_hold_in_threads(data):
    """With metadata routing, groups reach the first step of a member."""
    X, y = data
    groups = np.arange(len(y)) % 6
    gains = np.exp(np.random.default_rng(0).standard_normal((6, 3)))[groups]
    found = []
    with config_context(enable_metadata_routing=True):
        mine = make_pipeline(Recenter(), DivergenceMDM().set_fit_request(groups=True))
        for n_jobs in (1, 3):
            model = SPDClassifier([("mine", mine)], cv=3, n_jobs=n_jobs, random_state=0)
            model.fit(gains[:, :, None] * X * gains[:, None], y, groups=groups)
            found.append(model.oof_proba_)
    np.testing.assert_array_equal(*found)


class Flat(KNeighborsClassifier):
    def fit(self, X, y):
        return super().fit(X.reshape(len(X), -1), y)

    def predict_proba(self, X):
        return super().predict_proba(X.reshape(len(X), -1))


def test_the_number_of_threads_is_that_of_scikit_learn():
    assert count_jobs(2, most=8) == 2
    assert count_jobs(-1, most=8) == cpu_count()
    assert count_jobs(None, most=1) == 1
    with parallel_config(n_jobs=3):
        assert count_jobs(None, most=8) == 3
    for wrong in (0, 1.5, True, "all"):
        with pytest.raises(ValueError, match=f"n_jobs={wrong!r} must be an integer >= 1, -1 for"):
            count_jobs(wrong, most=8)


def test_a_committee_refuses_numbers_of_threads_before_it_leaves_out_members(data):
    with pytest.raises(ValueError, match="n_jobs=0 must be an integer"):
        SPDClassifier(n_jobs=0).fit(*data)


def test_threads_are_used_whatever_the_backend(data):
    rda = TangentClassifier("rda", random_state=0)
    expected = rda.fit(*data).predict_proba(data[0])
    with parallel_config("loky", n_jobs=2):  # its processes would need copies of everything
        np.testing.assert_array_equal(rda.fit(*data).predict_proba(data[0]), expected)


def test_workers_of_a_search_share_the_cores(monkeypatch):
    """As many processes as `GridSearchCV(n_jobs=2)` has."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # which would be for each process
    # A function of this module would have workers import all that the module imports.
    threads_inside = delayed(lambda: (os.getpid(), count_jobs(None, get_engine().n_threads)))
    inside = Parallel(n_jobs=2, backend="loky")(threads_inside() for _ in range(2))
    assert os.getpid() not in [process for process, _ in inside]
    assert sum(dict(inside).values()) <= max(cpu_count(), 2)
