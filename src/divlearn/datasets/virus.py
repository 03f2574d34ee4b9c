"""Textures of viruses under an electron microscope."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from divlearn.datasets.dataset import NOT_STATED, Dataset, SplitRule, class_sizes, note_difference
from divlearn.datasets.files.images import ImageFiles, list_images
from divlearn.datasets.folders import PathLike, Source, subfolders
from divlearn.descriptors.region import RegionCovariance

__all__ = ["load_virus"]

_SOURCE = Source(
    name="Virus",
    folder="virus",
    layout="<class>/<set>/<number>.png, classes and sets being numbers, such as 1/1/1.png",
    origin="the Virus Texture Dataset page of the Centre for Image Analysis, Uppsala University",
)


def load_virus(path: PathLike | None = None, descriptor: Any = None) -> Dataset:
    """Virus: 1500 grey images, 41 x 41 pixels, of 15 types of virus, as 29 x 29 covariances.

    Parameters
    ----------
    path : str or path-like, optional
        Folder with the files ``<class>/<set>/<number>.png``; the sub-folder virus of the folder
        that the environment variable DIVLEARN_DATA names by default. Nothing is downloaded.
    descriptor : transformer, optional
        From images to SPD matrices; ``RegionCovariance("virus")`` by default, whose features are
        the grey value, its four derivatives and 4 x 6 Gabor magnitudes.

    Returns
    -------
    Dataset
        Labels are the numbers of the classes. The rule is three random splits with two thirds of
        the images for training, which is our reading of the paper's "three splits".

    Notes
    -----
    Each class comes in five sets of 20 images, and the images of a set resemble each other: of
    1-NN neighbours of the right class 45 % are of the same set, where chance would make it 19 %.
    Log-Euclidean 1-NN recognises 72 % of the images if any other may be the neighbour, 62 % if
    those in sets of the same number, of all classes, may not. Random splits ignore this; ``groups``
    holds the sets.

    All images are read once for the notes, which tell how many are exact copies of another.

    Examples
    --------
    >>> virus = load_virus("data/virus")  # doctest: +SKIP
    >>> virus.matrices.shape  # doctest: +SKIP
    (1500, 29, 29)
    """
    folder = _SOURCE.find_folder(path)
    paths = [
        image for virus in subfolders(folder) for part in subfolders(virus)
        for image in list_images(part)
    ]  # fmt: skip
    if not paths:
        raise _SOURCE.missing(f"{folder} holds no images in sub-folders of sub-folders")
    labels = np.array([_class_number(image.parent.parent) for image in paths])
    dataset = Dataset(
        name="Virus",
        labels=labels,
        citation=(
            "G. Kylberg, M. Uppström, K.-O. Hedlund, G. Borgefors and I.-M. Sintorn, "
            '"Segmentation of virus particle candidates in transmission electron microscopy '
            'images", Journal of Microscopy 245, 2012'
        ),
        terms=NOT_STATED,
        rule=SplitRule(3, 2 / 3),
        images=ImageFiles(paths),
        descriptor=RegionCovariance("virus") if descriptor is None else descriptor,
        groups=np.array([f"{image.parent.parent.name}/{image.parent.name}" for image in paths]),
    )
    dataset.notes = (
        *note_difference("15 classes of 100", class_sizes(labels)),
        "Images of one set (see groups) resemble each other; random splits ignore that.",
        *_note_copies(dataset, paths),
    )
    return dataset


def _class_number(folder: Path) -> int:
    try:
        return int(folder.name)
    except ValueError as error:
        raise ValueError(
            f"Virus: the folder {folder} must have the number of a class for a name; rename it"
        ) from error


def _note_copies(dataset: Dataset, paths: list[Path]) -> tuple[str, ...]:
    """Exact copies among the images, and those that contradict each other."""
    copies = dataset.duplicates()
    if not copies:
        return ()
    contradicting = [group for group in copies if len(set(dataset.labels[list(group)])) > 1]
    named = "; ".join(
        " = ".join("/".join(paths[index].parts[-3:]) for index in group) for group in copies
    )
    return (
        f"{len(copies)} image{'s are' if len(copies) > 1 else ' is'} there more than once, "
        f"{len(contradicting)} of them under different labels: {named}.",
    )
