"""Ctrl-C on a real terminal: bars are shown, what is through is kept, and exit codes tell."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from divlearn import load
from divlearn.cli import main
from divlearn.datasets import make_wishart_clusters

pty = pytest.importorskip("pty", reason="there are no terminals of this kind here")
PATIENCE = 120  # seconds, on a busy machine
KEPT = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    X, y = make_wishart_clusters(3, 700, 6, separation=2, random_state=0)
    np.savez(folder / "many.npz", X=X, y=y)
    np.savez(folder / "some.npz", X=X[::3], y=y[::3])
    np.savez(folder / "few.npz", X=X[::14], y=y[::14])
    return folder


def interrupt(folder, *arguments: str, when: str) -> tuple[int, str, str]:
    """Press Ctrl-C once a bar shows some text; returns exit code, output and complaints."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "divlearn", *arguments], cwd=folder, stdout=subprocess.PIPE,
        stderr=theirs, text=True, env={**os.environ, "TERM": "xterm", "COLUMNS": "150"},
    )  # fmt: skip
    os.close(theirs)
    shown, started, pressed = "", time.monotonic(), False
    while time.monotonic() - started < PATIENCE:
        try:
            more = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        shown += more.decode(errors="replace")
        plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown)
        if not pressed and when in plain:
            process.send_signal(signal.SIGINT)
            pressed = True
    os.close(ours)
    printed, _ = process.communicate(timeout=PATIENCE)
    assert pressed, f"{when!r} was never shown: {plain}"
    return process.returncode, printed, plain


def test_fit_keeps_the_members_so_far(folder):
    code, printed, _ = interrupt(
        folder, "fit", "few.npz", "-o", "m", when="1 of 6 kinds of classifiers"
    )
    assert code == KEPT
    assert re.search(
        r"Interrupted; the best model so far is kept: \d of 9 members were fitted", printed
    )
    assert "Model: m" in printed
    found = load(folder / "m")
    assert 1 <= len(found.members_) < 9


def test_fit_of_iddl_keeps_the_best_dictionary(folder):
    code, printed, _ = interrupt(
        folder, "fit", "some.npz", "-o", "m", "--model", "iddl", when="2 of 30 iterations"
    )
    assert code == KEPT
    assert "interrupted by the user" in printed
    assert load(folder / "m").n_iter_ <= 8


def test_evaluate_reports_the_folds_that_are_through(folder):
    code, printed, _ = interrupt(
        folder, "evaluate", "few.npz", "--cv", "20", "--only", "1-NN", "--only", "kernel",
        when="fold 3",
    )  # fmt: skip
    assert code == KEPT
    assert re.search(r"Interrupted by the user: \d+ of 20 folds completed", printed)
    assert "1-NN, Stein" in printed


def test_cluster_keeps_the_best_start(folder):
    code, printed, _ = interrupt(
        folder, "cluster", "many.npz", "-k", "60", "-o", "c", when="1 of 4 starts"
    )
    assert code == KEPT
    assert "interrupted by the user" in printed
    assert load(folder / "c").cluster_centers_.shape == (60, 6, 6)


def test_which_answers_from_what_was_judged(folder):
    code, printed, _ = interrupt(folder, "which", "some.npz", when="1 of 2 blocks")
    assert code == KEPT
    assert re.search(r"Interrupted by the user: [\d,]+ of 700 matrices were judged", printed)


def test_nothing_to_keep(folder):
    code, printed, shown = interrupt(folder, "which", "some.npz", when="0 of 2 blocks")
    assert code == 130
    assert not printed
    assert shown.rstrip().endswith("divlearn: interrupted; nothing is kept")


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_no_bars_where_nobody_looks(folder, options, capfd):
    """Standard error is a file here; with --json it stays silent on a terminal too."""
    assert main(["which", str(folder / "few.npz"), "--cv", "2", *options]) == 0
    assert capfd.readouterr().err == ""


def test_no_bars_beside_json_on_a_terminal(folder):
    ours, theirs = pty.openpty()
    subprocess.run(
        [sys.executable, "-m", "divlearn", "which", "few.npz", "--json"], cwd=folder,
        stdout=subprocess.PIPE, stderr=theirs, check=True,
    )  # fmt: skip
    os.close(theirs)
    with pytest.raises(OSError, match="Input/output"):
        os.read(ours, 1)
    os.close(ours)
