"""Images of materials under changing light, pose and scale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divlearn.datasets.dataset import NOT_STATED, Dataset, class_sizes, note_difference
from divlearn.datasets.files import read_spd
from divlearn.datasets.files.images import ImageFiles, list_images
from divlearn.datasets.folders import PathLike, Source, subfolders
from divlearn.datasets.stored import from_file
from divlearn.descriptors.region import RegionCovariance

__all__ = ["load_kth_tips2", "load_kth_tips2_authors"]

_SOURCE = Source(
    name="KTH-TIPS2",
    folder="kth_tips2",
    layout="<material>/sample_<letter>/*.png, such as cork/sample_a/22a-scale_2_im_1_col.png",
    origin="the KTH-TIPS image databases page of KTH Stockholm (KTH-TIPS2-b)",
)
_AUTHORS = Source(
    name="KTH-TIPS2, the authors' matrices",
    folder="kth_tips2_authors",
    layout="demo_dataset.mat",
    origin="the code that the authors of the paper of 2017 published with it",
)
_CITATION = (
    "P. Mallikarjuna, A. T. Targhi, M. Fritz, E. Hayman, B. Caputo and J.-O. Eklundh, "
    '"The KTH-TIPS2 database", KTH Stockholm, 2006'
)


def load_kth_tips2(path: PathLike | None = None) -> Dataset:
    """KTH-TIPS2: 4752 colour images of 11 materials, as 23 x 23 covariances.

    Parameters
    ----------
    path : str or path-like, optional
        Folder with the files ``<material>/sample_<letter>/*.png``, as they are published; the
        sub-folder kth_tips2 of the folder that the environment variable DIVLEARN_DATA names by
        default. Nothing is downloaded.

    Returns
    -------
    Dataset
        Labels are the names of the materials, groups the pieces of material that were photographed,
        "<material>/<sample>". The four official splits test on one sample of every material and
        train on the other three.

    Notes
    -----
    The images of one sample show the same piece of material: a random split would test on pieces
    it was trained on. The literature has two protocols with these samples, to train on three and
    test on one, as here, and to train on one and test on three, which is the same splits with the
    roles exchanged. The paper only says that it uses the four standard splits.

    Examples
    --------
    >>> kth = load_kth_tips2("data/kth_tips2")  # doctest: +SKIP
    >>> len(kth.splits()), kth.matrices.shape  # doctest: +SKIP
    (4, (4752, 23, 23))
    """
    folder = _SOURCE.find_folder(path)
    paths = [
        image for material in subfolders(folder) for sample in _samples(material)
        for image in list_images(sample)
    ]  # fmt: skip
    if not paths:
        raise _SOURCE.missing(f"{folder} holds no images in folders named sample_<letter>")
    materials = np.array([image.parent.parent.name for image in paths])
    samples = np.array([image.parent.name for image in paths])
    names = _check_samples(materials, samples)
    return Dataset(
        name="KTH-TIPS2",
        labels=materials,
        citation=_CITATION,
        terms=NOT_STATED,
        images=ImageFiles(paths),
        descriptor=RegionCovariance("kth-tips2"),
        official_splits=tuple(
            (np.flatnonzero(samples != name), np.flatnonzero(samples == name)) for name in names
        ),
        groups=np.array([f"{image.parent.parent.name}/{image.parent.name}" for image in paths]),
        notes=note_difference(
            "11 classes of 432, 4 samples each",
            f"{class_sizes(materials)}, {len(names)} samples each",
        ),
    )


def _samples(material: Path) -> list[Path]:
    return [folder for folder in subfolders(material) if folder.name.startswith("sample_")]


def _check_samples(materials: NDArray[Any], samples: NDArray[Any]) -> list[str]:
    """Names of the samples, of which every material must have all and at least two."""
    names: list[str] = np.unique(samples).tolist()
    if len(names) < 2:
        raise ValueError(
            f"KTH-TIPS2: the materials have the only sample {names[0]}, must have >= 2, one to "
            "train on and one to test on; add the folders of the others"
        )
    for material in np.unique(materials):
        if lacking := sorted(set(names) - set(samples[materials == material].tolist())):
            raise ValueError(
                f"KTH-TIPS2: {material} has no images of {', '.join(lacking)}, which other "
                "materials have; add them, or remove what is not part of the data"
            )
    return names


def load_kth_tips2_authors(path: PathLike | None = None) -> Dataset:
    """KTH-TIPS2 as the authors of the paper described it: 360 covariances, 23 x 23, and one split.

    Parameters
    ----------
    path : str or path-like, optional
        Folder with the file ``demo_dataset.mat``; the sub-folder kth_tips2_authors of the folder
        that the environment variable DIVLEARN_DATA names by default. Nothing is downloaded.

    Returns
    -------
    Dataset
        Without images. Labels are the numbers of the materials. The one official split has 300
        matrices to train on and 60 to test on.

    Examples
    --------
    >>> authors = load_kth_tips2_authors("data/kth_tips2_authors")  # doctest: +SKIP
    >>> authors.matrices.shape  # doctest: +SKIP
    (360, 23, 23)
    """
    folder = _AUTHORS.find_folder(path)
    file = folder / "demo_dataset.mat"
    if not file.is_file():
        raise _AUTHORS.missing(f"{folder} does not hold demo_dataset.mat")
    dataset = from_file(
        read_spd(file),
        name="KTH-TIPS2, the authors' matrices",
        citation=(
            f"{_CITATION}; the matrices are those of A. Cherian, P. Stanitsas, M. Harandi, "
            'V. Morellas and N. Papanikolopoulos, "Learning discriminative αβ-divergences for '
            'positive definite matrices", ICCV 2017'
        ),
        notes=(
            "The test matrices are of other pieces of material than the training matrices: "
            "cross-validation within the training part promises too much.",
            "60 test matrices tell accuracies apart only from about 5 points on.",
        ),
    )
    if not dataset.official_splits:
        raise ValueError(f"{file} must hold X_train and X_test; take the file as published")
    return dataset
