"""The paper's data sets: which are in a folder, and which stand in for those that are not."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache as cached
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import divlearn
from divlearn import datasets
from divlearn.datasets import Dataset
from divlearn.experiments.cache import Cache
from divlearn.spd import SPDRepairWarning

__all__ = ["SOURCES", "Holding", "Shelf", "Source"]

Loader = Callable[[Path], Dataset]


@dataclass(frozen=True)
class Source:
    """Data that an experiment may run on.

    Attributes
    ----------
    key : str
    title : str
    paper : str
        What the paper calls the data that it is or stands in for.
    folder : str
        Sub-folder of the data folder.
    load : callable
    why : str
        Why results may differ from the paper's, a clause; empty where there is no known reason.
    """

    key: str
    title: str
    paper: str
    folder: str
    load: Loader
    why: str = ""


_UNPUBLISHED = "the paper's matrices were not published, and these are other ones"

SOURCES: dict[str, Source] = {
    source.key: source
    for source in (
        Source(
            "virus", "Virus", "VIRUS", "virus", datasets.load_virus,
            "the features are our reading of the recipe the paper cites, and the splits, two "
            "thirds for training, are our draws",
        ),
        Source(
            "kth", "KTH-TIPS2 (authors)", "KTH TIPS", "kth_tips2_authors",
            datasets.load_kth_tips2_authors,
            "these are 360 of the authors' own matrices with one split, 60 of them to test on, in "
            "place of 4752 images with four splits",
        ),
        Source(
            "kth-images", "KTH-TIPS2 (images)", "KTH TIPS", "kth_tips2", datasets.load_kth_tips2,
            "the features are our reading of the recipe the paper cites",
        ),
        Source(
            "jhmdb-joints", "JHMDB joints", "JHMDB", "jhmdb_joints", datasets.load_jhmdb_joints,
            "the descriptor is another one, Gaussian embeddings of tracks of joints of 14 actions "
            "in place of kernels of network scores of 21",
        ),
        Source(
            "jhmdb", "JHMDB", "JHMDB", "jhmdb", datasets.load_jhmdb,
            "the scores are those of other networks",
        ),
        Source("hmdb", "HMDB", "HMDB", "hmdb", datasets.load_hmdb,
               "the scores are those of other networks"),
        Source(
            "brodatz", "Brodatz", "BRODATZ", "brodatz", datasets.load_brodatz,
            "the paper's patches, 31,000 of 40,000, are not stated, and only some of them are used "
            "here",
        ),
        Source(
            "brodatz-all", "Brodatz, all patches", "BRODATZ", "brodatz", datasets.load_brodatz,
            "the paper's patches, 31,000 of these 40,000, are not stated, and its recipe not fully",
        ),
        Source("rgbd", "3D objects", "3D Object", "rgbd", datasets.load_rgbd, _UNPUBLISHED),
        Source("breast", "Breast cancer", "Breast Cancer", "breast", datasets.load_breast,
               _UNPUBLISHED),
        Source("myometrium", "Myometrium cancer", "Myometrium Cancer", "myometrium",
               datasets.load_myometrium, _UNPUBLISHED),
        Source("prostate", "Prostate cancer", "Prostate Cancer", "prostate",
               datasets.load_prostate, _UNPUBLISHED),
    )
}  # fmt: skip


class Holding:
    """A data set that is there. It is loaded when a cell needs it.

    Parameters
    ----------
    source : Source
    load : callable, returns the Dataset.
    folder : Path, optional
        Where its files are.
    cache : Cache, optional
        Remembers what is known of the data, for as long as the files stay as they are.
    """

    def __init__(
        self, source: Source, load: Callable[[], Dataset], folder: Path | None = None,
        cache: Cache | None = None,
    ) -> None:  # fmt: skip
        self.source = source
        self._load = load
        self._folder = folder
        self._cache = cache

    @cached_property
    def dataset(self) -> Dataset:
        """The data, with its matrices computed."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SPDRepairWarning)  # the same for every method
            dataset = self._load()
            dataset.matrices  # noqa: B018, they are computed now and kept
        return dataset

    @cached_property
    def note(self) -> dict[str, Any]:
        """What is to be known of the data before it is loaded."""
        if self._folder is None or self._cache is None:
            return self._describe()
        stamp = _stamp(self._folder)
        note = self._cache.note(self.source.key, stamp)
        if note is None:
            note = self._describe()
            self._cache.keep(self.source.key, stamp, note)
        return note

    def _describe(self) -> dict[str, Any]:
        data = self.dataset
        return {"digest": data.digest(), "n_splits": len(data.official_splits) or data.rule.n}

    @property
    def digest(self) -> str:
        """SHA-256 of matrices and labels."""
        return str(self.note["digest"])

    @property
    def n_splits(self) -> int:
        """How many splits into training and test parts there are."""
        return int(self.note["n_splits"])


class Shelf:
    """All data that is there.

    Parameters
    ----------
    holdings : iterable of Holding
    """

    def __init__(self, holdings: Iterable[Holding] = ()) -> None:
        self._holdings = {holding.source.key: holding for holding in holdings}

    @classmethod
    def of(cls, given: Mapping[str, Dataset]) -> Shelf:
        """Put data in memory on a shelf, by the keys of `SOURCES`.

        Examples
        --------
        >>> from divlearn.datasets import load_textures
        >>> shelf = Shelf.of({"brodatz": load_textures(64)})
        >>> [holding.source.title for holding in shelf.find(["virus", "brodatz"])]
        ['Brodatz']
        >>> shelf.missing(["virus", "brodatz"])
        ['VIRUS']
        """
        return cls(
            Holding(SOURCES[key], lambda dataset=dataset: dataset)  # type: ignore[misc]
            for key, dataset in given.items()
        )

    @classmethod
    def in_folder(cls, folder: Path | None, cache: Cache) -> Shelf:
        """Look into a folder with one sub-folder for each data set.

        Parameters
        ----------
        folder : Path or None
            None where there is no data at all.
        cache : Cache
            Remembers digests for as long as files have the same names, sizes and times.
        """
        if folder is None:
            return cls()
        if not folder.is_dir():
            raise NotADirectoryError(
                f"--data {folder} must be a folder with one sub-folder for each data set, such as "
                f"{', '.join(source.folder for source in list(SOURCES.values())[:3])}"
            )
        # Sources of one folder share what is loaded from it.
        loads = {
            source.folder: cached(partial(source.load, folder / source.folder))
            for source in SOURCES.values()
        }
        return cls(
            Holding(source, loads[source.folder], folder / source.folder, cache)
            for source in SOURCES.values()
            if (folder / source.folder).exists()
        )

    def find(self, keys: Iterable[str]) -> list[Holding]:
        """Return what is there of the sources that an experiment wants."""
        return [self._holdings[key] for key in keys if key in self._holdings]

    def missing(self, keys: Iterable[str]) -> list[str]:
        """Name the paper's data sets of which there is nothing, and nothing that stands in."""
        wanted = dict.fromkeys(SOURCES[key].paper for key in keys)
        there = {holding.source.paper for holding in self.find(keys)}
        return [name for name in wanted if name not in there]


def _stamp(folder: Path) -> str:
    """Tell the same files, read by the same code, apart from others, without reading them."""
    paths = sorted(Path(root) / name for root, _, names in os.walk(folder) for name in names)
    stats = [path.stat() for path in paths]
    told = [
        (os.fspath(path), stat.st_size, stat.st_mtime_ns)
        for path, stat in zip(paths, stats, strict=True)
    ]
    return sha256(str(told).encode() + _reading_code()).hexdigest()


@cached
def _reading_code() -> bytes:
    """Return the code that makes matrices of files."""
    package = Path(divlearn.__file__).parent
    parts = [package / part for part in ("datasets", "descriptors")]
    return b"".join(path.read_bytes() for part in parts for path in sorted(part.rglob("*.py")))
