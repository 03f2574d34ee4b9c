"""SPD matrices in files as data sets."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from conftest import wishart

from divlearn.datasets import load_spd


def test_load_spd(tmp_path):
    matrices = wishart(np.random.default_rng(0), 5, 3)
    np.savez(
        tmp_path / "mine.v2.npz",
        X_train=matrices[:3],
        X_test=matrices[3:],
        y_train=[1, 1, 2],
        y_test=[1, 2],
    )
    dataset = load_spd(tmp_path / "mine.v2.npz")
    assert dataset.name == "mine.v2"
    np.testing.assert_array_equal(dataset.matrices, matrices)
    assert dataset.labels.tolist() == [1, 1, 2, 1, 2]
    assert [part.tolist() for part in dataset.splits()[0]] == [[0, 1, 2], [3, 4]]
    assert dataset.citation == dataset.terms == "not stated by the source"
    chosen = load_spd(tmp_path / "mine.v2.npz", matrices="X_test", labels="y_test")
    np.testing.assert_array_equal(chosen.matrices, matrices[3:])
    assert chosen.official_splits == ()
    assert pickle.loads(pickle.dumps(chosen)).labels.tolist() == [1, 2]


def test_load_spd_looks_in_the_home_folder():
    with pytest.raises(FileNotFoundError, match=str(Path.home())):
        load_spd("~/no such file.npz")


def test_load_spd_passes_its_options_on(tmp_path):
    path = tmp_path / "flat.npz"
    np.savez(path, X=np.stack([np.eye(2), np.ones((2, 2))]), y=[1, 2])
    with pytest.raises(ValueError, match=r"flat\.npz: X\[1\]"):
        load_spd(path)
    assert load_spd(path, regularize="shrink").matrices[1, 0].tolist() == [1, 0.99]
    with pytest.raises(ValueError, match="more than the 10 that limit="):
        load_spd(path, limit=10)


def test_load_spd_without_labels(tmp_path):
    np.save(tmp_path / "bare.npy", np.stack([np.eye(2), 2 * np.eye(2)]))
    bare = load_spd(tmp_path / "bare.npy")
    assert bare.labels is None
    assert repr(bare) == "<Dataset bare: 2 matrices without labels>"
    assert "2 SPD matrices, 2 x 2 without labels" in bare.summary()
    for ask in (bare.splits, lambda: bare.classes):
        with pytest.raises(ValueError, match="bare has no labels; save them"):
            ask()
