"""What the benchmark of accuracy runs on: matrices, and for every seed a part to train and to test.

A seed names a split, its inner folds and the random state of the fits on it. Where the data comes
with a single split, all seeds share it and only folds and fits differ. Every method gets the same
inner folds: those of the data where it has groups, else random ones, stratified by class.

All sets can be written to .npz files and read from there, where images cannot be read.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from zlib import crc32

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold

from divlearn.datasets import Dataset, Split, load_japanese_vowels
from divlearn.descriptors import RegionCovariance
from divlearn.spd import SPDRepairWarning, check_spd
from divlearn.transfer import Recenter

BRODATZ_TRAIN, BRODATZ_TEST = 20, 10  # patches of every texture
VOWELS_TRAIN = 270  # as many as in the official split
DIGITS_TRAIN = 898  # half of them
DIGITS = ["x", "y", "I", "Ix", "Iy", "|Ixx|", "|Iyy|", "magnitude"]
FOLDS = 5  # where the data does not say
QUICK_CLASSES, QUICK_TRAIN, QUICK_TEST = 3, 12, 6  # the latter two for every class


@dataclass(frozen=True)
class Source:
    """A data set: how it is loaded, its seeds, and the split of a seed.

    Without a rule to split, DIVLEARN_DATA has a file with splits and inner folds.
    """

    title: str
    seeds: int
    load: Callable[[], Dataset] | None = None
    split: Callable[[Dataset, int], Split] | None = None
    single: bool = False  # whether all seeds share one split


@dataclass(frozen=True)
class Column:
    """A column of a table of results: some splits of a data set."""

    title: str
    data: str
    seeds: range


@dataclass(frozen=True, eq=False)
class Problem:
    """Matrices to train on and to test on, inner folds of the former, and groups if there are."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    fold: np.ndarray  # number of the inner fold that holds out each training matrix
    groups: np.ndarray | None  # that inner folds keep together
    domains: tuple[np.ndarray, np.ndarray] | None  # sessions or subjects of both parts

    def recentered(self) -> Problem:
        """Move the mean of every session or subject, without labels, to the identity.

        A test part always has means of its own, also where its subjects are trained on.
        """
        assert self.domains is not None
        train, test = self.domains
        model = Recenter()
        moved = model.fit_transform(self.X_train, self.y_train, train)
        return replace(
            self, X_train=moved, X_test=model.transform(self.X_test, train.max() + 1 + test)
        )

    @property
    def size(self) -> int:
        """About proportional to the time of most methods."""
        return len(self.y_train) * len(np.unique(self.y_train)) * self.X_train.shape[-1]

    @property
    def cv(self) -> list[Split]:
        """Inner folds, as pairs of indices of training matrices."""
        return [
            (np.flatnonzero(self.fold != k), np.flatnonzero(self.fold == k))
            for k in np.unique(self.fold)
        ]

    @property
    def mark(self) -> str:
        """What tells results on other matrices or folds apart."""
        sizes = f"{len(self.y_train)} / {len(self.y_test)} of size {self.X_train.shape[-1]}"
        heights = [np.linalg.slogdet(part)[1].mean() for part in (self.X_train, self.X_test)]
        folds = crc32(self.fold.astype(np.int8).tobytes())
        return (
            f"{sizes}, mean log-determinants {heights[0]:.6g} / {heights[1]:.6g}, folds {folds:x}"
        )


def given_split(data: Dataset, seed: int) -> Split:
    splits = data.splits()
    return splits[seed % len(splits)]


def few_patches(data: Dataset, seed: int) -> Split:
    rng = np.random.default_rng(seed)
    drawn = np.stack(
        [
            rng.permutation(np.flatnonzero(data.labels == label))[: BRODATZ_TRAIN + BRODATZ_TEST]
            for label in data.classes
        ]
    )
    return drawn[:, :BRODATZ_TRAIN].ravel(), drawn[:, BRODATZ_TRAIN:].ravel()


def random_split(n_train: int) -> Callable[[Dataset, int], Split]:
    def split(data: Dataset, seed: int) -> Split:
        return data.splits(n=1, train=n_train / len(data.labels), random_state=seed)[0]

    return split


def paper_data(name: str) -> Dataset:
    import paper_data

    return getattr(paper_data, f"load_{name}")()


def vowel_covariances() -> Dataset:
    """Covariances of the series, without their means, which alone tell the speakers apart."""
    data = load_japanese_vowels()  # embeddings [[S + m m^T, m], [m^T, 1]]
    means = data.matrices[:, :-1, -1]
    covariances = data.matrices[:, :-1, :-1] - means[:, :, None] * means[:, None, :]
    return Dataset(
        "Japanese vowels",
        data.labels,
        data.citation,
        data.terms,
        stored=(covariances + covariances.mT) / 2,
    )


def digits() -> Dataset:
    given = load_digits()
    return Dataset(
        "digits",
        given.target,
        "the digits that ship with scikit-learn",
        "BSD",
        images=given.images,
        descriptor=RegionCovariance(DIGITS),
    )


SOURCES = {
    "virus": Source("Virus", 3, partial(paper_data, "virus"), given_split),
    "kth": Source("KTH-TIPS2", 5, partial(paper_data, "kth_tips2_authors"), given_split, True),
    "jhmdb": Source("JHMDB joints", 3, partial(paper_data, "jhmdb_joints"), given_split),
    "brodatz": Source("Brodatz", 5, partial(paper_data, "brodatz"), few_patches),
    "vowels": Source("Vowels", 5, vowel_covariances, random_split(VOWELS_TRAIN)),
    "digits": Source("Digits", 3, digits, random_split(DIGITS_TRAIN)),
    "eth80": Source("ETH-80", 10),
    "emg": Source("EMG", 6),
    "utkinect": Source("UTKinect", 10),
    "bciciv2b": Source("BCI IV 2b", 18),
    "eegmat": Source("EEGMAT", 8),
}
SETS = {name: Column(source.title, name, range(source.seeds)) for name, source in SOURCES.items()}
EEG_COLUMNS = {
    "2b sessions": Column("2b, across sessions", "bciciv2b", range(9)),
    "2b subjects": Column("2b, across subjects", "bciciv2b", range(9, 18)),
    "eegmat within": Column("EEGMAT, within recordings", "eegmat", range(2)),
    "eegmat subjects": Column("EEGMAT, across subjects", "eegmat", range(2, 8)),
}
EEG = {column.data for column in EEG_COLUMNS.values()}


def load(name: str, packed: Path | None = None) -> Mapping[str, np.ndarray]:
    """Load a data set: "tri", "d", "y", "group", and of seed k "train_k", "test_k", "cvfold_k".

    "tri" are lower triangles; the arrays of `packed`, or of DIVLEARN_DATA, where they are there.
    Raises ImportError or FileNotFoundError where the data is not there.
    """
    source = SOURCES[name]
    if packed is not None and (packed / f"{name}.npz").exists():
        return dict(np.load(packed / f"{name}.npz"))
    if source.load is None or source.split is None:
        return dict(np.load(Path(os.environ.get("DIVLEARN_DATA", ".")) / name / f"{name}.npz"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SPDRepairWarning)  # the same for every method
        data = source.load()
        matrices, labels = data.matrices, data.labels
    d = matrices.shape[-1]
    found = {"tri": matrices[:, *np.tril_indices(d)], "d": np.array(d), "y": labels}
    for seed in range(source.seeds):
        train, test = source.split(data, seed)
        fold = np.empty(len(train), np.int8)
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
        for k, (_, held) in enumerate(folds.split(train, labels[train])):
            fold[held] = k
        found |= {f"train_{seed}": train, f"test_{seed}": test, f"cvfold_{seed}": fold}
    return found


def make_problem(data: Mapping[str, np.ndarray], seed: int, quick: bool) -> Problem:
    train, test, fold = (data[f"{part}_{seed}"] for part in ("train", "test", "cvfold"))
    y = data["y"]
    if quick:
        classes = np.unique(y)[:QUICK_CLASSES]
        few = [
            _first_of_classes(y[part], classes, size)
            for part, size in ((train, QUICK_TRAIN), (test, QUICK_TEST))
        ]
        train, test, fold = train[few[0]], test[few[1]], np.arange(len(few[0])) % 2
    matrices = np.zeros((len(y), data["d"], data["d"]))
    matrices[:, *np.tril_indices(data["d"])] = data["tri"]
    matrices = check_spd(matrices + np.tril(matrices, -1).mT)
    domains = (data["group"][train], data["group"][test]) if "group" in data else None
    groups = None if quick or domains is None else _groups(data, train, fold)
    return Problem(matrices[train], y[train], matrices[test], y[test], fold, groups, domains)


def _first_of_classes(y: np.ndarray, classes: np.ndarray, size: int) -> np.ndarray:
    return np.concatenate([np.flatnonzero(y == label)[:size] for label in classes])


def _groups(data: Mapping[str, np.ndarray], train: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """Widest groups that inner folds keep together; the folds themselves where they split all."""
    for name in ("subject", "group"):
        if name in data:
            groups = data[name][train]
            pairs = np.unique(np.column_stack([groups, fold]), axis=0)
            if len(pairs) == len(np.unique(groups)):
                return groups
    return fold
