"""The paper's data sets: which are there, and which stand in for those that are not."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from divlearn.datasets import Dataset
from divlearn.spd import SPDRepairWarning
from paper import datasets

Data = Mapping[str, Dataset]  # by the keys of SOURCES

_PACKED = "packed.npz"  # matrices in place of images and series; see `pack`


class Source(NamedTuple):
    """Data that an experiment may run on."""

    title: str
    paper: str  # what the paper calls the data that it is or stands in for
    folder: str  # of the data folder
    load: Callable[[Path], Dataset]
    n_splits: int
    why: str  # how it differs from the paper's, a clause


_SCORES = "scores of other networks"
_UNPUBLISHED = "other matrices: the paper's were not published"

SOURCES: dict[str, Source] = {
    "virus": Source(
        "Virus",
        "VIRUS",
        "virus",
        datasets.load_virus,
        3,
        "features by our reading of the recipe that the paper cites; three draws of two thirds "
        "for training and 500 images for testing, where the paper's figures of one split are "
        "multiples of 1/300",
    ),
    "kth": Source(
        "KTH-TIPS2 (authors)",
        "KTH TIPS",
        "kth_tips2_authors",
        datasets.load_kth_tips2_authors,
        1,
        "360 matrices that came with the authors' code, with one split and 60 of them to test on, "
        "in place of 4752 images with four splits",
    ),
    "kth-images": Source(
        "KTH-TIPS2 (images)",
        "KTH TIPS",
        "kth_tips2",
        datasets.load_kth_tips2,
        4,
        "features by our reading of the recipe that the paper cites",
    ),
    "jhmdb-joints": Source(
        "JHMDB joints",
        "JHMDB",
        "jhmdb_joints",
        datasets.load_jhmdb_joints,
        3,
        "another descriptor: Gaussian embeddings of tracks of joints of 14 actions in place of "
        "kernels of network scores of 21",
    ),
    "jhmdb": Source("JHMDB", "JHMDB", "jhmdb", datasets.load_jhmdb, 3, _SCORES),
    "hmdb": Source("HMDB", "HMDB", "hmdb", datasets.load_hmdb, 3, _SCORES),
    "brodatz": Source(
        "Brodatz",
        "BRODATZ",
        "brodatz",
        datasets.load_brodatz,
        5,
        "20 patches per texture to train on and 10 to test on, for time",
    ),
    "brodatz-all": Source(
        "Brodatz, all patches",
        "BRODATZ",
        "brodatz",
        datasets.load_brodatz,
        5,
        "all 40,000 patches, where the paper has 31,000 and does not say which",
    ),
    "brodatz-20": Source(
        "Brodatz, 20 textures",
        "BRODATZ",
        "brodatz",
        datasets.load_brodatz,
        5,
        "as Brodatz, but the first 20 of 100 textures, on which the structured SVM takes minutes",
    ),
    "rgbd": Source("3D objects", "3D Object", "rgbd", datasets.load_rgbd, 5, _UNPUBLISHED),
    "breast": Source(
        "Breast cancer", "Breast Cancer", "breast", datasets.load_cancer, 5, _UNPUBLISHED
    ),
    "myometrium": Source(
        "Myometrium cancer",
        "Myometrium Cancer",
        "myometrium",
        datasets.load_cancer,
        5,
        _UNPUBLISHED,
    ),
    "prostate": Source(
        "Prostate cancer", "Prostate Cancer", "prostate", datasets.load_cancer, 5, _UNPUBLISHED
    ),
}
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
    """Load what a folder has of the sources `keys`.

    The folder has one sub-folder for each data set; None stands for no data.
    """
    if folder is None:
        return {}
    if not folder.is_dir():
        raise NotADirectoryError(
            f"--data {folder} must be a folder with one sub-folder for each data set, such as "
            f"{', '.join(source.folder for source in list(SOURCES.values())[:3])}"
        )
    wanted = [key for key in dict.fromkeys(keys) if key in SOURCES]
    loads = {SOURCES[key].folder: SOURCES[key].load for key in wanted}
    loaded = {
        name: _load(load, folder / name) for name, load in loads.items() if (folder / name).exists()
    }
    return {key: loaded[SOURCES[key].folder] for key in wanted if SOURCES[key].folder in loaded}


def _load(load: Callable[[Path], Dataset], path: Path) -> Dataset:
    if (path / _PACKED).exists():
        return _unpack(path / _PACKED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SPDRepairWarning)  # the same for every method
        dataset = load(path)
        dataset.matrices  # noqa: B018, computed here and kept
    return dataset


def pack(data: Data, folder: Path) -> None:
    """Write data sets as matrices, which a machine without image libraries can read."""
    for key, dataset in data.items():
        d = dataset.matrices.shape[1]
        arrays = {
            "triangles": dataset.matrices[:, *np.tril_indices(d)],
            "labels": dataset.labels,
            "rule": np.array([dataset.n_splits, dataset.train_share]),
        }
        for k, (train, test) in enumerate(dataset.official_splits):
            arrays |= {f"train_{k}": train, f"test_{k}": test}
        path = folder / SOURCES[key].folder / _PACKED
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(path, **arrays)


def _unpack(path: Path) -> Dataset:
    with np.load(path) as file:
        arrays = dict(file)
    triangles = arrays["triangles"]
    d = int((2 * triangles.shape[1]) ** 0.5)
    lower = np.zeros((len(triangles), d, d))
    lower[:, *np.tril_indices(d)] = triangles
    matrices = lower + np.tril(lower, -1).mT
    n_splits = sum(name.startswith("train_") for name in arrays)
    return Dataset(
        path.parent.name,
        arrays["labels"],
        "see docs/data.md",
        "see docs/data.md",
        n_splits=int(arrays["rule"][0]),
        train_share=float(arrays["rule"][1]),
        stored=matrices,
        official_splits=tuple((arrays[f"train_{k}"], arrays[f"test_{k}"]) for k in range(n_splits)),
    )
