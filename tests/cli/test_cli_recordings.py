"""Recordings in place of matrices."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from pyriemann.estimation import Covariances
from sklearn.covariance import oas

from divlearn import load
from divlearn.cli import main
from divlearn.datasets import make_recordings
from divlearn.nearest import DivergenceMDM

pytestmark = pytest.mark.usefixtures("short_fits", "coarse_maps")
GAP = "has the entry nan at (1, 2), must be finite; drop it or fill its gaps"
FIT = ["fit", "raw.npz", "--model", "mdm", "-o", "model", "--covariances"]


@pytest.fixture
def data(working_folder):
    X, y, subjects = make_recordings(60, 4, 40, n_subjects=6, artifacts=0.0, random_state=0)
    np.savez("raw.npz", X=X, y=y, subject=subjects)
    np.savez("covariances.npz", X=Covariances("oas").fit_transform(X), y=y)
    return X, y


def run(capsys, *arguments):
    code = main(list(arguments))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def run_json(capsys, *arguments):
    code, printed, complaint = run(capsys, *arguments, "--json")
    assert code == 0, complaint
    return json.loads(printed)


def test_the_model_is_a_pipeline_of_recordings(capsys, data):
    X, y = data
    assert run_json(capsys, *FIT, "oas")["kind"] == "DivergenceMDM"
    model = load("model")
    assert [name for name, _ in model.steps] == ["recordings", "covariances", "divergencemdm"]
    centred = X - X.mean(axis=2, keepdims=True)
    expected = [oas(one.T, assume_centered=True)[0] for one in centred]
    np.testing.assert_allclose(model[:2].transform(X), expected, rtol=1e-10, atol=1e-12)
    alone = DivergenceMDM("choose", random_state=0).fit(model[:2].transform(X), y)
    found = run_json(capsys, "predict", "model", "raw.npz")
    assert found["predicted"] == alone.predict(model[:2].transform(X)).tolist()
    assert found["accuracy"] > 0.5


def test_it_is_fitted_as_to_the_matrices(capsys, data):
    options = ["--model", "mdm", "-o", "m", "--report", "page.html"]
    raw = run_json(capsys, "fit", "raw.npz", "--covariances", "oas", *options)
    page = Path("page.html").stat().st_size
    matrices = run_json(capsys, "fit", "covariances.npz", *options)
    assert page > 10_000
    for found in (raw, matrices):
        del found["seconds"]
    assert raw == matrices
    grouped = run_json(
        capsys, "fit", "raw.npz", "--covariances", "scm", "--groups", "subject", *options[:-2]
    )
    assert grouped["kept_together"]


def test_predict_refuses_what_the_model_cannot_use(capsys, data):
    X, y = data
    run_json(capsys, *FIT, "lwf")
    code, _, complaint = run(capsys, "predict", "model", "covariances.npz")
    assert code == 1
    assert "symmetric 4 x 4 matrices, as covariances are, but the model was fitted" in complaint
    assert "recordings of shape (4, 40), n_channels x n_times" in complaint
    np.savez("longer.npz", X=np.concatenate([X, X], axis=2), y=y)
    np.savez("wider.npz", X=np.concatenate([X, X], axis=1), y=y)
    assert run_json(capsys, "predict", "model", "longer.npz")["accuracy"] > 0.5
    code, _, complaint = run(capsys, "predict", "model", "wider.npz")
    assert code == 1
    assert "X has matrices of size 8, but DivergenceMDM is expecting 4" in complaint
    X[5, 1, 2] = np.nan
    np.savez("gap.npz", X=X)
    code, _, complaint = run(capsys, "predict", "model", "gap.npz")
    assert (code, complaint) == (1, f"divlearn: X[5] {GAP}\n")
    found = run_json(capsys, "predict", "model", "gap.npz", "--invalid", "skip")
    assert found["problems"] == [GAP if row == 5 else None for row in range(60)]


def test_short_recordings_can_be_regularized(capsys, data):
    X, y = data
    np.savez("raw.npz", X=X[:, :, :4], y=y)  # their covariances have rank 3
    code, _, complaint = run(capsys, *FIT, "scm")
    assert code == 1
    assert "is rank-deficient: numerical rank 3 of 4" in complaint
    assert not Path("model").exists()
    assert run_json(capsys, *FIT, "scm", "--regularize", "shrink")["kind"] == "DivergenceMDM"
    assert len(run_json(capsys, "predict", "model", "raw.npz")["predicted"]) == 60


@pytest.mark.parametrize(
    ("file", "options", "message"),
    [
        ("raw.npz", ["--covariances", "x"], "--covariances x must be one of oas, lwf, sch, scm, "),
        ("covariances.npz", ["--covariances", "oas"], "4 x 4 matrices, as covariances are, must"),
        ("gap.npz", ["--covariances", "oas"], "X[5] has the entry nan at channel 1, time 2, must"),
        ("flat.npz", ["--covariances", "oas"], "X has shape (60, 160), expected (n_series, n_"),
        ("raw.npz", [], "or fit recordings with --covariances oas\n"),
    ],
)
def test_what_cannot_be_used(capsys, data, file, options, message):
    X, y = data
    np.savez("flat.npz", X=X.reshape(60, -1), y=y)
    X[5, 1, 2] = np.nan
    np.savez("gap.npz", X=X, y=y)
    code, _, complaint = run(capsys, "fit", file, "-o", "model", *options)
    assert code == 1
    assert message in complaint
    assert len(complaint.splitlines()) == 1
    assert not Path("model").exists()
