"""What the benchmark of accuracy runs on: matrices, and for every seed a part to train and to test.

A seed names both a split and the random state of the fits on it. Where the data comes with a single
split, all seeds share it and only the fits differ.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from paper_data import load_brodatz, load_jhmdb_joints, load_kth_tips2_authors, load_virus
from sklearn.datasets import load_digits

from divlearn.datasets import Dataset, Split, load_japanese_vowels, load_spd
from divlearn.descriptors import RegionCovariance
from divlearn.spd import SPDRepairWarning

BRODATZ_TRAIN, BRODATZ_TEST = 20, 10  # patches of every texture
VOWELS_TRAIN = 270  # as many as in the official split
DIGITS_TRAIN = 898  # half of them
DIGITS = ["x", "y", "I", "Ix", "Iy", "|Ixx|", "|Iyy|", "magnitude"]
QUICK_CLASSES, QUICK_TRAIN, QUICK_TEST = 3, 12, 6  # the latter two for every class


@dataclass(frozen=True)
class Source:
    """A data set: how it is loaded, its seeds, and the split of a seed."""

    title: str
    load: Callable[[], Dataset]
    seeds: int
    split: Callable[[Dataset, int], Split]
    single: bool = False  # whether all seeds share one split


@dataclass(frozen=True, eq=False)
class Problem:
    """Matrices to train on and to test on."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    @property
    def mark(self) -> str:
        """What tells results on other matrices apart, such as those of another descriptor."""
        sizes = f"{len(self.y_train)} / {len(self.y_test)} of size {self.X_train.shape[-1]}"
        heights = [np.linalg.slogdet(part)[1].mean() for part in (self.X_train, self.X_test)]
        return f"{sizes}, mean log-determinants {heights[0]:.6g} / {heights[1]:.6g}"


def given_split(data: Dataset, seed: int) -> Split:
    splits = data.splits()
    return splits[seed % len(splits)]


def few_patches(data: Dataset, seed: int) -> Split:
    rng = np.random.default_rng(seed)
    drawn = np.stack([
        rng.permutation(np.flatnonzero(data.labels == label))[: BRODATZ_TRAIN + BRODATZ_TEST]
        for label in data.classes
    ])  # fmt: skip
    return drawn[:, :BRODATZ_TRAIN].ravel(), drawn[:, BRODATZ_TRAIN:].ravel()


def random_split(n_train: int) -> Callable[[Dataset, int], Split]:
    def split(data: Dataset, seed: int) -> Split:
        return data.splits(n=1, train=n_train / len(data.labels), random_state=seed)[0]

    return split


def vowel_covariances(file: Path | None = None) -> Dataset:
    """Covariances of the series, without their means, which alone tell the speakers apart.

    The embedding [[S + m m^T, m], [m^T, 1]] holds them. `file` has these embeddings, "matrices"
    and "labels", for environments in which aeon cannot be installed.
    """
    data = load_japanese_vowels() if file is None else load_spd(file)
    means = data.matrices[:, :-1, -1]
    covariances = data.matrices[:, :-1, :-1] - means[:, :, None] * means[:, None, :]
    return Dataset(
        "Japanese vowels", data.labels, data.citation, data.terms,
        stored=(covariances + covariances.mT) / 2,
    )  # fmt: skip


def digits() -> Dataset:
    given = load_digits()
    return Dataset(
        "digits", given.target, "the digits that ship with scikit-learn", "BSD",
        images=given.images, descriptor=RegionCovariance(DIGITS),
    )  # fmt: skip


SOURCES = {
    "virus": Source("Virus", load_virus, 3, given_split),
    "kth": Source("KTH-TIPS2", load_kth_tips2_authors, 5, given_split, single=True),
    "jhmdb": Source("JHMDB joints", load_jhmdb_joints, 3, given_split),
    "brodatz": Source("Brodatz", load_brodatz, 5, few_patches),
    "vowels": Source("Vowels", vowel_covariances, 5, random_split(VOWELS_TRAIN)),
    "digits": Source("Digits", digits, 3, random_split(DIGITS_TRAIN)),
}


@cache
def load(name: str, vowels: Path | None = None) -> Dataset:
    """Load a data set with its matrices; ImportError or FileNotFoundError where it is not there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SPDRepairWarning)  # the same for every method
        data = vowel_covariances(vowels) if name == "vowels" else SOURCES[name].load()
        data.matrices  # noqa: B018, they are computed now and kept
    return data


def make_problem(name: str, data: Dataset, seed: int, quick: bool) -> Problem:
    train, test = SOURCES[name].split(data, seed)
    if quick:
        train, test = (
            np.concatenate([
                part[data.labels[part] == label][:size] for label in data.classes[:QUICK_CLASSES]
            ])
            for part, size in ((train, QUICK_TRAIN), (test, QUICK_TEST))
        )  # fmt: skip
    X, y = data.matrices, data.labels
    return Problem(X[train], y[train], X[test], y[test])
