"""Images of tissue, with cancer and without."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from divlearn.datasets.dataset import NOT_STATED, Dataset, SplitRule
from divlearn.datasets.files import read_spd
from divlearn.datasets.files.images import ImageFiles, list_images
from divlearn.datasets.folders import PathLike, Source, subfolders
from divlearn.datasets.stored import find_matrices, from_file

__all__ = ["load_breast", "load_myometrium", "load_prostate"]

_CITATION = (
    "P. Stanitsas, A. Cherian, X. Li, A. Truskinovsky, V. Morellas and N. Papanikolopoulos, "
    '"Evaluation of feature descriptors for cancerous tissue recognition", ICPR 2016'
)


def load_breast(path: PathLike | None = None) -> Dataset:
    """Breast cancer: about 3500 images of tissue of two classes, as 8 x 8 covariance kernels.

    Parameters
    ----------
    path : str or path-like, optional
        Either colour images in a folder for each class, ``<class>/*.png``; or a file of matrices
        and labels that `load_spd` reads, or a folder with one that is named ``matrices.*``, which
        is then taken instead of images. The sub-folder breast of the folder that the environment
        variable DIVLEARN_DATA names by default. Nothing is downloaded.

    Returns
    -------
    Dataset
        Labels of images are the names of their folders. The rule is that of the paper, 80 % for
        training, five times.

    Notes
    -----
    The images of the paper were not published; what is read here is data of one's own.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/matrices.npz", X=[np.eye(8), 2 * np.eye(8)], y=["benign", "cancer"])
    ...     print(load_breast(folder))
    <Dataset Breast cancer: 2 matrices, 2 classes, 5 random splits>
    """
    return _load("Breast cancer", "breast", path)


def load_myometrium(path: PathLike | None = None) -> Dataset:
    """Myometrium cancer: 3320 images of tissue of two classes, as 8 x 8 covariance kernels.

    Parameters
    ----------
    path : str or path-like, optional
        As of `load_breast`, the sub-folder being myometrium.

    Returns
    -------
    Dataset
        As of `load_breast`.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/matrices.npz", X=[np.eye(8), 2 * np.eye(8)], y=["benign", "cancer"])
    ...     print(load_myometrium(folder))
    <Dataset Myometrium cancer: 2 matrices, 2 classes, 5 random splits>
    """
    return _load("Myometrium cancer", "myometrium", path)


def load_prostate(path: PathLike | None = None) -> Dataset:
    """Prostate cancer: images of tissue of two classes, as 8 x 8 covariance kernels.

    Parameters
    ----------
    path : str or path-like, optional
        As of `load_breast`, the sub-folder being prostate.

    Returns
    -------
    Dataset
        As of `load_breast`.

    Notes
    -----
    The paper clusters this set, and does not tell its size.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/matrices.npz", X=[np.eye(8), 2 * np.eye(8)], y=["benign", "cancer"])
    ...     print(load_prostate(folder))
    <Dataset Prostate cancer: 2 matrices, 2 classes, 5 random splits>
    """
    return _load("Prostate cancer", "prostate", path)


def _load(name: str, folder: str, path: PathLike | None) -> Dataset:
    source = Source(
        name=name,
        folder=folder,
        layout=(
            "<class>/*.png with a folder of colour images for each of two classes, or matrices.npz "
            "(or .npy, .mat, .h5) with 8 x 8 matrices and an array labels, one for each"
        ),
        origin=f"its owners, the authors of: {_CITATION}",
    )
    file = find_matrices(source, path)
    if file is None:
        dataset = _from_images(source, source.find_folder(path))
    else:
        dataset = from_file(read_spd(file), name=name, citation=_CITATION)
    if len(dataset.classes) != 2:
        dataset.notes = (f"The paper has 2 classes; here are {len(dataset.classes)}.",)
    return dataset


def _from_images(source: Source, folder: Path) -> Dataset:
    from divlearn.descriptors.covariance_kernel import CovarianceKernel

    paths = [image for tissue in subfolders(folder) for image in list_images(tissue)]
    if not paths:
        raise source.missing(f"{folder} holds neither a file matrices.* nor images in sub-folders")
    return Dataset(
        name=source.name,
        labels=np.array([image.parent.name for image in paths]),
        citation=_CITATION,
        terms=NOT_STATED,
        rule=SplitRule(5, 0.8),
        images=ImageFiles(paths),
        descriptor=CovarianceKernel(),
    )
