"""The demonstration from its command line: what it prints, what it writes, how it fails."""

from __future__ import annotations

import re
import sys

import pytest

from divlearn.cli import main
from divlearn.judge import NAMED

pytest.importorskip("skimage", reason="scikit-image is not installed")
image = pytest.importorskip("matplotlib.image", reason="matplotlib is not installed")


def test_with_its_defaults(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["divlearn", "demo", "--patch", "256"])
    assert main(["demo", "--patch", "256"]) == 0
    printed = capsys.readouterr().out
    for part in (*NAMED, "12 covariance matrices, 5 x 5", "brick, grass, gravel", "132 pairs"):
        assert part in printed
    assert "Picture: demo/plane.png" in printed
    assert "Report: demo/report.html" in printed
    page = (tmp_path / "demo" / "report.html").read_text()
    for part in ("Classifiers", "Learned divergences", "Atoms", "divlearn demo"):
        assert part in page
    said = " ".join(printed.split())
    for part in ("1-NN, log-Euclidean", "1-NN, AIRM", "1-NN, Stein", "linear SVM", "IDDL, learned"):
        assert part in printed
    assert re.search(r"is right on \d+\.\d% \+- \d+\.\d% of 12 held-out matrices", said)
    assert re.search(r"IDDL learned \d+ divergences for each of \d+ atoms", said)
    assert "\x1b" not in printed  # piped, so no colours
    height, width = image.imread(tmp_path / "demo" / "plane.png").shape[:2]
    assert 900 <= width <= 2000
    assert 700 <= height <= 2000


def test_the_reference_engine_takes_a_coarse_grid(tmp_path, capsys):
    path = tmp_path / "new" / "folder" / "map.png"
    page = tmp_path / "report.html"
    options = ["--output", str(path), "--patch", "128", "--engine", "reference", "--threads", "1"]
    options += ["--report", str(page)]
    assert main(["demo", *options]) == 0
    printed = capsys.readouterr().out
    assert "reference engine, 1 thread." in " ".join(printed.split())
    assert "2,256 pairs x 25 points" in " ".join(printed.split())
    assert "The grid is coarse" in printed
    assert path.is_file()
    assert "Map of the plane" in page.read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--output", "{}/file/plane.png"],
            "--output .*plane.png cannot be written: .*; choose another folder",
        ),
        (["--output", "{}/folder.png", "--patch", "256"], "is a folder, must be a file"),
        (["--output", "{}/plane"], "must name a picture"),
        (["--output", "{}/plane.xyz", "--patch", "256"], "Format 'xyz' is not supported"),
        (["--patch", "1"], "patch=1 must be >= 2"),
        (["--engine", "steam"], "engine='steam' must be"),
        (["--threads", "0"], "n_threads=0 must be >= 1"),
    ],
)
def test_one_sentence_and_exit_code_one(options, message, tmp_path, capsys):
    (tmp_path / "file").touch()
    (tmp_path / "folder.png").mkdir()
    page = str(tmp_path / "report.html")
    assert main(["demo", "--report", page, *(o.format(tmp_path) for o in options)]) == 1
    problem = capsys.readouterr().err
    assert len(problem.splitlines()) == 1
    assert re.search(message, problem)
