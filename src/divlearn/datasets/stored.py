"""SPD matrices with labels that are kept in files."""

from __future__ import annotations

from pathlib import Path

from divlearn.datasets.dataset import NOT_STATED, Dataset
from divlearn.datasets.files import read_spd
from divlearn.datasets.folders import PathLike

__all__ = ["load_spd"]


def load_spd(
    path: PathLike,
    *,
    matrices: str | None = None,
    labels: str | None = None,
    limit: int = 2**32,
    regularize: str = "raise",
) -> Dataset:
    """Load SPD matrices and their labels from a .npz, .npy, HDF5 or MATLAB file as a data set.

    Parameters
    ----------
    path : str or path-like
    matrices, labels : str, optional
        Names of the arrays in the file; the usual names are found by themselves.
    limit : int, default=2**32
        Largest number of bytes that what is loaded may take in memory.
    regularize : {"raise", "shrink", "jitter", "clip"}, default="raise"
        What to do with matrices that are not positive definite.

    Returns
    -------
    Dataset
        Named as the file, with ``labels`` None where it has none. If the file has a training and a
        test part, such as X_train and X_test, that is the one official split.

    See Also
    --------
    divlearn.datasets.files.read_spd : does the reading, and says more on the parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "two_classes.npz"
    ...     np.savez(path, X=np.stack([np.eye(3), 2 * np.eye(3)]), y=[1, 2])
    ...     print(load_spd(path))
    <Dataset two_classes: 2 matrices, 2 classes, 5 random splits>
    """
    path = Path(path)
    found = read_spd(path, matrices=matrices, labels=labels, limit=limit, regularize=regularize)
    return Dataset(
        name=path.stem,
        labels=found.labels,
        citation=NOT_STATED,
        terms=NOT_STATED,
        official_splits=() if found.splits is None else (found.splits,),
        stored=found.matrices,
    )
