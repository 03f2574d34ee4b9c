"""Support vector machines: from decisions between pairs of classes to scores of classes.

The notes of `DivergenceKernelClassifier` have the formulas. The larger the sharpness A, the nearer
is the loss of a class to a count of its lost decisions.
"""

import numpy as np
from sklearn.svm import SVC

from divlearn.arrays import Indices, RealArray
from divlearn.fitting.calibration import Forms

SHARPNESSES = (3.0, 10.0, 30.0)  # below 3 a lost decision costs too little, and accuracy is lost
_MARGIN = 0.2  # the loss, in units of decisions, at which scores begin to fall slowly


def fit_svc(kernel: RealArray, C: float, codes: Indices, weights: RealArray) -> SVC:
    """Fit a machine to a table of kernels; it decides between pairs of classes."""
    machine = SVC(C=C, kernel="precomputed", decision_function_shape="ovo")
    return machine.fit(kernel, codes, sample_weight=weights)


def couple(decisions: RealArray, sharpness: float) -> RealArray:
    """Score classes: (n_samples, n_pairs), or (n_samples,) for two, to (n_samples, n_classes)."""
    # Pairs are those of `numpy.triu_indices`, positive for the first class of a pair; with two
    # classes a decision is positive for the second: the conventions of `sklearn.svm.SVC`.
    if decisions.ndim == 1:
        return np.stack([-decisions, decisions], axis=1) / 2
    n_classes = round((1 + np.sqrt(1 + 8 * decisions.shape[1])) / 2)
    losses, start = np.zeros((len(decisions), n_classes)), 0
    for k in range(n_classes - 1):  # against all that follow
        won = sharpness * decisions[:, start : start + n_classes - 1 - k]
        tails = np.log1p(np.exp(-np.abs(won)))
        losses[:, k] += (tails - np.minimum(won, 0)).sum(axis=1)  # log(1 + e^-x)
        losses[:, k + 1 :] += tails + np.maximum(won, 0)
        start += n_classes - 1 - k
    # Whether a class loses to 40 or to 60 others says little: the logarithm counts the first most.
    return -np.log1p(losses / (_MARGIN * sharpness))


def class_scores(decisions: RealArray, form: int) -> RealArray:
    """Score classes by one form of `COUPLED`; of two classes, the decisions are the score."""
    return decisions if decisions.ndim == 1 else couple(decisions, SHARPNESSES[form])


COUPLED = Forms(len(SHARPNESSES), lambda decisions, form: couple(decisions, SHARPNESSES[form]))
