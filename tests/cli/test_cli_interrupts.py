"""Ctrl-C in the program: what is through is kept, exit codes tell, and bars are for terminals."""

from __future__ import annotations

import io
import os
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

import numpy as np
import pytest
from interrupting import press_ctrl_c, stop_at

from divlearn import load
from divlearn.cli import main
from divlearn.cli.output import Bars
from divlearn.datasets import make_wishart_clusters
from divlearn.fitting.progress import listen
from divlearn.threads import one_thread

KEPT = 3


@pytest.fixture(autouse=True)
def folder(working_folder):
    X, y = make_wishart_clusters(3, 12, 3, separation=2, random_state=0)
    np.savez("data.npz", X=X, y=y)


@pytest.fixture
def interrupt(capsys):
    """Run a command, stopped when some work has come so far; returns exit code and both outputs."""

    def run(what: str, done: int, command: str, *options: str):
        with listen(stop_at(what, done)):
            code = main([command, "data.npz", *options])
        return code, *capsys.readouterr()

    return run


def test_fit_keeps_the_members_so_far(interrupt):
    code, printed, _ = interrupt("kinds of classifiers", 2, "fit", "-o", "m")
    assert code == KEPT
    assert "Interrupted; the best model so far is kept: 2 of 7 members were fitted" in printed
    assert "Model: m" in printed
    assert len(load("m").members_) == 2


def test_fit_of_iddl_keeps_the_best_dictionary(interrupt):
    with one_thread():  # folds one after the other, whatever the environment says
        code, printed, _ = interrupt("iterations", 2, "fit", "-o", "m", "--model", "iddl")
    assert code == KEPT
    assert "interrupted by the user" in printed
    assert load("m").n_iter_ <= 2


def test_evaluate_reports_the_folds_that_are_through(interrupt):
    """Three classifiers: the seventh fit is the first of the third fold."""
    code, printed, _ = interrupt("fits", 6, "evaluate", "--cv", "4", "--only", "1-NN")
    assert code == KEPT
    assert "Interrupted by the user: 2 of 4 folds completed" in printed
    assert "on 18 held-out matrices" in printed
    assert "1-NN, Stein" in printed


def test_cluster_keeps_the_best_start(interrupt):
    code, printed, _ = interrupt("starts", 1, "cluster", "-k", "5", "-o", "c")
    assert code == KEPT
    assert "interrupted by the user in start 2" in printed
    assert load("c").cluster_centers_.shape == (5, 3, 3)


class PressedAtOutput(io.StringIO):
    """Standard output, at whose first line Ctrl-C is pressed."""

    def write(self, text):
        if not self.tell():
            super().write(text)
            press_ctrl_c()
        return super().write(text)


@pytest.mark.parametrize(
    "command", [["cluster", "data.npz", "-k", "2"], ["fit", "data.npz", "--model", "knn"]]
)
def test_ctrl_c_after_the_fit_keeps_the_model_and_says_so(command):
    with redirect_stdout(PressedAtOutput()) as printed:
        assert main([*command, "-o", "model"]) == KEPT
    assert "Interrupted; the model is kept: model." in printed.getvalue()
    assert load("model").n_features_in_ == 3


@pytest.mark.usefixtures("small_blocks")
def test_which_answers_from_what_was_judged(interrupt):
    code, printed, _ = interrupt("blocks", 3, "which", "--cv", "2")
    assert code == KEPT
    assert "Interrupted by the user: 30 of 36 matrices were judged" in printed


def test_nothing_to_keep(interrupt):
    code, printed, complaint = interrupt("blocks", 0, "which")
    assert code == 130
    assert not printed
    assert complaint == "divlearn: interrupted; nothing is kept\n"


def test_nothing_but_a_checkpoint(interrupt):
    options = ("--model", "iddl", "--checkpoint", "stages")
    code, printed, complaint = interrupt("models", 0, "fit", *options)
    assert code == 130
    assert not printed
    told = "to resume, add --resume to the same command; the checkpoint is stages"
    assert complaint == f"divlearn: interrupted; {told}\n"


# ------------------------------------------------------------------ bars


def test_bars_on_a_terminal():
    """Ctrl-C is pressed by the bars themselves, as soon as they know of the first divergence."""
    pty = pytest.importorskip("pty", reason="there are no terminals of this kind here")
    ours, theirs = pty.openpty()
    show = Bars.__call__

    def show_and_press(*told):
        show(*told)
        press_ctrl_c()

    with (
        open(theirs, "w") as terminal,
        redirect_stderr(terminal),
        patch.dict(os.environ, TERM="xterm", COLUMNS="150"),
        patch.object(Bars, "__call__", show_and_press),
    ):
        assert main(["which", "data.npz"]) == 130
    shown = read_all(ours)
    assert "0 of 5 divergences of means" in shown
    assert shown.endswith("divlearn: interrupted; nothing is kept\r\n")


def read_all(terminal: int) -> str:
    with open(terminal, "rb", buffering=0) as stream:
        pieces = []
        try:
            while piece := stream.read(4096):
                pieces.append(piece)
        except OSError:  # how Linux says that the other end is closed
            pass
    return b"".join(pieces).decode()


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("errors", "options"), [(io.StringIO, []), (io.StringIO, ["--json"]), (Terminal, ["--json"])]
)
def test_no_bars_where_nobody_looks(errors, options):
    """That is in a file, and beside JSON on a terminal too."""
    with redirect_stderr(errors()) as shown:
        assert main(["which", "data.npz", "--cv", "2", *options]) == 0
    assert shown.getvalue() == ""
