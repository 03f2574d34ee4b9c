"""Checkpoints that were damaged: refused with a sentence, or as good as they were."""

from __future__ import annotations

import os
import random

import pytest
from hostile_files import damaged
from resuming import Killed, writes
from same import assert_same

import divlearn
from divlearn.datasets import make_wishart_clusters
from divlearn.fitting import checkpoint
from divlearn.models.storage import read_object

COUNT = int(os.environ.get("DIVLEARN_MUTATIONS", 100))


@pytest.fixture
def path(tmp_path):
    X, _ = make_wishart_clusters(2, 6, 2, separation=4, random_state=0)
    path = tmp_path / "fit"
    with writes(3), pytest.raises(Killed), divlearn.resumable(path):
        divlearn.ABMixture([1, 2], "wishart", random_state=0).fit(X)
    return path


def read(path, key):
    """What a checkpoint holds, or None; anything but a ValueError that names it is raised."""
    try:
        return checkpoint._read(path, key)
    except ValueError as error:
        if str(error).startswith(f"checkpoint={str(path)!r} "):
            return None
        raise


def test_damage_is_refused_or_harmless(path):
    content, generator = path.read_bytes(), random.Random(2)
    key = read_object(path, "checkpoint", dict)[0]["key"]
    entries = read(path, key)
    assert entries
    harmless = 0
    for _ in range(COUNT):
        path.write_bytes(damaged(content, generator))
        found = read(path, key)
        if found is not None:
            assert_same(found, entries)
            harmless += 1
    assert harmless < 0.5 * COUNT


def test_every_truncated_file_is_refused(path):
    content = path.read_bytes()
    key = read_object(path, "checkpoint", dict)[0]["key"]
    for length in {0, 1, 4, len(content) - 1, *range(0, len(content), 131)}:
        path.write_bytes(content[:length])
        assert read(path, key) is None
