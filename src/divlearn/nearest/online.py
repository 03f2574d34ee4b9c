"""Running means: means of SPD matrices that arrive one after the other, with forgetting."""

from collections.abc import Sequence

import numpy as np

from divlearn.arrays import Indices, Labels, RealArray
from divlearn.checks import is_number
from divlearn.divergence import Divergence
from divlearn.engines import Engine
from divlearn.nearest.class_means import find_means


def check_forgetting(forgetting: object) -> float:
    """Return the share of all weights that every new matrix removes."""
    if not is_number(forgetting) or not 0 <= forgetting < 1:
        raise ValueError(
            f"forgetting={forgetting!r} must be a number >= 0 and < 1; 0 forgets nothing, 0.05 "
            "remembers about 20 matrices"
        )
    return float(forgetting)


def find_codes(labels: Labels, classes: Labels) -> Indices:
    """Return indices of labels among the classes of a fitted model."""
    unknown = labels[~np.isin(labels, classes)]
    if len(unknown):
        raise ValueError(
            f"class {unknown[0]!s} must be one of those of the first fit, {classes.tolist()}; name "
            "all in classes of the first call"
        )
    return np.searchsorted(classes, labels)


def fade(totals: RealArray, codes: Indices, forgetting: float) -> tuple[RealArray, RealArray]:
    """Weights of what each code had before, and of new matrices: one for the latest of a code."""
    seen, later = np.zeros(len(totals)), np.empty(len(codes))
    for row in range(len(codes) - 1, -1, -1):
        later[row] = seen[codes[row]]
        seen[codes[row]] += 1
    return totals * (1 - forgetting) ** seen, (1 - forgetting) ** later


def continue_means(
    before: tuple[RealArray, RealArray],
    new: tuple[RealArray, RealArray, Indices],
    divergence: Divergence,
    engine: Engine,
    names: Sequence[str],
) -> tuple[RealArray, RealArray]:
    """Move means, of which each has a weight, to new matrices with weights and codes.

    The result is the mean of the old mean and the new matrices, and the sum of their weights. If
    means are averages of vectors, it is the mean of all matrices so far; in AIRM a single matrix
    moves the mean along the geodesic. A mean of weight zero is none yet.
    """
    (means, totals), (matrices, weights, codes) = before, new
    means = means.copy()
    for code in np.unique(codes):  # the others stay as they are, to the last bit
        rows = np.flatnonzero(codes == code)
        old = [code] if totals[code] > 0 else []
        means[code] = find_means(
            np.concatenate([means[old], matrices[rows]]),
            np.zeros(len(old) + len(rows), np.intp),
            np.append(totals[old], weights[rows]),
            divergence,
            engine,
            [names[code]],
            means[old] if old else None,
        )[0]
    return means, totals + np.bincount(codes, weights, len(totals))
