"""Everyday objects seen by a depth camera."""

from __future__ import annotations

from divlearn.datasets.dataset import Dataset, note_difference
from divlearn.datasets.files import read_spd
from divlearn.datasets.folders import PathLike, Source
from divlearn.datasets.stored import find_matrices, from_file

__all__ = ["load_rgbd"]

_SOURCE = Source(
    name="RGB-D objects",
    folder="rgbd",
    layout=(
        "matrices.npz (or .npy, .mat, .h5) with the 18 x 18 covariances and an array labels, one "
        "for each"
    ),
    origin=(
        "the RGB-D Object Dataset page of the University of Washington, and describe its point "
        "clouds by the covariances of Fehr's thesis (University of Minnesota, 2013)"
    ),
)


def load_rgbd(path: PathLike | None = None) -> Dataset:
    """RGB-D objects: 15000 covariances, 18 x 18, of point clouds of 51 kinds of objects.

    Parameters
    ----------
    path : str or path-like, optional
        A file of matrices and labels that `load_spd` reads, or a folder with one that is named
        ``matrices.*``; the sub-folder rgbd of the folder that the environment variable
        DIVLEARN_DATA names by default. Nothing is downloaded.

    Returns
    -------
    Dataset
        The rule is that of the paper, 80 % of the matrices for training, five times.

    Notes
    -----
    The paper calls this set SHREC. Its matrices were not published; what is read here are
    matrices of one's own.

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/matrices.npz", matrices=[np.eye(18)], labels=["apple"])
    ...     print(load_rgbd(folder).summary())
    RGB-D objects: 1 SPD matrices, 18 x 18; 1 class of 1; 5 random splits.
    Published are 15000 matrices of 51 classes; here are 1 matrices of 1 classes.
    Cite: ...
    """
    file = find_matrices(_SOURCE, path)
    if file is None:
        raise _SOURCE.missing(f"{_SOURCE.find(path)} holds no file matrices.*")
    dataset = from_file(
        read_spd(file),
        name="RGB-D objects",
        citation=(
            'K. Lai, L. Bo, X. Ren and D. Fox, "A large-scale hierarchical multi-view RGB-D object '
            'dataset", ICRA 2011'
        ),
    )
    found = f"{len(dataset.labels)} matrices of {len(dataset.classes)} classes"
    dataset.notes = note_difference("15000 matrices of 51 classes", found)
    return dataset
