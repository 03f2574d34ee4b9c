r"""The constant that makes a density of :math:`\exp(-\kappa D(X \,\|\, C))`.

With respect to the affine-invariant volume :math:`\det(X)^{-(d+1)/2} dX` it does not depend on C.
In the log-eigenvalues x of :math:`C^{-1/2} X C^{-1/2}` it is an integral over their differences,

.. math:: Z = \frac{\pi^{d^2/2}}{\Gamma_d(d/2)} \int_{x_1 < \dots < x_d}
          \prod_{i<j} 2 \sinh\frac{x_j - x_i}{2} \prod_i w(x_i) \, dx,
          \qquad w(x) = e^{-\kappa f(x; \alpha, \beta)},

where the product of sinh is the determinant of :math:`\phi_j(x_i) = e^{j x_i}`,
:math:`j = -\frac{d-1}{2}, \dots, \frac{d-1}{2}`. By de Bruijn's formula the integral is the
Pfaffian of :math:`A_{jk} = \iint \operatorname{sgn}(y - x) \phi_j(x) \phi_k(y) w(x) w(y)\,dx\,dy`,
bordered by the single integrals :math:`\int \phi_j w` if d is odd.
"""

import math
from functools import lru_cache

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import multigammaln, sici

from divlearn.alpha_beta import nonnegative_point
from divlearn.arrays import RealArray, as_real
from divlearn.checks import check_count, check_finite
from divlearn.spectral import abld_scalar, invert_f_t

_NEGLIGIBLE = 42.0  # of an exponent: e^-42 is far below rounding
_ROUNDING_OF_CLOSED_FORM = 1e-11  # beyond it quadrature is more accurate
_LADDER = 1.25 ** np.arange(24.0)  # steps away from the mode, in units of the width
_TINY = np.finfo(np.float64).tiny
_SMALLEST_MARGIN = 1e-6  # relative; a smaller one would lose most digits to rounding
_SMALLEST_KAPPA = 1e-3  # for smaller ones matrices exceed the range of floating point
_SMALLEST_SLOPE = 0.2  # bounds the steps on a logarithmic scale

Normalizer = tuple[float, tuple[float, float, float]]  # log Z, and slopes in alpha, beta, kappa


def log_normalizer(alpha: float, beta: float, kappa: float, d: int) -> float:
    r"""Logarithm of the integral of :math:`\exp(-\kappa D)` over all SPD matrices.

    .. math:: Z(\alpha, \beta, \kappa) = \int_{S^{++}_d}
              e^{-\kappa D^{(\alpha,\beta)}(X \| C)} \det(X)^{-(d+1)/2} \, dX,

    whatever C is. It is finite if and only if
    :math:`\kappa > \frac{d-1}{2} \max(\alpha, \beta)`.

    Parameters
    ----------
    alpha, beta : float of the same sign
    kappa : float, concentration
    d : int, rows of a matrix

    Notes
    -----
    Closed forms serve (0, 1), where the density is that of Wishart matrices with 2 kappa degrees of
    freedom, (1, 0), inverse Wishart matrices, and alpha + beta = 1, matrix-F; with
    :math:`K = \kappa / \alpha\beta`,

    .. math:: Z_{(0,1)} = (e / \kappa)^{\kappa d} \, \Gamma_d(\kappa), \qquad
              Z_{\alpha+\beta=1} = \Big(\frac{\beta}{\alpha}\Big)^{\alpha K d} \beta^{-K d}
              \frac{\Gamma_d(\kappa/\beta) \, \Gamma_d(\kappa/\alpha)}{\Gamma_d(K)} .

    Elsewhere, and where these cancel, quadrature is used. The error is below 1e-9 for d <= 20 and
    1e-8 for d <= 64. :math:`Z(\alpha, \beta) = Z(\beta, \alpha) =
    Z(-\alpha, -\beta)` exactly.

    Examples
    --------
    >>> round(log_normalizer(0, 0, 0.5, 1), 12), round(0.5 * math.log(4 * math.pi), 12)
    (1.265512123485, 1.265512123485)
    """
    low, high = check_family(alpha, beta, kappa, d)
    closed = _closed_form(low, high, float(kappa), int(d))
    return _pfaffian(low, high, float(kappa), int(d))[0] if closed is None else closed


def differentiate_normalizer(alpha: float, beta: float, kappa: float, d: int) -> Normalizer:
    """Compute log Z with its derivatives, from one pass of quadrature."""
    # The trapezoid rule converges spectrally here, and so does integration up to each of its nodes
    # by the integral of the sinc function (Stenger 1993, section 3.6). Functions orthonormal with
    # the weight w^2 replace exponentials, which leaves a Pfaffian of condition number about d.
    low, high = check_family(alpha, beta, kappa, d)
    log_z, (in_low, in_high, in_kappa) = _pfaffian(low, high, float(kappa), int(d))
    if min(alpha, beta) < 0:  # Z(-alpha, -beta) = Z(alpha, beta)
        in_low, in_high = -in_low, -in_high
    if abs(alpha) > abs(beta):
        return log_z, (in_high, in_low, in_kappa)
    return log_z, (in_low, in_high, in_kappa)


def smallest_kappa(alpha: float, beta: float, d: int) -> float:
    """Concentration at and below which Z is infinite."""
    return 0.5 * (d - 1) * max(abs(alpha), abs(beta))


def solve_kappa(
    alpha: float,
    beta: float,
    mean_divergence: float,
    d: int,
    *,
    margin: float = math.nan,
    largest: float = math.inf,
    rtol: float = 1e-9,
) -> tuple[float, Normalizer]:
    """Solve for the concentration whose expected divergence is the observed one."""
    # ``margin`` is a guess of kappa minus its lower bound, ``largest`` a bound of the result, and
    # ``rtol`` the tolerance of the divergence.
    where = "that kappa is solved from"
    check_finite(mean_divergence, "the mean divergence", where, or_infinite=True)
    least, moment = smallest_kappa(alpha, beta, d), 0.25 * d * (d + 1)
    # E[D] is moment / kappa for large kappa, and inverse to the margin near the lower bound: on
    # logarithmic scales the slope is always about one.
    if mean_divergence * largest <= moment:
        return largest, differentiate_normalizer(alpha, beta, largest, d)
    smallest = max(least * (1 + _SMALLEST_MARGIN), _SMALLEST_KAPPA * max(1.0, alpha + beta) ** 2)
    floor = math.log(smallest - least)

    def evaluate(log_margin: float) -> tuple[float, Normalizer, float]:
        kappa = least + math.exp(log_margin)
        normalizer = differentiate_normalizer(alpha, beta, kappa, d)
        return kappa, normalizer, math.log(mean_divergence) - math.log(-normalizer[1][2])

    log_margin = max(floor, math.log(margin if margin > 0 else moment / mean_divergence))
    (kappa, normalizer, error), slope = evaluate(log_margin), 1.0
    low, high = -math.inf, math.inf
    while abs(error) > rtol and not (error > 0 and log_margin == floor):
        low, high = (log_margin, high) if error < 0 else (low, log_margin)
        proposed = log_margin - error / slope
        if not low < proposed < high:  # both are finite then
            proposed = 0.5 * (low + high)
        proposed = max(floor, proposed)
        if proposed == log_margin:
            break
        previous_error = error
        kappa, normalizer, error = evaluate(proposed)
        slope = max((error - previous_error) / (proposed - log_margin), _SMALLEST_SLOPE)
        log_margin = proposed
    return kappa, normalizer


def check_family(alpha: float, beta: float, kappa: float, d: int) -> tuple[float, float]:
    """Check that Z exists; returns the magnitudes of alpha and beta, ascending."""
    for name, value in {"alpha": alpha, "beta": beta, "kappa": kappa}.items():
        if as_real(value, name).ndim:
            raise ValueError(f"{name} must be a single number")
    check_count(d, "d")
    low, high = sorted(nonnegative_point(float(alpha), float(beta)))
    least = smallest_kappa(alpha, beta, d)
    if not kappa > least:
        raise ValueError(
            f"kappa={kappa:g} must be > (d - 1) / 2 max(alpha, beta) = {least:g}, or the integral "
            "is infinite; raise kappa or lower alpha and beta"
        )
    return low, high


def _closed_form(low: float, high: float, kappa: float, d: int) -> float | None:
    """Evaluate the closed form on alpha + beta = 1; None off that line or if it cancels."""
    if low + high != 1:
        return None
    if low == 0:
        terms = [kappa * d, -kappa * d * math.log(kappa), multigammaln(kappa, d)]
    else:
        K = kappa / (low * high)
        terms = [
            d * low * K * math.log(high / low),
            -d * K * math.log(high),
            multigammaln(kappa / high, d),
            multigammaln(kappa / low, d),
            -multigammaln(K, d),
        ]
    rounding = np.finfo(np.float64).eps * max(abs(term) for term in terms)
    return float(math.fsum(terms)) if rounding < _ROUNDING_OF_CLOSED_FORM else None


@lru_cache(maxsize=64)  # fits often start where the previous one ended
def _pfaffian(low: float, high: float, kappa: float, d: int) -> Normalizer:
    nodes, root = _place_nodes(low, high, kappa, d)
    values = abld_scalar(nodes, low, high, derivatives=("f_alpha", "f_beta"))
    basis, log_determinant = _orthonormalize(nodes, np.log(root) - kappa * values.f, d)
    integrals = root * _integrate(root * basis)
    skew = basis @ integrals.T
    if d % 2:  # bordered by the single integrals, as for one more eigenvalue at infinity
        border = basis @ root
        skew = np.block([[skew, border[:, None]], [-border, np.zeros((1, 1))]])
        integrals = np.vstack([integrals, root])
    skew = 0.5 * (skew - skew.T)
    density = -np.einsum("ki,ki->i", np.linalg.inv(skew)[:d].T @ basis, integrals)
    log_z = log_determinant + 0.5 * np.linalg.slogdet(skew)[1]
    log_z += 0.5 * d * d * math.log(math.pi) - multigammaln(d / 2, d)
    # Where f overflows there are no eigenvalues.
    f, in_alpha, in_beta = (
        float(density @ np.nan_to_num(row, nan=np.nan, posinf=0, neginf=0))
        for row in (values.f, values.f_alpha, values.f_beta)
    )
    return float(log_z), (-kappa * in_alpha, -kappa * in_beta, -f)


def _integrate(functions: RealArray) -> RealArray:
    """Integrate sgn(y - x) times each row over y, at each node x; nodes are a unit apart."""
    n_nodes = functions.shape[1]
    sinc_integral = 2 / np.pi * sici(np.pi * np.arange(n_nodes))[0]  # replaces the sign
    length = next_fast_len(2 * n_nodes - 1, real=True)  # of a circular convolution without overlap
    kernel = np.zeros(length)
    kernel[:n_nodes] = -sinc_integral
    kernel[length - n_nodes + 1 :] = sinc_integral[:0:-1]
    return irfft(rfft(kernel) * rfft(functions, length), length)[:, :n_nodes]


def _place_nodes(low: float, high: float, kappa: float, d: int) -> tuple[RealArray, RealArray]:
    """Nodes of the trapezoid rule, wider in the tails, and the square roots of their weights."""
    width = 1 / math.sqrt(kappa)  # of w near 0
    # Orthonormal functions of degree d oscillate and extend like Hermite functions.
    oscillation = math.sqrt(2 * d)
    modes, ends = _reach(low, high, kappa, d)
    unit = modes.max() + (6 + oscillation) * width
    # f has its nearest singularity at the height pi / theta, or none; w turns at half of that.
    finest = min(2.4 * width / (8 + 1.5 * oscillation), 0.18 / max(low + high, _TINY))
    # x = unit / 2 sinh(2 sinh u): in the tails functions vary on the scale of x itself, or slower.
    last, first = np.arcsinh(0.5 * np.arcsinh(2 * ends / unit)) * [1, -1]
    n_nodes = 1 + math.ceil((last - first) * unit / finest)
    u, step = np.linspace(first, last, n_nodes, retstep=True)
    v = 2 * np.sinh(u)
    return 0.5 * unit * np.sinh(v), np.sqrt(float(step) * unit * np.cosh(v) * np.cosh(u))


def _reach(alpha: float, beta: float, kappa: float, d: int) -> tuple[RealArray, RealArray]:
    """Distances to the right and left where e^{(d-1)|x|/2} w(x) is largest, and negligible."""
    slope, sides = 0.5 * (d - 1), np.array([[1.0], [-1.0]])
    modes = np.abs(invert_f_t(slope / kappa * sides, alpha, beta))
    steps = np.append(0.0, _LADDER / math.sqrt(kappa))
    while True:
        x = modes + steps
        with np.errstate(over="ignore"):
            drop = kappa * abld_scalar(sides * x, alpha, beta, derivatives=()).f - slope * x
        # Orthonormal functions rise like a power of x that grows with d.
        far = drop >= drop[:, :1] + _NEGLIGIBLE + 2 * d
        if far.any(axis=1).all():
            return modes[:, 0], x[[0, 1], far.argmax(axis=1)]
        steps = np.append(steps, steps[-1] * _LADDER[1:])


def _orthonormalize(nodes: RealArray, log_weight: RealArray, d: int) -> tuple[RealArray, float]:
    """Orthonormal basis of e^{jx} exp(log_weight), and log-determinant of the change of basis."""
    # Function k is a multiple of an envelope, which spans more than the range of floating point.
    exponents = np.arange(d) - 0.5 * (d - 1)
    log_exponentials = log_weight + exponents[:, None] * nodes
    top = log_exponentials.max(axis=1, keepdims=True)
    log_norms = top[:, 0] + 0.5 * np.log(np.exp(2 * (log_exponentials - top)).sum(axis=1))
    rises = log_exponentials - log_norms[:, None]
    multiples, envelopes = np.ones((d, len(nodes))), rises.copy()
    log_leading = np.empty(d)
    log_leading[0] = log_norms[0]
    for k in range(1, d):
        envelope = np.maximum(rises[k], envelopes[k - 1])
        height = np.exp(envelope)
        sign, log_factor = _shifted_exponential(nodes, envelopes[k - 1], multiples[k - 1])
        log_factor -= envelope - envelopes[k - 1]
        scale = log_factor.max()
        latest = sign * np.exp(log_factor - scale) * multiples[k - 1]
        # By the three-term recurrence of polynomials in e^x, earlier functions are orthogonal.
        last_two = slice(max(k - 2, 0), k)
        previous = multiples[last_two] * np.exp(envelopes[last_two] - envelope)
        latest = latest - (previous @ (height**2 * latest)) @ previous
        norm = float(np.linalg.norm(height * latest))
        size = np.maximum(np.abs(latest) / norm, 1.0)  # multiples would overflow for large d
        multiples[k], envelopes[k] = latest / norm / size, envelope + np.log(size)
        log_leading[k] = log_leading[k - 1] + scale + math.log(norm)
    return multiples * np.exp(envelopes), float(log_leading.sum())


def _shifted_exponential(
    nodes: RealArray, envelope: RealArray, function: RealArray
) -> tuple[RealArray, RealArray]:
    """Sign and logarithm of e^x - c, with c the mean of e^x under the square of a function."""
    log_terms = 2 * (envelope + np.log(np.maximum(np.abs(function), _TINY))) + nodes
    top = log_terms.max()
    log_shift = top + np.log(np.exp(log_terms - top).sum())
    beyond = nodes - log_shift
    gap = np.maximum(-np.expm1(-np.abs(beyond)), _TINY)
    return np.sign(beyond), log_shift + np.maximum(beyond, 0) + np.log(gap)
