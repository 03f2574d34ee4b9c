"""Probabilities from scores of classes: one temperature, fitted to held-out scores."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import log_softmax

from divlearn.arrays import Indices, RealArray

_RANGE = (-8.0, 8.0)  # of the logarithm of a temperature
_ROOT_ERROR, _ROOT_STEPS = 1e-12, 100


class Forms(NamedTuple):
    """Ways to turn decisions of a model into scores of classes, (n_samples, n_classes)."""

    n_forms: int
    score: Callable[[RealArray, int], RealArray]  # of decisions, by the number of a form

    def middle(self, decisions: RealArray) -> RealArray:
        """Scores of one form: to try all takes long, and seldom changes the order."""
        return self.score(decisions, self.n_forms // 2)

    def all(self, decisions: RealArray) -> RealArray:
        """Scores of all forms, shape (n_samples, n_classes, n_forms)."""
        return np.stack([self.score(decisions, form) for form in range(self.n_forms)], axis=-1)


SCORES = Forms(1, lambda decisions, _: decisions)  # decisions are scores


class Calibration(NamedTuple):
    """The form of the scores that was chosen, and the temperature that divides them."""

    form: int
    temperature: float

    def log_probabilities(self, scores: RealArray) -> RealArray:
        """Logarithms of probabilities, from scores (n_samples, n_classes, n_forms)."""
        return self.soften(scores[..., self.form])

    def soften(self, scores: RealArray) -> RealArray:
        """Logarithms of probabilities, from scores of the form that was chosen."""
        return log_softmax(scores / self.temperature, axis=1)


def calibrate_by(
    held_out: RealArray, scores: RealArray, codes: Indices, weights: RealArray
) -> RealArray:
    """Turn scores into probabilities by a calibration on other scores, where there are some."""
    if not len(scores):
        return np.exp(Calibration(held_out.shape[-1] // 2, 1.0).log_probabilities(held_out))
    return np.exp(calibrate(scores, codes, weights).log_probabilities(held_out))


def calibrate(scores: RealArray, codes: Indices, weights: RealArray) -> Calibration:
    """Choose the form by held-out accuracy, then by log-loss; scores have them in the last axis."""
    shares = weights / weights.sum()
    ranked = []
    for form in range(scores.shape[-1]):
        temperature, loss = fit_temperature(scores[..., form], codes, shares)
        accuracy = float(shares @ (scores[..., form].argmax(axis=1) == codes))
        ranked.append((-accuracy, loss, Calibration(form, temperature)))
    return min(ranked)[2]


def fit_temperature(scores: RealArray, codes: Indices, weights: RealArray) -> tuple[float, float]:
    """Temperature of least log-loss on held-out scores, and that loss.

    By the rule of succession a sample is of another class with probability 1/(n + 2): scores that
    are all right do not lead to probabilities of one.
    """
    n_samples, n_classes = scores.shape
    doubt = 1 / (n_samples + 2)
    targets = np.full(scores.shape, doubt / max(n_classes - 1, 1))
    targets[np.arange(n_samples), codes] = 1 - doubt
    targets *= weights[:, None]
    # Classes come first: sums over them are then sums of long rows.
    gaps = np.ascontiguousarray((scores - scores.max(axis=1, keepdims=True)).T)
    linear, shares = float((targets.T * gaps).sum()), targets.sum(axis=1)

    def slope(t: float) -> tuple[float, float]:
        """Differentiate in the sharpness, the inverse of the temperature, and this again in t."""
        sharpness = float(np.exp(-t))
        powers = np.exp(sharpness * gaps)
        powers /= powers.sum(axis=0)
        powers *= gaps
        means = powers.sum(axis=0)
        powers *= gaps
        change = -sharpness * float(shares @ (powers.sum(axis=0) - means**2))
        return float(shares @ means) - linear, change

    sharp, flat = _RANGE
    if slope(sharp)[0] <= 0:  # the sharper the better
        found = sharp
    elif slope(flat)[0] >= 0:
        found = flat
    else:
        found = _falling_root(slope, sharp, flat)
    temperature = float(np.exp(found))
    logarithms = log_softmax(scores / temperature, axis=1)
    return temperature, -float(weights @ logarithms[np.arange(n_samples), codes])


def _falling_root(
    function: Callable[[float], tuple[float, float]], low: float, high: float
) -> float:
    """Find where a falling function is zero, by Newton's method, or bisection where that leaves."""
    t = 0.5 * (low + high)
    for _ in range(_ROOT_STEPS):
        value, change = function(t)
        low, high = (t, high) if value > 0 else (low, t)
        following = t - value / change if change < 0 else low
        # A short step ends it even out of the bracket: rounding alone leads there.
        if abs(following - t) <= _ROOT_ERROR:
            break
        t = following if low < following < high else 0.5 * (low + high)
    return t
