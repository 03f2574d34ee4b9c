"""Temporary files of shards, where processes end and where they are killed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("fcntl")

# All processes are forks of one, which has imported what they need.
CODE = """
import os, signal
from pathlib import Path
from divlearn.sharded.blocks import Stored

def start(*ends):
    (told, tell), (asked, ask) = os.pipe(), os.pipe()
    process = os.fork()
    if process:
        assert os.read(told, 1) == b"1"  # the file exists
        return process, ask
    value = Stored([1, 2])
    os.write(tell, b"1")
    os.read(asked, 1)
    for end in ends:  # of forks, which leave files to their parent
        child = os.fork()
        if not child:
            del value
            end(0)
        assert os.waitpid(child, 0)[1] == 0
        assert value.load() == [1, 2]
    exit()

def count():
    return len(list(Path(os.environ["TMPDIR"]).glob("divlearn-*/*.pickle")))

killed, alive = start(), start(os._exit, exit)
assert count() == 2
os.kill(killed[0], signal.SIGKILL)
os.waitpid(killed[0], 0)
assert count() == 2  # of the killed process, and of the other one
next_one = start()
assert count() == 2
for process, ask in (next_one, alive):
    os.write(ask, b"1")
    assert os.waitpid(process, 0)[1] == 0
"""


def test_files_end_with_the_process_or_with_the_next_one(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", CODE], env=environment, check=True)
    assert not list(tmp_path.iterdir())
