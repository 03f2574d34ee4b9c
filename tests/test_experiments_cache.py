"""The cache of experiments: hits, misses, damage, kills; and which data is there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace

import numpy as np
import pytest

from divlearn.datasets import make_wishart_clusters
from divlearn.experiments import EXPERIMENTS, QUICK, Cache, Shelf, run
from divlearn.experiments.cache import default_folder
from divlearn.experiments.cells import Cell, Task
from divlearn.experiments.experiment import Experiment
from divlearn.experiments.result import Row
from divlearn.experiments.running import Interrupted, cells_left, stoppable


class Squares(Experiment):
    """An experiment of three cells that counts how often it computes."""

    name, title, where, unit = "squares", "Squares", "Table 0", "units"

    def __init__(self):
        self.computed = []

    def cells(self, shelf, protocol):
        return [self._cell(i, protocol) for i in range(3)]

    def _cell(self, i, protocol):
        def compute():
            self.computed.append(i)
            return {"square": i * i, "nothing": np.nan, "many": np.arange(2)}

        settings = {"runs": protocol.runs}
        return Cell(Task("square", 1), "numbers", "0123", "multiply", i, settings, compute)

    def rows(self, done):
        return [Row(str(cell.seed), "square", outcome["square"]) for cell, outcome in done]

    def effort(self, protocol):
        return "Three cells"


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "cache")


def files(cache):
    return sorted(cache.folder.glob("??/*.json"))


# ------------------------------------------------------------------ hits and misses


def test_a_second_run_computes_nothing(cache):
    squares = Squares()
    first, second = (run(squares, Shelf(), QUICK, cache) for _ in range(2))
    assert squares.computed == [0, 1, 2]
    assert first.rows == second.rows
    assert second.seconds == first.seconds
    assert [row.value for row in second.rows] == [0, 1, 4]


def test_outcomes_are_plain_at_once(cache):
    """What a cell returns is the same before and after it went through a file."""
    cell = Squares().cells(Shelf(), QUICK)[2]
    written = cache.write(cell, cell.compute(), seconds=0.1, cpu_seconds=0.1)
    assert written == cache.read(cell)
    assert written.outcome == {"square": 4, "nothing": None, "many": [0, 1]}


def test_what_the_outcome_depends_on_makes_the_key():
    def cell(**changes):
        given = {
            "task": Task("t", 1), "data": "Virus", "digest": "ab", "method": "m", "seed": 0,
            "settings": {"atoms": 3, "solver": "bcd"}, "compute": dict,
        }  # fmt: skip
        return Cell(**(given | changes))

    same = {"data": "another name", "settings": {"solver": "bcd", "atoms": 3}}
    assert cell().key == cell(**same).key
    other = [
        {"task": Task("t", 2)}, {"task": Task("u", 1)}, {"digest": "ac"}, {"method": "n"},
        {"seed": 1}, {"settings": {"atoms": 4, "solver": "bcd"}},
    ]  # fmt: skip
    assert len({cell(**change).key for change in [{}, *other]}) == len(other) + 1


def test_other_settings_are_computed_anew(cache):
    squares = Squares()
    run(squares, Shelf(), QUICK, cache)
    run(squares, Shelf(), replace(QUICK, runs=99), cache)
    assert squares.computed == [0, 1, 2] * 2


def test_nothing_is_computed_when_not_asked_for(cache):
    squares = Squares()
    result = run(squares, Shelf(), QUICK, cache, compute=False)
    assert squares.computed == []
    assert (result.n_done, result.n_cells) == (0, 3)
    assert cells_left([squares], Shelf(), QUICK, cache) == {"squares": (3, 3)}


def test_a_failing_cell_is_named_and_the_rest_goes_on(cache):
    class Fragile(Squares):
        def _cell(self, i, protocol):
            cell = super()._cell(i, protocol)
            return replace(cell, compute=lambda: 1 // 0) if i == 1 else cell

    fragile = Fragile()
    result = run(fragile, Shelf(), QUICK, cache)
    (failure,) = result.failures
    assert failure.startswith("numbers, multiply, 1: ZeroDivisionError: ")
    assert [row.row for row in result.rows] == ["0", "2"]
    assert len(files(cache)) == 2  # a failure is not kept


# ------------------------------------------------------------------ damage


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"square": 4', '"square": 5'),
        lambda text: text.replace('"seal"', '"sea"'),
        lambda text: "[]",
        lambda text: "null",
        lambda text: "\x00" * 50,
    ],
)
def test_a_damaged_file_is_never_trusted(damage, cache):
    squares = Squares()
    run(squares, Shelf(), QUICK, cache)
    cell = squares.cells(Shelf(), QUICK)[2]
    path = cache.path(cell)
    path.write_text(damage(path.read_text()))
    assert cache.read(cell) is None
    result = run(squares, Shelf(), QUICK, cache)
    assert squares.computed == [0, 1, 2, 2]
    assert [row.value for row in result.rows] == [0, 1, 4]
    assert cache.read(cell) is not None


def test_a_file_under_a_wrong_name_is_not_trusted(cache):
    squares = Squares()
    run(squares, Shelf(), QUICK, cache)
    first, last = (cache.path(squares.cells(Shelf(), QUICK)[i]) for i in (0, 2))
    last.write_bytes(first.read_bytes())
    result = run(squares, Shelf(), QUICK, cache)
    assert [row.value for row in result.rows] == [0, 1, 4]


def test_the_users_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if sys.platform.startswith("linux"):
        assert default_folder() == tmp_path / "divlearn"


# ------------------------------------------------------------------ stopping


def test_an_interruption_is_not_an_outcome(cache):
    squares = Squares()

    def stop(step):
        if step.index == 1:
            raise Interrupted

    with pytest.raises(Interrupted):
        run(squares, Shelf(), QUICK, cache, watch=stop)
    assert len(files(cache)) == 1
    run(squares, Shelf(), QUICK, cache)
    assert squares.computed == [0, 1, 2]


def test_learners_do_not_take_an_interruption_for_theirs():
    def learn():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        except KeyboardInterrupt:
            return "what it had by then"

    with stoppable(), pytest.raises(Interrupted):
        learn()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_killed_run_goes_on(tmp_path):
    """Kill a process in its third cell; a new one only does what is left."""
    program = textwrap.dedent(
        """
        import sys, time
        from pathlib import Path
        from divlearn.experiments import QUICK, Cache, Shelf, run
        sys.path.insert(0, sys.argv[2])
        from test_experiments_cache import Squares

        def watch(step):
            print(step.index, flush=True)
            if step.index == 2:
                time.sleep(60)

        run(Squares(), Shelf(), QUICK, Cache(Path(sys.argv[1])), watch=watch)
        """
    )
    folder = os.path.dirname(__file__)
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path), folder], stdout=subprocess.PIPE, text=True
    ) as process:
        assert [process.stdout.readline().strip() for _ in range(3)] == ["0", "1", "2"]
        process.kill()
    squares = Squares()
    run(squares, Shelf(), QUICK, Cache(tmp_path))
    assert squares.computed == [2]


# ------------------------------------------------------------------ data


@pytest.fixture
def folder(tmp_path):
    """A folder with a small set in place of the 3D objects."""
    X, y = make_wishart_clusters(3, 10, 4, separation=4, random_state=0)
    (tmp_path / "data" / "rgbd").mkdir(parents=True)
    np.savez(tmp_path / "data" / "rgbd" / "matrices.npz", matrices=X, labels=y)
    return tmp_path / "data"


def test_data_in_a_folder(folder, cache):
    shelf = Shelf.in_folder(folder, cache)
    (holding,) = shelf.find(["virus", "rgbd"])
    assert holding.source.paper == "3D Object"
    assert holding.digest == holding.dataset.digest()
    assert shelf.missing(["virus", "rgbd"]) == ["VIRUS"]
    assert Shelf.in_folder(None, cache).missing(["virus", "rgbd"]) == ["VIRUS", "3D Object"]


def test_digests_are_remembered_until_files_change(folder, cache):
    before = Shelf.in_folder(folder, cache).find(["rgbd"])[0]
    digest = before.digest
    again = Shelf.in_folder(folder, cache).find(["rgbd"])[0]
    assert again.digest == digest
    assert "dataset" not in vars(again)  # it was not even loaded
    X, y = make_wishart_clusters(3, 10, 4, separation=4, random_state=1)
    np.savez(folder / "rgbd" / "matrices.npz", matrices=X, labels=y)
    assert Shelf.in_folder(folder, cache).find(["rgbd"])[0].digest != digest


def test_a_damaged_note_is_not_trusted(folder, cache):
    digest = Shelf.in_folder(folder, cache).find(["rgbd"])[0].digest
    note = cache.folder / "notes" / "rgbd.json"
    content = json.loads(note.read_text())
    content["outcome"]["digest"] = "0" * 64
    note.write_text(json.dumps(content))
    assert Shelf.in_folder(folder, cache).find(["rgbd"])[0].digest == digest


def test_a_path_that_is_no_folder(tmp_path, cache):
    with pytest.raises(NotADirectoryError, match="must be a folder with one sub-folder for each"):
        Shelf.in_folder(tmp_path / "nowhere", cache)


def test_every_source_of_an_experiment_is_known():
    from divlearn.experiments.shelf import SOURCES

    for experiment in EXPERIMENTS.values():
        assert set(experiment.sources) <= set(SOURCES)
