"""How alpha and beta are chosen while matrices are clustered."""

import math
from abc import ABC, abstractmethod

import numpy as np

from divlearn.arrays import RealArray
from divlearn.cluster.clusters import Spectra
from divlearn.cluster.parameters import fit_parameters
from divlearn.likelihood.members import get_members
from divlearn.likelihood.normalizer import log_normalizer, smallest_kappa
from divlearn.optim.gradients import minimize_projected_gradient
from divlearn.optim.problem import Trial

_STEPS = 10  # per update; the next one goes on from there
_TOLERANCE = 1e-5  # of the objective per unit of weight that a change of the parameters gains
_LARGEST = 1e3  # from which a parameter is taken to grow without end
_LARGEST_KAPPA = 1e15  # from which matrices equal their centroids up to rounding
_SETTLED = 1e-2  # change of a parameter that is none

# alpha, beta, and the concentration kappa, NaN where there is none
Point = tuple[float, float, float]
# Parameters, the objective per unit of weight, and the logarithm of a factor of all centroids.
Update = tuple[Point, float, float]


class Rule:
    """What all rules have, and all there is to one for parameters that are given."""

    paper = False  # whether centroids move as in the paper

    def __init__(self, alpha: float = 1.0, beta: float = 1.0) -> None:
        self.start: Point = (alpha, beta, math.nan)

    def begin(self, mean: float, d: int) -> Point:
        """Where the parameters start, given the mean divergence to the first centroids."""
        return self.start

    def objective(self, mean: float, point: Point, weight: float, d: int) -> float:
        """Compute what is minimised, per unit of weight, given the mean divergence."""
        return mean

    def settled(self, before: Point, after: Point) -> bool:
        """Whether the parameters may stay where they are once the clusters do."""
        return True

    def trouble(self, point: Point) -> str | None:
        """Say what is wrong with parameters that mean nothing any more."""
        return None


class LearnedRule(Rule, ABC):
    """Parameters that are learned, from (1, 1)."""

    @abstractmethod
    def update(self, point: Point, spectra: Spectra, weight: float) -> Update:
        """Better parameters for the same clusters."""


class Penalized(LearnedRule):
    r"""The paper's rule, :math:`\sum_i w_i D_i + \alpha^2 + \beta^2`, with alpha = beta if tied."""

    def __init__(self, *, tied: bool = False, paper: bool = False) -> None:
        super().__init__()
        self.tied, self.paper = tied, paper

    def objective(self, mean: float, point: Point, weight: float, d: int) -> float:
        alpha, beta, _ = point
        return mean + (alpha**2 + beta**2) / weight

    def update(self, point: Point, spectra: Spectra, weight: float) -> Update:
        scale = max(*point[:2], 1.0)
        problem = _PenalizedProblem(spectra, scale, 1 / weight)
        both = np.array(point[:2])
        start = problem.trial(both.mean(keepdims=True) if self.tied else both)
        # Sizes are in units of the scale; the gradient times the scale is a share of the objective.
        tol = _TOLERANCE * start.value / scale**2
        found = minimize_projected_gradient(problem, start, max_iter=_STEPS, tol=tol).trial
        alpha, beta = np.broadcast_to(found.point, 2).tolist()
        return (alpha, beta, math.nan), found.value, 0.0

    def trouble(self, point: Point) -> str | None:
        if max(point[:2]) <= _LARGEST:
            return None
        return (
            f"alpha={point[0]:.3g} and beta={point[1]:.3g} grow without end: divergences fall "
            "to zero along every ray of (alpha, beta), and the penalty alpha^2 + beta^2 is too "
            "small beside the divergences of so many matrices; fix the divergence, or set "
            'divergence="likelihood"'
        )


class Likelihood(LearnedRule):
    r"""Maximum likelihood, :math:`\kappa \sum_i w_i D_i + W \log Z(\alpha, \beta, \kappa)`."""

    # One factor of all centroids is found along with the parameters; taking turns would be slow.

    def begin(self, mean: float, d: int) -> Point:
        """Start with the concentration that would be right if it were large."""
        alpha, beta, _ = self.start
        spread = max(mean, 1 / _LARGEST_KAPPA)
        return alpha, beta, smallest_kappa(alpha, beta, d) + 0.25 * d * (d + 1) / spread

    def objective(self, mean: float, point: Point, weight: float, d: int) -> float:
        return point[2] * mean + log_normalizer(*point, d)

    def update(self, point: Point, spectra: Spectra, weight: float) -> Update:
        found, shift, loss = fit_parameters(
            spectra,
            get_members("learn"),
            point[:2],
            kappa=np.array([point[2]]),
            largest_kappa=_LARGEST_KAPPA,
            tol=_TOLERANCE,
            max_iter=_STEPS,
        )
        point = float(found.alpha[0]), float(found.beta[0]), float(found.kappa[0])
        return point, loss, float(shift[0])

    def settled(self, before: Point, after: Point) -> bool:
        return bool(np.abs(np.subtract(before[:2], after[:2])).max() <= _SETTLED)

    def trouble(self, point: Point) -> str | None:
        if point[2] < _LARGEST_KAPPA:
            return None
        return (
            f"kappa={point[2]:.2g} grows without end: matrices equal their centroids, so that "
            "the likelihood is unbounded; lower n_clusters, or fix the divergence"
        )


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
