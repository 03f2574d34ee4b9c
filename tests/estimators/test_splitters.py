"""Splitters see all matrices that were given; those of no weight take no part in what they make."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    PredefinedSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
)

from divlearn import (
    DivergenceKernelClassifier,
    IDDLClassifier,
    IDDLRegressor,
    IDDLTransformer,
    SPDClassifier,
)
from divlearn.datasets import make_wishart_clusters
from divlearn.iddl import Recipe

N = 24
FOLD = np.arange(N) % 3
GROUP = np.arange(N) // 2
PAIRS = [(np.flatnonzero(fold != FOLD), np.flatnonzero(fold == FOLD)) for fold in range(3)]
SPLITTERS = {
    "PredefinedSplit": lambda: PredefinedSplit(FOLD),
    "KFold": lambda: KFold(3, shuffle=True, random_state=0),
    "StratifiedKFold": lambda: StratifiedKFold(3, shuffle=True, random_state=0),
    "GroupKFold": lambda: GroupKFold(3),
    "StratifiedGroupKFold": lambda: StratifiedGroupKFold(3),
    "pairs": lambda: PAIRS,
    "generator": lambda: (pair for pair in PAIRS),
}
SMALL = {"n_atoms": 3, "rank": "full", "max_iter": 1, "random_state": 0}
ESTIMATORS = {
    "IDDLClassifier": IDDLClassifier(recipe=Recipe(loss="ridge"), **SMALL),
    "IDDLTransformer": IDDLTransformer(recipe=Recipe(loss="ridge"), **SMALL),
    "IDDLRegressor": IDDLRegressor(**SMALL),
    "DivergenceKernelClassifier": DivergenceKernelClassifier(
        [0.5], [0.5], [1], [1], random_state=0
    ),
    "SPDClassifier": SPDClassifier(members=("tangent rbf", "tangent lda"), random_state=0),
}
WEIGHTED = [name for name in ESTIMATORS if name != "IDDLTransformer"]  # takes no groups either
CLASSIFIERS = [name for name in WEIGHTED if name != "IDDLRegressor"]
ROWS = [0, 2, 9, 17, N - 1]


def combined(names):
    """All splitters with the first estimator, those of most need with the others."""
    return [
        (name, splitter)
        for name in names
        for splitter in (SPLITTERS if name == names[0] else ("GroupKFold", "generator"))
    ]


@pytest.fixture(scope="module")
def data():
    X, y = make_wishart_clusters(3, N // 3, 2, separation=4, random_state=0)
    order = np.random.default_rng(0).permutation(N)
    return X[order], y[order]


def given_groups(splitter: str) -> dict:
    return {"groups": GROUP} if "Group" in splitter else {}


def fitted(name, data, splitter, **named):
    model = clone(ESTIMATORS[name]).set_params(cv=SPLITTERS[splitter]())
    return model.fit(*data, **given_groups(splitter), **named)


@pytest.mark.parametrize("splitter", [name for name in SPLITTERS if "Group" not in name])
def test_splitters_of_transformers(data, splitter):
    fitted("IDDLTransformer", data, splitter)


@pytest.mark.parametrize(("name", "splitter"), combined(WEIGHTED))
def test_matrices_of_no_weight(data, name, splitter):
    """They are held out by nobody; the others are, each by a fold of the splitter."""
    weights = np.ones(N)
    weights[ROWS] = 0
    model = fitted(name, data, splitter, sample_weight=weights)
    held_out = getattr(model, "oof_proba_", None)
    if held_out is not None:
        np.testing.assert_array_equal(np.isfinite(held_out).all(axis=1), weights > 0)


@pytest.mark.parametrize(("name", "splitter"), combined(CLASSIFIERS))
def test_a_class_of_no_weight(data, name, splitter):
    model = clone(ESTIMATORS[name])
    model.set_params(class_weight={0: 0, 1: 1, 2: 1}, cv=SPLITTERS[splitter]())
    model.fit(*data, **given_groups(splitter))
    assert model.classes_.tolist() == [1, 2]
    held_out = np.isfinite(model.oof_proba_).all(axis=1)
    np.testing.assert_array_equal(held_out, data[1] > 0)


@pytest.mark.parametrize(
    ("name", "splitter"), [*zip(WEIGHTED, 2 * ["PredefinedSplit", "generator"], strict=True)]
)
def test_given_folds_are_those_of_the_kept_matrices(data, name, splitter):
    """A fit with weights of zero is the fit without these matrices, folds included."""
    X, y = data
    weights = np.ones(N)
    weights[ROWS] = 0
    kept = weights > 0
    places = np.cumsum(kept) - 1
    pairs = [tuple(places[part[kept[part]]] for part in pair) for pair in PAIRS]
    expected = clone(ESTIMATORS[name]).set_params(cv=pairs).fit(X[kept], y[kept])
    found = fitted(name, data, splitter, sample_weight=weights)
    verb = "predict_proba" if hasattr(found, "predict_proba") else "predict"
    np.testing.assert_allclose(
        getattr(found, verb)(X), getattr(expected, verb)(X), rtol=1e-10, atol=1e-12
    )
