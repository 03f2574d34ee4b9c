"""Images that lie in one folder per class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from divlearn.datasets.dataset import NOT_STATED, Dataset
from divlearn.descriptors.region import RegionCovariance
from divlearn.files.folders import PathLike, subfolders
from divlearn.files.images import ImageFiles, list_images

__all__ = ["load_image_folder"]


def load_image_folder(path: PathLike, descriptor: Any = None) -> Dataset:
    """Images in sub-folders named as their classes, as covariance matrices.

    Parameters
    ----------
    path : str or path-like
        Folder with ``<class>/<any name>``; what is no image, or lies deeper, is left out.
    descriptor : transformer, optional
        From images to SPD matrices; ``RegionCovariance("texture")`` by default.

    Returns
    -------
    Dataset
        Named as the folder, its labels are the names of the sub-folders.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from PIL import Image
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("bark", "sand"):
    ...         (Path(folder) / name).mkdir()
    ...         pixels = np.random.default_rng(0).integers(0, 255, (32, 32), dtype=np.uint8)
    ...         Image.fromarray(pixels).save(Path(folder) / name / "1.png")
    ...     images = load_image_folder(folder)
    ...     print(images.labels, images.matrices.shape)
    ['bark' 'sand'] (2, 5, 5)
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise NotADirectoryError(
            f"{folder} is no folder, must be one that holds <class>/<name>.png or the like"
        )
    paths = [image for part in subfolders(folder) for image in list_images(part)]
    if not paths:
        raise FileNotFoundError(
            f"{folder} holds no images in sub-folders, must hold <class>/<name>.png or the like; "
            "make one sub-folder for each class"
        )
    return Dataset(
        name=folder.resolve().name,
        labels=np.array([image.parent.name for image in paths]),
        citation=NOT_STATED,
        terms=NOT_STATED,
        images=ImageFiles(paths),
        descriptor=RegionCovariance("texture") if descriptor is None else descriptor,
    )
