"""Patches of the textures of Brodatz's album."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from divlearn.checks import check_count
from divlearn.datasets.dataset import NOT_STATED, Dataset, SplitRule
from divlearn.datasets.files.images import ImageFiles
from divlearn.datasets.folders import PathLike, Source
from divlearn.descriptors.boxes import check_sides
from divlearn.descriptors.pixels import Feature
from divlearn.descriptors.presets import Preset, get_preset
from divlearn.descriptors.region import RegionCovariance

__all__ = ["load_brodatz"]

_SOURCE = Source(
    name="Brodatz",
    folder="brodatz",
    layout="D1.gif, D2.gif and so on up to D112.gif, grey images of 640 x 640 pixels",
    origin="the Brodatz textures page of Trygve Randen, University of Stavanger",
)
_N_PUBLISHED = 112


def load_brodatz(
    path: PathLike | None = None,
    patch: int = 32,
    n_textures: int = 100,
    features: str | Preset | Sequence[Feature] = "brodatz",
) -> Dataset:
    r"""Brodatz textures: 5 x 5 covariances of patches, 400 for each of 100 images.

    Parameters
    ----------
    path : str or path-like, optional
        Folder with the images ``D1.gif`` and so on; the sub-folder brodatz of the folder that the
        environment variable DIVLEARN_DATA names by default. Nothing is downloaded.
    patch : int, default=32
        Side in pixels of the patches, which do not overlap.
    n_textures : int, default=100
        How many textures are taken: D1 to D100 by default, 112 at most.
    features : str, Preset or sequence of features, default="brodatz"
        As in `RegionCovariance`; by default x, y, I, \|Ix\|, \|Iy\|.

    Returns
    -------
    Dataset
        Labels are the numbers of the textures. The rule is that of the paper, 80 % of the patches
        for training, five times.

    Notes
    -----
    The paper reports 31,000 matrices, but 100 images have 40,000 such patches; which it left out
    is not stated.

    Examples
    --------
    >>> brodatz = load_brodatz("data/brodatz")  # doctest: +SKIP
    >>> brodatz.matrices.shape  # doctest: +SKIP
    (40000, 5, 5)
    """
    n_textures = check_count(n_textures, "n_textures", most=_N_PUBLISHED)
    get_preset(features)  # else the descriptor would be the first to look at them
    folder = _SOURCE.find_folder(path)
    numbers = np.arange(1, n_textures + 1)
    paths = [folder / f"D{number}.gif" for number in numbers]
    if missing := [image.name for image in paths if not image.is_file()]:
        raise _SOURCE.missing(
            f"{folder} lacks {', '.join(missing[:5])}{' and more' if missing[5:] else ''} of the "
            f"images that n_textures={n_textures} needs"
        )
    images = ImageFiles(paths)
    return Dataset(
        name="Brodatz",
        labels=np.repeat(numbers, _count_patches(images, patch)),
        citation=(
            'P. Brodatz, "Textures: a photographic album for artists and designers", Dover, 1966; '
            'as a benchmark T. Ojala, M. Pietikäinen and D. Harwood, "A comparative study of '
            'texture measures with classification based on feature distributions", Pattern '
            "Recognition 29, 1996"
        ),
        terms=NOT_STATED,
        rule=SplitRule(5, 0.8),
        images=images,
        descriptor=RegionCovariance(features, patch=patch),
        notes=("A class is one image: train and test are patches of the same photographs.",),
    )


def _count_patches(images: ImageFiles, patch: int) -> list[int]:
    """Patches in each image, by the headers of the files."""
    height, width = check_sides(patch, "patch", 2)
    counts = []
    for index, path in enumerate(images.paths):
        rows, columns = images.size_of(index)
        if not (height <= rows and width <= columns):
            raise ValueError(f"patch={patch} must be <= the sides of {path}, {rows} x {columns}")
        counts.append((rows // height) * (columns // width))
    return counts
