"""Names of channels: a file of them, in the model and in the report."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from divlearn import load
from divlearn.cli import main
from divlearn.datasets import make_wishart_clusters

pytestmark = pytest.mark.usefixtures("short_fits", "coarse_maps")


@pytest.fixture
def folder(working_folder):
    X, y = make_wishart_clusters(2, 12, 3, separation=2, random_state=0)
    np.savez("data.npz", X=X, y=y)
    Path("names.txt").write_text("C3\nCz\nC4\n")
    return working_folder


def run(capsys, *arguments):
    return main(["fit", "data.npz", "--model", "mdm", "-o", "m", *arguments]), capsys.readouterr()


def test_the_model_and_the_report_have_the_names(capsys, folder):
    pytest.importorskip("plotly", reason="plotly is not installed")
    code, printed = run(capsys, "--channels", "names.txt", "--report", "report.html")
    assert code == 0, printed.err
    model, data = load("m"), np.load("data.npz")
    assert model.feature_names_in_.tolist() == ["C3", "Cz", "C4"]
    page = Path("report.html").read_text()
    assert re.search("<td[^>]*>Cz<", page)
    assert "channel 1" not in page
    assert main(["predict", "m", "data.npz"]) == 0
    assert not hasattr(model.fit(data["X"], data["y"]), "feature_names_in_")


def test_the_last_step_of_a_pipeline_has_the_names(capsys, folder):
    pytest.importorskip("pyriemann", reason="pyriemann is not installed")
    series = np.random.default_rng(0).standard_normal((24, 3, 30))
    np.savez("data.npz", X=series, y=np.arange(24) % 2)
    code, printed = run(capsys, "--channels", "names.txt", "--covariances", "oas")
    assert code == 0, printed.err
    assert load("m")[-1].feature_names_in_.tolist() == ["C3", "Cz", "C4"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            "C3\nC4\n",
            "names.txt: it has 2 entries in 2 lines, must have one for each of 3 rows of a matrix; "
            "save channels in the order of the rows of a matrix, one per line",
        ),
        ("C3\nCz\nC3\n", "names.txt has the channel C3 twice; give each its own name"),
    ],
)
def test_other_numbers_and_names_twice_are_refused(capsys, folder, names, message):
    Path("names.txt").write_text(names)
    code, printed = run(capsys, "--channels", "names.txt")
    assert code == 1
    assert message in " ".join(printed.err.split())
    assert not Path("m").exists()


def test_the_names_are_not_overwritten(capsys, folder):
    assert main(["fit", "data.npz", "--channels", "names.txt", "-o", "names.txt"]) == 1
    assert "--channels" in capsys.readouterr().err
    assert Path("names.txt").read_text().startswith("C3")
