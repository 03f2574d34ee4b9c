"""Probabilities from scores of classes: one temperature, fitted to held-out scores."""

from collections.abc import Callable, Sequence

import numpy as np

from divlearn.arrays import Indices, RealArray

_RANGE = (-8.0, 8.0)  # of the logarithm of a temperature
_LAST_STEP, _ROOT_STEPS = 1e-7, 100


# Ways to turn decisions of a model into scores of classes, shape (n_samples, n_classes).
Forms = Sequence[Callable[[RealArray], RealArray]]
SCORES: Forms = (lambda decisions: decisions,)  # decisions are scores
# The form of the scores that was chosen, and the temperature that divides them.
Calibration = tuple[int, float]


def score_all(forms: Forms, decisions: RealArray) -> RealArray:
    """Scores of all forms, shape (n_samples, n_classes, n_forms)."""
    return np.stack([form(decisions) for form in forms], axis=-1)


def score_middle(forms: Forms, decisions: RealArray) -> RealArray:
    """Scores of one form: to try all takes long, and seldom changes the order."""
    return forms[len(forms) // 2](decisions)


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
    """Turn scores into probabilities by a calibration on other scores, where there are some."""
    known = held_out.shape[-1] // 2, 1.0
    if len(scores):
        known = calibrate(scores, codes, weights)
    return np.exp(log_probabilities(held_out, *known))


def calibrate(scores: RealArray, codes: Indices, weights: RealArray) -> Calibration:
    """Choose the form by held-out accuracy, then by log-loss; scores have them in the last axis."""
    shares = weights / weights.sum()
    ranked = []
    for form in range(scores.shape[-1]):
        temperature, loss = fit_temperature(scores[..., form], codes, shares)
        accuracy = float(shares @ (scores[..., form].argmax(axis=1) == codes))
        ranked.append((-accuracy, loss, (form, temperature)))
    return min(ranked)[2]


def fit_temperature(scores: RealArray, codes: Indices, weights: RealArray) -> tuple[float, float]:
    """Temperature of least log-loss on held-out scores, and that loss.

    By the rule of succession a sample is of another class with probability 1/(n + 2): scores that
    are all right do not lead to probabilities of one.
    """
    n_samples, n_classes = scores.shape
    # Classes come first: sums over them are then sums of long rows.
    gaps = np.ascontiguousarray((scores - scores.max(axis=1, keepdims=True)).T)
    true, powers = gaps[codes, np.arange(n_samples)], np.empty_like(gaps)
    doubt = 1 / (n_samples + 2)
    others = doubt / max(n_classes - 1, 1)
    linear = float(weights @ ((1 - doubt - others) * true + others * gaps.sum(axis=0)))

    def add_up(t: float) -> RealArray:
        """Sum powers of every sample, which stay: the array is large, and used again."""
        np.multiply(gaps, np.exp(-t), out=powers)
        return np.exp(powers, out=powers).sum(axis=0)

    def slope(t: float) -> tuple[float, float]:
        """Differentiate in the sharpness, the inverse of the temperature, and this again in t."""
        sums = add_up(t)
        means = np.multiply(powers, gaps, out=powers).sum(axis=0) / sums
        squares = np.multiply(powers, gaps, out=powers).sum(axis=0) / sums
        return float(weights @ means) - linear, -np.exp(-t) * float(weights @ (squares - means**2))

    found = _falling_root(slope, *_RANGE)
    losses = np.log(add_up(found)) - np.exp(-found) * true
    return float(np.exp(found)), float(weights @ losses)


def _falling_root(
    function: Callable[[float], tuple[float, float]], low: float, high: float
) -> float:
    """Find where a falling function is zero, or the end of a range that is next to it.

    Steps are Newton's. One that leaves what is known to hold the zero goes to the end of the range,
    then to the middle.
    """
    untried = {low, high}
    t = 0.5 * (low + high)
    for _ in range(_ROOT_STEPS):
        value, change = function(t)
        end = high if value > 0 else low
        if t == end:
            break
        low, high = (t, high) if value > 0 else (low, t)
        inside = abs(value) < -change * (high - low)
        following = t - value / change if inside else end
        # A short step is the last, since the next is as short as its square. It counts even out of
        # the bracket, where rounding alone leads.
        if abs(following - t) <= _LAST_STEP:
            return following
        if low < following < high:
            t = following
        else:
            t = end if end in untried else 0.5 * (low + high)
            untried.discard(end)
    return t
