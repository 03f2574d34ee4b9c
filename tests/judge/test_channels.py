"""Importance of channels: against a simulation that knows the answer, and against refits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pyriemann.tangentspace import TangentSpace
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import LeaveOneOut, StratifiedKFold
from sklearn.pipeline import make_pipeline

from divlearn import (
    DivergenceKNN,
    DivergenceMDM,
    TangentRegressor,
    channel_importance,
    evaluate,
)
from divlearn.datasets import make_wishart_clusters
from divlearn.judge.channels import permute_channels
from divlearn.report import ChannelImportanceDisplay, page_of

NAMES = ["C3", "C4", "Fz", "Pz", "Oz"]


@pytest.fixture(scope="module")
def data():
    """Covariances of correlated channels; classes differ in the power of channels 0 and 1 only."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 200)
    mixing = np.eye(5) + 0.3 * rng.standard_normal((5, 5))
    mixing[:2, 2:] = mixing[2:, :2] = 0  # the others do not even hear them
    sources = rng.standard_normal((len(y), 5, 60))
    sources[y == 1, 0] *= 1.2
    sources[y == 1, 1] /= 1.2
    series = mixing @ sources
    return series @ series.mT / 60, np.array(["left", "right"])[y]


def parts(matrix, channels):
    """Covariance of the other channels, regression on them, covariance of its residuals."""
    others = [i for i in range(len(matrix)) if i not in channels]
    inverse = np.linalg.inv(matrix)
    residual = np.linalg.inv(inverse[np.ix_(channels, channels)])
    regression = -residual @ inverse[np.ix_(channels, others)]
    return matrix[np.ix_(others, others)], regression, residual


@pytest.mark.parametrize("channels", [(2,), (3, 0), (0, 1, 2, 4)])
def test_permuting_exchanges_regressions_and_residuals(data, channels):
    X, order = data[0][::40], np.random.default_rng(1).permutation(10)
    moved = permute_channels(X, channels, order)
    np.testing.assert_allclose(moved, moved.mT)
    for i, j in enumerate(order):
        own, other, found = (parts(one, channels) for one in (X[i], X[j], moved[i]))
        np.testing.assert_allclose(found[0], own[0], atol=1e-12)
        np.testing.assert_allclose(found[1], other[1], atol=1e-12)
        np.testing.assert_allclose(found[2], other[2], atol=1e-12)
    np.testing.assert_allclose(permute_channels(X, channels, np.arange(10)), X, atol=1e-12)


@pytest.mark.parametrize(
    ("estimator", "method"),
    [
        (DivergenceMDM(), "drop"),
        (make_pipeline(TangentSpace(), LinearDiscriminantAnalysis()), "permute"),
    ],
    ids=["nearest mean", "pyRiemann"],
)
def test_the_channels_that_carry_the_signal_are_found(data, estimator, method):
    found = channel_importance(estimator, *data, NAMES, method=method)
    first, second, *others = found.table()
    assert {first.name, second.name} == {"C3", "C4"}
    assert second.p_value < 0.01
    assert second.importance > 0.04
    for row in others:
        assert row.p_value > 0.05
        assert abs(row.importance) <= 3 * row.standard_error + 1e-12
    assert "permuted" in found.summary() if method == "permute" else "dropped" in found.summary()
    assert "C3 (" in found.summary()
    assert "Pz" not in found.summary()


def test_without_signal_nothing_is_important(data):
    X, y = data
    shuffled = np.random.default_rng(3).permutation(y)
    found = channel_importance(DivergenceMDM(), X, shuffled)
    assert found.p_values.min() > 0.05
    assert found.summary().endswith("not significantly lower with any of the channels permuted.")
    of_four = replace(found, groups=np.arange(len(y)) % 4)
    assert of_four.summary().endswith("With so few groups p is 0.12 or more; pass more of them.")
    assert of_four.p_values.min() >= 0.125


class NearestMean(ClassifierMixin, BaseEstimator):
    """The class whose mean of the entries is nearest, which takes no time."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.means_ = np.stack([X[y == label].mean(axis=0) for label in self.classes_])
        return self

    def predict(self, X):
        distances = ((X[:, None] - self.means_) ** 2).sum(axis=(2, 3))
        return self.classes_[distances.argmin(axis=1)]


def test_level_without_signal():
    """Differences of two accuracies at chance are not independent of each other."""
    claims = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        samples = rng.standard_normal((40, 2, 8))
        y = rng.permutation(np.repeat([0, 1], 20))
        X = samples @ samples.mT
        found = channel_importance(NearestMean(), X, y, n_repeats=2, cv=2)
        claims.append(found.p_values.min() < 0.05)
    assert np.mean(claims) <= 0.1


def test_dropping_is_fitting_submatrices(data):
    X, y = data
    channels = {"front": [2], "left and back": [4, 0]}
    found = channel_importance(DivergenceKNN(3), X, y, channels, method="drop", cv=4)
    whole = evaluate(X, y, {"": DivergenceKNN(3)}, cv=4)
    assert found.accuracy == whole.accuracy("")
    for name, kept in {"front": [0, 1, 3, 4], "left and back": [1, 2, 3]}.items():
        part = evaluate(X[:, kept][:, :, kept], y, {"": DivergenceKNN(3)}, cv=4)
        losses = whole.correct("").astype(float) - part.correct("")
        row = next(row for row in found.table() if row.name == name)
        assert row.channels == tuple(channels[name])
        assert row.importance == pytest.approx(losses.mean())
        assert row.standard_error == pytest.approx(losses.std() / np.sqrt(len(y)))


@pytest.mark.parametrize("method", ["permute", "drop"])
def test_weights_of_classes_are_by_label(data, method):
    X, y = data
    estimator = DivergenceMDM(class_weight={"left": 1, "right": 3})
    found = channel_importance(estimator, X, y, NAMES, method=method, cv=4)
    assert found.accuracy == evaluate(X, y, {"": estimator}, cv=4).accuracy("")
    assert found.importances.argmax() in (0, 1)


@pytest.mark.parametrize("method", ["permute", "drop"])
def test_phases_between_channels_of_complex_matrices(method):
    """The sign of the imaginary part of one entry is the class; channel 2 knows nothing of it."""
    y = np.repeat(["lead", "lag"], 20)
    X = np.tile(np.eye(3, dtype=complex), (40, 1, 1))
    X[:, 2, 2] = np.random.default_rng(0).uniform(1, 2, 40)
    X[:, 0, 1] = np.where(y == "lead", 0.5j, -0.5j)
    X[:, 1, 0] = X[:, 0, 1].conj()
    found = channel_importance(DivergenceMDM(), X, y, ["F", "O", "noise"], method=method)
    assert found.accuracy == 1
    assert found.channels == {"F": (0,), "O": (1,), "noise": (2,)}
    assert (found.importances[:2] > 0.3).all()
    assert found.importances[2] == 0


@pytest.mark.parametrize("method", ["permute", "drop"])
def test_copies_of_a_channel_matter_together_only(data, method):
    X, y = data
    doubled = X[:, [0, 0, 2, 3]][:, :, [0, 0, 2, 3]] + 1e-3 * np.eye(4)
    channels = {"one": [0], "copy": [1], "both": [0, 1]}
    model = make_pipeline(TangentSpace(), LinearDiscriminantAnalysis())
    found = channel_importance(model, doubled, y, channels, method=method)
    one, copy, both = found.importances
    assert max(abs(one), abs(copy)) < 0.05
    assert both > 0.15


def test_groups_are_held_out_together_and_are_the_unit_of_errors(data):
    X, y = data
    groups = np.repeat(np.arange(50), 4)
    groups = np.concatenate([groups, groups])  # every group has both classes
    found = channel_importance(DivergenceMDM(), X, y, groups=groups, cv=3)
    assert len(np.unique(found.groups)) == 50
    sums = np.bincount(found.groups, found.losses[0] - found.losses[0].mean())
    expected = np.sqrt((sums**2).sum() * 50 / 49) / len(y)
    assert found.standard_errors[0] == pytest.approx(expected)


def test_repeatable_and_shuffled(data):
    X, y = data
    first, again, other = (
        channel_importance(DivergenceMDM(), X, y, n_repeats=1, random_state=seed).correct_without
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_picture_shows_the_ranking(data):
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed")
    found = channel_importance(DivergenceMDM(), *data, NAMES)
    ax = ChannelImportanceDisplay(found).plot(pyplot.figure().add_subplot()).ax_
    assert [text.get_text() for text in ax.get_yticklabels()] == [r.name for r in found.table()]
    shown = [line.get_xdata()[0] for line in ax.lines if len(line.get_xdata()) == 1]
    np.testing.assert_allclose(shown[::3], [100 * row.importance for row in found.table()])
    pyplot.close("all")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": ["a", "b"]}, r"must hold 5 different names"),
        ({"channels": {"far": [5]}}, r"channels\['far'\]=\[5\] must hold .* from 0 to 4"),
        ({"channels": {"all": range(5)}}, r"at most 4 of them"),
        ({"channels": {}}, r"channels is empty"),
        ({"method": "shuffle"}, r"method='shuffle' must be"),
        ({"n_repeats": 0}, r"n_repeats=0 must be >= 1"),
        ({"cv": LeaveOneOut()}, r'fold 0 holds out 1 class, must hold out >= 2.*method="drop"'),
    ],
)
def test_what_is_refused(data, options, message):
    with pytest.raises(ValueError, match=message):
        channel_importance(DivergenceMDM(), *data, **options)


def test_places_of_channels_are_whole_numbers(data):
    for indices in ([1.9], ["C3"]):
        with pytest.raises(TypeError, match=r"channels=.* must hold indices of rows for each name"):
            channel_importance(DivergenceMDM(), *data, {"left": indices})


def test_regressors_are_refused(data):
    """No number is a class: all predictions were wrong."""
    with pytest.raises(ValueError, match="estimator is a TangentRegressor, which predicts numbers"):
        channel_importance(TangentRegressor(), *data)


def test_a_single_channel_is_refused(data):
    X, y = data
    with pytest.raises(
        ValueError, match=r"X has matrices of size 1, must have >= 2 channels.*; pass"
    ):
        channel_importance(DivergenceMDM(), X[:, :1, :1], y)


class Interrupted(DivergenceMDM):
    """Ctrl-C comes during one of the fits."""

    fits_left = 1

    def fit(self, X, y):
        if Interrupted.fits_left == 0:
            raise KeyboardInterrupt
        Interrupted.fits_left -= 1
        return super().fit(X, y)


def test_an_interrupt_keeps_the_folds_that_are_complete(data):
    X, y = data
    Interrupted.fits_left = 2
    found = channel_importance(Interrupted(), X, y, cv=4)
    assert found.message == "interrupted by the user: 2 of 4 folds completed"
    assert found.correct_without.shape == (5, len(y) // 2)
    Interrupted.fits_left = 3
    with pytest.raises(KeyboardInterrupt):
        channel_importance(Interrupted(), X, y, cv=4, method="drop")


def test_a_matrix_held_out_twice_counts_once():
    X, y = make_wishart_clusters(2, 20, 3, separation=1, random_state=0)
    folds = list(StratifiedKFold(4).split(X, y))
    once, twice = (
        channel_importance(DivergenceMDM(), X, y, method="drop", cv=cv) for cv in (folds, folds * 2)
    )
    expected = once.standard_errors * np.sqrt(40 / 39)  # groups lose a degree of freedom
    np.testing.assert_allclose(twice.standard_errors, expected, rtol=1e-8)
    np.testing.assert_allclose(twice.p_values, once.p_values, atol=0.02)
    assert "on 40 held-out matrices" in twice.summary()
    assert "test over matrices" in page_of(twice).sections[0].note


def test_a_small_class_is_in_every_fold(data):
    """With 3 matrices of a class there are 3 folds, so that each holds out both classes."""
    X, y = data
    rows = np.r_[:40, 200:203]
    found = channel_importance(DivergenceMDM(), X[rows], y[rows], NAMES)
    assert found.message == "all 3 folds completed"
    assert found.n_matrices == 43
