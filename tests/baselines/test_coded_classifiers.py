"""KernelSparseCoding, KernelLLC and RSPDL as users see them."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hostile_arrays import definite, spread
from sklearn.base import clone

from divlearn.baselines import RSPDL, KernelLLC, KernelSparseCoding
from divlearn.baselines.coded import learn_dictionary
from divlearn.baselines.kernel_codes import check_bandwidth, local_codes, sparse_codes, view_by
from divlearn.baselines.rspdl import Cone, conic_codes
from divlearn.datasets import make_wishart_clusters
from divlearn.divergence import get_divergence

pytestmark = pytest.mark.usefixtures("small_grids_everywhere")
MODELS = [
    KernelSparseCoding(max_iter=2, random_state=0),
    KernelLLC(random_state=0),
    RSPDL(max_iter=1, random_state=0),
]
FAST = [
    KernelSparseCoding(6, bandwidth=0.5, penalty=0.05, max_iter=2, random_state=0),
    KernelLLC(6, bandwidth=0.5, n_neighbors=3, random_state=0),
    RSPDL(4, penalty=1.0, max_iter=1, random_state=0),
]


def names(models):
    return [f"{type(model).__name__} {getattr(model, 'kernel', '')}" for model in models]


@pytest.fixture(scope="module")
def data():
    X, y = make_wishart_clusters(3, 40, 4, separation=4, random_state=0)
    y = np.array(["a", "b", "c"])[y]
    return X[::2], y[::2], X[1::2], y[1::2]


@pytest.fixture(scope="module")
def fitted(data, small_grids_everywhere):
    """Those of FAST, which nobody changes."""
    X, y, *_ = data
    return [clone(model).fit(X, y) for model in FAST]


each_fast = pytest.mark.parametrize("index", range(len(FAST)), ids=names(FAST))


@pytest.mark.parametrize("model", MODELS, ids=names(MODELS))
def test_it_learns(data, model):
    X, y, X_test, y_test = data
    model = clone(model).fit(X, y)
    assert model.score(X_test, y_test) > 0.8
    assert model.dictionary_.shape == (15, 4, 4)
    assert model.transform(X_test).shape == (60, 15)
    assert model.get_feature_names_out()[0] == f"{type(model).__name__.lower()}0"
    scores = model.decision_function(X_test)
    assert scores.shape == (60, 3)
    np.testing.assert_array_equal(model.classes_, ["a", "b", "c"])
    objective = model.history_["objective"]
    assert (np.diff(objective) <= 1e-12).all()
    assert len(objective) == 1 + 2 * model.n_iter_
    assert set(model.history_["block"]) <= {"start", "atoms", "codes"}
    assert "C" in model.best_params_


@each_fast
def test_copies_and_repeats_agree(data, fitted, index):
    X, y, X_test, _ = data
    first = fitted[index]
    second = clone(first).fit(X, y)
    np.testing.assert_array_equal(first.transform(X_test), second.transform(X_test))
    copy = pickle.loads(pickle.dumps(first))
    np.testing.assert_array_equal(copy.predict(X_test), first.predict(X_test))
    # Codes of a matrix do not depend on those beside it.
    np.testing.assert_allclose(first.transform(X_test)[:5], first.transform(X_test[:5]), atol=1e-8)


@pytest.mark.parametrize("name", ["log-euclidean", "stein"])
def test_learning_lowers_what_k_means_leaves(data, name):
    X, y = data[0][::2], data[1][::2]
    options = {"kernel": name, "bandwidth": 0.5, "penalty": 0.02, "random_state": 0}
    start = KernelSparseCoding(9, max_iter=0, **options).fit(X, y)
    learned = KernelSparseCoding(9, max_iter=4, **options).fit(X, y)
    assert start.n_iter_ == 0
    assert start.message_ == "the dictionary is the initial one"
    assert learned.history_["objective"][0] == pytest.approx(start.history_["objective"][0])
    assert learned.history_["objective"][-1] < 0.97 * start.history_["objective"][0]


def test_why_it_stopped(data):
    X, y, *_ = data
    model = clone(FAST[0]).set_params(tol=1.0).fit(X, y)
    assert model.n_iter_ == 1
    assert "the objective fell by a relative" in model.message_
    assert "<= tol=1" in model.message_
    assert clone(FAST[0]).set_params(tol=0).fit(X, y).message_ == "max_iter=2 reached"


def test_it_can_be_interrupted_and_keeps_what_it_has(data):
    def impatient(view, parameters, start=None):
        if start is not None:
            raise KeyboardInterrupt
        return np.full((20, 3), 0.3)

    X, *_ = data
    view = view_by("log-euclidean", X[:20], X[:3])
    parameters = {"bandwidth": 0.5, "penalty": 0.1}
    run = learn_dictionary(view, impatient, parameters, 5, 0.0)
    atoms, codes = run.result
    np.testing.assert_array_equal(codes, 0.3)
    assert (run.n_iter, run.message) == (0, "interrupted by the user in iteration 1")
    np.testing.assert_array_equal(run.history["iteration"], [0, 1])
    before, after = run.history["objective"]
    assert after < before
    assert view.span(atoms).objective(codes, parameters)[0] == after


def test_progress_is_shown_on_request(data, capsys):
    X, y, *_ = data
    clone(FAST[0]).fit(X, y)
    assert capsys.readouterr().out == ""
    KernelSparseCoding(6, bandwidth=0.5, max_iter=2, random_state=0, verbose=2).fit(X, y)
    out = capsys.readouterr().out
    assert "bandwidth = 0.5, penalty = " in out
    assert "2 of 2 iterations, objective" in out


def test_what_is_chosen_is_among_what_was_offered(data):
    X, y = data[0][::2], data[1][::2]
    model = KernelSparseCoding(6, kernel="stein", max_iter=0, random_state=0).fit(X, y)
    check_bandwidth(model.best_params_["bandwidth"], get_divergence("stein"), 4)
    assert model.best_params_["penalty"] in (0.1, 0.03, 0.01)
    local = KernelLLC(6, random_state=0).fit(X, y)
    assert local.best_params_["n_neighbors"] in (5, 6)
    assert ((local.transform(X) != 0).sum(axis=1) == local.best_params_["n_neighbors"]).all()


def test_codes_of_training_data_are_those_of_transform(data, fitted):
    X, *_ = data
    sparse, local, conic = fitted
    view = view_by("log-euclidean", X, sparse.dictionary_)
    np.testing.assert_array_equal(sparse_codes(*view.kernels(0.5), 0.05), sparse.transform(X))
    view = view.span(local.dictionary_)
    np.testing.assert_array_equal(local_codes(view, 0.5, 3), local.transform(X))
    cone = Cone(X, conic.dictionary_, conic.whitener_)
    np.testing.assert_array_equal(conic_codes(cone, 1.0), conic.transform(X))


BAD = [
    (KernelSparseCoding(61), ValueError, "n_atoms=61 must be >= 1 and <= 60, the number of mat"),
    (RSPDL(0), ValueError, "n_atoms=0 must be >= 1"),
    (RSPDL(2.5), TypeError, "n_atoms=2.5 must be an integer >= 1 and <= 60"),
    (KernelSparseCoding(kernel="airm"), ValueError, "kernel='airm' must be one of log-euclidean"),
    (KernelSparseCoding(bandwidth=-1), ValueError, 'bandwidth=-1 must be "auto" or a finite'),
    (KernelLLC(kernel="stein", bandwidth=0.7), ValueError, "bandwidth=0.7 must make the Stein"),
    (KernelSparseCoding(penalty=0), ValueError, 'penalty=0 must be "auto" or a finite number > 0'),
    (RSPDL(penalty="small"), ValueError, "penalty='small' must be"),
    (RSPDL(max_iter=-1), ValueError, "max_iter=-1 must be >= 0"),
    (RSPDL(max_iter=1.5), TypeError, "max_iter=1.5 must be an integer"),
    (RSPDL(tol=-1), ValueError, "tol=-1 must be a finite number >= 0"),
    (
        KernelLLC(4, n_neighbors=5),
        ValueError,
        "n_neighbors=5 must be >= 1 and <= 4, the number of at",
    ),
    (KernelLLC(n_neighbors=0), ValueError, "n_neighbors=0 must be >= 1"),
]


@pytest.mark.parametrize(("model", "error", "message"), BAD)
def test_bad_parameters(data, model, error, message):
    X, y, *_ = data
    with pytest.raises(error, match=message):
        clone(model).fit(X, y)


@pytest.mark.parametrize(
    "model",
    [
        KernelSparseCoding(3, penalty=0.1, random_state=0),
        KernelSparseCoding(3, kernel="stein", bandwidth=0.5, penalty=0.1, random_state=0),
        RSPDL(2, penalty=0.1, random_state=0),
    ],
)
def test_atoms_that_cannot_be_moved(model):
    y = np.arange(12) % 2
    singular = spread(definite(0, 12, 2) * (1 + 2 * y)[:, None, None], 15)
    with pytest.raises(ValueError, match=r'singular to learn a dictionary; pass regularize="shr'):
        clone(model).fit(singular, y)
