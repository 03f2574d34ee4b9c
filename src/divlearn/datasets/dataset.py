"""The type of data sets: raw samples, their SPD matrices on demand, labels and splits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import prod
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import StratifiedShuffleSplit

from divlearn.arrays import Indices, Labels, RealArray
from divlearn.checks import check_count, check_sortable
from divlearn.spd import check_spd
from divlearn.text import counted

NOT_STATED = "not stated by the source"

Split = tuple[Indices, Indices]
Samples = Sequence[Any] | np.ndarray  # images, series, or tuples of several series


@dataclass(eq=False, repr=False)
class Dataset:
    """SPD matrices, their labels, and where they come from.

    Attributes
    ----------
    name : str
    labels : ndarray, shape (n_matrices,), or None
    citation : str, the work to cite when using the data.
    terms : str, the licence of the data.
    n_splits : int, number of random splits if there are no official ones.
    train_share : float, the share of every class for training in these.
    images : sequence of ndarray, optional, raw samples of shape (height, width[, n_channels]).
    series : sequence, optional, of shape (n_channels, n_times) or tuples of several such streams.
    descriptor : transformer, optional, from raw samples to matrices.
        Several matrices of one sample follow each other.
    official_splits : tuple of (train, test), indices of matrices, if the data comes with splits.
    groups : ndarray, shape (n_matrices,), optional, equal for matrices of the same origin.
    notes : tuple of str, warnings for the interpretation of results on this data.
    stored : ndarray, shape (n_matrices, d, d), optional, if there are no raw samples.
    files : ndarray, shape (n_matrices,), optional, names of files that the matrices are made from.

    Examples
    --------
    >>> from divlearn.datasets import load_textures
    >>> textures = load_textures()
    >>> textures
    <Dataset textures: 768 matrices, 3 classes, 5 random splits>
    >>> textures.matrices.shape
    (768, 5, 5)
    >>> train, test = textures.splits(n=1, train=0.5)[0]
    >>> train.shape, test.shape
    ((384,), (384,))
    """

    name: str
    labels: Any  # an array or None; not typed, because most data has labels
    citation: str = NOT_STATED
    terms: str = NOT_STATED
    n_splits: int = 5
    train_share: float = 0.8
    images: Samples | None = None
    series: Samples | None = None
    descriptor: Any = None
    official_splits: tuple[Split, ...] = ()
    groups: Labels | None = None
    notes: tuple[str, ...] = ()
    stored: RealArray | None = None
    files: Labels | None = None

    def __post_init__(self) -> None:
        if self.labels is not None:
            self.labels = np.asarray(self.labels)
            if self.labels.ndim != 1 or not len(self.labels):
                raise ValueError(
                    f"{self.name}: labels have shape {self.labels.shape}, must be (n_matrices,) "
                    "with at least one matrix"
                )
            check_sortable(self.labels, f"{self.name}: labels")
        if self.groups is None:
            return
        self.groups = np.asarray(self.groups)
        # None if the number of matrices is unknown before the descriptor has computed them.
        n_matrices = self._n_stored if self.labels is None else len(self.labels)
        if self.groups.ndim != 1 or n_matrices not in (None, len(self.groups)):
            raise ValueError(
                f"{self.name}: groups have shape {self.groups.shape}, must have "
                f"({'n_matrices' if n_matrices is None else n_matrices},), one for each matrix"
            )

    def digest(self) -> str:
        """Compute a SHA-256 of matrices and labels, equal for equal data."""
        content = sha256(np.ascontiguousarray(self.matrices).tobytes())
        if self.labels is not None:
            names = "\n".join(map(str, self.labels.tolist()))
            content.update(names.encode(errors="surrogatepass"))  # names come from files
        return content.hexdigest()

    @property
    def _n_stored(self) -> int | None:
        return None if self.stored is None else prod(np.shape(self.stored)[:-2])

    @property
    def raw(self) -> Samples | None:
        """The images or series the matrices are computed from, if any."""
        return self.images if self.images is not None else self.series

    @cached_property
    def matrices(self) -> RealArray:
        """SPD matrices, shape (n_matrices, d, d), computed at the first access.

        The descriptor is fitted to all samples, without labels. To keep test samples out of it, put
        it into a scikit-learn Pipeline and fit that to the training samples of ``raw``.
        """
        stored = self.stored
        if stored is None:
            if self.raw is None or self.descriptor is None:
                raise ValueError(
                    f"{self.name} has neither stored matrices nor samples with a descriptor; pass "
                    "stored=, or images= or series= and descriptor="
                )
            stored = np.asarray(clone(self.descriptor).fit_transform(self.raw))
        matrices = stored.reshape(-1, *stored.shape[-2:])
        for name, values in (("labels", self.labels), ("groups", self.groups)):
            if values is not None and len(matrices) != len(values):
                raise ValueError(
                    f"{self.name}: {counted(len(values), name)} for "
                    f"{counted(len(matrices), 'matrices')}; pass as many"
                )
        return check_spd(matrices, name=f"{self.name} matrices")

    @property
    def classes(self) -> Labels:
        """The different labels, sorted."""
        return np.unique(self._required_labels)

    @property
    def _required_labels(self) -> Labels:
        if self.labels is None:
            raise ValueError(
                f"{self.name} has no labels; save them with the matrices, as an array named labels"
            )
        return np.asarray(self.labels)

    def splits(
        self, n: int | None = None, train: float | None = None, random_state: int | None = 0
    ) -> list[Split]:
        """Return sorted indices of matrices for training and testing, a list of (train, test).

        The official splits if there are any and neither ``n`` nor ``train`` is given, else ``n``
        random splits, stratified by class, with a share ``train`` for training. They ignore
        ``groups``; scikit-learn's `GroupShuffleSplit` does not.
        """
        if n is None and train is None and self.official_splits:
            return [(np.array(first), np.array(second)) for first, second in self.official_splits]
        n_splits = check_count(self.n_splits if n is None else n, "n", fix=", the number of splits")
        share = self.train_share if train is None else train
        if not isinstance(share, float | np.floating) or not 0 < share < 1:
            raise ValueError(
                f"train={share!r} must be a number > 0 and < 1, a share of the matrices"
            )
        labels = self._required_labels
        n_train, n_classes = int(share * len(labels)), len(self.classes)
        if not n_classes <= n_train <= len(labels) - n_classes:
            raise ValueError(
                f"train={share} is {n_train} of {counted(len(labels), 'matrices')} to train on, "
                f"must leave >= {n_classes}, one for each class, on both sides; change train"
            )
        splitter = StratifiedShuffleSplit(n_splits, train_size=share, random_state=random_state)
        return [
            (np.sort(first), np.sort(second)) for first, second in splitter.split(labels, labels)
        ]

    def duplicates(self) -> list[tuple[int, ...]]:
        """Find samples, or else matrices, that are equal entry by entry; return their indices."""
        return find_copies(self.matrices if self.raw is None else self.raw)

    def summary(self) -> str:
        """Describe the data in a few lines: sizes, splits, notes, citation and terms."""
        n, d = self.matrices.shape[:2]
        labels = " without labels"
        if self.labels is not None:
            counts = np.unique(self.labels, return_counts=True)[1]
            largest = "" if counts.min() == counts.max() else f" to {counts.max()}"
            labels = f"; {counted(len(counts), 'classes')} of {counts.min()}{largest}; "
            labels += self._describe_splits()
        content = f"{self.name}: {n} SPD matrices, {d} x {d}{labels}."
        return "\n".join([content, *self.notes, f"Cite: {self.citation}", f"Terms: {self.terms}"])

    def _describe_splits(self) -> str:
        if self.official_splits:
            return counted(len(self.official_splits), "official splits")
        return counted(self.n_splits, "random splits")

    def __repr__(self) -> str:
        if self.labels is not None:
            parts = counted(len(self.labels), "matrices"), counted(len(self.classes), "classes")
            return f"<Dataset {self.name}: {', '.join([*parts, self._describe_splits()])}>"
        content = counted(self._n_stored or 0, "matrices")
        if self.raw is not None and self.stored is None:  # do not compute the matrices
            content = f"{len(self.raw)} {'series' if self.images is None else 'images'}"
        return f"<Dataset {self.name}: {content} without labels>"


def find_copies(samples: Samples) -> list[tuple[int, ...]]:
    """Return the indices of samples that are equal entry by entry, a tuple for each."""
    indices_by_key = defaultdict(list)
    for index, sample in enumerate(samples):
        streams = sample if isinstance(sample, tuple) else (sample,)
        arrays = map(np.ascontiguousarray, streams)
        key = tuple((a.shape, a.dtype.str, sha256(a.tobytes()).digest()) for a in arrays)
        indices_by_key[key].append(index)
    return [tuple(indices) for indices in indices_by_key.values() if len(indices) > 1]
