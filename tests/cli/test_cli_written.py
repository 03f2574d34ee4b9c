"""What the program writes: tables without formulas, full disks, and Ctrl-C at the start."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from contextlib import redirect_stdout

import numpy as np
import pytest

import divlearn
from divlearn.cli import main
from divlearn.datasets import make_wishart_clusters
from divlearn.nearest import DivergenceKNN


@pytest.fixture(autouse=True)
def folder(working_folder):
    X, y = make_wishart_clusters(2, 30, 8, separation=5, random_state=0)
    np.savez("X.npz", X=X, y=y)
    divlearn.save(DivergenceKNN(1, "airm").fit(X, y), "model")


# ------------------------------------------------------------------ tables

FORMULAS = [
    "=HYPERLINK(1)",
    "+A1",
    "-A1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "\uff1d1",
    "-",
    "=1\"'",
]
HARMLESS = ["-1", "+2", "-1.5e-3", "'=1", "a=b", "0", " ", "p-value", "1-2"]


def predictions(labels, files):
    """Rows of the table for matrices of as many classes, each predicted as its own."""
    X = np.stack([np.eye(2) * 10.0**k for k in range(len(labels))])
    np.savez("new.npz", X=X, y=labels, files=files)
    divlearn.save(DivergenceKNN(1, "airm").fit(X, np.array(labels)), "words")
    assert main(["predict", "words", "new.npz", "-o", "table.csv"]) == 0
    with open("table.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_formulas_become_text_and_numbers_stay():
    labels = [*FORMULAS, *HARMLESS]
    rows = predictions(labels, files=labels[::-1])
    shown = {label: f"'{label}" if label in FORMULAS else label for label in labels}
    assert [row["predicted"] for row in rows] == [shown[label] for label in labels]
    assert [row["matrix"] for row in rows] == [shown[label] for label in labels[::-1]]
    assert f"p({FORMULAS[0]})" in rows[0]


def test_labels_that_are_negative_numbers_stay_numbers():
    rows = predictions([-1, 1], files=["a", "b"])
    assert [float(row["predicted"]) for row in rows] == [-1, 1]


# ------------------------------------------------------------------ full disks


WRITES = {
    "model": (["fit", "X.npz", "--model", "knn", "-o", "out"], "out"),
    "clusters": (["cluster", "X.npz", "-k", "2", "-o", "out"], "out"),
    "report": (["cluster", "X.npz", "-k", "2", "--report", "out.html"], "out.html"),
    "predictions": (["predict", "model", "X.npz", "-o", "out.csv"], "out.csv"),
}


@pytest.mark.parametrize("name", WRITES)
def test_files_that_are_too_large_are_named_and_not_left_behind(capsys, limit_files, name):
    arguments, path = WRITES[name]
    before = set(os.listdir())
    limit_files(1024)
    assert main(arguments) == 1
    assert capsys.readouterr().err == (
        f"divlearn: {path}: File too large; raise the limit on the size of files (ulimit -f) or "
        "choose another folder\n"
    )
    assert set(os.listdir()) == before


FULL = (
    "divlearn: standard output: No space left on device; free disk space or choose another folder\n"
)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device here")
def test_an_output_that_is_full(capsys):
    """Python writes what is left at its end, and would complain once more."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "divlearn", "-h"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": ""},
        )
    assert (done.returncode, done.stderr) == (1, FULL)
    with open("/dev/full", "w") as full, redirect_stdout(full):
        assert main(["doctor", "X.npz"]) == 1
    assert capsys.readouterr().err == FULL


# ------------------------------------------------------------------ Ctrl-C at the start

# Ctrl-C is pressed by the import of some module.
WHILE_IMPORTING = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Finder:
    def find_spec(name, path=None, target=None):
        if name == wanted:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder)
wanted = sys.argv[1]
sys.argv[:2] = ["divlearn"]
runpy.run_module("divlearn", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize("module", ["typer", "divlearn.cli.fit", "numpy", "sklearn"])
def test_ctrl_c_while_the_program_is_imported(module):
    code = [sys.executable, "-c", WHILE_IMPORTING, module]
    done = subprocess.run([*code, "fit", "X.npz", "--model", "knn"], capture_output=True, text=True)
    assert done.stderr == "divlearn: interrupted; nothing is kept\n"
    assert (done.returncode, done.stdout) == (130, "")
