"""Running means: means of SPD matrices that arrive one after the other, with forgetting."""

from collections.abc import Sequence

import numpy as np

from divlearn.arrays import Indices, RealArray
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


def continue_means(
    means: RealArray,
    totals: RealArray,
    matrices: RealArray,
    codes: Indices,
    divergence: Divergence,
    engine: Engine,
    names: Sequence[str],
    forgetting: float,
) -> tuple[RealArray, RealArray]:
    """Move the mean of each code to its new matrices, and return also the new total weights.

    The new mean is that of the old one, with its total weight, and of the matrices, the latest
    with weight one. This is the mean of all matrices if means are averages of vectors, and a
    point of the geodesic if one matrix follows another in AIRM.
    """
    means, totals = means.copy(), totals.astype(float)
    for code in np.unique(codes):
        rows = np.flatnonzero(codes == code)
        fading = (1 - forgetting) ** np.arange(len(rows), -1.0, -1.0)
        weights = np.append(totals[code] * fading[0], fading[1:])
        start = means[code][None]
        everything = np.concatenate([start, matrices[rows]])
        same = np.zeros(len(everything), np.intp)
        means[code] = find_means(
            everything, same, weights, divergence, engine, [names[code]], start
        )[0]
        totals[code] = weights.sum()
    return means, totals
