"""Probabilities from scores of classes: one temperature, fitted to held-out scores."""

from collections.abc import Callable

import numpy as np

from divlearn.arrays import Indices, RealArray
from divlearn.engines import compiled
from divlearn.engines.compiled import compiles

_WIDTH = 8.0  # range of the logarithm of a temperature around zero, and around that of the scores
_LAST_STEP, _ROOT_STEPS = 1e-7, 100


# The chosen form of the scores, and the temperature that divides them.
Calibration = tuple[int, float]


def as_forms(scores: RealArray) -> RealArray:
    """Give scores (n_samples, n_classes) a last axis of one form; others have several."""
    return scores if scores.ndim == 3 else scores[..., None]


def middle_form(scores: RealArray) -> RealArray:
    """Scores of the middle form, by which candidates are compared: all seldom differ in order."""
    scores = as_forms(scores)
    return scores[..., scores.shape[-1] // 2]


def log_probabilities(scores: RealArray, form: int, temperature: float) -> RealArray:
    """Logarithms of calibrated probabilities, from scores (n_samples, n_classes, n_forms)."""
    return log_softmax(scores[..., form] / temperature)


def log_softmax(scores: RealArray) -> RealArray:
    """Logarithms of softmax, by rows; SciPy's takes ten times as long for few rows."""
    gaps = scores - scores.max(axis=1, keepdims=True)
    return gaps - np.log(np.exp(gaps).sum(axis=1, keepdims=True))


def calibrate_by(
    held_out: RealArray, scores: RealArray, codes: Indices, weights: RealArray
) -> RealArray:
    """Turn held-out scores into probabilities, calibrated on other scores if there are any."""
    calibration = held_out.shape[-1] // 2, 1.0
    if len(scores):
        calibration = calibrate(scores, codes, weights)
    return np.exp(log_probabilities(held_out, *calibration))


def calibrate(scores: RealArray, codes: Indices, weights: RealArray) -> Calibration:
    """Choose the form, last axis of scores, by held-out accuracy and then by log-loss."""
    shares = weights / weights.sum()
    ranked = []
    for form in range(scores.shape[-1]):
        temperature, loss = fit_temperature(scores[..., form], codes, shares)
        accuracy = float(shares @ (scores[..., form].argmax(axis=1) == codes))
        ranked.append((-accuracy, loss, (form, temperature)))
    return min(ranked)[2]


def fit_temperature(scores: RealArray, codes: Indices, weights: RealArray) -> tuple[float, float]:
    """Temperature of least log-loss on held-out scores, and that loss.

    Labels are smoothed by the rule of succession: a sample is of another class with probability
    1/(n + 2). So scores that are all right do not lead to probabilities of one.
    """
    n_samples, n_classes = scores.shape
    # Classes are the first axis: sums over them then add up long rows.
    gaps = np.ascontiguousarray((scores - scores.max(axis=1, keepdims=True)).T)
    true_gaps = gaps[codes, np.arange(n_samples)]
    smoothing = 1 / (n_samples + 2)
    other = smoothing / max(n_classes - 1, 1)
    linear = float(weights @ ((1 - smoothing - other) * true_gaps + other * gaps.sum(axis=0)))

    def slope(t: float) -> tuple[float, float]:
        """Differentiate the loss in the inverse temperature exp(-t), then this again in t."""
        sums, *moments = power_sums(gaps, np.exp(-t))
        means, squares = moments / sums
        return float(weights @ means) - linear, -np.exp(-t) * float(weights @ (squares - means**2))

    t = _decreasing_root(slope, *_find_range(float(-gaps.mean())))
    losses = np.log(power_sums(gaps, np.exp(-t))[0]) - np.exp(-t) * true_gaps
    return float(np.exp(t)), float(weights @ losses)


def power_sums(gaps: RealArray, scale: float) -> RealArray:
    """Sum e^(scale x), x e^(scale x) and x^2 e^(scale x) over rows x, shape (3, n_columns)."""
    if compiles(gaps):
        return compiled.power_sums(gaps, scale)
    powers = np.exp(scale * gaps)
    first = powers * gaps
    return np.stack([powers.sum(axis=0), first.sum(axis=0), (first * gaps).sum(axis=0)])


def _find_range(size: float) -> tuple[float, float]:
    """Return the range of the logarithm of a temperature for scores of a size, in any unit."""
    center = np.log(size) if 0 < size < np.inf else 0.0
    low = center - _WIDTH if center < -_WIDTH else -_WIDTH
    high = center + _WIDTH if center > _WIDTH else _WIDTH
    return float(low), float(high)


def _decreasing_root(
    function: Callable[[float], tuple[float, float]], low: float, high: float
) -> float:
    """Find the root of a decreasing function between two ends, or the end that is closest to it.

    Steps are Newton's. A step out of the bracket goes to its end if that is untried, otherwise to
    its middle.
    """
    untried = {low, high}
    t = 0.5 * (low + high)
    for _ in range(_ROOT_STEPS):
        value, derivative = function(t)
        end = high if value > 0 else low
        if t == end:
            break
        low, high = (t, high) if value > 0 else (low, t)
        inside = abs(value) < -derivative * (high - low)
        following = t - value / derivative if inside else end
        # A short step is the last, since Newton's method converges quadratically. Only rounding
        # leads a short step out of the bracket.
        if abs(following - t) <= _LAST_STEP:
            return following
        if low < following < high:
            t = following
        else:
            t = end if end in untried else 0.5 * (low + high)
            untried.discard(end)
    return t
