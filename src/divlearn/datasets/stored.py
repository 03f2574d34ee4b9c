"""Data that is kept as arrays in files: SPD matrices with labels, and named arrays of archives."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from divlearn.datasets.dataset import NOT_STATED, Dataset
from divlearn.datasets.files import SPDFile, read_spd
from divlearn.datasets.files.numpy_files import open_npz
from divlearn.datasets.files.regular import open_regular
from divlearn.datasets.files.variables import Refusal, Variable, explaining
from divlearn.datasets.folders import PathLike, Source, natural_key

__all__ = ["find_matrices", "from_file", "load_spd", "read_arrays"]


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


def find_matrices(source: Source, path: PathLike | None) -> Path | None:
    """Find the file of matrices: the path itself, or the file matrices.* in that folder, if any.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> leaves = Source("Leaves", "leaves", "matrices.npz", "the authors")
    >>> with TemporaryDirectory() as folder:
    ...     print(find_matrices(leaves, folder))
    None
    """
    found = source.find(path)
    if not found.is_dir():
        return found
    files = sorted((file for file in found.glob("matrices.*") if file.is_file()), key=natural_key)
    if len(files) > 1:
        raise ValueError(
            f"{source.name}: {found} holds {', '.join(file.name for file in files)}, must hold one "
            "of them; pass the path of the one that is meant"
        )
    return files[0] if files else None


def read_arrays(path: Path, names: Sequence[str], limit: int) -> list[NDArray[Any]]:
    """Read named arrays of a .npz archive, with nothing unpickled and claims checked first.

    Parameters
    ----------
    path : Path
    names : sequence of str
    limit : int
        Largest number of bytes that they may take in memory together.

    Examples
    --------
    >>> import numpy as np
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "one.npz"
    ...     np.savez(path, rgb=np.arange(3))
    ...     print(read_arrays(path, ["rgb"], 2**10))
    [array([0, 1, 2])]
    """
    with open_regular(path, str(path)) as file:
        size = os.fstat(file.fileno()).st_size
        with explaining(str(path), limit), open_npz(file, size) as variables:
            return [variable.read(limit) for variable in _choose(variables, names, limit)]


def _choose(variables: list[Variable], names: Sequence[str], limit: int) -> list[Variable]:
    by_name = {variable.name: variable for variable in variables}
    if missing := [name for name in names if name not in by_name]:
        raise Refusal(f"it lacks the arrays {', '.join(missing)}; write it again with them")
    chosen = [by_name[name] for name in names]
    for variable in chosen:
        if variable.refusal:
            raise Refusal(f"{variable.name} {variable.refusal}")
    n_bytes = sum(variable.n_bytes for variable in chosen)
    if n_bytes > limit:
        raise Refusal(
            f"{' and '.join(map(str, chosen))} would take {n_bytes} bytes, must be <= {limit}; "
            "write a shorter file"
        )
    return chosen
