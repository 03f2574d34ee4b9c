"""Temporary files of shards, where processes end and where they are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

pytest.importorskip("fcntl")

BEGIN = "from divlearn.sharded.blocks import Stored; value = Stored([1, 2]); print(1, flush=True)\n"


def start(folder, then):
    process = subprocess.Popen(
        [sys.executable, "-c", BEGIN + then],
        env={**os.environ, "TMPDIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"1\n"  # the file exists
    return process


def count(folder):
    return len(list(folder.glob("divlearn-*/*.pickle")))


def test_files_end_with_the_process_or_with_the_next_one(tmp_path):
    killed = start(tmp_path, "input()")
    alive = start(tmp_path, "input(); assert value.load() == [1, 2]")
    assert count(tmp_path) == 2
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert count(tmp_path) == 2  # of the killed process, and of the other one
    next_one = start(tmp_path, "input()")
    assert count(tmp_path) == 2
    for process in (next_one, alive):
        process.communicate(b"\n")
        assert process.returncode == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("end", ["os._exit(0)", "raise SystemExit"])
def test_a_fork_leaves_files_to_its_parent(tmp_path, end):
    then = f"""
import os
child = os.fork()
if not child:
    del value
    {end}
os.waitpid(child, 0)
assert value.load() == [1, 2]
"""
    parent = start(tmp_path, then)
    parent.communicate()
    assert parent.returncode == 0
    assert not list(tmp_path.iterdir())
