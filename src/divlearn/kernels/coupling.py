"""From decisions between pairs of classes to scores and probabilities of classes.

The notes of `DivergenceKernelClassifier` have the formulas. The larger the sharpness A, the nearer
is the loss of a class to a count of its lost decisions.
"""

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_expit, log_softmax

from divlearn.arrays import Indices, RealArray
from divlearn.fitting.labelled import best_codes

_SHARPNESSES = (3.0, 10.0, 30.0)  # below 3 a lost decision costs too little, and accuracy is lost
_TEMPERATURES = (1e-3, 1e3)
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


def fit_coupling(
    decisions: RealArray, codes: Indices, n_classes: int, weights: RealArray
) -> tuple[tuple[float, float], RealArray]:
    """Choose sharpness A by held-out accuracy, temperature T by log-loss; return scores, too."""
    # By the rule of succession (Platt's targets) a sample is of another class with probability
    # 1/(n + 2): decisions that are all right do not lead to probabilities of one.
    doubt = 1 / (weights.sum() + 2)
    targets = np.full((len(codes), n_classes), doubt / (n_classes - 1))
    targets[np.arange(len(codes)), codes] = 1 - doubt
    targets *= weights[:, None] / weights.sum()
    ranked = []
    for sharpness in _SHARPNESSES[: 1 if n_classes == 2 else None]:
        scores = couple(decisions, n_classes, sharpness)
        found = minimize_scalar(
            lambda x, scores=scores: -(targets * log_probabilities(scores, np.exp(x))).sum(),
            bounds=np.log(_TEMPERATURES), method="bounded",
        )  # fmt: skip
        accuracy = np.average(best_codes(scores) == codes, weights=weights)
        chosen = sharpness, float(np.exp(found.x))
        ranked.append(((-float(accuracy), float(found.fun)), chosen, scores))
    return min(ranked, key=lambda one: one[0])[1:]
