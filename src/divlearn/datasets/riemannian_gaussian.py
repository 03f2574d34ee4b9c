r"""The Riemannian Gaussian, and other densities that are functions of log-eigenvalues.

A density :math:`p(X) \propto \exp(-\sum_i V(t_i))` of the log-eigenvalues t of X, with respect to
the affine-invariant volume, is that of :math:`X = U \operatorname{diag}(e^t) U^T` with U uniform
on the orthogonal matrices and, independently, t from

.. math:: q(t) \propto \exp\Big(-\sum_i V(t_i)\Big) \prod_{i<j} \sinh\frac{|t_i - t_j|}{2} .

The parabola :math:`V(t) = t^2 / 2\sigma^2` gives the Riemannian Gaussian.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, DTypeLike
from scipy.interpolate import PchipInterpolator
from scipy.linalg import eigvalsh_tridiagonal

from divlearn.arrays import RealArray
from divlearn.checks import RandomState
from divlearn.datasets.synthetic import ClusterPlan, random_frames, require, row_blocks
from divlearn.threads import limit_blas

# Maps an array of log-eigenvalues to V, V' and V'', elementwise.
Potential = Callable[[RealArray], tuple[RealArray, RealArray, RealArray]]
Transport = Callable[[RealArray], tuple[RealArray, RealArray]]  # values and slopes

_MIN_CANDIDATES = 256  # enough to estimate the largest ratio of the densities from candidates
_MIN_ACCEPTANCE = 1e-3
_MAX_NEWTON_STEPS = 200
_MAX_LOG_EIGENVALUE = 300.0  # Newton steps diverge if q has no mode
# Knots beyond the outermost zero, in standard deviations: no draw lies beyond the last.
_OUTER_KNOTS = np.arange(0.5, 7.5, 0.5)


def make_riemannian_gaussian_clusters(
    n_clusters: int = 15,
    n_per_cluster: ArrayLike = 50,
    d: int = 5,
    *,
    sigma: ArrayLike | None = None,
    separation: float = 10.0,
    condition: float = 10.0,
    shuffle: bool = True,
    random_state: RandomState = None,
    return_centers: bool = False,
    dtype: DTypeLike = np.float64,
) -> tuple[np.ndarray, ...]:
    r"""Clusters of the Riemannian Gaussian, whose centres are their Riemannian means.

    .. math:: p(X) \propto \exp\Big(-\frac{d(X, C)^2}{2 \sigma^2}\Big)

    with respect to the affine-invariant volume, d being the affine-invariant distance.

    Parameters
    ----------
    sigma : float or array-like, shape (n_clusters,), optional
        Spread of the clusters; by default :math:`(d + 2)^{-1/2}`, that of Wishart matrices of
        2 d + 4 degrees of freedom. :math:`\sigma^2 (d - 1)` must be <= 36, or 16 in float32.
    other parameters, and the result : as in `make_wishart_clusters`

    Examples
    --------
    >>> make_riemannian_gaussian_clusters(2, 500, 3, sigma=0.1, random_state=0)[0].shape
    (1000, 3, 3)
    """
    plan = ClusterPlan(
        n_clusters, n_per_cluster, d, separation, condition, shuffle, random_state, dtype
    )
    spread = plan.per_cluster((d + 2) ** -0.5 if sigma is None else sigma, "sigma")
    smallest = math.sqrt(np.finfo(plan.dtype).eps)  # matrices differ in half of the digits
    largest = math.sqrt(-2 * math.log(smallest) / max(d - 1, 1))
    relation = f">= {smallest:.2g} and <= {largest:.3g} for d={d} in {plan.dtype}"
    require((spread >= smallest) & (spread <= largest), spread, "sigma", relation)
    logarithms = np.empty((len(plan.labels), d))
    for value in np.unique(spread):
        rows = (spread == value)[plan.labels]
        potential, count = parabola(float(value)), int(rows.sum())
        logarithms[rows], _ = sample_log_eigenvalues(potential, count, d, plan.random_state)

    def draw(rows: slice) -> RealArray:
        roots = np.exp(0.5 * logarithms[rows])
        return random_frames(len(roots), d, plan.random_state) * roots[:, None, :]

    return plan.make(spread, draw, "lower sigma", return_centers)


def parabola(sigma: float) -> Potential:
    precision = sigma**-2
    return lambda t: (0.5 * precision * t**2, precision * t, np.full_like(t, precision))


def sample_log_eigenvalues(
    potential: Potential, n_samples: int, d: int, random_state: np.random.RandomState
) -> tuple[RealArray, float]:
    """Draw from q(t) by rejection; return ascending rows and the acceptance rate."""
    # V must be convex, minimal at zero, and steeper than (d - 1) / 2 far out. Candidates increase
    # with the eigenvalues of Gaussian matrices (Dumitriu and Edelman 2002), which repel as in q:
    # the ratio of the densities is then nearly constant (Bekerman, Figalli and Guionnet 2015). Its
    # bound is its largest value among all candidates (Caffo, Booth and Davis 2002).
    transport = _make_transport(potential, d)

    def draw(n_candidates: int) -> tuple[RealArray, RealArray]:
        """Draw candidates t; return also log(q / density of t), up to a constant."""
        t, log_ratio = np.empty((n_candidates, d)), np.empty(n_candidates)
        with limit_blas(1):  # on small matrices, several threads are slower than one
            for rows in row_blocks(n_candidates, d):
                x = _gaussian_eigenvalues(rows.stop - rows.start, d, random_state)
                t[rows], slope = transport(x)
                energy = potential(t[rows])[0] - 0.5 * x**2 - np.log(slope)
                log_ratio[rows] = _log_repulsion(t[rows], x) - energy.sum(axis=1)
        return t, log_ratio

    samples, score = np.empty((0, d)), np.empty(0)
    bound, n_candidates = -np.inf, 0
    while len(samples) < n_samples:
        missing, rate = n_samples - len(samples), (len(samples) + 1) / (n_candidates + 1)
        if rate < _MIN_ACCEPTANCE:
            raise ValueError(
                f"{len(samples)} of {n_candidates} candidates were accepted, must be >= "
                f"{_MIN_ACCEPTANCE:.1%}: the potential drives the {d} log-eigenvalues too far "
                "apart; take a steeper one"
            )
        n_new = _MIN_CANDIDATES + min(int(missing / rate), 4 * n_samples)
        t, log_ratio = draw(n_new)
        n_candidates += n_new
        # A candidate is accepted if log(uniform) < log_ratio - bound. The score is log_ratio -
        # log(uniform), so that earlier candidates are tested again if the bound rises.
        bound = max(bound, float(log_ratio.max()))
        score = np.concatenate([score, log_ratio + random_state.standard_exponential(n_new)])
        accepted = score > bound
        samples, score = np.concatenate([samples, t])[accepted], score[accepted]
    return samples[:n_samples], len(samples) / n_candidates


def _make_transport(potential: Potential, d: int) -> Transport:
    """Map the eigenvalues of a Gaussian matrix to log-eigenvalues, linearly beyond the knots."""
    zeros: RealArray = eigvalsh_tridiagonal(np.zeros(d), np.sqrt(np.arange(1, d) / 2))
    mode = _find_mode(potential, zeros)
    below = _extrapolate(lambda t: potential(-t), -zeros[::-1], -mode[::-1])
    above = _extrapolate(potential, zeros, mode)
    knots = np.concatenate([zeros[0] - _OUTER_KNOTS[::-1], zeros, zeros[-1] + _OUTER_KNOTS])
    interpolate = PchipInterpolator(knots, np.concatenate([-below[::-1], mode, above]))
    derivative = interpolate.derivative()

    def transport(x: RealArray) -> tuple[RealArray, RealArray]:
        inside = np.clip(x, knots[0], knots[-1])
        slope: RealArray = derivative(inside)
        return interpolate(inside) + (x - inside) * slope, slope

    return transport


def _standard_deviation(potential: Potential) -> float:
    """Return the standard deviation of the Gaussian of the same curvature at zero."""
    return float(1 / np.sqrt(potential(np.zeros(1))[2][0]))


def _find_mode(potential: Potential, zeros: RealArray) -> RealArray:
    """Ascending t that maximizes q, by Newton steps on the convex -log q."""
    d = len(zeros)
    t = zeros * _standard_deviation(potential)
    for _ in range(_MAX_NEWTON_STEPS):
        if not np.abs(t).max() < _MAX_LOG_EIGENVALUE:
            break
        _, slope, curvature = potential(t)
        half = (t[:, None] - t) / 2
        np.fill_diagonal(half, np.inf)
        gradient = slope - 0.5 * (1 / np.tanh(half)).sum(axis=1) + 0.5  # the diagonal counts 1/2
        stiffness = 0.25 / np.sinh(half) ** 2
        hessian = np.diag(curvature + stiffness.sum(axis=1)) - stiffness
        step = -np.linalg.solve(hessian, gradient)
        # At most half of a gap may close in a step, which keeps t ascending.
        closed_share = float((-np.diff(step) / np.diff(t)).max(initial=0.5))
        t = t + step * (0.5 / closed_share)
        if -gradient @ step < np.finfo(np.float64).eps * d:
            return t
    raise ValueError(
        f"the potential lets {d} log-eigenvalues go beyond {_MAX_LOG_EIGENVALUE:g} in magnitude: "
        f"its slope must soon exceed (d - 1) / 2 = {(d - 1) / 2:g} on both sides; take a steeper "
        "one"
    )


def _extrapolate(potential: Potential, zeros: RealArray, mode: RealArray) -> RealArray:
    """Map the outer knots x beyond the last zero to t of the same energy beyond the last mode."""
    # The energy of x is minimal at the last zero, that of t at the last mode. Near the minimum
    # their square roots are linear, and thus easy to interpolate.
    x = zeros[-1] + np.append(0, _OUTER_KNOTS)
    target = 0.5 * x**2 - np.log(x[:, None] - zeros[:-1]).sum(axis=1)
    target = np.sqrt(np.maximum(target - target[0], 0))
    reach = target[-1] * _standard_deviation(potential)
    while True:
        t = np.linspace(mode[-1], mode[-1] + reach, 4001)
        gap = t[:, None] - mode[:-1]
        energy = potential(t)[0] - (gap / 2 + np.log(-np.expm1(-gap))).sum(axis=1)  # log 2 sinh
        energy = np.sqrt(np.maximum(energy - energy[0], 0))
        if energy[-1] >= target[-1]:
            return np.interp(target[1:], energy, t)
        reach *= 2


def _gaussian_eigenvalues(n: int, d: int, random_state: np.random.RandomState) -> RealArray:
    """Eigenvalues of symmetric matrices S of density exp(-tr(S^2) / 2), ascending."""
    tridiagonal = np.zeros((n, d, d))
    index = np.arange(d)
    tridiagonal[:, index, index] = random_state.standard_normal((n, d))
    squares = random_state.chisquare(index[:0:-1], (n, d - 1))
    tridiagonal[:, index[1:], index[:-1]] = np.sqrt(squares / 2)
    return np.linalg.eigvalsh(tridiagonal, UPLO="L")


def _log_repulsion(t: RealArray, x: RealArray) -> RealArray:
    """Logarithm of prod_{i<j} sinh(|t_i - t_j| / 2) / |x_i - x_j|, up to a constant."""
    ratio = np.sinh((t[:, :, None] - t[:, None, :]) / 2)
    gap = x[:, :, None] - x[:, None, :]
    index = np.arange(t.shape[1])
    ratio[:, index, index] = gap[:, index, index] = 1
    return 0.5 * np.log(ratio / gap).sum(axis=(1, 2))
