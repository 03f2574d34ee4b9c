"""What stands beside a fitted classifier: baselines on the same matrices, and the whole plane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from divlearn.arrays import RealArray
from divlearn.evaluation import HeldOut, default_classifiers, evaluate
from divlearn.folds import count_groups
from divlearn.maps import PlaneMap, plane_map
from divlearn.report.plane_section import PlaneSection
from divlearn.report.tables import DisagreementSection

__all__ = ["disagreement_section", "map_training_data", "plane_section"]

_BASELINES = ("1-NN, AIRM", "linear SVM, log-Euclidean")
_MOST_COMPARED = 3000  # matrices that baselines are fitted to; pairs of more take minutes
_MOST_MAPPED = 1000  # matrices, of which every pair is looked at
_FOLDS = 4


def disagreement_section(
    name: str, held_out: HeldOut, classes: NDArray[Any], X: RealArray, y: NDArray[Any],
    groups: NDArray[Any] | None = None,
) -> DisagreementSection | None:  # fmt: skip
    """Where a model and the usual baselines disagree on matrices that neither has seen.

    Parameters
    ----------
    name : str, of the model.
    held_out : HeldOut, what it predicted.
    classes : ndarray, shape (n_classes,)
    X : ndarray, shape (n_matrices, d, d)
    y : ndarray, shape (n_matrices,)
    groups : ndarray, shape (n_matrices,), optional
        What was kept together when matrices were held out.

    Returns
    -------
    DisagreementSection, or None where classes are too small to hold out anything, or the matrices
        too many.
    """
    smallest = int(count_groups(np.searchsorted(classes, y), groups).min())
    if smallest < 2 or len(X) > _MOST_COMPARED:
        return None
    known = default_classifiers()
    baselines = {one: known[one] for one in _BASELINES}
    found = evaluate(X, y, baselines, cv=_FOLDS, groups=groups)
    rows = held_out.rows[np.isin(held_out.rows, found.rows)]  # fewer after an interrupt
    places = np.searchsorted(found.rows, rows)
    said = {name: held_out.predicted[np.searchsorted(held_out.rows, rows)]} | {
        one: codes[places] for one, codes in found.predictions.items()
    }
    return DisagreementSection.of(
        "Where the model and baselines disagree", y[rows].tolist(),
        {one: classes[codes].tolist() for one, codes in said.items()}, names=rows.tolist(),
    )  # fmt: skip


def map_training_data(
    X: RealArray, y: NDArray[Any], groups: NDArray[Any] | None = None
) -> PlaneMap | None:
    """Map the plane for the matrices of a model, or for some of them where there are many.

    Parameters
    ----------
    X : ndarray, shape (n_matrices, d, d)
    y : ndarray, shape (n_matrices,)
    groups : ndarray, shape (n_matrices,), optional
        Matrices of one group are no neighbours of each other.

    Returns
    -------
    PlaneMap, or None where there are no two classes of two matrices, or groups.

    Examples
    --------
    >>> X = np.array([[[scale, 0.0], [0, shape]] for shape in (1, 9) for scale in (1, 2)])
    >>> map_training_data(X, np.array([0, 0, 1, 1])).accuracy.shape
    (17, 17)
    """
    order = np.random.RandomState(0).permutation(len(X))[:_MOST_MAPPED]
    codes = np.unique(y[order], return_inverse=True)[1]
    counts = count_groups(codes, None if groups is None else groups[order])
    rows = np.sort(order[counts[codes] > 1])
    if np.count_nonzero(counts > 1) < 2:
        return None
    return plane_map(X[rows], y[rows], groups=None if groups is None else groups[rows])


def plane_section(
    plane: PlaneMap | None, learned: Sequence[tuple[float, float, str]], note: str,
    mark: str = "learned",
) -> PlaneSection:  # fmt: skip
    """Learned divergences on a map of the plane, where there is one.

    Parameters
    ----------
    plane : PlaneMap or None
    learned : sequence of (alpha, beta, text)
    note : str
        What the learned points are.
    mark : str
        What they are called.
    """
    if plane is None:
        return PlaneSection("Learned divergences", learned=learned, mark=mark, note=note)
    return PlaneSection(
        "Map of the plane", plane.alphas, plane.betas, plane.accuracy, "accuracy",
        learned=learned, mark=mark,
        note=f"Every cell is a divergence, by its parameters alpha and beta: how often the nearest "
        f"other matrix by it is of the same class, for {plane.n_matrices} of the matrices. "
        f"Brighter is better. {note}",
    )  # fmt: skip
