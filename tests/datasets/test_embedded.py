"""Series that ship with aeon: the layout with a stand-in for aeon, the data with aeon itself."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import numpy as np
import pytest

from divlearn.datasets import load_japanese_vowels
from divlearn.spd import SPDRepairWarning


@pytest.fixture
def aeon(tmp_path, monkeypatch) -> types.ModuleType:
    """A module that reads the two files of the problem and refuses to load anything else."""
    module = types.ModuleType("aeon.datasets")
    module.__file__ = str(tmp_path / "__init__.py")
    (tmp_path / "data" / "JapaneseVowels").mkdir(parents=True)
    for part in ("TRAIN", "TEST"):
        (tmp_path / "data" / "JapaneseVowels" / f"JapaneseVowels_{part}.ts").touch()

    def load_from_ts_file(name: str):
        rng = np.random.default_rng(len(name))
        n = 4 if name.endswith("TRAIN.ts") else 3
        series = [rng.standard_normal((3, length)) for length in range(20, 20 + n)]
        return series, np.array(["12"[i % 2] for i in range(n)])

    module.load_from_ts_file = load_from_ts_file
    for name, one in {"aeon": types.ModuleType("aeon"), "aeon.datasets": module}.items():
        monkeypatch.setitem(sys.modules, name, one)
    return module


def test_train_comes_before_test_and_is_the_split(aeon):
    dataset = load_japanese_vowels()
    assert [series.shape[1] for series in dataset.series] == [20, 21, 22, 23, 20, 21, 22]
    assert dataset.labels.tolist() == [1, 2, 1, 2, 1, 2, 1]
    ((train, test),) = dataset.splits()
    assert (train.tolist(), test.tolist()) == ([0, 1, 2, 3], [4, 5, 6])
    assert dataset.matrices.shape == (7, 4, 4)
    last = dataset.matrices[-1]
    np.testing.assert_allclose(last[-1, :-1], dataset.series[-1].mean(axis=1), rtol=1e-12)


def test_a_problem_that_aeon_does_not_ship_is_not_downloaded(aeon):
    path = Path(aeon.__file__).parent / "data" / "JapaneseVowels" / "JapaneseVowels_TEST.ts"
    path.unlink()
    with pytest.raises(FileNotFoundError, match=f"JapaneseVowels: {path} does not exist"):
        load_japanese_vowels()


def test_without_aeon_the_extra_is_named(uninstall):
    uninstall("aeon")
    with pytest.raises(ImportError, match=r'pip install "divlearn\[series\]"'):
        load_japanese_vowels()


def log_vectors(matrices: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrices)
    return ((vectors * np.log(values)[:, None, :]) @ vectors.mT).reshape(len(matrices), -1)


def accuracy(dataset) -> float:
    """Log-Euclidean 1-NN on the official split."""
    ((train, test),) = dataset.splits()
    vectors = log_vectors(dataset.matrices)
    distances = ((vectors[test][:, None] - vectors[train]) ** 2).sum(axis=-1)
    nearest = dataset.labels[train[distances.argmin(axis=1)]]
    return float((nearest == dataset.labels[test]).mean())


def test_real_japanese_vowels():
    pytest.importorskip("aeon", reason="aeon is not installed")
    dataset = load_japanese_vowels()
    assert [len(part) for part in dataset.splits()[0]] == [270, 370]
    assert dataset.classes.tolist() == list(range(1, 10))
    lengths = [series.shape[1] for series in dataset.series]
    assert (min(lengths), max(lengths), len(dataset.series[0])) == (7, 29, 12)
    with pytest.warns(SPDRepairWarning):
        assert dataset.matrices.shape == (640, 13, 13)
    assert accuracy(dataset) > 0.9
