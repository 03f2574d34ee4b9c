"""Matrices are validated once, at the door of a public call, however much goes on behind it."""

from __future__ import annotations

import numpy as np
import pytest

import divlearn
from divlearn import spd
from divlearn.cli.app import run
from divlearn.committee.weights import floored, sharpened
from divlearn.datasets import make_wishart_clusters
from divlearn.judge import which_divergence

pytestmark = pytest.mark.usefixtures("small_grids_everywhere")

X, Y = make_wishart_clusters(3, 12, 3, separation=4, random_state=0)
SEED = {"random_state": 0}
FITS = {
    "SPDClassifier": lambda: divlearn.SPDClassifier(cv=2, **SEED).fit(X, Y),
    "SPDRegressor": lambda: divlearn.SPDRegressor(cv=2, **SEED).fit(X, Y),
    "IDDLClassifier": lambda: divlearn.IDDLClassifier(cv=2, max_iter=1, **SEED).fit(X, Y),
    "DivergenceKernelClassifier": lambda: divlearn.DivergenceKernelClassifier(**SEED).fit(X, Y),
    "DivergenceMDM": lambda: divlearn.DivergenceMDM("choose", **SEED).fit(X, Y),
    "TangentClassifier": lambda: divlearn.TangentClassifier("rbf", **SEED).fit(X, Y),
    "NearestClassifier": lambda: divlearn.NearestClassifier(**SEED).fit(X, Y),
    "LogEuclideanSVM": lambda: divlearn.LogEuclideanSVM("rbf", **SEED).fit(X, Y),
    "IDDLTransformer": lambda: divlearn.IDDLTransformer(cv=2, max_iter=1, **SEED).fit(X, Y),
    "ABKMeans": lambda: divlearn.ABKMeans(3, **SEED).fit(X),
    "Recenter": lambda: divlearn.Recenter("choose").fit(X, Y, np.arange(len(Y)) % 4),
    "which_divergence": lambda: which_divergence(X, Y, alphas=[0, 1], betas=[0, 1], **SEED),
}


@pytest.fixture
def validations(monkeypatch):
    """Numbers of matrices in all validations."""
    found, plain = [], spd.find_not_definite

    def counted(matrices, *more):
        found.append(len(matrices))
        return plain(matrices, *more)

    monkeypatch.setattr(spd, "find_not_definite", counted)
    return found


def of_most(validations):
    """Those of more than half of the data, not of means or of atoms."""
    return [n_matrices for n_matrices in validations if n_matrices > len(X) // 2]


@pytest.mark.parametrize("model", [divlearn.DivergenceMDM(), divlearn.DivergenceKNN()])
def test_predictions_do_not_validate_the_model(model, validations):
    model.fit(X, Y)
    validations.clear()
    model.predict(X[:1])
    assert validations == [1]


@pytest.mark.parametrize("name", FITS)
def test_fits_validate_once(name, validations):
    FITS[name]()
    assert of_most(validations) == [len(X)]


@pytest.fixture(scope="module")
def committee():
    members = ("tangent lda", "nearest mean", "kernel", "nearest neighbour", "iddl")
    return divlearn.SPDClassifier(members, cv=2, **SEED).fit(X, Y)


def test_predictions_validate_once(committee, validations):
    for model in (committee, *committee.members_.values()):
        validations.clear()
        model.predict(X)
        assert of_most(validations) == [len(X)], model


def test_members_predict_the_same_from_checked_matrices(committee):
    weighted = zip(committee.weights_.values(), committee.members_.values(), strict=True)
    said = sum(weight * floored(model.predict_proba(X)) for weight, model in weighted)
    expected = sharpened(said, committee.temperature_)
    np.testing.assert_allclose(committee.predict_proba(X), expected, rtol=1e-6)


def test_the_program_validates_once(committee, validations, tmp_path):
    divlearn.save(committee, tmp_path / "model.divlearn")
    np.savez(tmp_path / "new.npz", X=X)
    validations.clear()
    assert run(["predict", str(tmp_path / "model.divlearn"), str(tmp_path / "new.npz")]) == 0
    assert of_most(validations) == [len(X)]
