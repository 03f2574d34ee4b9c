r"""The most likely (alpha, beta, kappa) for given log-eigenvalues.

Matrices :math:`X_i` with weights :math:`w_i` lie around centres of which there may be several,
:math:`t_i` being their log-eigenvalues relative to the own centre. Then

.. math:: \min_{\alpha, \beta, \kappa, s} \; \sum_i w_i \Big[
          \kappa \sum_j f(t_{ij} - s_{k(i)}; \alpha, \beta) + \log Z(\alpha, \beta, \kappa) \Big]

is found together with one factor :math:`e^{s_k}` for each centre, the only move of it that shares
information with alpha, beta and kappa (Schur's lemma): taking turns then loses next to nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from divlearn.arrays import Indices, RealArray
from divlearn.checks import check_finite
from divlearn.cluster.clusters import Spectra
from divlearn.likelihood import normalizer
from divlearn.likelihood.members import Members, Point
from divlearn.likelihood.normalizer import smallest_kappa, solve_kappa
from divlearn.spectral import abld_scalar

_KAPPA_TOLERANCES = (1e-9, 1e-5)  # relative; what is lost of the likelihood is the square of it
_ENOUGH = 500  # matrices of one centre, to see in which units to search
_LEAST_INFORMATION = 1e-12
_LEAST_RATIO = 1.001  # of a concentration that is kept to the least for which Z is finite


@dataclass(frozen=True, eq=False)
class FamilyParameters:
    """Densities exp(-kappa D) / Z, arrays of shape (n_components,)."""

    alpha: Annotated[RealArray, "n_components"]
    beta: Annotated[RealArray, "n_components"]
    kappa: Annotated[RealArray, "n_components"]
    log_z: Annotated[RealArray, "n_components"]

    def only(self, components: Indices) -> FamilyParameters:
        return FamilyParameters(*(value[components] for value in vars(self).values()))

    def replaced(self, components: Indices, others: FamilyParameters) -> FamilyParameters:
        copies = {name: value.copy() for name, value in vars(self).items()}
        for name, value in copies.items():
            value[components] = getattr(others, name)
        return FamilyParameters(**copies)


# Parameters; the logarithm of the factor of each centre, shape (n_components,); and the mean over
# the weights of kappa D + log Z.
ParameterFit = tuple[FamilyParameters, RealArray, float]


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
    return problem.parameters(), problem.best[1], problem.best[-1]


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
        self.best: tuple[Any, ...] = ()  # coordinates, shift, kappa, log_z and the loss

    def evaluate(self, coordinates: RealArray, shift: RealArray) -> tuple[float, RealArray]:
        """Loss and gradient; the place of the least loss is kept."""
        point, share = self.members.place_nearby(coordinates), self.spectra.share
        D, in_alpha, in_beta, in_t = self.spectra.sums(*point, shift)
        solved = self._solve(point, D)
        kappa, constants = np.array([one[0] for one in solved]), [one[1] for one in solved]
        log_z, z_alpha, z_beta = np.array([(z.log_z, z.alpha, z.beta) for z in constants]).T
        in_coordinates = self.members.pull(
            point, kappa @ in_alpha + share @ z_alpha, kappa @ in_beta + share @ z_beta
        )
        loss = float(kappa @ D + share @ log_z)
        gradient = np.concatenate([in_coordinates, -kappa * in_t])
        where = f"at alpha = {point[0]:g}, beta = {point[1]:g}"
        # An infinite loss is that of a step that was too long.
        check_finite(loss, "minus the log-likelihood", where, or_infinite=bool(self.best))
        if loss < np.inf:
            check_finite(float(np.abs(gradient).max()), "the gradient of the log-likelihood", where)
        if not self.best or loss < self.best[-1]:
            self.best = coordinates, shift, kappa, log_z, loss
            self.margin = kappa - smallest_kappa(*point, self.spectra.d)
        return loss, gradient

    def parameters(self) -> FamilyParameters:
        coordinates, _, kappa, log_z, _ = self.best
        point = self.members.place(coordinates)
        if point != self.members.place_nearby(coordinates):
            log_z = np.array(
                [normalizer.log_normalizer(*point, one, self.spectra.d) for one in kappa]
            )
        alpha, beta = (np.full(len(log_z), value) for value in point)
        return FamilyParameters(alpha, beta, kappa, log_z)

    def units(self) -> RealArray:
        """One standard error for a single matrix, of every coordinate and shift, at the best."""
        coordinates, _, kappas, _, _ = self.best
        spectra, point = self.spectra, self.members.place_nearby(coordinates)
        of_shifts = 1 / np.sqrt(kappas * spectra.d * spectra.share)  # f_tt is about one
        clouds, scores = spectra.thinned(_ENOUGH), []
        for (t, _), kappa in zip(clouds, kappas, strict=True):
            values: Any = abld_scalar(t, *point, derivatives=("f_t", "f_alpha", "f_beta"))
            f, f_t, f_alpha, f_beta = (
                kappa * row.sum(axis=1)
                for row in (values.f, values.f_t, values.f_alpha, values.f_beta)
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

    def _solve(self, point: Point, D: RealArray) -> list[tuple[float, normalizer.Normalizer]]:
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
                solved.append((kappa, normalizer.differentiate_normalizer(*point, kappa, d)))
        return solved
