"""Divergences over the plane against high precision; divergences that class means choose."""

from __future__ import annotations

from functools import cache

import mpmath
import numpy as np
import pytest
from conftest import native_names
from oracle.high_precision import scalar
from sklearn.base import clone
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import (
    GroupKFold,
    StratifiedKFold,
    cross_val_predict,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from divlearn import get_divergence, plane_map
from divlearn.datasets import make_wishart_clusters
from divlearn.engines import compiled
from divlearn.engines.plane import _evaluate
from divlearn.fitting.labelled import check_labelled
from divlearn.nearest import DivergenceMDM, class_means, search
from divlearn.nearest.plane import CANDIDATES

POINTS = np.array(
    [
        (0, 0),
        (0, 1),
        (2, 0),
        (0.5, 0.5),
        (0.125, 2),
        (0.1, 0.2),
        (0.3, 0.0),
        (1e-4, 1),
        (2, 1e-9),
        (0.01, 0.01),
        (3, 5),
        (1, 1),
    ]
)


def wishart(n: int = 30, d: int = 6, seed: int = 0):
    """Few degrees of freedom, where the Burg divergence to the mean is the likelihood."""
    return make_wishart_clusters(4, n, d, dof=d + 2, separation=3, random_state=seed)


def evaluate(how: str, t, points):
    if how == "numpy":
        return _evaluate(t.T.copy(), points).T
    if how == "native":
        pytest.skip("the native engine is not installed or switched off")
    values = np.empty((len(t), len(points)))
    given = t, *map(np.ascontiguousarray, points.T), values
    compiled._kernels().plane(how.removeprefix("native-"), *given)
    return values


@cache
def spectra(size: float) -> tuple[np.ndarray, np.ndarray]:
    """Log-eigenvalues of this size, and exact divergences at all points."""
    t = size * np.random.default_rng(0).uniform(-1, 1, (11, 5))
    t[0] = size * np.array([1, 0.9, 0.2, 0.5, 1])  # of one sign, the sum is not small
    with mpmath.workdps(50):
        exact = [
            [float(sum(scalar(x, *point) for x in spectrum.tolist())) for point in POINTS.tolist()]
            for spectrum in t
        ]
    return t, np.array(exact)


@pytest.mark.parametrize("how", ["numpy", *native_names()])
@pytest.mark.parametrize(
    ("size", "tolerance"), [(1e-6, 1e-8), (1e-3, 1e-10), (0.3, 1e-10), (3, 1e-11), (150, 1e-11)]
)
def test_values_against_high_precision(how, size, tolerance):
    t, exact = spectra(size)
    found = evaluate(how, t, POINTS.astype(float))
    np.testing.assert_allclose(found, exact, rtol=tolerance if how == "numpy" else 2e-13)


def test_copies_of_another_class_are_ties():
    X, _ = wishart(5)
    copies = np.repeat(X, 3, axis=0)
    assert not plane_map(copies, np.arange(60) % 3 % 2).correct.any()


def test_means_choose_the_divergence_of_the_likelihood():
    for seed in range(2):
        X, y = wishart(120, seed=seed)
        model = DivergenceMDM("choose", random_state=0).fit(X[:240], y[:240])
        assert model.divergence_.beta - model.divergence_.alpha >= 0.5
        assert model.score(X[240:], y[240:]) > DivergenceMDM().fit(X[:240], y[:240]).score(
            X[240:], y[240:]
        )


def test_candidates_with_closed_means_are_judged_as_by_cross_validation():
    X, y = wishart()
    folds = list(StratifiedKFold(4).split(X, y))
    found = DivergenceMDM("choose", cv=folds).fit(X, y).cv_results_
    for name in ("burg", "reverse-burg", "log-euclidean"):
        place = found["divergence"].tolist().index(name)
        right = accuracy_score(y, cross_val_predict(DivergenceMDM(name), X, y, cv=folds))
        assert found["accuracy"][place] == pytest.approx(right)
    assert len(found["divergence"]) == len(CANDIDATES) + 1
    place = found["divergence"].tolist().index("airm")  # means are approximate
    right = accuracy_score(y, cross_val_predict(DivergenceMDM(), X, y, cv=folds))
    assert found["accuracy"][place] == pytest.approx(right, abs=0.02)


def test_means_of_a_part_are_a_step_from_closed_ones():
    """The step leaves a tenth of the way, though matrices of few samples are far from the mean."""
    X, y = wishart(12)
    data, airm = check_labelled(DivergenceMDM(), X, y), get_divergence("airm")
    rows = np.flatnonzero(np.arange(len(X)) % 4 > 0)
    starts = DivergenceMDM("jeffreys").fit(X, y).means_
    found = class_means.recentering_from(data, starts)(rows)
    for start, end, exact in zip(
        starts, found, DivergenceMDM().fit(X[rows], y[rows]).means_, strict=True
    ):
        assert airm(end, exact) < 0.01 * airm(start, exact)  # squares of distances


def test_means_of_a_part_do_not_depend_on_threads(monkeypatch):
    X, y = wishart(12)
    data, rows = check_labelled(DivergenceMDM(), X, y), np.arange(1, len(X), 2)
    found = []
    for threads, entries in (("1", 1 << 15), ("1", 50), ("2", 50)):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        monkeypatch.setattr(class_means, "_BLOCK_ENTRIES", entries)
        view = class_means.View(data)
        found.append([view.recenter(rows), view.harmonic(rows)])
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])


@pytest.mark.parametrize("place", range(0, len(CANDIDATES) + 1, 3))
def test_what_is_chosen_has_exact_means(place, monkeypatch, set_tolerance):
    """Candidates are compared by approximate ones; held-out probabilities are of exact ones."""
    X, y = wishart(6, 3)
    monkeypatch.setattr(search.HeldOut, "best", lambda *_, **__: place)
    set_tolerance("means", 1e-9)  # from whatever start
    folds = list(StratifiedKFold(3).split(X, y))
    model = DivergenceMDM("choose", cv=folds, random_state=0).fit(X, y)
    alone = DivergenceMDM(model.divergence_)
    np.testing.assert_allclose(model.means_, alone.fit(X, y).means_, rtol=1e-6, atol=1e-8)
    assert place != 0 or model.divergence_.name == "airm"
    if not search.is_approximate(model.divergence_):
        return
    train, held = folds[0]
    right = alone.fit(X[train], y[train]).predict(X[held])
    np.testing.assert_array_equal(model.classes_[model.oof_proba_[held].argmax(axis=1)], right)


def test_held_out_probabilities():
    X, y = wishart(60)
    train, test = slice(None, 160), slice(160, None)
    model = DivergenceMDM("choose", random_state=0).fit(X[train], y[train])
    held_out = log_loss(y[train], model.oof_proba_)
    new = log_loss(y[test], model.predict_proba(X[test]))
    assert held_out < 0.95 * np.log(4)
    assert held_out == pytest.approx(new, rel=0.2)
    codes = model.predict_proba(X[test]).argmax(axis=1)
    np.testing.assert_array_equal(model.classes_[codes], model.predict(X[test]))


def test_choosing_among_other_estimators():
    X, y = wishart(9, 2)
    labels, groups = np.array(list("abcd"))[y], np.arange(len(X)) // 3
    model = DivergenceMDM("choose", cv=GroupKFold(3)).fit(X, labels, groups=groups)
    same = DivergenceMDM("choose", cv=list(GroupKFold(3).split(X, y, groups)))
    np.testing.assert_array_equal(same.fit(X, labels).oof_proba_, model.oof_proba_)
    pipeline = make_pipeline(FunctionTransformer(), clone(model))
    name = pipeline.steps[-1][0]
    pipeline.fit(X, labels, **{f"{name}__groups": groups})
    np.testing.assert_array_equal(pipeline[-1].oof_proba_, model.oof_proba_)


def test_weights_and_classes_of_one_matrix():
    X, y = wishart(10, 2)
    y = np.where(np.arange(40) == np.flatnonzero(y == 3)[0], 4, y)
    weights = np.ones(40)
    weights[:3] = 0
    choose = DivergenceMDM("choose", cv=3, random_state=0)
    model = clone(choose).fit(X, y, weights)
    unseen = np.isnan(model.oof_proba_).all(axis=1)
    np.testing.assert_array_equal(unseen, (weights == 0) | (y == 4))
    plain = choose.fit(X[3:], y[3:])
    np.testing.assert_array_equal(model.oof_proba_[3:], plain.oof_proba_)


def test_wrong_choices():
    with pytest.raises(ValueError, match="cv=1 must be an integer >= 2"):
        DivergenceMDM("choose", cv=1).fit(*wishart(5, 2))
    with pytest.raises(ValueError, match="every class has 1 matrix or group"):
        DivergenceMDM("choose", cv=2).fit(np.stack([np.eye(2), 2 * np.eye(2)]), [0, 1])
