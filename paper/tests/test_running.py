"""The file of results and the program: killed, interrupted, damaged, in parallel, merged."""

import re
import runpy
import signal
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from forked import in_a_fork

from paper import __main__ as program
from paper.cells import Cell, compute, merge_results, read_results, record
from paper.classification import accuracy_cells
from paper.experiments import EXPERIMENTS, gradient_time
from paper.tests.squares import cells
from paper.tests.tiny import DATA, TINY


def squares(path: Path, some: list[Cell]) -> list:
    found = [record(read_results(path), cell) for cell in some]
    return [None if one is None else one["square"] for one in found]


# --- the file -------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "results.jsonl"


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


def test_outcomes_are_kept_and_not_computed_twice(path, log):
    for _ in range(2):
        assert compute(cells(log), {}, path) == []
        assert squares(path, cells()) == [0, 1, 4, 9, 16]
    assert log.read_text().split() == list("01234")
    found = record(read_results(path), cells()[3])
    assert (found["data"], found["method"], found["seed"]) == ("numbers", "multiply", 3)
    assert found["all"] == [0, 1, 2]
    assert found["took"] >= 0


def test_a_key_holds_all_that_determines_an_outcome():
    first = {"task": ("t", 1), "data": "d", "method": "m", "seed": 0, "settings": {"a": 1}}
    others = {"task": ("t", 2), "data": "e", "method": "n", "seed": 1, "settings": {"a": 2}}

    def key(**changes):
        return Cell(source="", compute=dict, **(first | changes)).key

    keys = [key(), *(key(**{name: value}) for name, value in others.items())]
    assert len(set(keys)) == len(keys)


def test_other_matrices_are_computed_again(path):
    (cell,) = [cell for cell in EXPERIMENTS["heat-map"].cells(TINY) if cell.source == "kth"]
    digests = []
    for key in ("kth", "virus", "virus"):
        compute([cell], {"kth": DATA[key]}, path)
        digests.append(read_results(path)[cell.key]["digest"])
    assert digests[0] != digests[1] == digests[2]
    assert len(path.read_text().split("\n\n")) == 2  # lines: the last was there


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: "",
        lambda line: line[: len(line) // 2],
        lambda line: line.replace('"key"', '"lock"'),
        lambda line: "[]",
        lambda line: "null",
        lambda line: "\x00" * 50,
    ],
)
def test_damaged_lines_are_computed_again(damage, path, log):
    compute(cells(), {}, path)
    key = cells()[2].key
    lines = [damage(line) if key in line else line for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines))
    assert squares(path, cells()) == [0, 1, None, 9, 16]
    compute(cells(log), {}, path)
    assert log.read_text().split() == ["2"]
    assert squares(path, cells()) == [0, 1, 4, 9, 16]


def test_a_line_that_was_broken_off_spoils_no_other(path):
    compute(cells(n=2), {}, path)
    path.write_bytes(path.read_bytes()[:-10])
    compute(cells(n=3), {}, path)
    assert squares(path, cells(n=3)) == [0, 1, 4]


def test_files_of_several_machines_are_merged(path, tmp_path):
    other = tmp_path / "other.jsonl"
    compute(cells(n=2), {}, path)
    compute(cells(), {}, other)
    merge_results(path, [other])
    assert squares(path, cells()) == [0, 1, 4, 9, 16]
    assert len(path.read_text().splitlines()) == 5
    with pytest.raises(FileNotFoundError, match="nowhere must be a file of results"):
        merge_results(path, [tmp_path / "nowhere"])


def test_a_kill_loses_one_cell(path, log):
    assert in_a_fork(compute, cells(log, "kill"), {}, path) == -signal.SIGKILL
    assert log.read_text().split() == list("012")
    assert squares(path, cells()) == [0, 1, None, None, None]
    compute(cells(log), {}, path)
    assert log.read_text().split() == list("012234")
    assert squares(path, cells()) == [0, 1, 4, 9, 16]


def test_ctrl_c_keeps_no_outcome_of_an_interrupted_fit(path, log, capfd):
    assert in_a_fork(compute, cells(log, "ctrl-c"), {}, path) == 130
    assert "repeat the command to resume" in capfd.readouterr().err
    assert squares(path, cells()) == [0, 1, None, None, None]


def test_a_failing_cell_does_not_stop_the_others(path):
    failed = compute(cells(stop="fail"), {}, path)
    assert failed == ["numbers, multiply, 2: ZeroDivisionError: of two"]
    assert squares(path, cells()) == [0, 1, None, 9, 16]


def test_long_fits_keep_their_progress(path, monkeypatch):
    """Each in a file of its own, in a folder that is there."""
    given = []

    @contextmanager
    def note(file):
        given.append((file, file is None or file.parent.is_dir()))
        yield

    monkeypatch.setattr("paper.cells.resumable", note)
    methods = ["IDDL-N, structured SVM", "IDDL-V, structured SVM", "IDDL-V", "SPDClassifier"]
    cells = accuracy_cells(["kth"], methods, TINY)
    assert compute(cells, DATA, path) == []
    files = [path.parent / "results.jsonl.fits" / cell.key for cell in cells[:2]]
    assert given == [(file, True) for file in (*files, None, None)]


def test_processes_compute_what_one_does(tmp_path):
    some = [
        cell
        for cell in EXPERIMENTS["standard-measures"].cells(TINY)
        if cell.source in DATA and cell.method in ("LE 1-NN", "AIRM 1-NN", "IDDL-N")
    ]
    found = []
    for jobs in (1, 2):
        path = tmp_path / str(jobs)
        assert compute(some, DATA, path, jobs) == []
        records = [record(read_results(path), cell) for cell in some]
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
    row = next(line for line in text.splitlines() if line.startswith("| Prostate cancer | 0"))
    assert row.count("|") == 8
    assert "(0.578)" in row  # the paper's
    assert "HMDB, JHMDB, KTH TIPS, Myometrium Cancer and VIRUS." in text  # not there
    written = Path("out/results.md").read_text()
    assert written.startswith("# Results\n\nWritten by `python -m paper --quick`")
    assert row in written
    assert "still to be computed" not in written
    again = paper("cluster-table", "--data", "data", "--docs", "out/results.md", "--cached")
    assert again[0] == 0
    assert Path("out/results.md").read_text() == written


def test_cached_computes_nothing(paper, monkeypatch):
    monkeypatch.setenv("DIVLEARN_DATA", "data")
    code, text = paper("cluster-table", "--cached")
    assert code == 0
    assert "Prostate cancer" not in text.replace("Prostate Cancer", "")
    assert not Path("reproduced/results.jsonl").exists()


def test_parts_are_listed_computed_and_merged(paper):
    part = ["cluster-table/prostate", "--data", "data", "--methods", "LE"]
    assert paper(*part, "--results", "there.jsonl")[0] == 0
    before, after = (
        re.search(r"cluster-table/prostate +6 +(\d)  (.*)", paper("--list", *merge)[1]).groups()
        for merge in ([], ["--merge", "there.jsonl"])
    )
    assert before == ("0", "")
    assert after[0] == "1"
    assert after[1].endswith(" s")
    assert "Cells still to be computed: 5." in paper("cluster-table", "--cached")[1]


def test_packed_data_is_enough(paper):
    assert paper("--data", "data", "--pack", "small")[0] == 0
    assert [path.name for path in Path("small").rglob("*.npz")] == ["packed.npz"]
    arguments = ["cluster-table", "--methods", "LE", "--data"]
    texts = [
        paper(*arguments, folder, "--results", folder + ".l")[1] for folder in ("data", "small")
    ]
    rows = [re.search(r"\| Prostate cancer \| 0.*", text)[0] for text in texts]
    assert rows[0] == rows[1]


def test_pictures_lie_beside_the_text(paper):
    assert paper("gradient-time", "--docs", "docs/found.md")[0] == 0
    text = Path("docs/found.md").read_text()
    assert "(found/gradient-time.png)" in text
    assert Path("docs/found/gradient-time.png").stat().st_size > 1000


def test_all_experiments_without_data(paper):
    code, text = paper("--cached")
    assert code == 0
    for experiment in EXPERIMENTS.values():
        assert f"## {experiment.title}\n" in text


def test_a_failure_is_named_and_ends_with_one(paper, monkeypatch):
    def fail(_, engine, d, n_atoms, rounds):
        raise ValueError(f"no time for d={d}")

    monkeypatch.setattr(gradient_time, "measure_gradient", fail)
    code, text = paper("gradient-time")
    assert code == 1
    assert (
        "Failed: gradient-time: Wishart matrices, IDDL-N, 0: ValueError: no time for d=2." in text
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["flying"], "NAME flying must be one of set-up, solvers, heat-map"),
        (["atoms/moon"], "NAME atoms/moon must be a part that --list names"),
        (["--jobs", "0"], "--jobs 0 must be >= 1"),
        (["--quick", "--full"], "not allowed with argument"),
    ],
)
def test_wrong_options(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        program.main(arguments)
    assert message in capsys.readouterr().err


def test_it_runs_as_a_program(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DIVLEARN_DATA", "")
    monkeypatch.setattr(sys, "argv", ["paper", "heat-map", "--cached", "--docs", "results.md"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(program.__file__, run_name="__main__")
    assert not ended.value.code
    assert "## Accuracy over the (alpha, beta) plane" in capsys.readouterr().out
    assert Path("results.md").is_file()
