r"""The scalar function behind every alpha-beta log-determinant divergence.

With t_i the logarithms of the generalized eigenvalues of a pair of SPD matrices (X, Y), the
divergence is D(X || Y) = sum_i f(t_i; alpha, beta), where

    f(t; alpha, beta) = log((alpha e^{beta t} + beta e^{-alpha t}) / (alpha + beta)) / (alpha beta).

f is analytic across the axes, the origin and (inside its domain) the line alpha = -beta, but this
formula cancels there. The module evaluates f and its derivatives without that loss.

Below, theta = alpha + beta, p = alpha t, q = beta t, s = theta t, a = alpha/theta, b = beta/theta;
f(t; alpha, beta) = f(-t; beta, alpha) = f(-t; -alpha, -beta) makes every argument canonical.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import factorial
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from divlearn.arrays import RealArray, check_real
from divlearn.tolerances import LARGEST_PARAMETER

__all__ = ["SpectralValues", "abld_scalar", "invert_f_t", "log_generalized_domain"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Values = dict[str, FloatArray]
Rule = Callable[["_Points", set[str]], Values]

_DERIVATIVES = ("f_t", "f_tt", "f_alpha", "f_beta")
_INSIDE = 1 - 1e-12  # of the range of f_t
_NEGLIGIBLE = 1e-20  # 1 + x rounds to 1, with room to spare
# Taylor coefficients, highest order first: enough for full double precision on |x| < 2.
_CHI_SERIES = tuple(1 / factorial(k + 2) for k in range(25, -1, -1))
_TAU_SERIES = tuple(1 / factorial(k + 3) for k in range(25, -1, -1))
_KAPPA_SERIES = tuple((k + 1) / factorial(k + 3) for k in range(25, -1, -1))
# (atanh(v) - v)/v^3 as a series in v^2, for |v| <= 1/3.
_ATANH_SERIES = tuple(1 / (2 * k + 3) for k in range(17, -1, -1))

_NOT_REQUESTED: Any = None


@dataclass(frozen=True, slots=True)
class SpectralValues:
    """f and the requested partial derivatives (the others are None)."""

    f: RealArray
    f_t: RealArray = _NOT_REQUESTED
    f_tt: RealArray = _NOT_REQUESTED
    f_alpha: RealArray = _NOT_REQUESTED
    f_beta: RealArray = _NOT_REQUESTED


def abld_scalar(
    t: npt.ArrayLike,
    alpha: npt.ArrayLike,
    beta: npt.ArrayLike,
    *,
    derivatives: str | Sequence[str] = _DERIVATIVES,
) -> SpectralValues:
    r"""Evaluate f(t; alpha, beta) and its partial derivatives, element by element.

    .. math:: f(t; \alpha, \beta) = \frac{1}{\alpha\beta}
              \log\frac{\alpha e^{\beta t} + \beta e^{-\alpha t}}{\alpha + \beta}

    and its limits, such as (e^{beta t} - 1 - beta t)/beta^2 at alpha = 0, t^2/2 at the origin and
    (alpha t - log(1 + alpha t))/alpha^2 at alpha = -beta.

    Parameters
    ----------
    t, alpha, beta : array_like of real numbers, at most 1e150 in magnitude
        Log-eigenvalues and parameters; broadcast together. Others raise ValueError or TypeError.
    derivatives : sequence of {"f_t", "f_tt", "f_alpha", "f_beta"}, or one of them
        The partial derivatives to compute; ``()`` asks for f only.

    Returns
    -------
    SpectralValues
        Arrays of the broadcast shape; float32 if every array argument is float32, else float64.

    Notes
    -----
    Same signs, axes and origin included: the relative error of every output is at most
    8 eps (1 + \|alpha t\| + \|beta t\|); what exceeds the floating-point range is infinite.

    Opposite signs: f is defined on the open interval `log_generalized_domain`. Inside, the relative
    error is at most 24 eps (1 + \|alpha t\| + \|beta t\|) / g, where g = 1 - t/end on the side of
    the finite end and 1 on the other. At the end and beyond, outputs have their limits at the end.

    Examples
    --------
    >>> values = abld_scalar([-1.0, 0.0, 1.0], 0.5, 0.5)
    >>> values.f.round(6)
    array([0.480458, 0.      , 0.480458])
    """
    requested = (derivatives,) if isinstance(derivatives, str) else tuple(derivatives)
    for name in requested:
        if name not in _DERIVATIVES:
            raise ValueError(f"derivatives={name!r} is unknown; choose from {_DERIVATIVES} or ()")
    (t_, alpha_, beta_), shape, dtype = _prepare(t=t, alpha=alpha, beta=beta)
    with np.errstate(all="ignore"):
        values = _evaluate(t_, alpha_, beta_, {"f", *requested})
        return SpectralValues(**{k: _finish(v, shape, dtype) for k, v in values.items()})


def log_generalized_domain(
    alpha: npt.ArrayLike, beta: npt.ArrayLike
) -> tuple[RealArray, RealArray]:
    r"""Return the open interval (lower, upper) of t on which f(t; alpha, beta) is defined.

    It is infinite if alpha and beta have the same sign or one is zero. Otherwise one end is finite,
    the lower one if alpha > 0 > beta and the upper one if alpha < 0 < beta. 0 is always inside.

    .. math:: t_{end} = \log|\beta / \alpha| / (\alpha + \beta) \to -1/\alpha

    Examples
    --------
    >>> log_generalized_domain([1.0, -0.5, 1.0], [1.0, 0.5, -1.0])
    (array([-inf, -inf,  -1.]), array([inf,  2., inf]))
    """
    (alpha_, beta_), shape, dtype = _prepare(alpha=alpha, beta=beta)
    with np.errstate(all="ignore"):
        distance = _distance_to_end(*np.sort(np.abs([alpha_, beta_]), axis=0))
        lower = np.where((alpha_ > 0) & (beta_ < 0), -distance, -np.inf)
        upper = np.where((alpha_ < 0) & (beta_ > 0), distance, np.inf)
        return _finish(lower, shape, dtype), _finish(upper, shape, dtype)


def invert_f_t(g: npt.ArrayLike, alpha: npt.ArrayLike, beta: npt.ArrayLike) -> RealArray:
    r"""Solve f_t(t; alpha, beta) = g for t, for parameters of the same sign.

    .. math:: t = \frac{\log(1 + \beta g) - \log(1 - \alpha g)}{\alpha + \beta}

    and t = g at the origin. g lies between -1/beta and 1/alpha; an end point, up to four roundings,
    gives an infinite t. g outside, or parameters of opposite signs, raise ValueError.

    Examples
    --------
    >>> g = abld_scalar([-1.5, 2.0], 0.25, 0.75).f_t
    >>> invert_f_t(g, 0.25, 0.75).round(12)
    array([-1.5,  2. ])
    """
    (g_, alpha_, beta_), shape, dtype = _prepare(g=g, alpha=alpha, beta=beta)
    with np.errstate(all="ignore"):
        arguments = {"g": g_, "alpha": alpha_, "beta": beta_}
        opposite = np.sign(alpha_) * np.sign(beta_) < 0
        _reject(opposite, shape, arguments, "alpha and beta must have the same sign")
        theta, rise, fall = alpha_ + beta_, beta_ * g_, -alpha_ * g_
        outside = np.minimum(rise, fall) < -1 - 4 * np.finfo(dtype).eps
        _reject(outside, shape, arguments, "must satisfy 1 + beta g >= 0 and 1 - alpha g >= 0")
        logarithms = np.log1p(np.maximum(rise, -1.0)) - np.log1p(np.maximum(fall, -1.0))
        solution = np.where(np.abs(theta * g_) < _NEGLIGIBLE, g_, logarithms / theta)
        return _finish(solution, shape, dtype)


def clip_f_t(slopes: RealArray, alpha: float, beta: float) -> RealArray:
    """Keep slopes inside the open range of f_t, alpha and beta >= 0, which rounding may leave."""
    lowest = -_INSIDE / beta if beta else -np.inf
    highest = _INSIDE / alpha if alpha else np.inf
    return np.clip(slopes, lowest, highest)


def _prepare(**arguments: npt.ArrayLike) -> tuple[list[FloatArray], tuple[int, ...], np.dtype]:
    """Validate and broadcast: flat float64 arrays, their common shape, the dtype of the result."""
    arrays: list[FloatArray] = []
    operands: list[Any] = []
    for name, value in arguments.items():
        original = np.asarray(value)
        check_real(original, name)
        array = original.astype(np.float64)
        limit = np.finfo(np.float64).max if name == "g" else LARGEST_PARAMETER
        bad = ~(np.abs(array) <= limit)
        _reject(bad, array.shape, {name: array}, f"must be finite, at most {limit:g} in magnitude")
        arrays.append(array)
        # Python numbers are weak: they follow the dtype of the arrays they meet.
        strong = original.dtype if original.dtype.kind == "f" else np.dtype(np.float64)
        operands.append(value if type(value) in (int, float) else strong)
    dtype = np.dtype(np.float32 if np.result_type(*operands) == np.float32 else np.float64)
    broadcast = np.broadcast_arrays(*arrays)
    return [array.ravel() for array in broadcast], broadcast[0].shape, dtype


def _reject(bad: BoolArray, shape: tuple[int, ...], values: Values, rule: str) -> None:
    """Raise ValueError with the first offending values, their index and the rule they break."""
    if bad.any():
        i = int(np.argmax(bad))
        index = [int(k) for k in np.unravel_index(i, shape)]
        point = ", ".join(f"{name}={array.flat[i]:g}" for name, array in values.items())
        raise ValueError(f"{point}{f' at index {index}' if index else ''}: {rule}")


def _finish(values: FloatArray, shape: tuple[int, ...], dtype: np.dtype) -> RealArray:
    return cast(RealArray, values.reshape(shape).astype(dtype, copy=False)[()])


class _Points(NamedTuple):
    """Canonical arguments and quantities that all rules use."""

    t: FloatArray
    alpha: FloatArray
    beta: FloatArray
    theta: FloatArray
    s: FloatArray
    a: FloatArray  # alpha/theta and beta/theta, 1/2 each at the origin
    b: FloatArray

    def log_mixture(self) -> FloatArray:
        """Return log(a + b e^{-s}), where e^{-s} may be below the floating-point range."""
        return np.logaddexp(np.log(self.a), np.log(self.b) - self.s)


def _evaluate(t: FloatArray, alpha: FloatArray, beta: FloatArray, requested: set[str]) -> Values:
    """Move to canonical arguments, evaluate, and move the derivatives back."""
    opposite = np.sign(alpha) * np.sign(beta) < 0
    # Same signs: all of t, alpha, beta >= 0. Opposite signs: alpha < 0 < beta and |alpha| <= beta.
    negative = (alpha < 0) | (beta < 0)
    swap = np.where(opposite, np.abs(alpha) > np.abs(beta), (t < 0) ^ negative)
    first, second = np.where(swap, beta, alpha), np.where(swap, alpha, beta)
    sign = np.where(np.where(opposite, second < 0, negative), -1.0, 1.0)
    sign_t = np.where(swap, -sign, sign)
    t, alpha, beta, theta = sign_t * t, sign * first, sign * second, sign * (alpha + beta)
    a, b = np.where(theta == 0, 0.5, [alpha / theta, beta / theta])
    # Off the axis a must stay positive, or the logarithm of the mixture would be -s.
    a = np.where(alpha > 0, np.maximum(a, np.finfo(np.float64).tiny), a)
    points = _Points(t, alpha, beta, theta, theta * t, a, b)
    # A swap turns one parameter derivative into the other, so that both are needed.
    needed = requested | {"f_alpha", "f_beta"} if requested & {"f_alpha", "f_beta"} else requested
    values = _by_rules(points, needed, [(~opposite, _same_signs), (opposite, _opposite)])
    if "f_t" in values:
        values["f_t"] *= sign_t
    if "f_alpha" in values:
        along_first, along_second = sign * values["f_alpha"], sign * values["f_beta"]
        values["f_alpha"] = np.where(swap, along_second, along_first)
        values["f_beta"] = np.where(swap, along_first, along_second)
    return {name: values[name] for name in requested}


def _by_rules(x: _Points, needed: set[str], rules: Sequence[tuple[BoolArray, Rule]]) -> Values:
    for group, rule in rules:
        if group.all():  # the common case
            return rule(x, needed)
    values = {name: np.empty_like(x.t) for name in needed}
    for group, rule in rules:
        if group.any():
            part = rule(_Points(*(array[group] for array in x)), needed)
            for name in values.keys() & part.keys():
                values[name][group] = part[name]
    return values


# --- same signs: t, alpha, beta >= 0 --------------------------------------------------------------


def _same_signs(x: _Points, needed: set[str]) -> Values:
    p, q = x.alpha * x.t, x.beta * x.t
    decaying = (p >= 2) & (q <= p)
    growing = ~decaying & (q > 5)
    if growing.any():  # and 1 + z = e^q (a + b e^{-s}) > 2, with the z of _moderate
        growing &= q + x.log_mixture() > np.log(2)
    rest = ~(decaying | growing)
    values = _by_rules(x, needed, [(decaying, _decaying), (growing, _growing), (rest, _moderate)])
    return values | _slopes_in_t(x) if needed & {"f_t", "f_tt"} else values


def _slopes_in_t(x: _Points) -> Values:
    """Return f_t = (1 - e^{-s})/(theta (a + b e^{-s})) and f_tt = e^{-s}/(a + b e^{-s})^2."""
    log_mixture = x.log_mixture()
    root = np.exp(-log_mixture / 2)  # its square may overflow where f_t does not
    f_t = _expm1_quotient(x.t, -x.theta, -x.s) * root * root
    return {"f_t": f_t, "f_tt": np.exp(-x.s - 2 * log_mixture)}


def _decaying(x: _Points, needed: set[str]) -> Values:
    """For p >= 2 and q <= p: f = (t + log(1 + w)/beta)/alpha with w in [-1/2, 0]."""
    decay, drop = np.exp(-x.s), np.expm1(-x.s)
    w = x.b * drop
    remainder = _log_second_remainder(w)
    f = (x.t + drop / x.theta * (1 - w * remainder)) / x.alpha
    if "f_alpha" not in needed:
        return {"f": f}
    f_alpha = ((1 - (1 + x.s) * decay) / (1 + w) / x.theta / x.theta - f) / x.alpha
    f_beta = drop * drop * remainder - decay * (x.s - 1 + decay) / (1 + w)
    return {"f": f, "f_alpha": f_alpha, "f_beta": f_beta / x.theta / x.theta / x.alpha}


def _growing(x: _Points, needed: set[str]) -> Values:
    """For q > 5 and z > 1 (see _moderate): f = (t + log(a + b e^{-s})/beta)/alpha."""
    log_mixture = x.log_mixture()
    gain = x.t + log_mixture / x.beta
    if "f_alpha" not in needed:
        return {"f": gain / x.alpha}
    share = np.exp(-x.s - log_mixture)  # e^{-s}/(a + b e^{-s})
    rest = 1 - x.b * share  # a/(a + b e^{-s})
    f_alpha = (rest * (1 - (1 + x.s) * np.exp(-x.s)) / x.theta - gain) / x.alpha / x.alpha
    spread = x.b * (x.beta * x.t * share - rest * np.expm1(-x.s))
    f_beta = -(log_mixture + spread) / x.alpha / x.beta / x.beta
    return {"f": gain / x.alpha, "f_alpha": f_alpha, "f_beta": f_beta}


def _moderate(x: _Points, needed: set[str]) -> Values:
    """Elsewhere: f = t^2 m log(1 + z)/z, where m = b chi(q) + a chi(-p) > 0 and z = p q m."""
    t, a, b = x.t, x.a, x.b
    p, q = x.alpha * t, x.beta * t
    both = np.stack([q, -p])
    chi = _chi(both)
    m = b * chi[0] + a * chi[1]
    weighted = np.where(p == 0, 0.0, p * m)  # 0 on the axis, even if m is infinite
    z = q * weighted
    f = t * (t * m * np.where(z == 0, 1.0, np.log1p(z) / z))
    if "f_alpha" not in needed:
        return {"f": f}
    slope = m * _log_mean_slope(z)
    tau, kappa = _tau(both, chi), _kappa(both, chi)
    third = b * tau[0] + a * tau[1]
    along_p = q * m * slope - (a * kappa[1] + b * third) / (1 + z)
    along_q = (b * kappa[0] + np.where(a == 0, 0.0, a * third)) / (1 + z)
    along_q += np.where(weighted == 0, 0.0, weighted * slope)
    return {"f": f, "f_alpha": t * (t * (t * along_p)), "f_beta": t * (t * (t * along_q))}


# --- opposite signs: alpha < 0 < beta, |alpha| <= beta --------------------------------------------


def _distance_to_end(small: FloatArray, large: FloatArray) -> FloatArray:
    """log(large/small)/(large - small), the distance from 0 to the finite end of the domain."""
    theta = large - small  # exact where the ratio is near 1
    logarithm = np.where(theta < small, np.log1p(theta / small), np.log(large) - np.log(small))
    return np.where(theta == 0, 1 / small, logarithm / theta)


def _opposite(x: _Points, needed: set[str]) -> Values:
    """With w = alpha (e^s - 1)/theta: f = (theta t^2 chi(s) - (w - log(1 + w))/alpha)/beta."""
    # Both terms are positive: nothing cancels near t = 0 or theta = 0.
    t, s, ratio, share = x.t, x.s, x.alpha / x.beta, x.theta / x.beta
    step = _expm1_quotient(t, x.theta, s)
    inside = (t < _distance_to_end(-x.alpha, x.beta)) & (x.alpha * step > -1)
    w = np.where(inside, x.alpha * step, 0.0)
    gap, chi = 1 + w, _chi(s)
    f = share * t * (t * chi) - (ratio * step) * (step * _log_second_remainder(w))
    values = {"f": f, "f_t": step / gap, "f_tt": (np.exp(s / 2) / gap) ** 2}
    if "f_alpha" in needed:
        kappa, cubic = _kappa(s, chi), _log_third_remainder(w)
        psi, psi_slope = 1 + s * chi, chi + s * kappa  # psi(s) = (e^s - 1)/s
        # |q| <= 1: the closed forms below, with their constant terms cancelled by hand.
        rest, pull = _tau(s, chi) - chi * (1 + psi) / 2, psi_slope / gap
        along_p = share * (rest + kappa) + ratio * psi * (psi * psi * (1 / gap - cubic) - pull)
        along_q = share * (kappa - ratio * rest) - ratio * psi * (ratio * psi * psi * cubic + pull)
        # |q| > 1: t^2 psi'(s)/(1 + w), free of cancellation for negative s.
        falling = (1 - (1 - s) * np.exp(s)) / x.theta / x.theta
        slope = np.where(s < -2, falling, t * (t * psi_slope)) / gap
        far_alpha = (slope + step * (step * _log_mean_slope(w))) / x.beta
        near = np.abs(x.beta * t) <= 1
        values["f_alpha"] = np.where(near, t * (t * (t * along_p)), far_alpha)
        values["f_beta"] = np.where(near, t * (t * (t * along_q)), (slope - f) / x.beta)
    limits = dict.fromkeys(values, np.inf) | {"f_alpha": -np.inf}
    return {name: np.where(inside, value, limits[name]) for name, value in values.items()}


# --- functions of one variable that keep full accuracy at 0 ---------------------------------------


def _expm1_quotient(t: FloatArray, theta: FloatArray, s: FloatArray) -> FloatArray:
    """(e^s - 1)/theta for s = theta t up to sign; t in the limit s -> 0, where s may underflow."""
    return np.where(np.abs(s) < _NEGLIGIBLE, t, np.expm1(s) / theta)


def _horner(coefficients: Sequence[float], x: FloatArray) -> FloatArray:
    """`numpy.polyval`, bit by bit, without two new arrays for every term."""
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total *= x
        total += coefficient
    return total


def _chi(x: FloatArray) -> FloatArray:
    """(e^x - 1 - x)/x^2; e^x overflows before chi does."""
    far = np.where(x > 700, (np.exp(x / 2) / x) ** 2, (np.expm1(x) / x - 1) / x)
    return np.where(np.abs(x) < 2, _horner(_CHI_SERIES, x), far)


def _tau(x: FloatArray, chi: FloatArray) -> FloatArray:
    """(chi(x) - 1/2)/x."""
    return np.where(np.abs(x) < 2, _horner(_TAU_SERIES, x), (chi - 0.5) / x)


def _kappa(x: FloatArray, chi: FloatArray) -> FloatArray:
    """chi'(x) = ((x - 2) e^x + x + 2)/x^3."""
    falling = ((1 - 2 / x) * np.exp(x) + 1 + 2 / x) / x / x
    far = np.where(x > 0, (1 - 2 / x) * chi + 1 / x, falling)
    return np.where(np.abs(x) < 2, _horner(_KAPPA_SERIES, x), far)


def _log_third_remainder(w: FloatArray) -> FloatArray:
    """(log(1 + w) - w + w^2/2)/w^3, w > -1."""
    v = w / (2 + w)  # log(1 + w) = 2 atanh(v), whose series leaves positive terms only
    series = (1 - v) / 4 * (1 + (1 - v) ** 2 * _horner(_ATANH_SERIES, v * v))
    return np.where(np.abs(v) <= 1 / 3, series, ((np.log1p(w) / w - 1) / w + 0.5) / w)


def _log_second_remainder(w: FloatArray) -> FloatArray:
    """(w - log(1 + w))/w^2, w > -1."""
    near = 0.5 - w * _log_third_remainder(w)
    return np.where(np.abs(w) <= 0.5, near, (1 - np.log1p(w) / w) / w)


def _log_mean_slope(z: FloatArray) -> FloatArray:
    """d/dz log(1 + z)/z, z > -1."""
    near = _log_second_remainder(z) - 1 / (1 + z)
    return np.where(np.abs(z) <= 0.5, near, (1 / (1 + z) - np.log1p(z) / z) / z)
