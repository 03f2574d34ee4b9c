"""Textures in images: viruses, Brodatz's album, and materials."""

from collections.abc import Sequence

import numpy as np

from divlearn.datasets import Dataset, ImageFiles
from divlearn.descriptors import RegionCovariance
from paper.datasets.folders import NOT_STATED, PathLike, find_folder, list_files, need, subfolders


def load_virus(path: PathLike | None = None) -> Dataset:
    """Virus: 1500 grey images, 41 x 41 pixels, of 15 types of virus, as 29 x 29 covariances.

    The files are ``<class>/<set>/<number>.png``; labels are the numbers of the classes. Three
    random splits with two thirds of the images for training are our reading of the paper's "three
    splits". The images of a set, which ``groups`` holds, resemble each other: of 1-NN neighbours of
    the right class 45 % are of the same set, where chance would make it 19 %.
    """
    folder = find_folder(path, "virus")
    paths = [
        image
        for virus in subfolders(folder)
        for part in subfolders(virus)
        for image in list_files(part, ".png")
    ]
    need(paths, folder, "<class>/<set>/<number>.png, classes and sets being numbers")
    return Dataset(
        name="Virus",
        labels=np.array([int(image.parent.parent.name) for image in paths]),
        citation=(
            "G. Kylberg, M. Uppström, K.-O. Hedlund, G. Borgefors and I.-M. Sintorn, "
            '"Segmentation of virus particle candidates in transmission electron microscopy '
            'images", Journal of Microscopy 245, 2012'
        ),
        terms=NOT_STATED,
        n_splits=3,
        train_share=2 / 3,
        images=ImageFiles(paths),
        descriptor=RegionCovariance("virus"),
        groups=np.array([f"{image.parent.parent.name}/{image.parent.name}" for image in paths]),
        notes=("Images of one set (see groups) resemble each other; random splits ignore that.",),
    )


def load_brodatz(
    path: PathLike | None = None, n_textures: int = 100, features: str | Sequence[str] = "brodatz"
) -> Dataset:
    """Brodatz textures: 5 x 5 covariances of 32 x 32 patches, 400 for each of 100 images.

    The files are ``D1.gif`` and so on; labels are their numbers. The splits are those of the paper,
    80 % of the patches for training, five times. The paper reports 31,000 matrices, but 100 images
    have 40,000 such patches; which it left out is not stated.
    """
    folder, side = find_folder(path, "brodatz"), 32
    numbers = np.arange(1, n_textures + 1)
    paths = [folder / f"D{number}.gif" for number in numbers]
    images = ImageFiles(need(paths, folder, "D1.gif, D2.gif and so on up to D112.gif"))
    height, width = images[0].shape[:2]
    return Dataset(
        name="Brodatz",
        labels=np.repeat(numbers, (height // side) * (width // side)),
        citation=(
            'P. Brodatz, "Textures: a photographic album for artists and designers", Dover, 1966; '
            'as a benchmark T. Ojala, M. Pietikäinen and D. Harwood, "A comparative study of '
            'texture measures with classification based on feature distributions", Pattern '
            "Recognition 29, 1996"
        ),
        terms=NOT_STATED,
        images=images,
        descriptor=RegionCovariance(features, patch=side),
        notes=("A class is one image: train and test are patches of the same photographs.",),
    )


def load_kth_tips2(path: PathLike | None = None) -> Dataset:
    """KTH-TIPS2: 4752 colour images of 11 materials, as 23 x 23 covariances.

    The files are ``<material>/sample_<letter>/*.png``; labels are the materials. The images of one
    sample show the same piece of material, so each of the four official splits tests on one sample
    of every material. The paper only says that it uses the four standard splits.
    """
    folder = find_folder(path, "kth_tips2")
    paths = [
        image
        for material in subfolders(folder)
        for sample in subfolders(material)
        for image in list_files(sample, ".png")
        if sample.name.startswith("sample_")
    ]
    need(paths, folder, "<material>/sample_<letter>/*.png")
    samples = np.array([image.parent.name for image in paths])
    return Dataset(
        name="KTH-TIPS2",
        labels=np.array([image.parent.parent.name for image in paths]),
        citation=(
            "P. Mallikarjuna, A. T. Targhi, M. Fritz, E. Hayman, B. Caputo and J.-O. Eklundh, "
            '"The KTH-TIPS2 database", KTH Stockholm, 2006'
        ),
        terms=NOT_STATED,
        images=ImageFiles(paths),
        descriptor=RegionCovariance("kth-tips2"),
        official_splits=tuple(
            (np.flatnonzero(samples != name), np.flatnonzero(samples == name))
            for name in np.unique(samples)
        ),
        groups=np.array([f"{image.parent.parent.name}/{image.parent.name}" for image in paths]),
    )
