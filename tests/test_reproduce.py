"""``divlearn reproduce``: what it prints, what it writes, how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from divlearn import experiments
from divlearn.cli import main
from divlearn.datasets import make_wishart_clusters
from divlearn.engines import get_engine
from divlearn.experiments import EXPERIMENTS, clustering
from divlearn.experiments.clustering import measure_clusters
from divlearn.experiments.protocol import Limits

pytest.importorskip("matplotlib", reason="matplotlib is not installed")
pytest.importorskip("plotly", reason="plotly is not installed")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with data, where commands are small and run."""
    X, y = make_wishart_clusters(3, 12, 3, separation=5, random_state=0)
    (tmp_path / "data" / "prostate").mkdir(parents=True)
    np.savez(tmp_path / "data" / "prostate" / "matrices.npz", matrices=X, labels=y)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DIVLEARN_DATA", raising=False)
    small = {
        "gradient_dimensions": (2, 3), "gradient_atoms": (2, 4), "rounds": 1, "runs": 2,
        "numbers": (2, 3), "n_per_number": 6, "mixture_dimension": 2,
        "cluster_limits": {"": Limits(3, 8)},
    }  # fmt: skip
    for name in ("QUICK", "FULL"):
        monkeypatch.setattr(experiments, name, replace(getattr(experiments, name), **small))
    return tmp_path


def reproduce(capsys, *options):
    """Exit code, what was printed, and what was complained about."""
    code = main(["reproduce", *options, "--cache", "cache"])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_help_lists_every_experiment(capsys):
    assert main(["reproduce", "--help"]) == 0
    printed = capsys.readouterr().out
    for name in EXPERIMENTS:
        assert f"\n  {name} " in printed


def test_a_table_beside_the_papers(place, capsys):
    code, printed, told = reproduce(capsys, "cluster-table", "--data", "data", "-o", "out")
    assert code == 0
    assert "12 of 12 parts are to be computed" in printed
    assert "Prostate cancer" in printed
    assert "(0.578)" in printed  # the paper's
    assert "ABMixture" in printed
    assert "Not there, of the paper's data: KTH TIPS, VIRUS, BRODATZ and Myometrium" in printed
    assert "cluster-table: 12 of 12, Prostate cancer, ABMixture, 1" in told
    text = (place / "out" / "results.md").read_text()
    assert "(0.578)" in text
    assert "small parts of the paper's experiments" in text
    assert "Clustering against variants" in (place / "out" / "results.html").read_text()
    code, printed, told = reproduce(capsys, "cluster-table", "--data", "data", "-o", "out")
    assert code == 0
    assert "All 12 parts are done." in printed
    assert told == ""
    assert (place / "out" / "results.md").read_text() == text


def test_the_data_folder_of_the_environment(place, capsys, monkeypatch):
    monkeypatch.setenv("DIVLEARN_DATA", str(place / "data"))
    code, printed, _ = reproduce(capsys, "cluster-table", "--cached")
    assert code == 0
    assert "Data: Prostate cancer." in printed
    assert "Still to be computed: 12 of 12." in printed


def test_without_data_it_does_what_it_can(place, capsys):
    code, printed, _ = reproduce(capsys, "gradient-time")
    assert code == 0
    assert "d = 3, 20 atoms" in printed
    assert (place / "reproduced" / "results" / "gradient-time.png").stat().st_size > 1000
    code, printed, _ = reproduce(capsys, "joint-learning")
    assert code == 0
    assert "Not there, of the paper's data: VIRUS" in printed


def test_all_of_them_without_data_and_without_work(place, capsys):
    code, printed, _ = reproduce(capsys, "all", "--cached")
    assert code == 0
    for experiment in EXPERIMENTS.values():
        assert f"\n{experiment.title} (" in printed
    for name in ("VIRUS", "BRODATZ", "HMDB", "Prostate Cancer"):
        assert name in printed


def test_one_file_for_the_documentation(place, capsys):
    options = ("gradient-time", "--full", "--docs", "docs/results.md")
    code, _, _ = reproduce(capsys, *options)
    assert code == 0
    text = (place / "docs" / "results.md").read_text()
    assert "`divlearn reproduce --full`" in text
    assert "![Time of one gradient and two objectives](results/gradient-time.png)" in text
    assert (place / "docs" / "results" / "gradient-time.png").is_file()
    assert not (place / "reproduced").exists()


def test_for_machines(place, capsys):
    code, printed, _ = reproduce(capsys, "cluster-number", "--json")
    assert code == 0
    said = json.loads(printed)
    assert said["protocol"] == "quick"
    (result,) = said["results"]
    assert result["n_done"] == result["n_cells"] == 16
    row = next(one for one in result["rows"] if one["column"] == "E")
    assert 0 <= row["value"] <= 1
    assert row["error"] is not None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["flying"], "NAME flying must be all or one of heat-map"),
        (["atoms", "--data", "nowhere"], "nowhere must be a folder"),
        (["gradient-time", "--output", "data/prostate/matrices.npz"], "matrices.npz"),
    ],
)
def test_one_sentence_and_exit_code_one(options, message, place, capsys):
    code, _, told = reproduce(capsys, *options)
    assert code == 1
    complaint = [line for line in told.splitlines() if line.startswith("divlearn: ")]
    assert len(complaint) == 1
    assert message in complaint[0]


def test_wrong_options(place, capsys):
    assert reproduce(capsys, "atoms", "--fast")[0] == 2


def test_what_fails_is_named(place, capsys, monkeypatch):
    from divlearn.experiments import gradient_time

    def fail(d, n_atoms, rounds):
        raise ValueError(f"no time for d={d}")

    monkeypatch.setattr(gradient_time, "measure_gradient", fail)
    code, printed, _ = reproduce(capsys, "gradient-time")
    assert code == 1
    assert "Failed: Wishart matrices, IDDL-N, 0: ValueError: no time for d=2." in printed


@pytest.mark.parametrize(
    ("options", "sign", "parts"),
    [
        (["cluster-number"], "cluster-number: ", 40),
        (["cluster-table", "--data", "data", "--full", "--jobs", "2"], "done: ", 60),
    ],
)
def test_ctrl_c_keeps_what_is_done(place, options, sign, parts):
    """As a program: interrupted, it says how to go on, and the next run does not begin again."""
    command = [sys.executable, "-m", "divlearn", "reproduce", *options, "--cache", "cache"]
    with subprocess.Popen(
        command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    ) as process:  # fmt: skip
        for _ in range(3):
            while sign not in process.stderr.readline():
                pass
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, told = process.communicate(timeout=60)
    assert process.returncode == 3  # interrupted, and something is kept
    line = next(line for line in told.splitlines() if line.startswith("divlearn: interrupted"))
    done = len(list((place / "cache").glob("??/*.json")))
    assert done >= 2
    assert f"{done} of {parts} parts are done" in line
    assert "the same command goes on from there" in line


def test_processes_find_what_one_finds(place, capsys):
    options = ("cluster-table", "--data", "data", "--json")
    one, printed, _ = reproduce(capsys, *options, "-o", "one")
    (place / "cache").rename(place / "before")
    several, again, told = reproduce(capsys, *options, "-o", "several", "--jobs", "2")
    assert one == several == 0
    assert told.count("done: ") == len(list((place / "before").glob("[0-9a-f][0-9a-f]/*.json")))
    rows, same = (json.loads(text)["results"][0]["rows"] for text in (printed, again))
    assert rows == same


def test_times_are_taken_by_one_process(place, capsys):
    code, _, told = reproduce(capsys, "gradient-time", "--jobs", "2", "-o", "out")
    assert code == 0
    assert "done: " not in told


def test_an_engine_for_all(place, capsys, monkeypatch):
    seen = set()

    def look(*arguments):
        seen.add(get_engine().name)
        return measure_clusters(*arguments)

    monkeypatch.setattr(clustering, "measure_clusters", look)
    code, *_ = reproduce(capsys, "cluster-table", "--data", "data", "--engine", "reference")
    assert code == 0
    assert seen == {"reference"}
    code, _, told = reproduce(capsys, "cluster-table", "--engine", "abacus")
    assert code == 1
    assert "engine='abacus' must be" in told
