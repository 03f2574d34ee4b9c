"""Weights of members of a committee, by the likelihood of held-out labels or numbers."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import softmax

from divlearn.arrays import Indices, RealArray
from divlearn.fitting.calibration import fit_temperature, log_softmax
from divlearn.fitting.selection import mean_with_error

# Weights of members, and the temperature of averaged probabilities; 1 does not change them.
Average = tuple[RealArray, float]
# Strength of the prior of the weights, in units of independent held-out samples.
_PRIOR, _NUMBER_PRIOR = 5.0, 3.0
_FLOOR = 1e-3  # of probabilities
_LEAST_VARIANCE = 1e-6  # of errors, relative to that of numbers

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
    return np.exp(log_softmax(np.log(probabilities) / temperature))


def floored(probabilities: RealArray) -> RealArray:
    """Mix probabilities with a little of every class, so that no logarithm is infinite."""
    return (1 - _FLOOR) * probabilities + _FLOOR / probabilities.shape[-1]


def count_samples(weights: RealArray, units: Indices) -> RealArray:
    """Return counts of held-out matrices in the likelihood; `units` are numbers of their groups."""
    # Matrices of a group are neither equal nor independent: the total count is the geometric mean
    # of the numbers of matrices and groups.
    return weights / weights.sum() * np.sqrt(len(units) * (units.max() + 1))


def fit_average(
    probabilities: RealArray, codes: Indices, counts: RealArray, prior: RealArray
) -> Average:
    r"""Average of members that maximises the likelihood of held-out labels.

    .. math:: \min_w \; -\sum_i c_i \log \sum_m w_m p_m(y_i \,|\, X_i)
              - 5 \sum_m q_m \log w_m , \qquad w \ge 0, \; \sum_m w_m = 1

    The second term draws the weights to the shares q of the prior where the data does not
    distinguish members. An average of calibrated probabilities is underconfident; its temperature
    corrects that.
    """
    probabilities = floored(probabilities)
    likelihoods = probabilities[:, np.arange(len(codes)), codes]

    def loss(w: RealArray) -> tuple[float, RealArray]:
        mixture = w @ likelihoods
        return -float(counts @ np.log(mixture)), -(likelihoods @ (counts / mixture))

    weights = _minimize(loss, _PRIOR * prior / prior.sum())
    mean = average(probabilities, weights, 1.0)
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
        variance = float(counts @ errors**2) / n + _LEAST_VARIANCE
        return 0.5 * n * np.log(variance), predictions @ (counts * errors) / variance

    prior = np.full(len(predictions), _NUMBER_PRIOR / len(predictions))
    return _minimize(loss, prior), 1.0


def _minimize(loss: Loss, prior: RealArray) -> RealArray:
    """Minimise a loss of weights that are >= 0 and sum to one, minus the log of their prior."""

    def objective(z: RealArray) -> tuple[float, RealArray]:
        w = softmax(z)
        value, gradient = loss(w)
        gradient = gradient - prior / w
        return value - float(prior @ np.log(w)), w * (gradient - w @ gradient)

    return softmax(minimize(objective, np.log(prior), jac=True, method="BFGS").x)


def find_simple(
    scores: Mapping[str, Scores], average_scores: Scores, counts: RealArray, units: Indices
) -> str | None:
    """Name the member of the highest score, unless the average is better by a standard error."""
    # The error is that of the difference, over independent `units`.
    if not scores:
        return None
    best = max(scores, key=lambda name: float(counts @ scores[name]))
    gains = np.bincount(units, counts * (average_scores.astype(float) - scores[best]))
    mean, error = mean_with_error(gains.astype(float))
    return None if mean > error else best
