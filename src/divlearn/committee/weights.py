"""How much each member of a committee counts, by what it said of data it had not seen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import softmax

from divlearn.arrays import RealArray

__all__ = ["fit_weights", "floored"]

_PULL = 5.0  # towards equal weights, in units of samples
_FLOOR = 1e-3  # of probabilities: nobody is that sure


def floored(probabilities: RealArray) -> RealArray:
    """Mix probabilities with a little of every class, so that no logarithm is infinite.

    Examples
    --------
    >>> floored(np.array([[1.0, 0.0]]))
    array([[9.995e-01, 5.000e-04]])
    """
    mixed: RealArray = (1 - _FLOOR) * probabilities + _FLOOR / probabilities.shape[-1]
    return mixed


def fit_weights(
    probabilities: RealArray, codes: NDArray[np.intp], sample_weight: RealArray
) -> RealArray:
    r"""Weights of members that make the mixture of their probabilities likely.

    .. math:: \min_w \; -\sum_i s_i \log \sum_m w_m p_m(y_i \,|\, X_i)
              - 5 \cdot \frac1M \sum_m \log w_m , \qquad w \ge 0, \; \sum_m w_m = 1

    The second term holds the weights together where the data does not tell members apart.

    Parameters
    ----------
    probabilities : ndarray, shape (n_members, n_samples, n_classes)
        Of samples the members were not trained on.
    codes : ndarray of int, shape (n_samples,)
    sample_weight : ndarray, shape (n_samples,)

    Returns
    -------
    ndarray, shape (n_members,)

    Examples
    --------
    >>> good, poor = np.full((500, 2), [0.9, 0.1]), np.full((500, 2), 0.5)
    >>> weights = fit_weights(np.stack([good, poor]), np.zeros(500, int), np.ones(500))
    >>> bool(weights[0] > 0.95)
    True
    """
    true = floored(probabilities)[:, np.arange(len(codes)), codes]
    n_members = len(true)

    def objective(z: RealArray) -> tuple[float, RealArray]:
        w = softmax(z)
        mixture = w @ true
        value = -float(sample_weight @ np.log(mixture)) - _PULL * float(np.log(w).mean())
        slope = -(true @ (sample_weight / mixture)) - _PULL / n_members / w
        return value, w * (slope - w @ slope)

    found = minimize(objective, np.zeros(n_members), jac=True, method="BFGS")
    weights: RealArray = softmax(found.x)
    return weights
