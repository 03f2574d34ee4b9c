"""Weights of members of a committee, by the likelihood of held-out labels."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import softmax

from divlearn.arrays import Indices, RealArray

_PULL = 50.0  # of weights towards equal ones, in units of independent held-out samples
_FLOOR = 1e-3  # of probabilities: nobody is that sure


def floored(probabilities: RealArray) -> RealArray:
    """Mix probabilities with a little of every class, so that no logarithm is infinite."""
    return (1 - _FLOOR) * probabilities + _FLOOR / probabilities.shape[-1]


def count_samples(weights: RealArray, units: Indices) -> RealArray:
    """Count held-out matrices in the likelihood, of groups that are numbered by `units`."""
    # The matrices of a group are neither copies of each other nor independent. They count as much
    # as the geometric mean of their number and that of groups.
    return weights / weights.sum() * np.sqrt(len(units) * (units.max() + 1))


def fit_weights(probabilities: RealArray, codes: Indices, counts: RealArray) -> RealArray:
    r"""Weights of members that maximise the likelihood of held-out labels.

    .. math:: \min_w \; -\sum_i c_i \log \sum_m w_m p_m(y_i \,|\, X_i)
              - 50 \cdot \frac1M \sum_m \log w_m , \qquad w \ge 0, \; \sum_m w_m = 1

    The second term holds the weights together where the data does not tell members apart: folds
    that all members classify without an error leave equal weights.
    """
    true = floored(probabilities)[:, np.arange(len(codes)), codes]
    n_members = len(true)

    def objective(z: RealArray) -> tuple[float, RealArray]:
        w = softmax(z)
        mixture = w @ true
        value = -float(counts @ np.log(mixture)) - _PULL * float(np.log(w).mean())
        slope = -(true @ (counts / mixture)) - _PULL / n_members / w
        return value, w * (slope - w @ slope)

    found = minimize(objective, np.zeros(n_members), jac=True, method="BFGS")
    return softmax(found.x)


def find_simple(
    right: Mapping[str, NDArray[np.bool_]],
    average: NDArray[np.bool_],
    counts: RealArray,
    units: Indices,
) -> str | None:
    """Name the member that is most often right, if the average is not better by more than noise."""
    # Noise is the standard error of the difference, over `units` that are independent.
    if not right:
        return None
    best = max(right, key=lambda name: float(counts @ right[name]))
    gain = np.bincount(units, counts * (average.astype(float) - right[best]))
    if len(gain) > 1 and gain.mean() > gain.std(ddof=1) / np.sqrt(len(gain)):
        return None
    return best
