r"""Rules by which alpha, beta and kappa are chosen while matrices are clustered.

Maximum likelihood needs log-eigenvalues only. Matrices :math:`X_i` with weights :math:`w_i` lie
around one or more centres, and :math:`t_i` are their log-eigenvalues relative to the centre k(i).
The problem

.. math:: \min_{\alpha, \beta, \kappa, s} \; \sum_i w_i \Big[
          \kappa \sum_j f(t_{ij} - s_{k(i)}; \alpha, \beta) + \log Z(\alpha, \beta, \kappa) \Big]

includes one factor :math:`e^{s_k}` for each centre, the only move of it that shares information
with alpha, beta and kappa (Schur's lemma): alternating with other moves then costs almost nothing.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from divlearn.alpha_beta import Point
from divlearn.arrays import RealArray
from divlearn.checks import check_finite
from divlearn.cluster.clusters import Spectra
from divlearn.likelihood.members import Members, get_members
from divlearn.likelihood.normalizer import (
    Normalizer,
    differentiate_normalizer,
    log_normalizer,
    smallest_kappa,
    solve_kappa,
)
from divlearn.optim import Trial, minimize_projected_gradient
from divlearn.spectral import abld_scalar

_STEPS = 10  # per update of a rule
_TOLERANCE = 1e-5  # gain of the objective per unit of weight at which parameters have converged
_LARGEST = 1e3  # beyond it a parameter is taken to diverge
_LARGEST_KAPPA = 1e15  # beyond it matrices equal their centroids up to rounding
_SETTLED = 1e-2  # change of a parameter that counts as none
_KAPPA_TOLERANCES = (1e-9, 1e-5)  # relative; the likelihood loses the square of it
_UNIT_SAMPLE = 500  # matrices of each centre from which units of the search are estimated
_LEAST_INFORMATION = 1e-12
_LEAST_RATIO = 1.001  # of a fixed concentration to the bound above which Z is finite

# Densities exp(-kappa D) / Z: rows of alpha, beta, kappa and log Z, shape (4, n_components).
Densities = RealArray
# alpha, beta, and the concentration kappa, NaN where there is none
Parameters = tuple[float, float, float]
Update = tuple[Parameters, float, float]  # also the objective per unit of weight, and a log-factor


def fit_parameters(
    spectra: Spectra,
    members: Members,
    start: Point,
    *,
    tied: bool = True,
    kappa: RealArray | None = None,
    fixed: NDArray[np.bool_] | None = None,
    largest_kappa: float = math.inf,
    tol: float = 1e-10,
    max_iter: int = 100,
) -> ParameterSearch:
    """Find (alpha, beta), concentrations and factors of the centres, all at once."""
    # ``tied`` components share one concentration. ``kappa`` is the initial guess, which ``fixed``
    # components keep unless Z is infinite there. Matrices that equal their centre reach
    # ``largest_kappa``. The search stops when a step lowers the loss by less than about ``tol``.
    zeros = np.zeros(len(spectra))
    guess = zeros if kappa is None else kappa
    fixed_kappa = np.where(zeros > 0 if fixed is None else fixed, guess, np.nan)
    rtol = float(np.clip(tol, *_KAPPA_TOLERANCES))
    margin = guess - smallest_kappa(*start, spectra.d)
    problem = ParameterSearch(spectra, members, tied, fixed_kappa, margin, largest_kappa, rtol)
    coordinates = members.locate(*start)
    first_loss, first_gradient = problem.evaluate(coordinates, zeros)
    units, n_free = problem.units(), members.n_free
    initial = np.concatenate([coordinates, zeros]) / units

    def objective(scaled: RealArray) -> tuple[float, RealArray]:
        if np.array_equal(scaled, initial):
            return first_loss, first_gradient * units
        loss, gradient = problem.evaluate(*np.split(scaled * units, [n_free]))
        return loss, gradient * units

    limits = members.bounds + [(-np.inf, np.inf)] * len(zeros)
    least_gain = tol / max(1, abs(first_loss))
    minimize(
        objective,
        initial,
        jac=True,
        method="L-BFGS-B",
        bounds=[(low / unit, high / unit) for (low, high), unit in zip(limits, units, strict=True)],
        options={"maxiter": max_iter, "gtol": math.sqrt(tol), "ftol": least_gain},
    )
    return problem


class ParameterSearch:
    """Mean of kappa D + log Z over the weights, at coordinates of a member and shifts.

    It keeps the lowest ``loss`` so far, with its ``shift``, the log-factors of the centres.
    """

    def __init__(
        self,
        spectra: Spectra,
        members: Members,
        tied: bool,
        fixed_kappa: RealArray,
        margin: RealArray,
        largest_kappa: float,
        rtol: float,
    ) -> None:
        self.spectra, self.members, self.tied = spectra, members, tied
        self.fixed_kappa = fixed_kappa
        # The margin is the distance of the best kappa from its lower bound. ``fixed_kappa`` is NaN
        # where the concentration is free.
        self.margin, self.options = margin, {"largest": largest_kappa, "rtol": rtol}
        self.loss = math.inf  # the lowest so far, at these coordinates, shift, kappa and log_z
        self.coordinates: RealArray
        self.shift: RealArray
        self.kappa: RealArray
        self.log_z: RealArray

    def evaluate(self, coordinates: RealArray, shift: RealArray) -> tuple[float, RealArray]:
        """Loss and gradient; stores the arguments of the lowest loss."""
        point, share = self.members.place_nearby(coordinates), self.spectra.share
        D, in_alpha, in_beta, in_t = self.spectra.sums(*point, shift)
        kappas, constants = zip(*self._solve(point, D), strict=True)
        kappa = np.array(kappas)
        log_z, z_alpha, z_beta, _ = np.array([(value, *slopes) for value, slopes in constants]).T
        in_coordinates = self.members.pull(
            point, kappa @ in_alpha + share @ z_alpha, kappa @ in_beta + share @ z_beta
        )
        loss = float(kappa @ D + share @ log_z)
        gradient = np.concatenate([in_coordinates, -kappa * in_t])
        where = f"at alpha = {point[0]:g}, beta = {point[1]:g}"
        # The loss is infinite after a step that was too long.
        check_finite(loss, "minus the log-likelihood", where, or_infinite=self.loss < np.inf)
        if loss < np.inf:
            check_finite(float(np.abs(gradient).max()), "the gradient of the log-likelihood", where)
        if loss < self.loss:
            self.loss, self.coordinates, self.shift = loss, coordinates, shift
            self.kappa, self.log_z = kappa, log_z
            self.margin = kappa - smallest_kappa(*point, self.spectra.d)
        return loss, gradient

    def densities(self) -> Densities:
        point, log_z = self.members.place(self.coordinates), self.log_z
        if point != self.members.place_nearby(self.coordinates):
            log_z = np.array([log_normalizer(*point, k, self.spectra.d) for k in self.kappa])
        alpha, beta = (np.full(len(log_z), value) for value in point)
        return np.stack([alpha, beta, self.kappa, log_z])

    def units(self) -> RealArray:
        """Compute standard errors of a single matrix, of coordinates and shifts, at the best."""
        spectra, point = self.spectra, self.members.place_nearby(self.coordinates)
        of_shifts = 1 / np.sqrt(self.kappa * spectra.d * spectra.share)  # f_tt is about one
        clouds = spectra.thinned(_UNIT_SAMPLE)
        logs, weight = (np.concatenate(parts) for parts in zip(*clouds, strict=True))
        kappa = np.repeat(self.kappa, [len(t) for t, _ in clouds])
        s = abld_scalar(logs, *point, derivatives=("f_t", "f_alpha", "f_beta"))
        f, f_t, f_alpha, f_beta = (
            kappa * row.sum(axis=1) for row in (s.f, s.f_t, s.f_alpha, s.f_beta)
        )
        score = np.stack([*self.members.pull(point, f_alpha, f_beta), np.ones_like(f), f, f_t])
        score *= np.sqrt(weight / weight.sum())
        # Directions that kappa and the shifts explain carry no information about the member.
        member, nuisance = np.split(score.T, [self.members.n_free], axis=1)
        residuals = member - nuisance @ np.linalg.lstsq(nuisance, member)[0]
        information = np.maximum((residuals**2).sum(axis=0), _LEAST_INFORMATION)
        return np.concatenate([1 / np.sqrt(information), of_shifts])

    def _solve(self, point: Point, D: RealArray) -> list[tuple[float, Normalizer]]:
        d, options, margin = self.spectra.d, self.options, self.margin
        if self.tied:
            mean = float(D.sum())
            return len(D) * [solve_kappa(*point, mean, d, margin=margin[0], **options)]
        solved = []
        means = D / self.spectra.share
        for mean, guess, fixed in zip(means, margin, self.fixed_kappa, strict=True):
            if np.isnan(fixed):
                solved.append(solve_kappa(*point, mean, d, margin=guess, **options))
            else:
                kappa = max(float(fixed), _LEAST_RATIO * smallest_kappa(*point, d))
                solved.append((kappa, differentiate_normalizer(*point, kappa, d)))
        return solved


class Rule:
    """The rule for fixed parameters, and the base of the others."""

    paper = False  # whether centroids move by conjugate gradients

    def __init__(self, alpha: float = 1.0, beta: float = 1.0) -> None:
        self.start: Parameters = (alpha, beta, math.nan)

    def begin(self, mean: float, d: int) -> Parameters:
        """Return initial parameters, given the mean divergence to the first centroids."""
        return self.start

    def objective(self, mean: float, parameters: Parameters, weight: float, d: int) -> float:
        """Compute the objective per unit of weight from the mean divergence."""
        return mean

    def settled(self, before: Parameters, after: Parameters) -> bool:
        """Whether the parameters have converged, given that the clusters have."""
        return True

    def warning(self, parameters: Parameters) -> str | None:
        """Return a message if the parameters diverge, else None."""
        return None


class Penalized(Rule):
    r"""The paper's rule, :math:`\sum_i w_i D_i + \alpha^2 + \beta^2`, with alpha = beta if tied."""

    def __init__(self, *, tied: bool = False, paper: bool = False) -> None:
        super().__init__()
        self.tied, self.paper = tied, paper

    def objective(self, mean: float, parameters: Parameters, weight: float, d: int) -> float:
        alpha, beta, _ = parameters
        return mean + (alpha**2 + beta**2) / weight

    def update(self, parameters: Parameters, spectra: Spectra, weight: float) -> Update:
        """Improve the parameters for the same clusters."""
        scale = max(*parameters[:2], 1.0)
        problem = _PenalizedProblem(spectra, scale, 1 / weight)
        pair = np.array(parameters[:2])
        start = problem.trial(pair.mean(keepdims=True) if self.tied else pair)
        # Sizes are in units of the scale, gradients in units of the objective over the scale.
        tol = _TOLERANCE * start.value / scale**2
        best = minimize_projected_gradient(problem, start, max_iter=_STEPS, tol=tol).trial
        alpha, beta = np.broadcast_to(best.point, 2).tolist()
        return (alpha, beta, math.nan), best.value, 0.0

    def warning(self, parameters: Parameters) -> str | None:
        alpha, beta, _ = parameters
        if max(alpha, beta) <= _LARGEST:
            return None
        return (
            f"alpha={alpha:.3g} and beta={beta:.3g} grow without end: divergences fall to zero "
            "along every ray of (alpha, beta), and the penalty alpha^2 + beta^2 is too small for "
            "the divergences of so many matrices; fix the divergence, or set "
            'divergence="likelihood"'
        )


class Likelihood(Rule):
    r"""Maximum likelihood, :math:`\kappa \sum_i w_i D_i + W \log Z(\alpha, \beta, \kappa)`."""

    # One factor of all centroids is fitted jointly with the parameters; alternating would be slow.

    def begin(self, mean: float, d: int) -> Parameters:
        """Start with the concentration that is right in the limit of large ones."""
        alpha, beta, _ = self.start
        spread = max(mean, 1 / _LARGEST_KAPPA)
        return alpha, beta, smallest_kappa(alpha, beta, d) + 0.25 * d * (d + 1) / spread

    def objective(self, mean: float, parameters: Parameters, weight: float, d: int) -> float:
        return parameters[2] * mean + log_normalizer(*parameters, d)

    def update(self, parameters: Parameters, spectra: Spectra, weight: float) -> Update:
        best = fit_parameters(
            spectra,
            get_members("learn"),
            parameters[:2],
            kappa=np.array([parameters[2]]),
            largest_kappa=_LARGEST_KAPPA,
            tol=_TOLERANCE,
            max_iter=_STEPS,
        )
        alpha, beta, kappa, _ = best.densities()[:, 0].tolist()
        return (alpha, beta, kappa), best.loss, float(best.shift[0])

    def settled(self, before: Parameters, after: Parameters) -> bool:
        return bool(np.abs(np.subtract(before[:2], after[:2])).max() <= _SETTLED)

    def warning(self, parameters: Parameters) -> str | None:
        if parameters[2] < _LARGEST_KAPPA:
            return None
        return (
            f"kappa={parameters[2]:.2g} grows without end: matrices equal their centroids, so that "
            "the likelihood is unbounded; lower n_clusters, or fix the divergence"
        )


Learned = Penalized | Likelihood


class _PenalizedProblem:
    """The paper's objective per unit of weight, in alpha and beta or, if tied, in one number."""

    def __init__(self, spectra: Spectra, scale: float, penalty: float) -> None:
        self._spectra, self._scale, self._penalty = spectra, scale, penalty

    def trial(self, variables: RealArray) -> Trial:
        pair = np.broadcast_to(variables, 2)
        sums = self._spectra.sums(float(pair[0]), float(pair[1]), np.zeros(1))[:, 0]
        gradient = sums[1:3] + 2 * self._penalty * pair
        value = float(sums[0] + self._penalty * (pair @ pair))
        tied = len(variables) == 1
        return Trial(variables, value, gradient.sum(keepdims=True) if tied else gradient)

    def gradient(self, trial: Trial) -> RealArray:
        return trial.memo

    def move(self, variables: RealArray, step: RealArray) -> RealArray:
        return np.maximum(variables + step, 0)

    def size(self, step: RealArray) -> float:
        return float(np.abs(step).max()) / self._scale

    def limits(self, variables: RealArray) -> RealArray:
        return -variables
