r"""Rules by which alpha, beta and kappa are chosen while matrices are clustered.

The most likely ones are found from log-eigenvalues. Matrices :math:`X_i` with weights :math:`w_i`
lie around centres of which there may be several, :math:`t_i` being their log-eigenvalues relative
to the own centre. Then

.. math:: \min_{\alpha, \beta, \kappa, s} \; \sum_i w_i \Big[
          \kappa \sum_j f(t_{ij} - s_{k(i)}; \alpha, \beta) + \log Z(\alpha, \beta, \kappa) \Big]

is found together with one factor :math:`e^{s_k}` for each centre, the only move of it that shares
information with alpha, beta and kappa (Schur's lemma): taking turns then loses next to nothing.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from divlearn.arrays import RealArray
from divlearn.checks import check_finite
from divlearn.cluster.clusters import Spectra
from divlearn.likelihood.members import Members, Point, get_members
from divlearn.likelihood.normalizer import (
    Normalizer,
    differentiate_normalizer,
    log_normalizer,
    smallest_kappa,
    solve_kappa,
)
from divlearn.optim.gradients import minimize_projected_gradient
from divlearn.optim.problem import Trial
from divlearn.spectral import abld_scalar

_STEPS = 10  # per update of a rule; the next one goes on from there
_TOLERANCE = 1e-5  # of the objective per unit of weight that a change of the parameters gains
_LARGEST = 1e3  # from which a parameter is taken to grow without end
_LARGEST_KAPPA = 1e15  # from which matrices equal their centroids up to rounding
_SETTLED = 1e-2  # change of a parameter that is none
_KAPPA_TOLERANCES = (1e-9, 1e-5)  # relative; what is lost of the likelihood is the square of it
_ENOUGH = 500  # matrices of one centre, to see in which units to search
_LEAST_INFORMATION = 1e-12
_LEAST_RATIO = 1.001  # of a concentration that is kept to the least for which Z is finite


# Densities exp(-kappa D) / Z: rows of alpha, beta, kappa and log Z, shape (4, n_components).
Densities = RealArray
# Densities; the logarithm of the factor of each centre, shape (n_components,); and the mean over
# the weights of kappa D + log Z.
ParameterFit = tuple[Densities, RealArray, float]
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
    held: NDArray[np.bool_] | None = None,
    largest_kappa: float = math.inf,
    tol: float = 1e-10,
    max_iter: int = 100,
) -> ParameterFit:
    """Find (alpha, beta), concentrations and factors of the centres, all at once."""
    # ``tied`` components have one concentration; ``kappa`` guesses them, and components ``held``
    # keep that guess unless Z is infinite there. Matrices that equal their centre reach
    # ``largest_kappa``. The search ends where a step lowers the loss by no more than about ``tol``.
    zeros = np.zeros(len(spectra))
    guess = zeros if kappa is None else kappa
    kept = np.where(zeros > 0 if held is None else held, guess, np.nan)
    rtol = float(np.clip(tol, *_KAPPA_TOLERANCES))
    margin = guess - smallest_kappa(*start, spectra.d)
    problem = _Problem(spectra, members, tied, kept, margin, largest_kappa, rtol)
    coordinates = members.locate(*start)
    first_loss, first_gradient = problem.evaluate(coordinates, zeros)
    units, n_free = problem.units(), members.n_free
    at_first = np.concatenate([coordinates, zeros]) / units

    def objective(scaled: RealArray) -> tuple[float, RealArray]:
        if np.array_equal(scaled, at_first):
            return first_loss, first_gradient * units
        loss, gradient = problem.evaluate(*np.split(scaled * units, [n_free]))
        return loss, gradient * units

    limits = members.bounds + [(-np.inf, np.inf)] * len(zeros)
    least_gain = tol / max(1, abs(first_loss))
    minimize(
        objective,
        at_first,
        jac=True,
        method="L-BFGS-B",
        bounds=[(low / unit, high / unit) for (low, high), unit in zip(limits, units, strict=True)],
        options={"maxiter": max_iter, "gtol": math.sqrt(tol), "ftol": least_gain},
    )
    return problem.densities(), problem.shift, problem.loss


class _Problem:
    """The objective, as a mean over the weights, at coordinates of a member and shifts."""

    def __init__(
        self,
        spectra: Spectra,
        members: Members,
        tied: bool,
        kept: RealArray,
        margin: RealArray,
        largest_kappa: float,
        rtol: float,
    ) -> None:
        self.spectra, self.members, self.tied, self.kept = spectra, members, tied, kept
        # The margin is how far kappa lies above its lower bound at the best place. Concentrations
        # that are given are kept, and NaN where they are not.
        self.margin, self.options = margin, {"largest": largest_kappa, "rtol": rtol}
        self.loss = math.inf  # the least, at these coordinates, shift, kappa and log_z
        self.coordinates: RealArray
        self.shift: RealArray
        self.kappa: RealArray
        self.log_z: RealArray

    def evaluate(self, coordinates: RealArray, shift: RealArray) -> tuple[float, RealArray]:
        """Loss and gradient; the place of the least loss is kept."""
        point, share = self.members.place_nearby(coordinates), self.spectra.share
        D, in_alpha, in_beta, in_t = self.spectra.sums(*point, shift)
        kappas, constants = zip(*self._solve(point, D), strict=True)
        kappa = np.array(kappas)
        log_z, z_alpha, z_beta, _ = np.array([(one, *slopes) for one, slopes in constants]).T
        in_coordinates = self.members.pull(
            point, kappa @ in_alpha + share @ z_alpha, kappa @ in_beta + share @ z_beta
        )
        loss = float(kappa @ D + share @ log_z)
        gradient = np.concatenate([in_coordinates, -kappa * in_t])
        where = f"at alpha = {point[0]:g}, beta = {point[1]:g}"
        # An infinite loss is that of a step that was too long.
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
            log_z = np.array([log_normalizer(*point, one, self.spectra.d) for one in self.kappa])
        alpha, beta = (np.full(len(log_z), value) for value in point)
        return np.stack([alpha, beta, self.kappa, log_z])

    def units(self) -> RealArray:
        """One standard error for a single matrix, of every coordinate and shift, at the best."""
        spectra, point = self.spectra, self.members.place_nearby(self.coordinates)
        of_shifts = 1 / np.sqrt(self.kappa * spectra.d * spectra.share)  # f_tt is about one
        clouds, scores = spectra.thinned(_ENOUGH), []
        for (t, _), kappa in zip(clouds, self.kappa, strict=True):
            at = abld_scalar(t, *point, derivatives=("f_t", "f_alpha", "f_beta"))
            f, f_t, f_alpha, f_beta = (
                kappa * row.sum(axis=1) for row in (at.f, at.f_t, at.f_alpha, at.f_beta)
            )
            ones = np.ones(len(f))
            scores.append(np.stack([*self.members.pull(point, f_alpha, f_beta), ones, f, f_t]))
        weight = np.concatenate([weight for _, weight in clouds])
        score = np.concatenate(scores, axis=1) * np.sqrt(weight / weight.sum())
        # What kappa and the shifts explain is not information about the member.
        unknown, known = np.split(score.T, [self.members.n_free], axis=1)
        left = unknown - known @ np.linalg.lstsq(known, unknown)[0]
        information = np.maximum((left**2).sum(axis=0), _LEAST_INFORMATION)
        return np.concatenate([1 / np.sqrt(information), of_shifts])

    def _solve(self, point: Point, D: RealArray) -> list[tuple[float, Normalizer]]:
        d, options, margin = self.spectra.d, self.options, self.margin
        if self.tied:
            mean = float(D.sum())
            return len(D) * [solve_kappa(*point, mean, d, margin=margin[0], **options)]
        solved = []
        for mean, guess, kept in zip(D / self.spectra.share, margin, self.kept, strict=True):
            if np.isnan(kept):
                solved.append(solve_kappa(*point, mean, d, margin=guess, **options))
            else:
                kappa = max(float(kept), _LEAST_RATIO * smallest_kappa(*point, d))
                solved.append((kappa, differentiate_normalizer(*point, kappa, d)))
        return solved


class Rule:
    """The rule for parameters that are given, and the base of the others."""

    paper = False  # whether centroids move as in the paper

    def __init__(self, alpha: float = 1.0, beta: float = 1.0) -> None:
        self.start: Parameters = (alpha, beta, math.nan)

    def begin(self, mean: float, d: int) -> Parameters:
        """Return initial parameters, given the mean divergence to the first centroids."""
        return self.start

    def objective(self, mean: float, parameters: Parameters, weight: float, d: int) -> float:
        """Compute what is minimised, per unit of weight, given the mean divergence."""
        return mean

    def settled(self, before: Parameters, after: Parameters) -> bool:
        """Whether the parameters may stay where they are once the clusters do."""
        return True

    def trouble(self, parameters: Parameters) -> str | None:
        """Say what is wrong with parameters that mean nothing any more."""
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
        """Better parameters for the same clusters."""
        scale = max(*parameters[:2], 1.0)
        problem = _PenalizedProblem(spectra, scale, 1 / weight)
        both = np.array(parameters[:2])
        start = problem.trial(both.mean(keepdims=True) if self.tied else both)
        # Sizes are in units of the scale; the gradient times the scale is a share of the objective.
        tol = _TOLERANCE * start.value / scale**2
        found = minimize_projected_gradient(problem, start, max_iter=_STEPS, tol=tol).trial
        alpha, beta = np.broadcast_to(found.point, 2).tolist()
        return (alpha, beta, math.nan), found.value, 0.0

    def trouble(self, parameters: Parameters) -> str | None:
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

    # One factor of all centroids is found along with the parameters; taking turns would be slow.

    def begin(self, mean: float, d: int) -> Parameters:
        """Start with the concentration that would be right if it were large."""
        alpha, beta, _ = self.start
        spread = max(mean, 1 / _LARGEST_KAPPA)
        return alpha, beta, smallest_kappa(alpha, beta, d) + 0.25 * d * (d + 1) / spread

    def objective(self, mean: float, parameters: Parameters, weight: float, d: int) -> float:
        return parameters[2] * mean + log_normalizer(*parameters, d)

    def update(self, parameters: Parameters, spectra: Spectra, weight: float) -> Update:
        found, shift, loss = fit_parameters(
            spectra,
            get_members("learn"),
            parameters[:2],
            kappa=np.array([parameters[2]]),
            largest_kappa=_LARGEST_KAPPA,
            tol=_TOLERANCE,
            max_iter=_STEPS,
        )
        alpha, beta, kappa, _ = found[:, 0].tolist()
        return (alpha, beta, kappa), loss, float(shift[0])

    def settled(self, before: Parameters, after: Parameters) -> bool:
        return bool(np.abs(np.subtract(before[:2], after[:2])).max() <= _SETTLED)

    def trouble(self, parameters: Parameters) -> str | None:
        if parameters[2] < _LARGEST_KAPPA:
            return None
        return (
            f"kappa={parameters[2]:.2g} grows without end: matrices equal their centroids, so that "
            "the likelihood is unbounded; lower n_clusters, or fix the divergence"
        )


Learned = Penalized | Likelihood


class _PenalizedProblem:
    """The paper's objective per unit of weight, in alpha and beta or in what both are."""

    def __init__(self, spectra: Spectra, scale: float, penalty: float) -> None:
        self._spectra, self._scale, self._penalty = spectra, scale, penalty

    def trial(self, variables: RealArray) -> Trial:
        both = np.broadcast_to(variables, 2)
        sums = self._spectra.sums(float(both[0]), float(both[1]), np.zeros(1))[:, 0]
        gradient = sums[1:3] + 2 * self._penalty * both
        value = float(sums[0] + self._penalty * (both @ both))
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
