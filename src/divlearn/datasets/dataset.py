"""One type for every data set: raw samples, their SPD matrices on demand, labels and splits."""

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

NOT_STATED = "not stated by the source"

Split = tuple[Indices, Indices]
Samples = Sequence[Any] | np.ndarray  # images, series, or tuples of several series


@dataclass(frozen=True)
class SplitRule:
    """Random splits: how many, and which share of every class is for training."""

    n: int
    train: float


@dataclass(eq=False, repr=False)
class Dataset:
    """SPD matrices, their labels, and where they come from.

    Attributes
    ----------
    name : str
    labels : ndarray, shape (n_matrices,), or None where there are none.
    citation : str, what to cite when using the data.
    terms : str, under which terms the data is given away.
    rule : SplitRule, random splits where there are no official ones.
    images : sequence of ndarray, optional, raw samples of shape (height, width[, n_channels]).
    series : sequence, optional, of shape (n_channels, n_times) or tuples of several such streams.
    descriptor : transformer, optional, from raw samples to matrices.
        Several matrices per sample are laid out one sample after the other.
    official_splits : tuple of (train, test), indices of matrices, where the data comes with splits.
    groups : ndarray, shape (n_matrices,), optional, equal for matrices that share their origin.
    notes : tuple of str, what one should know before trusting results on this data.
    stored : ndarray, shape (n_matrices, d, d), optional, where there are no raw samples.
    files : ndarray, shape (n_matrices,), optional, names of files the matrices were made from.

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
    labels: Any  # an array, or None; loose, since most data has labels
    citation: str = NOT_STATED
    terms: str = NOT_STATED
    rule: SplitRule = SplitRule(5, 0.8)
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
        # None: only the descriptor will tell how many matrices there are.
        known = self._n_stored if self.labels is None else len(self.labels)
        if self.groups.ndim != 1 or known not in (None, len(self.groups)):
            raise ValueError(
                f"{self.name}: groups have shape {self.groups.shape}, must have "
                f"({'n_matrices' if known is None else known},), one for each matrix"
            )

    def digest(self) -> str:
        """Compute a SHA-256 of matrices and labels, which tells whether data is the same."""
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
        """SPD matrices, shape (n_matrices, d, d): computed when first asked for, then kept.

        The descriptor is fitted to all samples, without labels. To learn nothing from test samples,
        put it into a scikit-learn Pipeline and fit that to the training samples of ``raw``.
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
        for what, given in (("labels", self.labels), ("groups", self.groups)):
            if given is not None and len(matrices) != len(given):
                raise ValueError(
                    f"{self.name}: {len(given)} {what} for {len(matrices)} matrices; pass as many"
                )
        return check_spd(matrices, name=f"{self.name} matrices")

    @property
    def classes(self) -> Labels:
        """The different labels, sorted."""
        return np.unique(self._known_labels)

    @property
    def _known_labels(self) -> Labels:
        if self.labels is None:
            raise ValueError(
                f"{self.name} has no labels; save them with the matrices, as an array named labels"
            )
        return np.asarray(self.labels)

    def splits(
        self, n: int | None = None, train: float | None = None, random_state: int | None = 0
    ) -> list[Split]:
        """Return sorted indices of matrices for training and testing, a list of (train, test).

        Copies of the official splits where there are any and neither ``n`` nor ``train`` is given,
        else ``n`` random splits, stratified by class, with a share ``train`` to train on; ``rule``
        has the defaults. They do not look at ``groups``; scikit-learn's `GroupShuffleSplit` does.
        """
        if n is None and train is None and self.official_splits:
            return [(np.array(chosen), np.array(rest)) for chosen, rest in self.official_splits]
        number = check_count(self.rule.n if n is None else n, "n", fix=", the number of splits")
        share = self.rule.train if train is None else train
        if not isinstance(share, float | np.floating) or not 0 < share < 1:
            raise ValueError(
                f"train={share!r} must be a number > 0 and < 1, a share of the matrices"
            )
        labels = self._known_labels
        shuffled = StratifiedShuffleSplit(number, train_size=share, random_state=random_state)
        found = shuffled.split(labels, labels)
        return [(np.sort(chosen), np.sort(rest)) for chosen, rest in found]

    def duplicates(self) -> list[tuple[int, ...]]:
        """Find the indices of samples, or else matrices, that are equal entry by entry."""
        return find_copies(self.matrices if self.raw is None else self.raw)

    def summary(self) -> str:
        """Describe the data in a few lines: sizes, splits, what to know, citation and terms."""
        n, d = self.matrices.shape[:2]
        labels = " without labels"
        if self.labels is not None:
            counts = np.unique(self.labels, return_counts=True)[1]
            most = "" if counts.min() == counts.max() else f" to {counts.max()}"
            labels = f"; {_count(len(counts), 'class', 'es')} of {counts.min()}{most}; "
            labels += self._describe_splits()
        first = f"{self.name}: {n} SPD matrices, {d} x {d}{labels}."
        return "\n".join([first, *self.notes, f"Cite: {self.citation}", f"Terms: {self.terms}"])

    def _describe_splits(self) -> str:
        if self.official_splits:
            return _count(len(self.official_splits), "official split", "s")
        return _count(self.rule.n, "random split", "s")

    def __repr__(self) -> str:
        if self.labels is not None:
            content = f"{len(self.labels)} matrices, {len(self.classes)} classes, "
            return f"<Dataset {self.name}: {content}{self._describe_splits()}>"
        content = f"{self._n_stored or 0} matrices"
        if self.raw is not None and self.stored is None:  # nothing is computed to be shown
            content = f"{len(self.raw)} {'series' if self.images is None else 'images'}"
        return f"<Dataset {self.name}: {content} without labels>"


def find_copies(samples: Samples) -> list[tuple[int, ...]]:
    found = defaultdict(list)
    for index, sample in enumerate(samples):
        streams = sample if isinstance(sample, tuple) else (sample,)
        arrays = [np.ascontiguousarray(stream) for stream in streams]
        key = tuple((one.shape, one.dtype.str, sha256(one.tobytes()).digest()) for one in arrays)
        found[key].append(index)
    return [tuple(indices) for indices in found.values() if len(indices) > 1]


def _count(n: int, what: str, plural: str) -> str:
    return f"{n} {what}{plural * (n > 1)}"
