"""Processes that are killed for good, and programs that go on."""

from __future__ import annotations

import os
import re
import signal
from unittest.mock import patch

import numpy as np
import pytest
from forked import in_a_fork
from resuming import Killed, comparable, writes
from same import assert_same
from sklearn.base import clone

from divlearn import ABKMeans, load, resumable
from divlearn.cli import main
from divlearn.datasets import make_wishart_clusters

MODEL = ABKMeans(3, n_init=6, random_state=0)
X, _ = make_wishart_clusters(2, 10, 2, separation=2, random_state=0)


def fit_and_die(path, n_syncs):
    """Die without a chance to clean up when files are brought to the disk for the nth time.

    That is a file in the middle of being written at odd times, the folder it has got its name in
    at even ones.
    """
    left, fsync = n_syncs, os.fsync

    def last_fsync(handle):
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        fsync(handle)

    with patch("os.fsync", last_fsync), resumable(path):
        clone(MODEL).fit(X)


def test_kill_9(tmp_path):
    work = tmp_path / "fit"
    assert in_a_fork(fit_and_die, work, 4) == -signal.SIGKILL
    assert os.listdir(tmp_path) == ["fit"]
    assert in_a_fork(fit_and_die, work, 5) == -signal.SIGKILL
    assert re.fullmatch(r"\.fit\.\S+\.part fit", " ".join(sorted(os.listdir(tmp_path))))
    with writes() as starts_left, resumable(work):
        resumed = clone(MODEL).fit(X)
    assert_same(comparable(resumed), comparable(clone(MODEL).fit(X)))
    assert len(starts_left) == 6 - 2 - 2
    assert not os.listdir(tmp_path)


# ---------------------------------------------------------------------- the program


@pytest.fixture
def data(working_folder):
    X, y = make_wishart_clusters(2, 8, 2, separation=3, random_state=0)
    np.savez("data.npz", X=X, y=np.array(["a", "b"])[y])
    return working_folder


def run(*options: str) -> int:
    return main(["fit", "data.npz", "--model", "iddl", "-o", "model", *options])


@pytest.mark.usefixtures("short_fits")
def test_the_program_goes_on(data, capsys):
    assert run() == 0
    whole = comparable(load("model"))
    (data / "model").unlink()
    with writes(3), pytest.raises(Killed):
        run("--checkpoint", "progress")
    assert sorted(os.listdir()) == ["data.npz", "progress"]
    capsys.readouterr()
    assert run("--checkpoint", "progress") == 1
    assert "progress exists already; add --resume to resume from" in capsys.readouterr().err
    assert run("--checkpoint", "progress", "--resume", "--seed", "1") == 1
    assert "belongs to another fit: random_state must be" in capsys.readouterr().err
    assert run("--checkpoint", "progress", "--resume") == 0
    assert_same(comparable(load("model")), whole)
    assert sorted(os.listdir()) == ["data.npz", "model"]
    assert run("--checkpoint", "progress", "--resume") == 1
    assert "there is no progress to resume from" in capsys.readouterr().err
    assert run("--resume") == 1
    assert "--resume needs --checkpoint FILE" in capsys.readouterr().err


@pytest.mark.usefixtures("data", "short_fits")
def test_a_kill_between_fit_and_save_loses_no_model(monkeypatch):
    """The checkpoint outlives the fit until the model is on the disk."""

    def killed(*arguments):
        raise Killed

    options = ("--checkpoint", "progress")
    with monkeypatch.context() as patch:
        patch.setattr("divlearn.models.save", killed)
        with pytest.raises(Killed):
            run(*options)
    monkeypatch.setattr("divlearn.iddl.learning.train", killed)
    assert run(*options, "--resume") == 0
    assert load("model").predict_proba(np.eye(2)[None]).shape == (1, 2)
