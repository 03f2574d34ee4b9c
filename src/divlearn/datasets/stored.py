"""SPD matrices with labels that are kept in files."""

from __future__ import annotations

from pathlib import Path

from divlearn.datasets.dataset import NOT_STATED, Dataset
from divlearn.files import SPDFile, read_spd
from divlearn.files.folders import PathLike

__all__ = ["from_file", "load_spd"]


def load_spd(
    path: PathLike,
    *,
    matrices: str | None = None,
    labels: str | None = None,
    groups: str | None = None,
    limit: int = 2**32,
    regularize: str = "raise",
) -> Dataset:
    """Load SPD matrices and their labels from a .npz, .npy, HDF5 or MATLAB file as a data set.

    Parameters
    ----------
    path : str or path-like
    matrices, labels : str, optional
        Names of the arrays in the file; the usual names are found by themselves.
    groups : str, optional
        Name of the array of groups in the file. None are loaded by default; ``notes`` name the
        arrays that look like groups.
    limit : int, default=2**32
        Largest number of bytes that what is loaded may take in memory.
    regularize : {"raise", "shrink", "jitter", "clip"}, default="raise"
        What to do with matrices that are not positive definite.

    Returns
    -------
    Dataset
        Named as the file, with ``labels`` None where it has none. ``files`` are those that
        ``divlearn describe`` made the matrices from. If the file has a training and a
        test part, such as X_train and X_test, that is the one official split.

    See Also
    --------
    divlearn.files.read_spd : does the reading, and says more on the parameters.

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
    found = read_spd(
        path, matrices=matrices, labels=labels, groups=groups, limit=limit, regularize=regularize
    )
    notes = tuple(
        f'{path.name} has an array `{name}`; pass groups="{name}" to keep its groups together'
        for name in found.group_names
    )
    return from_file(found, name=path.stem, citation=NOT_STATED, notes=notes)


def from_file(found: SPDFile, *, name: str, citation: str, notes: tuple[str, ...] = ()) -> Dataset:
    """Make what was found in a file a data set.

    Examples
    --------
    >>> import numpy as np
    >>> found = SPDFile(np.eye(2)[np.newaxis], labels=None, splits=None)
    >>> from_file(found, name="x", citation="")
    <Dataset x: 1 matrices without labels>
    """
    return Dataset(
        name=name,
        labels=found.labels,
        citation=citation,
        terms=NOT_STATED,
        official_splits=() if found.splits is None else (found.splits,),
        groups=found.groups,
        notes=notes,
        stored=found.matrices,
        files=found.files,
    )
