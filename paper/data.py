"""The paper's data sets: which are there, and which stand in for those that are not."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from divlearn.datasets import Dataset
from divlearn.spd import SPDRepairWarning
from paper import datasets

Data = Mapping[str, Dataset]  # by the keys of SOURCES


class Source(NamedTuple):
    """Data that an experiment may run on."""

    title: str
    paper: str  # what the paper calls the data that it is or stands in for
    folder: str  # of the data folder
    load: Callable[[Path], Dataset]
    why: str  # reason why results may differ from the paper's, a clause


_SCORES = "the scores are those of other networks"
_UNPUBLISHED = "the paper's matrices were not published, and these are other ones"

SOURCES: dict[str, Source] = {
    "virus": Source(
        "Virus", "VIRUS", "virus", datasets.load_virus,
        "the features are our reading of the recipe the paper cites, and the splits, two thirds "
        "for training, are our draws",
    ),
    "kth": Source(
        "KTH-TIPS2 (authors)", "KTH TIPS", "kth_tips2_authors", datasets.load_kth_tips2_authors,
        "these are 360 of the authors' own matrices with one split, 60 of them to test on, in "
        "place of 4752 images with four splits",
    ),
    "kth-images": Source(
        "KTH-TIPS2 (images)", "KTH TIPS", "kth_tips2", datasets.load_kth_tips2,
        "the features are our reading of the recipe the paper cites",
    ),
    "jhmdb-joints": Source(
        "JHMDB joints", "JHMDB", "jhmdb_joints", datasets.load_jhmdb_joints,
        "the descriptor is another one, Gaussian embeddings of tracks of joints of 14 actions in "
        "place of kernels of network scores of 21",
    ),
    "jhmdb": Source("JHMDB", "JHMDB", "jhmdb", datasets.load_jhmdb, _SCORES),
    "hmdb": Source("HMDB", "HMDB", "hmdb", datasets.load_hmdb, _SCORES),
    "brodatz": Source(
        "Brodatz", "BRODATZ", "brodatz", datasets.load_brodatz,
        "the paper's patches, 31,000 of 40,000, are not stated, and only some of them are used "
        "here",
    ),
    "brodatz-all": Source(
        "Brodatz, all patches", "BRODATZ", "brodatz", datasets.load_brodatz,
        "the paper's patches, 31,000 of these 40,000, are not stated, and its recipe not fully",
    ),
    "rgbd": Source("3D objects", "3D Object", "rgbd", datasets.load_rgbd, _UNPUBLISHED),
    "breast": Source(
        "Breast cancer", "Breast Cancer", "breast", datasets.load_cancer, _UNPUBLISHED
    ),
    "myometrium": Source(
        "Myometrium cancer", "Myometrium Cancer", "myometrium", datasets.load_cancer, _UNPUBLISHED
    ),
    "prostate": Source(
        "Prostate cancer", "Prostate Cancer", "prostate", datasets.load_cancer, _UNPUBLISHED
    ),
}  # fmt: skip
_PAPER_NAMES = {source.title: source.paper for source in SOURCES.values()}


def paper_name(title: str) -> str:
    """Return what the paper calls data.

    Examples
    --------
    >>> paper_name("JHMDB joints")
    'JHMDB'
    """
    return _PAPER_NAMES.get(title, title)


def load_data(folder: Path | None, keys: Iterable[str]) -> dict[str, Dataset]:
    """Load what a folder has of the sources `keys`, and of others that share their files.

    The folder has one sub-folder for each data set; None stands for no data.
    """
    if folder is None:
        return {}
    if not folder.is_dir():
        raise NotADirectoryError(
            f"--data {folder} must be a folder with one sub-folder for each data set, such as "
            f"{', '.join(source.folder for source in list(SOURCES.values())[:3])}"
        )
    wanted = {SOURCES[key].folder: SOURCES[key].load for key in keys}
    loaded = {
        name: _load(load, folder / name)
        for name, load in wanted.items()
        if (folder / name).exists()
    }
    return {key: loaded[one.folder] for key, one in SOURCES.items() if one.folder in loaded}


def _load(load: Callable[[Path], Dataset], path: Path) -> Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SPDRepairWarning)  # the same for every method
        dataset = load(path)
        dataset.matrices  # noqa: B018, computed here and kept
    return dataset


def missing(data: Data, keys: Iterable[str]) -> list[str]:
    """Name the paper's data sets of which there is nothing, and nothing that stands in."""
    wanted = dict.fromkeys(SOURCES[key].paper for key in keys)
    there = {SOURCES[key].paper for key in data}
    return [name for name in wanted if name not in there]
