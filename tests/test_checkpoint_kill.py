"""Processes that are killed for good, and programs that go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from resuming import Killed, comparable, writes
from test_models import assert_same

from divlearn import load
from divlearn.cli import main
from divlearn.datasets import make_wishart_clusters

PATIENCE = 120  # seconds, on a busy machine
# Many writes, so that some are hit in the middle.
FIT = """
import sys
from divlearn import IDDLClassifier, checkpoint, resumable, save
from divlearn.datasets import make_wishart_clusters
checkpoint.EVERY, checkpoint._SHARE = 0.0, 1e9
X, y = make_wishart_clusters(3, 40, 3, separation=2, random_state=0)
path = sys.argv[2] if len(sys.argv) > 2 else None
model = IDDLClassifier(n_atoms=6, loss="softmax", random_state=0)
print("ready", flush=True)
with resumable(path):
    model.fit(X, y)
save(model, sys.argv[1])
"""


def start(*arguments) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-c", FIT, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    return process


def finish(process: subprocess.Popen) -> None:
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 0


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no kill -9 here")
def test_kill_9(tmp_path):
    path, work = tmp_path / "model", tmp_path / "fit"
    finish(start(tmp_path / "whole"))
    kills = 0
    for _ in range(3):
        process = start(path, work)
        before = work.stat().st_mtime_ns if work.exists() else 0
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < deadline:
            if work.exists() and work.stat().st_mtime_ns > before:
                time.sleep(0.05)
                process.kill()
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    assert kills
    finish(start(path, work))
    assert_same(comparable(load(path)), comparable(load(tmp_path / "whole")))
    assert sorted(os.listdir(tmp_path)) == ["model", "whole"]


# ---------------------------------------------------------------------- the program


@pytest.fixture
def data(tmp_path, monkeypatch):
    X, y = make_wishart_clusters(3, 12, 2, separation=3, random_state=0)
    np.savez(tmp_path / "data.npz", X=X, y=np.array(["a", "b", "c"])[y])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*options: str) -> int:
    return main(["fit", "data.npz", "--model", "iddl", "-o", "model", *options])


def test_the_program_goes_on(data, monkeypatch, capsys):
    assert run() == 0
    whole = comparable(load("model"))
    (data / "model").unlink()
    with writes(monkeypatch, 20), pytest.raises(Killed):
        run("--checkpoint", "progress")
    assert sorted(os.listdir()) == ["data.npz", "progress"]
    capsys.readouterr()
    assert run("--checkpoint", "progress") == 1
    assert "progress is there already; add --resume to go on from" in capsys.readouterr().err
    assert run("--checkpoint", "progress", "--resume", "--seed", "1") == 1
    assert "is that of another fit: random_state must be" in capsys.readouterr().err
    assert run("--checkpoint", "progress", "--resume") == 0
    assert_same(comparable(load("model")), whole)
    assert sorted(os.listdir()) == ["data.npz", "model"]
    assert run("--checkpoint", "progress", "--resume") == 1
    assert "there is no progress to go on from" in capsys.readouterr().err
    assert run("--resume") == 1
    assert "--resume needs --checkpoint FILE" in capsys.readouterr().err


def test_a_kill_between_fit_and_save_loses_nothing(data, monkeypatch):
    """The checkpoint outlives the fit until the model is on the disk."""

    def killed(*arguments):
        raise Killed

    with writes(monkeypatch), monkeypatch.context() as patch:
        patch.setattr("divlearn.models.save", killed)
        with pytest.raises(Killed):
            run("--checkpoint", "progress")
    with monkeypatch.context() as patch:
        patch.setattr("divlearn.iddl.IDDLClassifier.fit", killed)
        assert run("--checkpoint", "progress", "--resume") == 0
    assert len(load("model").predict_proba(np.stack([np.eye(2)]))[0]) == 3
