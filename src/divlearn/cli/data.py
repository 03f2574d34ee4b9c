"""Data of a command: read, checked, and known by a digest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from divlearn.cli.output import Output
    from divlearn.datasets import Dataset

__all__ = ["FILES", "read_data", "read_groups", "read_names", "require_labels"]

FILES = "files"  # array of the names of files that matrices were made from


def read_data(path: Path, matrices: str | None, labels: str | None, repair: str) -> Dataset:
    """Read matrices and labels from a file; messages name the options of the program."""
    from divlearn.datasets import load_spd

    try:
        return load_spd(path, matrices=matrices, labels=labels, regularize=repair)
    except ValueError as error:
        text = str(error)
        for keyword, option in (
            ('pass regularize="shrink", "jitter" or "clip" to repair it', "pass --repair shrink"),
            ("matrices=", "--matrices "), ("labels=", "--labels "), ("regularize=", "--repair "),
        ):  # fmt: skip
            text = text.replace(keyword, option)
        raise ValueError(text) from error


def read_names(path: Path, matrices: str | None, n_matrices: int) -> list[str]:
    """Names of matrices: of the files they were made from, where that is known, or numbers."""
    from divlearn.datasets.files.stacks import read_stacks

    try:
        names = read_stacks(path, matrices, FILES).labels
    except ValueError:  # there is no such array
        names = None
    return [str(i) for i in range(n_matrices)] if names is None else [str(one) for one in names]


def read_groups(
    path: Path, matrices: str | None, labels: NDArray[Any], out: Output
) -> NDArray[np.intp] | None:
    """Images that matrices are of, as numbers, where they must be kept together; says so."""
    import numpy as np

    from divlearn.labelled import count_groups

    images, groups = np.unique(read_names(path, matrices, len(labels)), return_inverse=True)
    if len(images) == len(labels):
        return None
    classes, codes = np.unique(labels, return_inverse=True)
    n_images = count_groups(codes, groups)
    if n_images.min() < 2:  # held out together, they would leave nothing to learn the class from
        out.say(
            f"Class {classes[n_images.argmin()]!s} has one image only: matrices of one image are "
            "not kept together, and new images will be harder than what is told here."
        )
        return None
    out.say("Several matrices are of one image: they come into the same fold.")
    return groups


def require_labels(dataset: Dataset, path: Path) -> Dataset:
    """Refuse data without labels."""
    if dataset.labels is None:
        raise ValueError(
            f"{path.name} has no labels, must have them here; name their array with --labels NAME"
        )
    return dataset
