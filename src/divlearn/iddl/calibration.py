"""Scores to probabilities: one temperature for all classes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from divlearn.arrays import RealArray

__all__ = ["fit_temperature", "log_loss"]

_RANGE = (-8.0, 8.0)  # of the logarithm of a temperature


def log_loss(
    scores: RealArray, codes: NDArray[np.intp], weights: RealArray, temperature: float = 1.0
) -> float:
    """Mean negative logarithm of the probability of the true class.

    Parameters
    ----------
    scores : ndarray, shape (n_samples, n_classes)
    codes : ndarray of int, shape (n_samples,)
    weights : ndarray, shape (n_samples,), with sum one.
    temperature : float, default=1.0
        Scores are divided by it.

    Examples
    --------
    >>> f"{log_loss(np.zeros((1, 4)), np.array([2]), np.ones(1)):.4f}"  # log 4
    '1.3863'
    """
    logarithms = log_softmax(scores / temperature, axis=1)
    return -float(weights @ logarithms[np.arange(len(codes)), codes])


def fit_temperature(
    scores: RealArray, codes: NDArray[np.intp], weights: RealArray
) -> tuple[float, float]:
    """Temperature of least log-loss, and that loss.

    Scores must come from samples the model was not trained on. As the rule of succession has it,
    the temperature is judged as if each of n samples were of another class with the probability
    1/(n + 2): scores that are all right do not lead to probabilities of one.

    Examples
    --------
    >>> scores = np.array([[5.0, 0.0], [0.0, 5.0], [0.0, 5.0], [0.0, 5.0]])
    >>> temperature, loss = fit_temperature(scores, np.array([0, 1, 1, 0]), np.full(4, 0.25))
    >>> f"{5 / temperature:.3f}"  # log 2: right in three of four, and doubted by a sixth
    '0.693'
    """
    n_samples, n_classes = scores.shape
    doubt = 1 / (n_samples + 2)
    targets = np.full(scores.shape, doubt / max(n_classes - 1, 1))
    targets[np.arange(n_samples), codes] = 1 - doubt
    targets *= weights[:, None]
    gaps = scores - scores.max(axis=1, keepdims=True)
    linear, shares = float((targets * gaps).sum()), targets.sum(axis=1)

    def loss(t: float) -> float:
        sharpness = float(np.exp(-t))
        sums = np.exp(sharpness * gaps).sum(axis=1)
        return float(shares @ np.log(sums)) - sharpness * linear

    found = minimize_scalar(loss, bounds=_RANGE, method="bounded")
    temperature = float(np.exp(found.x))
    return temperature, log_loss(scores, codes, weights, temperature)
