"""The demonstration with options, and how it fails; test_program_doc has its defaults."""

from __future__ import annotations

import re

import pytest

from divlearn.cli import main

pytestmark = pytest.mark.usefixtures("short_fits")
pytest.importorskip("skimage", reason="scikit-image is not installed")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")


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
