"""Support vector machines: classifiers, and from decisions between pairs of classes to scores.

The notes of `DivergenceKernelClassifier` have the formulas. The larger the sharpness A, the nearer
is the loss of a class to a count of its lost decisions.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from sklearn.svm import SVC

from divlearn.arrays import Indices, RealArray
from divlearn.fitting.calibration import Forms
from divlearn.fitting.labelled import check_new
from divlearn.fitting.training import HeldOutClassifier

Candidate = tuple[tuple[str, float], ...]  # names of parameters, and values

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


COUPLED = Forms(len(SHARPNESSES), lambda decisions, form: couple(decisions, SHARPNESSES[form]))


def other_penalties(best: Candidate, penalties: Sequence[float]) -> list[Candidate]:
    """Candidates that differ from the best in C, the last parameter."""
    return [(*best[:-1], ("C", C)) for C in penalties if best[-1] != ("C", C)]


class MachineClassifier(HeldOutClassifier[Candidate]):
    """Base of classifiers whose decisions are those of a machine, between pairs of classes."""

    _forms = COUPLED
    _criterion = "accuracy"

    def decision_function(self, X: ArrayLike) -> RealArray:
        """Scores of the classes, shape (n_matrices, n_classes), or (n_matrices,) with two."""
        return self._class_scores(self._decide_new(check_new(self, X)))

    def _class_scores(self, decisions: RealArray) -> RealArray:
        form, _ = self.calibration_
        return decisions if decisions.ndim == 1 else COUPLED.score(decisions, form)
