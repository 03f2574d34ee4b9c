"""From decisions between pairs of classes to scores and probabilities of classes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_expit, log_softmax

from divlearn.arrays import RealArray

__all__ = ["Coupling", "fit_coupling"]

_SHARPNESSES = (3.0, 10.0, 30.0)  # below 3 a lost decision costs too little, and accuracy is lost
_TEMPERATURES = (1e-3, 1e3)


@dataclass(frozen=True)
class Coupling:
    r"""Scores and probabilities of classes from one-vs-one decisions.

    With :math:`d_{kl} = -d_{lk}` the decision for class k against l, the score of a class is

    .. math:: s_k = \sum_{l \ne k} \log \frac{1}{1 + e^{-A d_{kl}}},

    and the probabilities are the softmax of :math:`s / T`. Two classes need no A: their one score,
    of the second class against the first, is :math:`d_{10}` itself.

    Attributes
    ----------
    n_classes : int
    sharpness : float, A; the larger, the nearer is the score to a count of won decisions.
    temperature : float, T
    """

    n_classes: int
    sharpness: float = _SHARPNESSES[0]
    temperature: float = 1.0

    def score(self, decisions: RealArray) -> RealArray:
        """Score classes: (n_samples, n_pairs) to (n_samples, n_classes), or (n_samples,) for two.

        Pairs are those of `numpy.triu_indices`, positive for the first class of a pair, except
        that with two classes a decision, (n_samples,), is positive for the second: the conventions
        of `sklearn.svm.SVC`.

        Examples
        --------
        >>> Coupling(3).score(np.array([[0.5, 0.5, 0.5]])).round(3)
        array([[-0.403, -1.903, -3.403]])
        """
        if self.n_classes == 2:
            return decisions
        won = log_expit(self.sharpness * decisions)
        lost = won - self.sharpness * decisions  # log sigmoid(-x) = log sigmoid(x) - x
        first, second = np.triu_indices(self.n_classes, 1)
        scores = [
            won[:, first == k].sum(axis=1) + lost[:, second == k].sum(axis=1)
            for k in range(self.n_classes)
        ]
        return np.stack(scores, axis=1)

    def log_probabilities(self, scores: RealArray) -> RealArray:
        """Turn scores into logarithms of probabilities, shape (n_samples, n_classes).

        Examples
        --------
        >>> np.exp(Coupling(2, temperature=0.5).log_probabilities(np.array([1.0]))).round(3)
        array([[0.119, 0.881]])
        """
        scaled = scores / self.temperature
        if self.n_classes == 2:
            return np.stack([log_expit(-scaled), log_expit(scaled)], axis=1)
        logarithms: RealArray = log_softmax(scaled, axis=1)
        return logarithms

    def predict(self, scores: RealArray) -> NDArray[np.intp]:
        """Return the index of the class of the highest score."""
        best = scores > 0 if self.n_classes == 2 else scores.argmax(axis=1)
        return best.astype(np.intp)


def fit_coupling(
    decisions: RealArray, codes: NDArray[np.intp], n_classes: int, weights: RealArray
) -> Coupling:
    r"""Choose sharpness and temperature on decisions that were made out of fold.

    For every A in {3, 10, 30} the temperature minimises the log-loss. The A of the highest accuracy
    is taken, of those that tie the one of the lowest log-loss: a small A gives the better
    probabilities, but loses accuracy where classes are many.

    Like Platt's targets, those of the log-loss are not certain: as the rule of succession has it,
    each sample belongs to another class with the probability 1/(n + 2), n the sum of the weights.
    So decisions that are all right do not lead to probabilities of one.

    Parameters
    ----------
    decisions : ndarray, see `Coupling.score`
    codes : ndarray, shape (n_samples,), the index of the class of every sample.
    n_classes : int
    weights : ndarray, shape (n_samples,)

    Examples
    --------
    >>> decisions, codes = np.array([-2.0, -1.0, 1.0, 2.0]), np.array([0, 0, 1, 1])
    >>> coupling = fit_coupling(decisions, codes, 2, np.ones(4))
    >>> np.exp(coupling.log_probabilities(decisions))[:, 1].round(2)
    array([0.12, 0.27, 0.73, 0.88])
    """
    doubt = 1 / (weights.sum() + 2)
    targets = np.full((len(codes), n_classes), doubt / (n_classes - 1))
    targets[np.arange(len(codes)), codes] = 1 - doubt
    targets *= weights[:, None] / weights.sum()
    ranked = []
    for sharpness in _SHARPNESSES[: 1 if n_classes == 2 else None]:
        trial = Coupling(n_classes, sharpness)
        scores = trial.score(decisions)
        coupling, loss = _fit_temperature(trial, scores, targets)
        accuracy = np.average(coupling.predict(scores) == codes, weights=weights)
        ranked.append((-float(accuracy), loss, sharpness, coupling))
    return min(ranked)[-1]


def _fit_temperature(
    trial: Coupling, scores: RealArray, targets: RealArray
) -> tuple[Coupling, float]:
    def at(log_temperature: float) -> Coupling:
        return Coupling(trial.n_classes, trial.sharpness, float(np.exp(log_temperature)))

    found = minimize_scalar(
        lambda x: -(targets * at(x).log_probabilities(scores)).sum(),
        bounds=np.log(_TEMPERATURES), method="bounded",
    )  # fmt: skip
    return at(found.x), float(found.fun)
