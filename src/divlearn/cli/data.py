"""Data of a command: matrices, labels, and groups of matrices that belong together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from divlearn.arrays import Labels, RealArray
    from divlearn.cli.output import Named, Output
    from divlearn.datasets import Dataset

KEEP = "keep its groups together"  # in the same fold


def data_files(
    path: Path, labels: str | None, groups: str | None = None, channels: Path | None = None
) -> list[Named]:
    """Files that a command reads, by the argument that names them."""
    columns = [("--labels", as_column(labels)), ("--groups", as_column(groups))]
    files: list[Named] = [(option, file) for option, file in columns if isinstance(file, Path)]
    return [("DATA", path), *files, ("--channels", channels)]


def as_column(column: str | None) -> str | Path | None:
    """Return --labels or --groups as a path if it names a file, not an array of DATA."""
    from divlearn.files.columns import COLUMN_FILES

    return Path(column) if column and column.lower().endswith(COLUMN_FILES) else column


def read_data(
    out: Output,
    path: Path,
    matrices: str | None,
    labels: str | None,
    groups: str | None,
    regularize: str | float,
    purpose: str | None,
    covariances: BaseEstimator | None = None,
) -> Dataset:
    """Read matrices, or recordings that are turned into covariances."""
    # `labels` and `groups` name an array of DATA or another file. With a `purpose` for groups but
    # without groups, a message names the arrays that look like groups.
    from divlearn.datasets.loaders import from_file
    from divlearn.files import read_spd

    contents = read_spd(
        path,
        matrices=matrices,
        labels=as_column(labels),
        groups=as_column(groups),
        regularize="raise" if regularize == "raise" else None,  # the estimator regularizes
        square=covariances is None,
    )
    recordings = contents.matrices
    if covariances is not None:
        _check_recordings(recordings, path)
        contents = replace(contents, matrices=covariances.fit_transform(recordings))
    if purpose is not None:
        offer_groups(path, contents.group_names, purpose, out)
    out.dataset = from_file(contents, path.stem)
    if covariances is not None:
        out.dataset.series, out.dataset.descriptor = recordings, covariances
    return out.dataset


def read_channels(path: Path | None, d: int) -> Labels | None:
    """Read the names of the rows of matrices of size d."""
    from divlearn.files.columns import read_column_file

    if path is None:
        return None
    names = read_column_file(path, d, "channels", of="rows of a matrix").astype(str)
    repeated = [name for name, count in Counter(names.tolist()).items() if count > 1]
    if repeated:
        raise ValueError(f"{path.name} has the channel {repeated[0]} twice; give each its own name")
    return names


def _check_recordings(recordings: RealArray, path: Path) -> None:
    from divlearn.descriptors.series import Series
    from divlearn.spd import are_covariances

    if are_covariances(recordings):
        d = recordings.shape[-1]
        raise ValueError(
            f"{path.name} holds symmetric {d} x {d} matrices, as covariances are, must hold "
            "recordings, n_channels x n_times; leave out --covariances"
        )
    Series(recordings, min_times=2)


def offer_groups(path: Path, names: Sequence[str], purpose: str, out: Output) -> None:
    for name in names:
        out.say(f"{path.name} has an array `{name}`; pass --groups {name} to {purpose}.")


def keep_together(dataset: Dataset, groups: str | None, out: Output) -> Labels | None:
    """Return the groups to hold out together, --groups or else images, and print it."""
    import numpy as np

    if dataset.groups is None:
        return _group_by_image(dataset, out)
    n_groups = len(np.unique(dataset.groups))
    if n_groups < 2:
        raise ValueError(
            f"--groups {groups} has 1 group, must have >= 2 to hold one out; leave out --groups"
        )
    out.say(f"Folds keep the {n_groups} groups of '{groups}' together.")
    return dataset.groups


def say_folds(n_folds: int, cv: int, out: Output) -> None:
    """Say that there are fewer folds than asked for, unless an interrupt is the reason."""
    if n_folds < cv and not out.interrupted:
        out.say(
            f"{n_folds} folds, fewer than --cv {cv}: there are no more groups, or matrices in the "
            "largest class."
        )


def require_labels(dataset: Dataset, path: Path) -> Dataset:
    if dataset.labels is None:
        raise ValueError(f"{path.name} has no labels; name their array or file with --labels")
    return require_classes(dataset, path)


def require_classes(dataset: Dataset, path: Path) -> Dataset:
    """Refuse labels that are all the same."""
    if dataset.labels is not None and len(set(dataset.labels.tolist())) == 1:
        raise ValueError(
            f"all labels of {path.name} are {dataset.labels[0]}, must be of >= 2 classes; add "
            "matrices of others, or name another array or file with --labels"
        )
    return dataset


def _group_by_image(dataset: Dataset, out: Output) -> Labels | None:
    import numpy as np

    from divlearn.fitting.folds import count_groups

    if dataset.files is None:
        return None
    images, groups = np.unique(dataset.files, return_inverse=True)
    if len(images) == len(groups):
        return None
    classes, codes = np.unique(dataset.labels, return_inverse=True)
    n_images = count_groups(codes, groups)
    if n_images.min() < 2:  # if held out together, no matrix of the class is left for training
        out.say(
            f"Class {classes[n_images.argmin()]!s} has one image only, so matrices of one image "
            "are not kept together; accuracy on new images will be lower than reported here."
        )
        return None
    out.say("Several matrices are of one image: they are held out together.")
    return groups
