"""Matrices are validated once, at the door of a public call, however much goes on behind it."""

from __future__ import annotations

import numpy as np
import pytest

import divlearn
from divlearn import spd
from divlearn.datasets import make_wishart_clusters
from divlearn.judge import which_divergence

X, Y = make_wishart_clusters(3, 12, 3, separation=4, random_state=0)
SEED = {"random_state": 0}
FITS = {
    "SPDClassifier": lambda: divlearn.SPDClassifier(cv=3, **SEED).fit(X, Y),
    "IDDLClassifier": lambda: divlearn.IDDLClassifier(cv=2, max_iter=1, **SEED).fit(X, Y),
    "DivergenceKernelClassifier": lambda: divlearn.DivergenceKernelClassifier(**SEED).fit(X, Y),
    "DivergenceMDM": lambda: divlearn.DivergenceMDM("choose", **SEED).fit(X, Y),
    "TangentClassifier": lambda: divlearn.TangentClassifier("rbf", **SEED).fit(X, Y),
    "NearestClassifier": lambda: divlearn.NearestClassifier(**SEED).fit(X, Y),
    "LogEuclideanSVM": lambda: divlearn.LogEuclideanSVM("rbf", **SEED).fit(X, Y),
    "ABKMeans": lambda: divlearn.ABKMeans(3, **SEED).fit(X),
    "Recenter": lambda: divlearn.Recenter().fit(X),
    "which_divergence": lambda: which_divergence(X, Y, alphas=[0, 1], betas=[0, 1], **SEED),
}


@pytest.fixture
def validations(monkeypatch):
    """Numbers of matrices in all validations of more than half of the data."""
    found, plain = [], spd.find_not_definite

    def counted(matrices, *more):
        if len(matrices) > len(X) // 2:
            found.append(len(matrices))
        return plain(matrices, *more)

    monkeypatch.setattr(spd, "find_not_definite", counted)
    return found


@pytest.mark.parametrize("name", FITS)
def test_fits_validate_once(name, validations):
    FITS[name]()
    assert validations == [len(X)]


def test_predictions_validate_once(validations):
    model = divlearn.SPDClassifier(cv=3, **SEED).fit(X, Y)
    validations.clear()
    model.predict(X)
    assert validations == [len(X)] * (1 + len(model.members_))  # members are classifiers
    kernel = model.members_["kernel"]
    validations.clear()
    np.asarray(kernel.predict(X))
    assert validations == [len(X)]
