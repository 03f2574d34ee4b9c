"""From decisions between pairs of classes to scores and probabilities of classes.

The notes of `DivergenceKernelClassifier` have the formulas. The larger the sharpness A, the nearer
is the loss of a class to a count of its lost decisions.
"""

import numpy as np
from scipy.special import log_expit, log_softmax

from divlearn.arrays import RealArray
from divlearn.fitting.calibration import Calibration

SHARPNESSES = (3.0, 10.0, 30.0)  # below 3 a lost decision costs too little, and accuracy is lost
_MARGIN = 0.2  # the loss, in units of decisions, at which scores begin to fall slowly


def couple(decisions: RealArray, n_classes: int, sharpness: float) -> RealArray:
    """Score classes: (n_samples, n_pairs) to (n_samples, n_classes), or (n_samples,) for two."""
    # Pairs are those of `numpy.triu_indices`, positive for the first class of a pair; with two
    # classes a decision is positive for the second: the conventions of `sklearn.svm.SVC`.
    if n_classes == 2:
        return decisions
    losses, start = np.zeros((len(decisions), n_classes)), 0
    for k in range(n_classes - 1):  # against all that follow
        won = sharpness * decisions[:, start : start + n_classes - 1 - k]
        tails = np.log1p(np.exp(-np.abs(won)))
        losses[:, k] += (tails - np.minimum(won, 0)).sum(axis=1)  # log(1 + e^-x)
        losses[:, k + 1 :] += tails + np.maximum(won, 0)
        start += n_classes - 1 - k
    # Whether a class loses to 40 or to 60 others says little: the logarithm counts the first most.
    return -np.log1p(losses / (_MARGIN * sharpness))


def log_probabilities(scores: RealArray, temperature: float) -> RealArray:
    scaled = scores / temperature
    if scores.ndim == 1:
        return np.stack([log_expit(-scaled), log_expit(scaled)], axis=1)
    return log_softmax(scaled, axis=1)


def couple_all(decisions: RealArray, n_classes: int) -> RealArray:
    """Scores by every sharpness, shape (n_samples, n_classes, n_sharpnesses), for `calibrate`."""
    if n_classes == 2:
        return np.stack([-decisions, decisions], axis=1)[..., None] / 2
    return np.stack([couple(decisions, n_classes, one) for one in SHARPNESSES], axis=-1)


def sharpness_of(calibration: Calibration) -> tuple[float, float]:
    """Sharpness and temperature of `couple` that a calibration of `couple_all` stands for."""
    return SHARPNESSES[calibration.form], calibration.temperature
