"""The demonstration with options, and how it fails; test_program_doc has its defaults."""

from __future__ import annotations

import re

import pytest

from divlearn.cli import main

pytestmark = pytest.mark.usefixtures("short_fits", "coarse_maps")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")


def test_the_reference_engine_does_as_well(tmp_path, capsys, few_recordings):
    few_recordings(12, 3, n_channels=3)  # NumPy alone takes its time
    path = tmp_path / "new" / "folder" / "map.png"
    page = tmp_path / "report.html"
    options = ["--output", str(path), "--engine", "reference", "--threads", "1"]
    assert main(["demo", *options, "--report", str(page)]) == 0
    assert "Data: 12 simulated recordings of 3 subjects" in capsys.readouterr().out
    assert path.is_file()
    assert "Classifiers" in page.read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--output", "{}/file/plane.png"],
            "--output .*plane.png cannot be written: .*; choose another folder",
        ),
        (["--output", "{}/folder.png"], "is a folder, must be a file"),
        (["--output", "{}/plane"], "plane must end in .png or "),
        (["--output", "{}/plane.xyz"], "plane.xyz must end in .png or "),
        (["--engine", "steam"], "--engine steam must be"),
        (["--threads", "0"], "--threads 0 must be >= 1 and <= 1024"),
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
