"""Stacks of SPD matrices and their labels from the files people keep them in."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from divlearn import tolerances
from divlearn.arrays import RealArray
from divlearn.checks import check_count
from divlearn.files.columns import check_column, fits, read_column
from divlearn.files.hdf5_files import find_hdf5, open_hdf5
from divlearn.files.matlab_files import is_matlab, open_matlab
from divlearn.files.names import FILES, Choice, choose
from divlearn.files.numpy_files import NPY_MAGIC, ZIP_MAGICS, open_npy, open_npz
from divlearn.files.regular import open_regular
from divlearn.files.variables import Refusal, Variable, explaining, quote
from divlearn.spd import check_spd

__all__ = ["MODEL_MEMBERS", "SPDFile", "Stacks", "read_spd", "read_stacks"]

MODEL_MEMBERS = ("model.json", "checksum")  # of the archives that `divlearn.save` writes

_Opener = Callable[[BinaryIO, int], AbstractContextManager[list[Variable]]]


@dataclass(frozen=True, eq=False)
class SPDFile:
    """What `read_spd` found in a file.

    Attributes
    ----------
    matrices : ndarray of float32 or float64, shape (n_matrices, d, d)
    labels : ndarray of int, float, bool or str, shape (n_matrices,), or None
    splits : the indices of the training and of the test matrices, or None
    groups : ndarray of int, float, bool or str, shape (n_matrices,), or None
    files : ndarray, shape (n_matrices,), files that the matrices were made from, or None
    group_names : names of arrays that look like groups, where ``groups`` is None

    Examples
    --------
    >>> SPDFile(np.eye(2)[np.newaxis], labels=np.array([1]), splits=None).matrices.shape
    (1, 2, 2)
    """

    matrices: RealArray
    labels: NDArray[Any] | None
    splits: tuple[NDArray[np.intp], NDArray[np.intp]] | None
    groups: NDArray[Any] | None = None
    files: NDArray[Any] | None = None
    group_names: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Stacks:
    """What a file claims to be matrices, not checked; see `read_stacks`.

    Attributes
    ----------
    parts : dict of ndarray, shape (n_matrices, d, d), by name: one, or a training and a test part.
    labels, groups, files : ndarray, shape (n_matrices,), of all parts together, or None
    group_names : tuple of str
        Names of arrays that look like groups, where ``groups`` is None.
    """

    parts: dict[str, NDArray[Any]]
    labels: NDArray[Any] | None
    groups: NDArray[Any] | None
    files: NDArray[Any] | None
    group_names: tuple[str, ...]


def read_spd(
    path: str | os.PathLike[str],
    *,
    matrices: str | None = None,
    labels: str | None = None,
    groups: str | None = None,
    limit: int = 2**32,
    regularize: str = "raise",
) -> SPDFile:
    """Read SPD matrices, and their labels if there are any, from a file.

    The formats are .npy, .npz, HDF5 and MATLAB's .mat, whether of level 5 (``save -v6``, ``-v7``)
    or 7.3; HDF5 and 7.3 need h5py. The content tells them apart, not the name of the file.

    Parameters
    ----------
    path : str or path-like
    matrices : str, optional
        Name of the array of matrices. By default it is the one with a usual name (matrices, X, x,
        data, covariances, covs, cov, spd, SPD, spds or features), else the only stack of square
        matrices in the file. If there are X_train and X_test (or train_X and test_X, and so on for
        all usual names), they are joined.
    labels : str, optional
        Name of the array of labels. By default it is the one with a usual name (labels, y, Y,
        label, target, targets, classes or gnd), or for joined matrices train_labels and
        test_labels, or y_train and y_test, and so on. Where there is none, there are no labels.
    groups : str, optional
        Name of the array of groups. For joined matrices "subject" also means subject_train and
        subject_test, or train_subject and test_subject. None are read by default; arrays with a
        usual name (groups, group, subjects, subject, sessions or session) are then listed in
        ``group_names``.
    limit : int, default=2**32
        Largest number of bytes that what is loaded may take in memory. It is compared with the
        headers before anything of that size is allocated. Checking and joining the matrices takes
        two to three times as much for a moment.
    regularize : {"raise", "shrink", "jitter", "clip"}, default="raise"
        What to do with matrices that are not positive definite: see `divlearn.spd.check_spd`.

    Returns
    -------
    SPDFile

    Raises
    ------
    ValueError
        If the file is damaged, is none of these formats or does not hold what it should, or a
        matrix is not SPD. The message starts with the name of the file.
    ImportError
        If the file needs h5py and h5py is not installed.
    OSError
        If the file cannot be opened.

    Notes
    -----
    Matrices may be stacked along the first axis or, as in MATLAB, along the last: the two equal
    axes are those of the matrices. If all three are equal, the order in which the matrices are
    symmetric is taken. Labels of shape (n, 1) or (1, n) are flattened, whole floats become
    integers, and bytes and MATLAB's char arrays and cells of text become str.

    Files are taken to be hostile. Nothing is unpickled, extracted or looked up in another file,
    and what a header claims is checked before it is believed. The headers of HDF5 files are parsed
    by the HDF5 library, which is known to crash on some: files with the structures that this
    happened with are refused, which are those of ``libver="latest"`` and of groups with many links.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "two_classes.npz"
    ...     np.savez(path, X=np.stack([np.eye(3), 2 * np.eye(3)]), y=[[1.0], [2.0]])
    ...     data = read_spd(path)
    >>> data.matrices.shape, data.labels
    ((2, 3, 3), array([1, 2]))
    """
    found, file_name = read_stacks(path, matrices, labels, groups, limit), Path(path).name
    checked = [
        check_spd(stack, regularize=regularize, ndim=3, name=f"{file_name}: {quote(name)}")
        for name, stack in found.parts.items()
    ]
    beside = (found.groups, found.files, found.group_names)
    if len(checked) == 1:
        return SPDFile(checked[0], found.labels, None, *beside)
    sizes = [len(stack) for stack in checked]
    train, test = np.split(np.arange(sum(sizes)), sizes[:1])
    return SPDFile(np.concatenate(checked), found.labels, (train, test), *beside)


def read_stacks(
    path: str | os.PathLike[str], matrices: str | None, labels: str | None,
    groups: str | None = None, limit: int = 2**32,
) -> Stacks:  # fmt: skip
    """Read what `read_spd` reads, but for the check whether the matrices are SPD.

    Parameters
    ----------
    path, matrices, labels, groups, limit : as in `read_spd`

    Returns
    -------
    Stacks
    """
    limit = check_count(limit, "limit", fix=", a number of bytes")
    path = Path(path).expanduser()
    with open_regular(path, path.name) as file, explaining(path.name, limit):
        size = os.fstat(file.fileno()).st_size
        with _opener(file, size)(file, size) as variables:
            choice = choose(variables, matrices, labels, groups)
            sizes = _check_choice(choice)
            beside = {name: one for name, one in choice.beside.items() if fits(one, sizes)}
            columns = [choice.labels, choice.groups, beside.pop(FILES, ())]
            _check_size([*choice.matrices, *chain(*columns)], limit)
            parts = {variable.name: _read_stack(variable, limit) for variable in choice.matrices}
            left = limit - sum(stack.nbytes for stack in parts.values())
            y, together, files = (read_column(column, left) for column in columns)
            return Stacks(parts, y, together, files, () if choice.groups else tuple(beside))


def _opener(file: BinaryIO, size: int) -> _Opener:
    """Tell the format from the first bytes."""
    start = file.read(128)
    file.seek(0)
    if start.startswith(NPY_MAGIC):
        return open_npy
    if start.startswith(ZIP_MAGICS):
        _refuse_models(file)
        return open_npz
    if is_matlab(start):
        return open_matlab
    if find_hdf5(file, size):
        return open_hdf5
    what = f"starts with {start[:8]!r}, as none of the known formats does" if start else "is empty"
    raise Refusal(
        f"it {what}; write it as .npz, .npy, HDF5 or, in MATLAB, with save -v7 or save -v7.3"
    )


def _refuse_models(file: BinaryIO) -> None:
    """Refuse what `divlearn.save` has written: its arrays may look like matrices."""
    with zipfile.ZipFile(file) as archive:
        if set(MODEL_MEMBERS) <= set(archive.namelist()):
            raise Refusal("it is a model or a checkpoint of divlearn, must be data; pass matrices")
    file.seek(0)


def _check_choice(choice: Choice) -> list[int]:
    """Refuse what need not be read to be refused; the number of matrices of each part."""
    for variable in (*choice.matrices, *choice.labels, *choice.groups):
        if variable.refusal:
            raise Refusal(f"{quote(variable.name)} {variable.refusal}")
    layouts = [_layout(variable) for variable in choice.matrices]
    sizes = [size for size, _ in layouts]
    if len({side for _, side in layouts}) > 1:
        raise Refusal(
            f"{' and '.join(map(str, choice.matrices))} differ in the size of their matrices; "
            "choose one with matrices="
        )
    check_column(choice.labels, sizes, "labels")
    check_column(choice.groups, sizes, "groups")
    return sizes


def _check_size(chosen: Sequence[Variable], limit: int) -> None:
    n_bytes = sum(variable.n_bytes for variable in chosen)
    if n_bytes > limit:
        raise Refusal(
            f"{' and '.join(map(str, chosen))} would take {n_bytes} bytes, more than limit={limit};"
            " raise limit= if you trust the file"
        )


def _layout(variable: Variable) -> tuple[int, int]:
    """Return the number of matrices and their side."""
    if variable.dtype.kind not in "biuf":
        raise Refusal(f"{variable} must hold real numbers; save the matrices as float64")
    match variable.shape:
        case (n, d, e) if d == e:
            return n, d
        case (d, e, n) if d == e:
            return n, d
    raise Refusal(
        f"{variable} is no stack of square matrices: it must have three axes of which the last or "
        "the first two are equal; save it with shape (n_matrices, d, d), also if there is but one"
    )


def _read_stack(variable: Variable, limit: int) -> NDArray[Any]:
    """Read matrices, and put the axis they are stacked along first."""
    stack = variable.read(limit)
    a, b, c = stack.shape
    if b != c:
        return np.moveaxis(stack, -1, 0)
    if a != b or _is_symmetric(stack):
        return stack
    # The array is a cube. If it is symmetric both ways, both ways give the same matrices.
    turned = np.moveaxis(stack, -1, 0)
    if _is_symmetric(turned):
        return turned
    raise Refusal(
        f"{variable} has three equal axes, and neither along the first nor along the last one are "
        "its matrices symmetric; symmetrize them, or save more or fewer than their side"
    )


def _is_symmetric(stack: NDArray[Any]) -> bool:
    """Whether the matrices are symmetric, up to the rounding that `check_spd` forgives."""
    relative = tolerances.asymmetry(np.float32 if stack.dtype.itemsize < 8 else np.float64)
    for matrix in stack:
        finite = np.where(np.isfinite(matrix), matrix, 0).astype(np.float64)
        if (np.abs(finite - finite.T) > relative * np.abs(finite).max()).any():
            return False
    return True
