"""The cache and the program: killed, interrupted, damaged, in parallel."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from paper import __main__ as program
from paper import cache
from paper.cache import Cell
from paper.experiments import EXPERIMENTS, gradient_time
from paper.running import compute
from paper.tests.squares import cells
from paper.tests.tiny import DATA, TINY

ROOT = Path(__file__).parents[2]


def squares(folder: Path, some: list[Cell]) -> list:
    found = [cache.record(folder, cell) for cell in some]
    return [None if one is None else one["square"] for one in found]


def run(stop: str, folder: Path, log: Path, jobs: int = 1) -> subprocess.CompletedProcess:
    """Compute cells in a process of its own, which one of them ends."""
    code = (
        "import sys; from pathlib import Path; from paper.running import compute; "
        "from paper.tests.squares import cells; "
        f"compute(cells(Path({str(log)!r}), {stop!r}), Path({str(folder)!r}), {jobs})"
    )
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)


# --- the cache ------------------------------------------------------------------------------------


def test_outcomes_are_kept_and_not_computed_twice(tmp_path):
    log = tmp_path / "log"
    for _ in range(2):
        assert compute(cells(log), tmp_path) == []
        assert squares(tmp_path, cells()) == [0, 1, 4, 9, 16]
    assert log.read_text().split() == list("01234")
    record = cache.record(tmp_path, cells()[3])
    assert (record["data"], record["method"], record["seed"]) == ("numbers", "multiply", 3)
    assert record["all"] == [0, 1, 2]
    assert record["took"] >= 0


def test_a_key_holds_all_that_determines_an_outcome():
    first = {"task": ("t", 1), "digest": "d", "method": "m", "seed": 0, "settings": {"a": 1}}
    others = {"task": ("t", 2), "digest": "e", "method": "n", "seed": 1, "settings": {"a": 2}}

    def key(**changes):
        return Cell(data="name", compute=dict, **(first | changes)).key

    keys = [key(), *(key(**{name: value}) for name, value in others.items())]
    assert len(set(keys)) == len(keys)
    assert key() == Cell(data="other name", compute=dict, **first).key


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"outcome"', '"income"'),
        lambda text: text.replace('"key": "', '"key": "0'),
        lambda text: "[]",
        lambda text: "null",
        lambda text: "\x00" * 50,
    ],
)
def test_damaged_files_are_computed_again(damage, tmp_path):
    compute(cells(), tmp_path)
    path = next(path for path in tmp_path.rglob(f"{cells()[2].key}.json"))
    path.write_text(damage(path.read_text()))
    assert squares(tmp_path, cells()) == [0, 1, None, 9, 16]
    compute(cells(tmp_path / "log"), tmp_path)
    assert (tmp_path / "log").read_text().split() == ["2"]
    assert squares(tmp_path, cells()) == [0, 1, 4, 9, 16]


def test_a_kill_loses_one_cell(tmp_path):
    folder, log = tmp_path / "cells", tmp_path / "log"
    assert run("kill", folder, log).returncode == -signal.SIGKILL
    assert log.read_text().split() == list("012")
    assert squares(folder, cells()) == [0, 1, None, None, None]
    compute(cells(log), folder)
    assert log.read_text().split() == list("012234")
    assert squares(folder, cells()) == [0, 1, 4, 9, 16]


def test_ctrl_c_keeps_no_outcome_of_an_interrupted_fit(tmp_path):
    ended = run("ctrl-c", tmp_path, tmp_path / "log")
    assert ended.returncode == 130
    assert "repeat the command to resume" in ended.stderr
    assert squares(tmp_path, cells()) == [0, 1, None, None, None]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_failing_cell_does_not_stop_the_others(tmp_path):
    assert compute(cells(stop="fail"), tmp_path) == [
        "numbers, multiply, 2: ZeroDivisionError: of two"
    ]
    assert squares(tmp_path, cells()) == [0, 1, None, 9, 16]


def test_processes_compute_what_one_does(tmp_path):
    some = [
        cell for cell in EXPERIMENTS["standard-measures"].cells(DATA, TINY)
        if cell.method in ("LE 1-NN", "AIRM 1-NN", "IDDL-N")
    ]  # fmt: skip
    found = []
    for jobs in (1, 2):
        assert compute(some, tmp_path / str(jobs), jobs) == []
        records = [cache.record(tmp_path / str(jobs), cell) for cell in some]
        found.append([(one["data"], one["method"], one["accuracy"]) for one in records])
    assert found[0] == found[1]
    assert len(found[0]) == 6


# --- the program ----------------------------------------------------------------------------------


@pytest.fixture
def paper(tmp_path, monkeypatch, capsys):
    """Run the program in a folder of its own, on tiny sizes; returns exit code and output."""
    (tmp_path / "data" / "prostate").mkdir(parents=True)
    X, y = DATA["kth"].matrices, DATA["kth"].labels
    np.savez(tmp_path / "data" / "prostate" / "matrices.npz", matrices=X, labels=y)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DIVLEARN_DATA", raising=False)
    monkeypatch.setattr(program, "QUICK", TINY)

    def run(*arguments: str) -> tuple[int, str]:
        code = program.main(arguments)
        return code, capsys.readouterr().out

    return run


def test_a_table_beside_the_papers(paper):
    code, text = paper("cluster-table", "--data", "data", "--docs", "out/results.md")
    assert code == 0
    row = next(line for line in text.splitlines() if line.startswith("| Prostate cancer |"))
    assert row.count("|") == 8
    assert "(0.578)" in row  # the paper's
    assert "of the paper's data: KTH TIPS, VIRUS, BRODATZ and Myometrium Cancer;" in text
    written = Path("out/results.md").read_text()
    assert written.startswith("# Results\n\nWritten by `python -m paper --quick`")
    assert row in written
    assert "not complete" not in written
    again = paper("cluster-table", "--data", "data", "--docs", "out/results.md", "--cached")
    assert again[0] == 0
    assert Path("out/results.md").read_text() == written


def test_cached_computes_nothing(paper, monkeypatch):
    monkeypatch.setenv("DIVLEARN_DATA", "data")
    code, text = paper("cluster-table", "--cached")
    assert code == 0
    assert "Data: Prostate cancer." in text
    assert "Still to be computed: 6 of 6." in text
    assert "not complete: 6 of 6 cells" in Path("reproduced/results.md").read_text()


def test_pictures_lie_beside_the_text(paper):
    assert paper("gradient-time", "cluster-convergence", "--docs", "docs/found.md")[0] == 0
    text = Path("docs/found.md").read_text()
    for name in ("gradient-time", "cluster-convergence"):
        assert f"(found/{name}.png)" in text
        assert Path(f"docs/found/{name}.png").stat().st_size > 1000


def test_all_experiments_without_data(paper):
    code, text = paper("--cached")
    assert code == 0
    for experiment in EXPERIMENTS.values():
        assert f"## {experiment.title}\n" in text


def test_a_failure_is_named_and_ends_with_one(paper, monkeypatch):
    def fail(d, n_atoms, rounds):
        raise ValueError(f"no time for d={d}")

    monkeypatch.setattr(gradient_time, "measure_gradient", fail)
    code, text = paper("gradient-time")
    assert code == 1
    assert "Failed: Wishart matrices, IDDL-N, 0: ValueError: no time for d=2." in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["flying"], "NAME flying must be one of heat-map, atoms"),
        (["--jobs", "0"], "--jobs 0 must be >= 1"),
        (["--quick", "--full"], "not allowed with argument"),
    ],
)
def test_wrong_options(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        program.main(arguments)
    assert message in capsys.readouterr().err


def test_it_runs_from_the_repository_root(tmp_path):
    command = [sys.executable, "-m", "paper", "heat-map", "--cached", "--docs", "results.md"]
    environment = os.environ | {"DIVLEARN_DATA": "", "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0
    assert "Not available, of the paper's data: KTH TIPS and VIRUS" in ended.stdout
    assert (tmp_path / "results.md").is_file()


def test_files_of_the_cache_tell_what_they_are(tmp_path):
    compute(cells(n=1, to=3), tmp_path)
    (path,) = tmp_path.rglob("*.json")
    content = json.loads(path.read_text())
    assert content["about"]["settings"] == {"to": 3}
    assert content["about"]["task"] == ["square", 1]
