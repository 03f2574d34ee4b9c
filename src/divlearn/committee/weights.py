"""Weights of members of a committee, by the likelihood of held-out labels or numbers."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import softmax

from divlearn.arrays import Indices, RealArray
from divlearn.fitting.calibration import fit_temperature
from divlearn.fitting.selection import mean_with_error

# Weights of members, and the temperature of averaged probabilities; 1 leaves them.
Average = tuple[RealArray, float]
# Of weights towards a prior, in units of independent held-out samples.
_PULL, _NUMBER_PULL = 5.0, 3.0
_FLOOR = 1e-3  # of probabilities: nobody is that sure
_EXACT = 1e-6  # of the variance of errors, relative to that of numbers: nobody is that exact

Loss = Callable[[RealArray], tuple[float, RealArray]]  # of weights; value and gradient
Scores = NDArray[np.bool_] | RealArray  # of every matrix, the higher the better


def average(predictions: RealArray, weights: RealArray, temperature: float) -> RealArray:
    """Average predictions, shape (n_members, ...)."""
    mean: RealArray = np.tensordot(weights, predictions, axes=1)
    return sharpened(mean, temperature)


def sharpened(probabilities: RealArray, temperature: float) -> RealArray:
    """Probabilities to the power of 1 / temperature, over their sum."""
    if temperature == 1.0:
        return probabilities
    return softmax(np.log(probabilities) / temperature, axis=1)


def floored(probabilities: RealArray) -> RealArray:
    """Mix probabilities with a little of every class, so that no logarithm is infinite."""
    return (1 - _FLOOR) * probabilities + _FLOOR / probabilities.shape[-1]


def count_samples(weights: RealArray, units: Indices) -> RealArray:
    """Count held-out matrices in the likelihood, of groups that are numbered by `units`."""
    # The matrices of a group are neither copies of each other nor independent. They count as much
    # as the geometric mean of their number and that of groups.
    return weights / weights.sum() * np.sqrt(len(units) * (units.max() + 1))


def fit_average(
    probabilities: RealArray, codes: Indices, counts: RealArray, prior: RealArray
) -> Average:
    r"""Average of members that maximises the likelihood of held-out labels.

    .. math:: \min_w \; -\sum_i c_i \log \sum_m w_m p_m(y_i \,|\, X_i)
              - 5 \sum_m q_m \log w_m , \qquad w \ge 0, \; \sum_m w_m = 1

    The second term draws the weights to the shares q of the prior where the data does not tell
    members apart. An average of calibrated probabilities is too unsure; its temperature mends that.
    """
    known = floored(probabilities)
    true = known[:, np.arange(len(codes)), codes]

    def loss(w: RealArray) -> tuple[float, RealArray]:
        mixture = w @ true
        return -float(counts @ np.log(mixture)), -(true @ (counts / mixture))

    weights = _minimize(loss, _PULL * prior / prior.sum())
    mean = average(known, weights, 1.0)
    temperature, _ = fit_temperature(np.log(mean), codes, counts / counts.sum())
    return weights, temperature


def fit_number_average(predictions: RealArray, numbers: RealArray, counts: RealArray) -> Average:
    r"""Average of members that maximises the likelihood of held-out numbers.

    .. math:: \min_w \; \frac n2 \log \sum_i \frac{c_i}{n} \Bigl(y_i - \sum_m w_m f_m(X_i)\Bigr)^2
              - 3 \cdot \frac1M \sum_m \log w_m , \qquad n = \sum_i c_i

    Errors are Gaussian, with a variance that is fitted as well. Numbers are standardised.
    """
    n = float(counts.sum())

    def loss(w: RealArray) -> tuple[float, RealArray]:
        errors = w @ predictions - numbers
        variance = float(counts @ errors**2) / n + _EXACT
        return 0.5 * n * np.log(variance), predictions @ (counts * errors) / variance

    prior = np.full(len(predictions), _NUMBER_PULL / len(predictions))
    return _minimize(loss, prior), 1.0


def _minimize(loss: Loss, prior: RealArray) -> RealArray:
    """Minimise a loss of weights that are >= 0 and sum to one, with a pull towards a prior."""

    def objective(z: RealArray) -> tuple[float, RealArray]:
        w = softmax(z)
        value, slope = loss(w)
        slope = slope - prior / w
        return value - float(prior @ np.log(w)), w * (slope - w @ slope)

    found = minimize(objective, np.log(prior), jac=True, method="BFGS")
    return softmax(found.x)


def find_simple(
    scores: Mapping[str, Scores], whole: Scores, counts: RealArray, units: Indices
) -> str | None:
    """Name the member of the highest score, if the average is not better by more than noise."""
    # Noise is the standard error of the difference, over `units` that are independent.
    if not scores:
        return None
    best = max(scores, key=lambda name: float(counts @ scores[name]))
    gain = np.bincount(units, counts * (whole.astype(float) - scores[best])).astype(float)
    mean, error = mean_with_error(gain)
    return None if mean > error else best
