"""Saving and loading: one zip of .npy arrays and a page of JSON.

Members are ``model.json`` and ``0.npy``, ``1.npy``, ... The page has the version of the format,
those of the libraries, the tree of the model, and a digest of the tree and all arrays. Nothing is
compressed, so that sizes in headers are those in memory. The archive has checksums of its members.

Transformers of recordings, shape (n_channels, n_times), accept square matrices without an error.
`Recordings` is put in front of pipelines that begin with one, and refuses covariances.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import warnings
import zipfile
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar

import numpy as np
import sklearn
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.pipeline import Pipeline

from divlearn import __version__
from divlearn.arrays import array_or_list
from divlearn.atomic import open_atomic
from divlearn.files.stacks import MODEL_PAGE
from divlearn.files.variables import (
    NPY_MAGIC,
    ZIP_MAGICS,
    Damage,
    Refusal,
    check_limit,
    explaining,
    open_npz,
    open_regular,
    quote,
)
from divlearn.models.tree import Node, TreeReader, TreeWriter, Unknown
from divlearn.models.trust import CHANGED
from divlearn.spd import are_covariances

MODEL = "model"
VERSION = 4  # of the format of files, not of the library
_MAX_PAGE_BYTES = 2**26


def save(model: BaseEstimator, path: str | os.PathLike[str], X: ArrayLike | None = None) -> None:
    """Save an estimator, fitted or not, in one file.

    Parameters
    ----------
    model : estimator
        Of divlearn, scikit-learn or pyRiemann, such as a Pipeline or a fitted GridSearchCV.
    path : str or path-like
        An existing file is replaced once the new file is complete: an error, a full disk or a kill
        leaves the old file intact.
    X : array-like, optional
        Some of the samples that a pipeline was fitted to; see Notes.

    Notes
    -----
    Files contain numbers, text, and names of classes and functions. Unlike a pickle, a file cannot
    run code when it is loaded. `load` trusts estimators and splitters of divlearn, scikit-learn and
    pyRiemann, ufuncs, and functions of a few of their modules; name others in its ``trusted``.
    `save` refuses lambdas, classes inside functions, and k-d trees.

    Transformers of recordings, shape (n_channels, n_times), also accept covariances, and
    predictions are then wrong. A fitted pipeline whose first step is such a transformer of
    pyRiemann, or of another package if X are recordings, is saved with another step in front,
    "recordings". It refuses covariances, and with X it names the shape of the recordings.
    Descriptors of divlearn refuse covariances themselves.

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
        write_object(guarded(model, X), Path(path), MODEL)
    except Unknown as error:
        raise TypeError(f"{type(model).__name__} cannot be saved: {error}") from None


def load(path: str | os.PathLike[str], *, trusted: Collection[str] = (), limit: int = 2**32) -> Any:
    """Load an estimator from a file that `save` has written.

    Parameters
    ----------
    path : str or path-like
    trusted : list of str, default=()
        Names of other classes and functions that the file may contain, such as
        ``["package.module.Class"]``. Their modules are imported; classes are not called. Models
        with decision trees need ``["sklearn.tree._tree.Tree"]``: a forged tree crashes Python.
    limit : int, default=2**32
        Largest size in memory of all arrays of the file, in bytes.

    Returns
    -------
    estimator

    Raises
    ------
    ValueError
        If the file is truncated, damaged, of another version of the format, or not a model file, or
        if it contains names that are not trusted.
    OSError
        If the file cannot be read.
    """
    if isinstance(trusted, str):
        raise TypeError(f"trusted={trusted!r} must be a list of names; pass [{trusted!r}]")
    model, versions = read_object(Path(path), MODEL, BaseEstimator, limit, trusted)
    saved, installed = versions["scikit-learn"], sklearn.__version__
    if saved.split(".")[:2] != installed.split(".")[:2]:
        message = (
            f"{path} was saved with scikit-learn {saved}, and {installed} is installed: estimators "
            "of scikit-learn in it may behave differently; fit again if in doubt"
        )
        warnings.warn(message, UserWarning, stacklevel=2)
    return model


def write_object(value: object, path: Path, kind: str) -> None:
    """Write a value to a file, a "model" or a "checkpoint"; raise `Unknown` if it cannot be."""
    writer = TreeWriter(strict=kind != MODEL)
    tree = writer.write(value)
    content = {
        "format": f"divlearn {kind}",
        "version": VERSION,
        "libraries": libraries(),
        "digest": _digest(tree, writer.arrays),
        "model": tree,
    }
    page = json.dumps(content, indent=1).encode()
    with open_atomic(path) as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr(MODEL_PAGE, page)
        for name, array in writer.arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def read_object(
    path: Path,
    kind: str,
    expected: type,
    limit: int = sys.maxsize,
    trusted: Collection[str] = (),
) -> tuple[Any, dict[str, str]]:
    """Read a value of an expected type, and the versions of the libraries that wrote the file."""
    with open_regular(path, str(path)) as file:
        size = os.fstat(file.fileno()).st_size
        with explaining(str(path), limit):
            start = file.read(8)
            if not start.startswith(ZIP_MAGICS):
                raise Refusal(_foreign(kind, holds_arrays=start.startswith(NPY_MAGIC)))
            file.seek(0)
            page = _read_page(file, kind)
            arrays = _read_arrays(file, size, limit)
            value = _read_tree(page, arrays, trusted, finished=kind == MODEL)
            if not isinstance(value, expected):
                name = "an estimator" if expected is BaseEstimator else expected.__name__
                raise Refusal(f"it holds {type(value).__name__}, must hold {name}")
            # Files of version 0.2 have no digest.
            if page.get("digest", "") not in ("", _digest(page["model"], arrays)):
                raise Refusal("it was changed since it was written; copy or write it again")
            return value, page["libraries"]


def _read_tree(
    page: dict[str, Any], arrays: dict[str, np.ndarray], trusted: Collection[str], finished: bool
) -> object:
    """Make the objects of a file; one of version 0.2 may contain classes that have changed."""
    if page["version"] == VERSION:
        return TreeReader(arrays, trusted, finished).read(page["model"])
    try:
        return TreeReader(arrays, trusted, finished, CHANGED).read(page["model"])
    except Damage as error:
        version = format(page["libraries"]["divlearn"], ".20")
        raise Refusal(
            f"divlearn {version} wrote it, and {error.args[0]}; fit the model again, or use "
            f"divlearn {version} for it"
        ) from error


def libraries() -> dict[str, str]:
    """Return the versions of the libraries, as their modules state them."""
    return {"divlearn": __version__, "numpy": np.__version__, "scikit-learn": sklearn.__version__}


def fingerprint(value: object) -> str:
    """SHA-256 of the contents of the file that `write_object` would write."""
    writer = TreeWriter(strict=True)
    return _digest(writer.write(value), writer.arrays)


def _digest(tree: Node, arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of a tree and its arrays; checksums of archives do not detect exchanged members."""
    digest = hashlib.sha256(json.dumps(tree).encode())
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _foreign(kind: str, *, holds_arrays: bool = False) -> str:
    """Message about a file that divlearn has not written."""
    source = "divlearn.save has" if kind == MODEL else "a fit inside resumable() has"
    reason = "it holds arrays, as data does, and is not" if holds_arrays else "it is not"
    return f"{reason} a {kind} of divlearn; pass a file that {source} written"


def _read_page(file: BinaryIO, kind: str) -> dict[str, Node]:
    """Read the page of JSON; check its kind and its version."""
    with zipfile.ZipFile(file) as archive:
        members = {info.filename: info for info in archive.infolist()}
        if len(members) < len(archive.infolist()):
            raise Refusal("it has two members of the same name; it is damaged, write it again")
        if MODEL_PAGE not in members:
            holds_arrays = any(name.endswith(".npy") for name in members)
            raise Refusal(_foreign(kind, holds_arrays=holds_arrays))
        info = members[MODEL_PAGE]
        if info.compress_type != zipfile.ZIP_STORED or info.file_size > _MAX_PAGE_BYTES:
            raise Refusal(
                f"{MODEL_PAGE} is compressed or has {info.file_size} bytes, must be stored and "
                f"have <= {_MAX_PAGE_BYTES}; write it again"
            )
        text = archive.read(info)
    page = json.loads(text)
    if not isinstance(page, dict) or page.get("format") != f"divlearn {kind}":
        raise Refusal(_foreign(kind))
    if page["version"] not in (3, VERSION):  # version 4 adds to version 3, and changes nothing
        fix = "fit the model again" if page["version"] in (1, 2) else "install a later divlearn"
        raise Refusal(
            f"its format has the version {page['version']!r:.20}, must be 3 or {VERSION}; {fix}"
        )
    return page


def _read_arrays(file: BinaryIO, size: int, limit: int) -> dict[str, np.ndarray]:
    with open_npz(file, size) as variables:
        check_limit(sum(variable.n_bytes for variable in variables), limit, "its arrays")
        for variable in variables:
            if variable.refusal:
                raise Refusal(f"the array {quote(variable.name)} {variable.refusal}")
        return {variable.name: variable.read(limit) for variable in variables}


_T = TypeVar("_T")
# Classes of `pyriemann.estimation` that take matrices; the others take recordings.
_TAKE_MATRICES = {"Shrinkage"}


class Recordings(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Return recordings unchanged, and refuse covariances.

    Attributes
    ----------
    shape_ : tuple of int or None, shape of a recording in `fit`, None if it is unknown.
    """

    shape_: tuple[int, ...] | None = None

    def fit(self, X: Sequence[ArrayLike], y: object = None) -> Self:
        """Store the shape of the first recording."""
        self.shape_ = np.shape(X[0])
        return self

    def transform(self, X: _T) -> _T:
        """Return X; raise an error if X are covariances."""
        samples = array_or_list(X)
        if isinstance(samples, np.ndarray) and are_covariances(samples):
            d = samples.shape[-1]
            shape = "" if self.shape_ is None else f" of shape {self.shape_}"
            raise ValueError(
                f"X holds symmetric {d} x {d} matrices, as covariances are, but the model was "
                f"fitted to recordings{shape}, n_channels x n_times; pass recordings, or fit a "
                "model to covariances"
            )
        return X

    def set_output(self, *, transform: str | None = None) -> Self:
        """Do nothing, because recordings are returned unchanged."""
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True


def guarded(model: BaseEstimator, X: Any = None) -> BaseEstimator:
    """Put `Recordings` in front of a fitted pipeline of recordings, if its first step needs it."""
    # X are some of the samples it was fitted to; without X, the class of the first step decides.
    if hasattr(model, "best_estimator_"):
        search = copy(model)
        search.best_estimator_ = guarded(model.best_estimator_, X)
        return search
    if not (isinstance(model, Pipeline) and model.__sklearn_is_fitted__()):
        return model
    first = model
    while isinstance(first, Pipeline):
        first = first.steps[0][1]
    if type(first).__module__.startswith("divlearn."):  # it refuses covariances itself
        return model
    if not _takes_recordings(first, X):
        return model
    pipeline, guard = copy(model), Recordings()
    pipeline.steps = [("recordings", guard if X is None else guard.fit(X)), *model.steps]
    return pipeline


def _takes_recordings(step: object, X: Any) -> bool:
    if X is not None:
        sample = np.asarray(X[0])
        return sample.ndim == 2 and not are_covariances(sample[None])
    modules = {cls.__module__ for cls in type(step).__mro__}
    return "pyriemann.estimation" in modules and type(step).__name__ not in _TAKE_MATRICES
