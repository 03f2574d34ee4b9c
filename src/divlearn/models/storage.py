"""Saving and loading: one zip of .npy arrays and a page of JSON.

Members are ``model.json``, ``checksum`` (of that page) and ``0.npy``, ``1.npy``, ... The page has
the version of the format, those of the libraries, the tree of the model and a SHA-256 of every
array. Nothing is compressed, so that sizes are what they claim.
"""

import hashlib
import importlib.metadata
import json
import os
import sys
import warnings
import zipfile
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from divlearn.atomic import open_atomic
from divlearn.files.numpy_files import NPY_MAGIC, ZIP_MAGICS, open_npz
from divlearn.files.stacks import MODEL_MEMBERS
from divlearn.files.variables import Refusal, explaining, open_regular
from divlearn.models.tree import Unknown, flatten, restore

MODEL = "model"
VERSION = 2  # of the format: of files, not of the library
_PAGE, _CHECKSUM = MODEL_MEMBERS
_LONGEST_PAGE = 2**26
_LIBRARIES = ("divlearn", "numpy", "scikit-learn")


def save(model: BaseEstimator, path: str | os.PathLike[str]) -> None:
    """Save an estimator, fitted or not, in one file.

    Parameters
    ----------
    model : estimator
        Of divlearn, or a scikit-learn Pipeline of such; see Notes.
    path : str or path-like
        What is there is replaced once the new file is complete: an error, a full disk or a kill
        leaves the old one whole.

    See Also
    --------
    load : the inverse.

    Notes
    -----
    Files hold numbers and text, and names of classes that divlearn knows: its estimators, the
    scikit-learn estimators inside them, pipelines, scalers and splitters. What else a parameter may
    be, such as a function, is refused. Unlike a pickle a file cannot run anything, and later
    versions read it too, except that 0.2 does not read files of 0.1.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from divlearn import ABKMeans
    >>> with TemporaryDirectory() as folder:
    ...     save(ABKMeans(3, "stein"), Path(folder) / "model.divlearn")
    ...     print(load(Path(folder) / "model.divlearn"))
    ABKMeans(divergence='stein', n_clusters=3)
    """
    if not isinstance(model, BaseEstimator):
        raise TypeError(
            f"model is {type(model).__name__}, must be an estimator; pass what was fitted"
        )
    try:
        write_object(model, Path(path), MODEL)
    except Unknown as error:
        raise TypeError(f"{type(model).__name__} cannot be saved: {error}") from None


def load(path: str | os.PathLike[str], *, limit: int = 2**32) -> Any:
    """Load an estimator from a file that `save` has written.

    Parameters
    ----------
    path : str or path-like
    limit : int, default=2**32
        Largest number of bytes that its arrays may take in memory.

    Returns
    -------
    estimator

    Raises
    ------
    ValueError
        If the file is truncated, damaged, of version 0.1 or a later one, or none of ours.
    OSError
        If it cannot be read at all.

    See Also
    --------
    save : the inverse, with an example.
    """
    model, then = read_object(Path(path), MODEL, BaseEstimator, limit)
    _compare_libraries(Path(path), then)
    return model


def write_object(value: Any, path: Path, kind: str) -> None:
    """Write a file of some kind; `divlearn.models.tree.Unknown` tells what has no place in it."""
    tree, arrays = flatten(value)
    stored = [np.ascontiguousarray(array).reshape(array.shape) for array in arrays]
    content = {
        "format": f"divlearn {kind}", "version": VERSION, "libraries": libraries(),
        "arrays": [_digest(array) for array in stored], "model": tree,
    }  # fmt: skip
    page = json.dumps(content, indent=1).encode()
    with open_atomic(path) as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr(_PAGE, page)
        archive.writestr(_CHECKSUM, hashlib.sha256(page).hexdigest())
        for number, array in enumerate(stored):
            with archive.open(f"{number}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def read_object(
    path: Path, kind: str, wanted: type[Any], limit: int = sys.maxsize
) -> tuple[Any, dict[str, str]]:
    """Read a file of some kind: what it holds, and the versions of the libraries that wrote it."""
    with open_regular(path, str(path)) as file:
        size = os.fstat(file.fileno()).st_size
        with explaining(str(path), limit):
            start = file.read(8)
            if not start.startswith(ZIP_MAGICS):
                raise Refusal(_foreign(kind, holds_arrays=start.startswith(NPY_MAGIC)))
            file.seek(0)
            page = _read_page(file, kind)
            arrays = _read_arrays(file, size, page["arrays"], limit)
            try:
                value = restore(page["model"], arrays)
            except Unknown as error:
                raise Refusal(f"{error}; it is damaged, or of a later version") from error
            if not isinstance(value, wanted):
                name = "an estimator" if wanted is BaseEstimator else wanted.__name__
                raise Refusal(f"it holds {type(value).__name__}, must hold {name}")
            return value, page["libraries"]


@cache  # a checkpoint is written many times, and versions are read from files
def libraries() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in _LIBRARIES}


def fingerprint(value: Any) -> str:
    """SHA-256 of all that a file would hold of a value."""
    tree, arrays = flatten(value)
    page = json.dumps([tree, [_digest(array) for array in arrays]])
    return hashlib.sha256(page.encode()).hexdigest()


def _digest(array: NDArray[Any]) -> str:
    """SHA-256 of type, shape and entries."""
    found = hashlib.sha256(f"{array.dtype.str} {array.shape}".encode())
    found.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return found.hexdigest()


def _foreign(kind: str, *, holds_arrays: bool = False) -> str:
    source = "save() has" if kind == MODEL else "a fit inside resumable() has"
    what = "it holds arrays, as data does, and is not" if holds_arrays else "it is not"
    return f"{what} a {kind} of divlearn; pass a file that {source} written"


def _read_page(file: BinaryIO, kind: str) -> dict[str, Any]:
    """Read the page of JSON, checked for being ours, whole, and of a version that can be read."""
    with zipfile.ZipFile(file) as archive:
        members = {info.filename: info for info in archive.infolist()}
        if len(members) < len(archive.infolist()):
            raise Refusal("it has two members of one name; it is damaged, write it again")
        if _PAGE not in members or _CHECKSUM not in members:
            arrays = any(name.endswith(".npy") for name in members)
            raise Refusal(_foreign(kind, holds_arrays=arrays))
        text, checksum = (_read_member(archive, members[name]) for name in (_PAGE, _CHECKSUM))
    if hashlib.sha256(text).hexdigest().encode() != checksum:
        raise Refusal("its checksum is wrong: it was damaged or changed; write it again")
    page = json.loads(text)
    if not isinstance(page, dict) or page.get("format") != f"divlearn {kind}":
        raise Refusal(_foreign(kind))
    if page["version"] == 1:
        raise Refusal(
            "it was saved by divlearn 0.1, whose format 0.2 does not read; fit the model again, or "
            "install divlearn<0.2"
        )
    if page["version"] != VERSION:
        raise Refusal(
            f"its format has the version {page['version']!r:.20}, must be {VERSION}; install a "
            "later divlearn"
        )
    return page


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    if info.compress_type != zipfile.ZIP_STORED or info.file_size > _LONGEST_PAGE:
        raise Refusal(
            f"{info.filename} is compressed or has {info.file_size} bytes, must be stored and have "
            f"<= {_LONGEST_PAGE}; write it again"
        )
    return archive.read(info)


def _read_arrays(file: BinaryIO, size: int, digests: list[str], limit: int) -> list[NDArray[Any]]:
    with open_npz(file, size) as variables:
        by_name = {variable.name: variable for variable in variables}
        total = sum(variable.n_bytes for variable in variables)
        if total > limit:
            raise Refusal(f"its arrays take {total} bytes, must be <= {limit}; raise limit")
        arrays = []
        for number, digest in enumerate(digests):
            variable = by_name.get(str(number))
            if variable is None or variable.refusal:
                raise Refusal(f"the array {number} is missing or damaged; write it again")
            arrays.append(variable.read(limit))
            if _digest(arrays[-1]) != digest:
                raise Refusal(f"the checksum of array {number} is wrong; write it again")
    return arrays


def _compare_libraries(path: Path, libraries: dict[str, str]) -> None:
    """Warn where the parts that scikit-learn made may not suit the one that is installed."""
    then, now = libraries["scikit-learn"], importlib.metadata.version("scikit-learn")
    if then.split(".")[:2] != now.split(".")[:2]:
        warnings.warn(
            f"{path} was saved with scikit-learn {then}, and {now} is installed: parts of the "
            "model that are scikit-learn's may behave otherwise; fit again if in doubt",
            UserWarning,
            stacklevel=3,
        )
