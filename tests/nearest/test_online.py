"""Class means that move with new matrices: against fits to all of them."""

from __future__ import annotations

import numpy as np
import pytest
from pyriemann.geometry.geodesic import geodesic_riemann

from divlearn import DivergenceMDM, load, save
from divlearn.datasets import make_wishart_clusters
from divlearn.nearest.class_means import project


@pytest.fixture(scope="module")
def data():
    X, y = make_wishart_clusters(3, 30, 4, separation=3, random_state=0)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], np.array(["bark", "moss", "sand"])[y[order]]


@pytest.mark.parametrize(
    "divergence", ["log-euclidean", "burg", "reverse-burg", "euclidean", ["burg", "log-euclidean"]]
)
def test_means_that_are_averages_are_those_of_a_fit_to_everything(data, divergence):
    X, y = data
    model = DivergenceMDM(divergence)
    for part in (slice(0, 30), slice(30, 31), slice(31, 90)):
        model.partial_fit(X[part], y[part], classes=["bark", "moss", "sand"])
    whole = DivergenceMDM(divergence).fit(X, y)
    np.testing.assert_allclose(model.means_, whole.means_, rtol=1e-8)
    np.testing.assert_allclose(model.totals_, whole.totals_)
    if isinstance(divergence, str):
        np.testing.assert_allclose(model.predict_proba(X), whole.predict_proba(X), rtol=1e-7)


def test_airm_means_move_along_geodesics(data):
    X, y = data
    model = DivergenceMDM().fit(X[:60], y[:60])
    expected, totals = model.means_.copy(), model.totals_.copy()
    for matrix, name in zip(X[60:], y[60:], strict=True):
        model.partial_fit(matrix[None], [name], forgetting=0.05)
        code = ["bark", "moss", "sand"].index(name)
        totals[code] = 0.95 * totals[code] + 1
        expected[code] = geodesic_riemann(expected[code], matrix, 1 / totals[code])
    np.testing.assert_allclose(model.means_, expected, rtol=1e-4)
    np.testing.assert_allclose(model.totals_, totals)
    whole = DivergenceMDM().fit(X, y)
    assert (model.predict(X) == whole.predict(X)).mean() > 0.95


@pytest.mark.parametrize("divergence", ["burg", "choose"])
def test_weights_of_classes_do_not_change_how_fast_means_move(data, divergence):
    X, y = data
    weights = {"bark": 20, "moss": 1, "sand": 1}
    model = DivergenceMDM(divergence, class_weight=weights, random_state=0).fit(X[:60], y[:60])
    np.testing.assert_allclose(model.totals_, [(y[:60] == name).sum() for name in model.classes_])
    model.partial_fit(X[60:], y[60:])
    if divergence == "burg":
        expected = [X[y == name].mean(axis=0) for name in model.classes_]
        np.testing.assert_allclose(model.means_, expected)


def test_classes_without_new_matrices_stay(data):
    X, y = data
    model = DivergenceMDM("stein").fit(X[:60], y[:60])
    before = model.means_
    model.partial_fit(X[60:][y[60:] == "moss"], y[60:][y[60:] == "moss"], forgetting=0.1)
    np.testing.assert_array_equal(model.means_[[0, 2]], before[[0, 2]])
    assert np.abs(model.means_[1] - before[1]).max() > 1e-3


def test_the_filter_stays_and_filters_new_matrices(data):
    X, y = data
    model = DivergenceMDM("burg", filtering=True).fit(X[:60], y[:60])
    filtered = project(X, model._filter)
    model.partial_fit(X[60:], y[60:])
    expected = [filtered[y == name].mean(axis=0) for name in model.classes_]
    np.testing.assert_allclose(model.means_, expected)


def test_a_chosen_divergence_stays(data, tmp_path):
    X, y = data
    model = DivergenceMDM("choose", random_state=0).fit(X[:60], y[:60])
    known, before = model.divergence_, model.means_
    model.partial_fit(X[60:], y[60:])
    assert model.divergence_ is known
    assert model.totals_.sum() == pytest.approx(90)
    assert np.abs(model.means_ - before).max() > 0
    save(model, tmp_path / "model")
    again = load(tmp_path / "model").partial_fit(X[:9], y[:9])
    np.testing.assert_array_equal(again.means_, model.partial_fit(X[:9], y[:9]).means_)


def test_forgetting_follows_a_shift(data):
    X, y = data
    gains = np.diag([1.0, 6.0, 0.3, 2.0])
    shifted = gains @ X @ gains
    stays, moves = (DivergenceMDM().fit(X, y) for _ in range(2))
    moves.partial_fit(shifted[:60], y[:60], forgetting=0.2)
    assert moves.score(shifted[60:], y[60:]) > stays.score(shifted[60:], y[60:]) + 0.2


@pytest.mark.parametrize("divergence", ["airm", "burg", "log-euclidean"])
def test_classes_may_come_one_after_the_other(data, divergence, tmp_path):
    """In volts squared, far from the identity: a class has the mean of its own matrices alone."""
    X, y = 1e-12 * data[0], data[1]
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    model = DivergenceMDM(divergence).partial_fit(X[:1], y[:1], classes=["bark", "moss", "sand"])
    assert model.predict(X).tolist() == ["bark"] * 90
    np.testing.assert_array_equal(model.predict_proba(X[:3]), [[1, 0, 0]] * 3)
    assert np.isinf(model.transform(X[:1])[0, 1:]).all()
    model.partial_fit(X[1:60], y[1:60])
    assert set(model.predict(X)) == {"bark", "moss"}
    save(model, tmp_path / "model")
    model = load(tmp_path / "model").partial_fit(X[60:], y[60:])
    np.testing.assert_allclose(model.totals_, [30, 30, 30])
    whole = DivergenceMDM(divergence).fit(X, y)
    assert (model.predict(X) == whole.predict(X)).mean() > 0.95
    np.testing.assert_allclose(model.means_[2], whole.means_[2], rtol=1e-4)
    if divergence != "airm":  # where running means are exact
        np.testing.assert_allclose(model.means_, whole.means_, rtol=1e-6)


def test_what_learns_from_classes_needs_all_of_them(data):
    X, y = data
    for model in (
        DivergenceMDM("choose"),
        DivergenceMDM(filtering=True),
        DivergenceMDM(["airm", "burg"]),
    ):
        with pytest.raises(ValueError, match="y holds the one class"):
            model.partial_fit(X[:1], y[:1], classes=["bark", "moss", "sand"])
    with pytest.raises(ValueError, match=r"classes=\['bark'\] must hold >= 2 classes"):
        DivergenceMDM().partial_fit(X[:1], y[:1], classes=["bark"])
    with pytest.raises(ValueError, match=r"class bark must be one of .*\['moss', 'sand'\]"):
        DivergenceMDM().partial_fit(X[y == "bark"], y[y == "bark"], classes=["moss", "sand"])


def test_complex_matrices_of_a_single_class(data):
    X, y = data
    turned = X.astype(complex)
    turned[:, 0, 1] += 0.1j
    turned[:, 1, 0] -= 0.1j
    first = y == "moss"
    model = DivergenceMDM("burg").partial_fit(turned[first], y[first], classes=["bark", "moss"])
    np.testing.assert_allclose(model.means_[1], turned[first].mean(axis=0))
    assert model.predict(turned[:2]).tolist() == ["moss", "moss"]


def test_unknown_classes_are_refused(data):
    X, y = data
    model = DivergenceMDM().fit(X, y)
    before = model.means_
    message = r"class soil must be one of those of the first fit, \['bark', 'moss', 'sand'\]"
    with pytest.raises(ValueError, match=message):
        model.partial_fit(X[:1], ["soil"])
    with pytest.raises(ValueError, match=message):
        DivergenceMDM("choose").partial_fit(X, y, classes=["bark", "moss", "sand", "soil"])
    with pytest.raises(ValueError, match=r"matrices of size 3, but DivergenceMDM is expecting 4"):
        model.partial_fit(X[:, :3, :3], y)
    with pytest.raises(ValueError, match=r"forgetting='some' must be a number"):
        model.partial_fit(X, y, forgetting="some")
    assert model.means_ is before
