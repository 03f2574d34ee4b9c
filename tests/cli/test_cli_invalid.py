"""Invalid matrices among those to predict."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from pyriemann.estimation import Covariances
from pyriemann.tangentspace import TangentSpace
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import divlearn
from divlearn.cli import main
from divlearn.datasets import make_wishart_clusters
from divlearn.nearest import DivergenceMDM
from divlearn.transfer import Recenter

NAMES = np.array(["bark", "moss"])
PROBLEMS = {
    3: "has a NaN entry at (1, 2); drop these matrices or clean the data they come from",
    7: "is rank-deficient: numerical rank 1 of 3, ",
    8: "is not symmetric",
}


@pytest.fixture
def good(working_folder):
    """Write matrices with three bad ones, labels that the model gets right, and a model."""
    X, y = make_wishart_clusters(2, 15, 3, separation=5, random_state=0)
    divlearn.save(DivergenceMDM().fit(X, NAMES[y]), "model")
    bad = X.copy()
    bad[3, 1, 2] = np.nan
    bad[7] = 1
    bad[8, 0, 1] += 1
    np.savez("bad.npz", X=bad, y=NAMES[y])
    np.savez("one_wrong.npz", X=bad, y=NAMES[np.where(np.arange(30) == 20, 1 - y, y)])
    return X


def run(capsys, *arguments):
    code = main(list(arguments))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_stop_is_the_default(capsys, good):
    for options in ([], ["--invalid", "stop"]):
        code, printed, complaint = run(capsys, "predict", "model", "bad.npz", *options)
        assert code == 1
        assert not printed
        assert "X[3] has a NaN entry" in complaint
    code, _, complaint = run(capsys, "predict", "no model", "bad.npz", "--invalid", "maybe")
    assert code == 1
    assert complaint == "divlearn: --invalid maybe must be one of stop, skip\n"


def test_rows_say_why_they_are_skipped(capsys, good):
    code, printed, complaint = run(
        capsys, "predict", "model", "one_wrong.npz", "--invalid", "skip", "-o", "found.csv"
    )
    assert code == 0
    assert not complaint
    assert "3 of 30 matrices are invalid and were skipped.\n" in printed
    assert f"{26 / 27:.1%} of 27 predictions agree with the labels." in printed
    rows = list(csv.DictReader(Path("found.csv").read_text().splitlines()))
    model = divlearn.load("model")
    expected, proba = model.predict(good), model.predict_proba(good)
    assert [row["matrix"] for row in rows] == [str(number) for number in range(30)]
    for number, row in enumerate(rows):
        if number in PROBLEMS:
            assert row["problem"].startswith(PROBLEMS[number])
            assert row["predicted"] == row["p(bark)"] == row["p(moss)"] == ""
        else:
            assert row["problem"] == ""
            assert row["predicted"] == expected[number]
            assert row["p(moss)"] == f"{proba[number, 1]:.4f}"


def test_json_has_null_for_them(capsys, good):
    code, printed, _ = run(capsys, "predict", "model", "bad.npz", "--invalid", "skip", "--json")
    found = json.loads(printed)
    assert code == 0
    assert found["accuracy"] == 1
    skipped = [number for number, text in enumerate(found["problems"]) if text is not None]
    for values in (found["predicted"], found["probabilities"]):
        assert [number for number, value in enumerate(values) if value is None] == skipped
    assert skipped == list(PROBLEMS)


def test_without_invalid_matrices_nothing_changes(capsys, good):
    np.save("good.npy", good)
    expected = json.loads(run(capsys, "predict", "model", "good.npy", "--json")[1])
    found = run(capsys, "predict", "model", "good.npy", "--invalid", "skip", "--json")[1]
    assert json.loads(found) == expected


def test_data_without_a_valid_matrix_fails(capsys, good):
    np.save("wide.npy", np.stack([np.eye(4)] * 5))
    code, _, complaint = run(capsys, "predict", "model", "wide.npy", "--invalid", "skip")
    assert code == 1
    assert "X has matrices of size 4, but DivergenceMDM is expecting 3" in complaint


@pytest.mark.parametrize("kind", ["recordings", "re-centred"])
def test_pipelines_skip_them_too(capsys, good, kind):
    X, y = good, NAMES[np.arange(30) % 2]
    model = make_pipeline(Recenter(), DivergenceMDM())
    if kind == "recordings":
        X = np.random.default_rng(0).standard_normal((30, 3, 40))
        model = make_pipeline(Covariances("scm"), TangentSpace(), LogisticRegression())
    divlearn.save(model.fit(X, y), "pipeline")
    bad = X.copy()
    bad[[4, 5, 29]] = np.nan
    np.savez("series.npz", X=bad)
    code, printed, _ = run(
        capsys, "predict", "pipeline", "series.npz", "--invalid", "skip", "--json"
    )
    assert code == 0
    found = json.loads(printed)["predicted"]
    valid = np.setdiff1d(np.arange(30), [4, 5, 29])
    assert [found[row] for row in valid] == model.predict(X[valid]).tolist()
    assert found[4] is found[5] is found[29] is None
