r"""Fits and samples of the density :math:`\exp(-\kappa D^{(\alpha,\beta)}(X \,\|\, C)) / Z`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import OptimizeResult, minimize

from divlearn.arrays import RealArray
from divlearn.checks import RandomState, check_count, check_finite
from divlearn.datasets.riemannian_gaussian import Potential, sample_log_eigenvalues
from divlearn.datasets.synthetic import make_generator, random_frames, row_blocks
from divlearn.engines import Engine, Prepared, get_engine
from divlearn.likelihood.members import get_members
from divlearn.likelihood.normalizer import check_family, log_normalizer, smallest_kappa, solve_kappa
from divlearn.means import check_spread, mean_abld
from divlearn.spd import check_spd
from divlearn.spectral import abld_scalar
from divlearn.text import counted
from divlearn.threads import limit_blas

_LARGEST_PARAMETER = 8.0  # beyond it members differ little: D depends on c t only
_CENTER_TOLERANCE = 1e-9
_SMALLEST_DIVERGENCE = 1e-20  # mean divergence below which matrices are equal up to rounding


@dataclass(frozen=True, eq=False)
class LikelihoodFit:
    """A density fitted to SPD matrices, as `fit_likelihood` returns it.

    The log-likelihood is the mean logarithm of the density per matrix, with respect to dX.
    """

    alpha: float
    beta: float
    kappa: float
    center: RealArray
    log_likelihood: float
    n_iter: int
    converged: bool
    message: str

    def summary(self) -> str:
        """Say which density fits best and why the search stopped."""
        return (
            f"Most likely: alpha = {self.alpha:.3g}, beta = {self.beta:.3g}, kappa = "
            f"{self.kappa:.3g} (log-likelihood {self.log_likelihood:.4g} per matrix); "
            f"{self.message} ({counted(self.n_iter, 'iterations')})."
        )

    def log_density(self, X: ArrayLike | Prepared, *, engine: str | Engine = "auto") -> RealArray:
        """Logarithm of the density at each of several matrices; see `log_density`."""
        return log_density(X, self.center, self.alpha, self.beta, self.kappa, engine=engine)


def log_density(
    X: ArrayLike | Prepared,
    center: ArrayLike,
    alpha: float,
    beta: float,
    kappa: float,
    *,
    engine: str | Engine = "auto",
) -> RealArray:
    r"""Logarithm of the density :math:`p(X) = e^{-\kappa D(X \| C)} \det(X)^{-(d+1)/2} / Z`.

    It is a density with respect to dX, as those of Wishart matrices in scipy.stats are. At (0, 1)
    it is that of Wishart matrices with :math:`2 \kappa` degrees of freedom and the mean C, at
    (1, 0) that of inverse Wishart matrices with the harmonic mean C, at the origin the Riemannian
    Gaussian of variance :math:`1 / \kappa` around C.

    Parameters
    ----------
    X : array-like, shape (n_matrices, d, d), or data prepared by an engine
    center : array-like, shape (d, d)
    alpha, beta : float of the same sign
    kappa : float, > (d - 1) / 2 max(alpha, beta)
    engine : str or Engine, default="auto"

    Examples
    --------
    >>> from scipy.stats import wishart
    >>> X, center = np.diag([1.0, 3.0]), np.diag([1.0, 2.0])
    >>> log_density([X], center, 0, 1, 2.5).round(5)
    array([-3.15985])
    >>> round(float(wishart.logpdf(X, df=5, scale=center / 5)), 5)
    -3.15985
    """
    engine = get_engine(engine)
    data = engine.prepare(X)
    constant = log_normalizer(alpha, beta, kappa, data.d)
    divergences = engine.encode(data, np.asarray(center)[None], alpha, beta)[:, 0]
    with np.errstate(over="ignore"):  # a density may be zero
        return -kappa * divergences - constant - _log_volume(data)


def fit_likelihood(X: ArrayLike, *, engine: str | Engine = "auto") -> LikelihoodFit:
    r"""Member of the family, concentration and centre under which matrices are most likely.

    .. math:: \max_{\alpha, \beta \ge 0} \; \max_{C, \kappa} \; \frac{1}{n} \sum_i \log p(X_i)

    Divergences of different members cannot be compared with each other, as they all fall to zero
    along a ray c (alpha, beta); likelihoods can.

    Parameters
    ----------
    X : array-like, shape (n_matrices, d, d), around one centre, at least two that differ
    engine : str or Engine, default="auto"

    Returns
    -------
    LikelihoodFit
        With alpha and beta from 0 to 8, beyond which members differ by little from those along the
        same ray. The message says so if a parameter is 8.

    Notes
    -----
    A bounded quasi-Newton search in (alpha, beta) starts from the best named member. At each point
    C is the centroid and kappa the only root of :math:`E[D] = \frac1n \sum_i D(X_i \| C)`.
    Near the origin :math:`f = t^2/2 + (\beta - \alpha) t^3/6 + \dots` depends on
    :math:`\alpha + \beta` in second order only: from n matrices of a Riemannian Gaussian alpha and
    beta are each found to about :math:`n^{-1/4}`, their difference to :math:`n^{-1/2}`. Compare
    likelihoods, not positions. The manual's page on clustering says how many matrices are needed.

    Examples
    --------
    >>> from divlearn.datasets import make_wishart_clusters
    >>> X, _ = make_wishart_clusters(1, 500, 3, random_state=0)
    >>> fit = fit_likelihood(X)
    >>> fit.converged, fit.alpha < 0.1, abs(fit.beta - 1) < 0.1
    (True, True, True)
    """
    profile = _Profile(X, engine)
    for point in get_members("learn").starts:
        profile.evaluate(np.array(point))
    start = profile.best
    profile.init = start.center
    result = minimize(
        profile.evaluate,
        [start.alpha, start.beta],
        jac=True,
        method="L-BFGS-B",
        bounds=[(0, _LARGEST_PARAMETER)] * 2,
        options={"gtol": 1e-6, "ftol": 1e-13},
    )
    return _explain(profile.best, result)


def fit_member(
    X: ArrayLike | Prepared,
    alpha: float,
    beta: float,
    *,
    init: ArrayLike | None = None,
    engine: str | Engine = "auto",
) -> LikelihoodFit:
    """Concentration and centre under which matrices are most likely, for alpha, beta >= 0.

    The search of the centre starts from ``init``, shape (d, d); the rest is as in `fit_likelihood`.

    Examples
    --------
    >>> fit = fit_member([[[1.0]], [[np.e]]], 0, 0)  # log X has the variance 1/4
    >>> round(fit.kappa, 6), fit.center.round(6)
    (4.0, array([[1.648721]]))
    """
    if not (alpha >= 0 and beta >= 0):
        raise ValueError(
            f"(alpha, beta) = ({alpha:g}, {beta:g}) must both be >= 0; pass (-beta, -alpha) "
            "instead of two negative numbers, which is the same divergence"
        )
    profile = _Profile(X, engine, None if init is None else np.asarray(init))
    profile.evaluate(np.array([alpha, beta], dtype=float))
    return profile.best


class _Profile:
    """Likelihood of a point of the plane, maximised over the centre and the concentration."""

    best: LikelihoodFit  # the most likely so far

    def __init__(
        self, X: ArrayLike | Prepared, engine: str | Engine, init: RealArray | None = None
    ) -> None:
        self.engine, self.init = get_engine(engine), init
        data = self.engine.prepare(X)
        if data.dtype != np.float64:
            data = self.engine.prepare(data.matrices.astype(np.float64))
        if data.n_matrices < 2:
            raise ValueError(
                f"X has n_matrices={data.n_matrices}, must be >= 2 to estimate a centre and a "
                "spread; pass more matrices"
            )
        self.data, self._log_volume = data, float(_log_volume(data).mean())
        self._loss = np.inf

    def evaluate(self, point: RealArray) -> tuple[float, RealArray]:
        """Loss and gradient at (alpha, beta); the centre is searched from the previous one."""
        alpha, beta = point.tolist()
        centroid = mean_abld(
            self.data, alpha, beta, init=self.init, tol=_CENTER_TOLERANCE, engine=self.engine
        )
        if not centroid.objective > _SMALLEST_DIVERGENCE:
            raise ValueError(
                f"X has n_matrices={self.data.n_matrices}, all equal, must hold at least two "
                "that differ: the likelihood is unbounded; pass other matrices"
            )
        check_spread(centroid.objective, alpha, beta)
        self.init = centroid.mean
        kappa, (log_z, z_slopes) = solve_kappa(alpha, beta, centroid.objective, self.data.d)
        weights = np.full((self.data.n_matrices, 1), 1 / self.data.n_matrices)
        back: Any = self.engine.pullback(self.data, centroid.mean[None], alpha, beta, weights)
        slopes = np.array([float(back.alpha[0]), float(back.beta[0])])
        gradient = kappa * slopes + np.array(z_slopes[:2])
        loss = kappa * centroid.objective + log_z
        where = f"at alpha = {alpha:g}, beta = {beta:g}"
        check_finite(loss, "minus the log-likelihood", where)
        check_finite(float(np.abs(gradient).max()), "the gradient of the log-likelihood", where)
        if loss < self._loss:
            center, n_iter, converged = centroid.mean, centroid.n_iter, centroid.converged
            likelihood, message = -loss - self._log_volume, f"centre: {centroid.message}"
            fit = LikelihoodFit(alpha, beta, kappa, center, likelihood, n_iter, converged, message)
            self._loss, self.best = loss, fit
        return loss, gradient


def _log_volume(data: Prepared) -> RealArray:
    """Logarithm of det(X)^{(d+1)/2} of each matrix."""
    matrices = data.matrices.astype(np.float64, copy=False)
    return 0.5 * (data.d + 1) * np.linalg.slogdet(matrices)[1]


def _explain(best: LikelihoodFit, result: OptimizeResult) -> LikelihoodFit:
    """Complete the best fit with the outcome of the search."""
    at_limit = [name for name in ("alpha", "beta") if getattr(best, name) >= _LARGEST_PARAMETER]
    if at_limit:
        names = " and ".join(f"{name}={_LARGEST_PARAMETER:g}" for name in at_limit)
        message = f"{names}, the limit of the search: tails are heavier than any member's"
    elif result.success:
        message = "the gradient in (alpha, beta) vanished, or the likelihood stopped rising"
    else:
        message = f"the search stopped early: {result.message}"
    return replace(best, n_iter=int(result.nit), converged=bool(result.success), message=message)


def sample_family(
    alpha: float,
    beta: float,
    kappa: float,
    n_samples: int,
    center: ArrayLike,
    random_state: RandomState = None,
) -> RealArray:
    r"""Draw matrices from :math:`p(X) = e^{-\kappa D^{(\alpha,\beta)}(X \| C)} / Z`.

    It is a density with respect to the affine-invariant volume :math:`\det(X)^{-(d+1)/2} dX`: that
    of Wishart matrices of 2 kappa degrees of freedom and the mean C at (0, 1), see `log_density`.

    Parameters
    ----------
    alpha, beta, kappa, center : as in `log_density`
    n_samples : int, >= 1
    random_state : int, RandomState or None, default=None

    Returns
    -------
    ndarray, shape (n_samples, d, d)

    Notes
    -----
    Log-eigenvalues are drawn by rejection, eigenvectors uniformly. With kappa twice its lower bound
    about half of the candidates are accepted whatever d is, with large kappa nearly all, and a
    tenth where alpha and beta are both large.

    Examples
    --------
    >>> X = sample_family(0, 1, 10, 2000, np.eye(3), 0)
    >>> X.mean(axis=0).round(1) + 0.0  # Wishart matrices
    array([[1., 0., 0.],
           [0., 1., 0.],
           [0., 0., 1.]])
    """
    center = check_spd(center, ndim=2, name="center", dtype=np.float64)
    d = len(center)
    check_family(alpha, beta, kappa, d)
    count, generator = check_count(n_samples, "n_samples"), make_generator(random_state)
    t, _ = sample_log_eigenvalues(potential_of(alpha, beta, kappa), count, d, generator)
    try:
        return _rotate(t, np.linalg.cholesky(center), generator)
    except ValueError as error:
        raise ValueError(
            f"kappa={kappa:g} is so close to (d - 1) / 2 max(alpha, beta) = "
            f"{smallest_kappa(alpha, beta, d):g} that draws cannot be told from singular matrices; "
            "raise kappa"
        ) from error


def _rotate(t: RealArray, factor: RealArray, generator: np.random.RandomState) -> RealArray:
    """Draw matrices around L L^T with log-eigenvalues t; raise if one is singular."""
    n_samples, d = t.shape
    X = np.empty((n_samples, d, d))
    with limit_blas(1):
        for rows in row_blocks(n_samples, d):
            frames = random_frames(len(t[rows]), d, generator)
            roots = factor @ (frames * np.exp(0.5 * t[rows])[:, None, :])
            X[rows] = check_spd(roots @ roots.mT)
    return X


def potential_of(alpha: float, beta: float, kappa: float) -> Potential:
    def potential(t: RealArray) -> tuple[RealArray, RealArray, RealArray]:
        values = abld_scalar(t, alpha, beta, derivatives=("f_t", "f_tt"))
        return kappa * values.f, kappa * values.f_t, kappa * values.f_tt

    return potential
