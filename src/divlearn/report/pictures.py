"""Pictures of results, with matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from divlearn.arrays import RealArray
from divlearn.report.atoms import correlations
from divlearn.report.axes import make_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from divlearn.datasets import Dataset
    from divlearn.doctor import Diagnosis
    from divlearn.evaluation import Evaluation

__all__ = ["plot_classes", "plot_conditions", "plot_evaluation", "plot_matrix"]

_COLOUR, _BEST = "#4c78a8", "#d55e00"
_MOST_CLASSES = 40  # whose names can be read


def plot_evaluation(found: Evaluation, ax: Axes | None = None) -> Axes:
    """Accuracies of classifiers with their standard errors, the best on top."""
    rows = found.table()
    ax = make_axes(ax, (7.0, 1.2 + 0.4 * len(rows)))
    for place, row in enumerate(rows):
        ax.errorbar(
            100 * row.accuracy, place, xerr=100 * row.standard_error, fmt="o", capsize=4,
            color=_COLOUR if place else _BEST,
        )  # fmt: skip
    ax.set_yticks(range(len(rows)), [row.name for row in rows])
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlabel("accuracy in %, with its standard error")
    ax.set_title(f"{len(found.codes)} matrices, {found.n_folds} folds")
    ax.grid(axis="x", alpha=0.3)
    return ax


def plot_conditions(found: Diagnosis, ax: Axes | None = None) -> Axes:
    """Histogram of the condition numbers of the matrices that are positive definite."""
    ax = make_axes(ax, (6.0, 4.0))
    known = found.condition[np.isfinite(found.condition)]
    ax.hist(np.log10(known), bins="auto", color=_COLOUR)
    ax.set_xlabel("logarithm of the condition number, to base 10")
    ax.set_ylabel("matrices")
    ax.set_title(f"{len(known)} of {found.n_matrices} matrices are positive definite")
    return ax


def plot_matrix(matrix: RealArray, title: str, ax: Axes | None = None) -> Axes:
    """Correlations of an SPD matrix."""
    ax = make_axes(ax, (5.0, 4.2))
    image = ax.imshow(correlations(matrix), cmap="RdBu_r", vmin=-1, vmax=1)
    ax.figure.colorbar(image, ax=ax, label="correlation")
    ax.set_title(title)
    return ax


def plot_classes(data: Dataset, ax: Axes | None = None) -> Axes:
    """Sizes of the classes; of all matrices where there are no labels."""
    if data.labels is None:
        names, counts = np.array(["no labels"]), np.array([len(data.matrices)])
    else:
        names, counts = np.unique(data.labels, return_counts=True)
    ax = make_axes(ax, (7.0, min(1.5 + 0.3 * len(names), 10.0)))
    ax.barh(np.arange(len(names)), counts, color=_COLOUR)
    if len(names) <= _MOST_CLASSES:
        ax.set_yticks(range(len(names)), [str(name) for name in names])
    ax.invert_yaxis()
    ax.set_xlabel("matrices")
    ax.set_title(data.name)
    return ax
