r"""The most likely (alpha, beta, kappa) for given log-eigenvalues.

Matrices :math:`X_i` with weights :math:`w_i` lie around centres of which there may be several,
:math:`t_i` being their log-eigenvalues relative to the own centre. Then

.. math:: \min_{\alpha, \beta, \kappa, s} \; \sum_i w_i \Big[
          \kappa \sum_j f(t_{ij} - s_{k(i)}; \alpha, \beta) + \log Z(\alpha, \beta, \kappa) \Big]

is found together with one factor :math:`e^{s_k}` for each centre. Around its centre the density
does not know directions, so that of all moves of a centre this factor is the only one whose
information is shared with alpha, beta and kappa (Schur's lemma): with it, taking turns between
centres and parameters loses next to nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from divlearn.arrays import RealArray
from divlearn.likelihood.concentration import solve_kappa
from divlearn.likelihood.members import Members, Point
from divlearn.likelihood.normalizer import (
    Normalizer,
    differentiate_normalizer,
    log_normalizer,
    smallest_kappa,
)
from divlearn.likelihood.spectra import SpectralSums
from divlearn.spectral import abld_scalar

__all__ = ["FamilyParameters", "ParameterFit", "fit_parameters"]

_KAPPA_TOLERANCES = (1e-9, 1e-5)  # relative; what is lost of the likelihood is the square of it
_ENOUGH = 500  # matrices of one centre, to see in which units to search
_LEAST_INFORMATION = 1e-12
_LEAST_RATIO = 1.001  # of a concentration that is kept to the least for which Z is finite


@dataclass(frozen=True, eq=False)
class FamilyParameters:
    """A density exp(-kappa D) / Z for each component.

    Attributes
    ----------
    alpha, beta, kappa, log_z : ndarray, shape (n_components,)
    """

    alpha: RealArray
    beta: RealArray
    kappa: RealArray
    log_z: RealArray

    def only(self, components: NDArray[np.intp]) -> FamilyParameters:
        """Those of some components."""
        return FamilyParameters(*(value[components] for value in vars(self).values()))

    def replaced(self, components: NDArray[np.intp], others: FamilyParameters) -> FamilyParameters:
        """Return a copy with others for some components."""
        copies = {name: value.copy() for name, value in vars(self).items()}
        for name, value in copies.items():
            value[components] = getattr(others, name)
        return FamilyParameters(**copies)


@dataclass(frozen=True, eq=False)
class ParameterFit:
    """What `fit_parameters` returns.

    Attributes
    ----------
    parameters : FamilyParameters
    shift : ndarray, shape (n_components,), logarithm of the factor of each centre.
    loss : float, the mean over the weights of kappa D + log Z.
    """

    parameters: FamilyParameters
    shift: RealArray
    loss: float


def fit_parameters(
    spectra: SpectralSums, members: Members, start: Point, *, tied: bool = True,
    kappa: RealArray | None = None, held: NDArray[np.bool_] | None = None,
    largest_kappa: float = math.inf, tol: float = 1e-10, max_iter: int = 100,
) -> ParameterFit:  # fmt: skip
    """Find (alpha, beta), concentrations and factors of the centres, all at once.

    Parameters
    ----------
    spectra : SpectralSums
    members : Members
        What to choose from.
    start : (alpha, beta)
    tied : bool, default=True
        Whether all components have one concentration.
    kappa : ndarray, shape (n_components,), optional
        Guess of the concentrations.
    held : ndarray of bool, shape (n_components,), optional
        Components that keep the concentration given, unless Z is infinite there.
    largest_kappa : float, default=inf
        Upper bound of the concentrations, which matrices that equal their centre would reach.
    tol : float, default=1e-10
        Stop where a step lowers the loss by no more than about this.
    max_iter : int, default=100

    Returns
    -------
    ParameterFit
        Its loss is not above that of the start with the best concentrations.

    Notes
    -----
    Quasi-Newton steps in the coordinates of `members` and in the shifts, each in units of its
    information in the data at the start. Concentrations are solved for at every point, where
    :math:`E[D]` is the mean divergence; by the envelope theorem the gradient needs no more.

    Examples
    --------
    >>> from divlearn import get_engine
    >>> from divlearn.likelihood import Spectra
    >>> t = np.random.default_rng(0).normal(0.3, 0.5, (1000, 1))  # logarithms of numbers
    >>> spectra = Spectra(get_engine(), [(t, np.ones(1000))])
    >>> found = fit_parameters(spectra, Members("riemannian-gaussian", 0), (0, 0))
    >>> bool(abs(found.shift[0] - t.mean()) < 1e-6)
    True
    >>> bool(abs(found.parameters.kappa[0] * t.var() - 1) < 1e-6)
    True
    """
    zeros = np.zeros(len(spectra))
    guess = zeros if kappa is None else kappa
    kept = np.where(zeros > 0 if held is None else held, guess, np.nan)
    rtol = float(np.clip(tol, *_KAPPA_TOLERANCES))
    problem = _Problem(spectra, members, tied, kept, largest_kappa, rtol)
    margin = guess - smallest_kappa(*start, spectra.d)
    first = best = problem.evaluate(members.locate(*start), zeros, margin)
    units, n_free = problem.units(first), members.n_free
    at_first = np.concatenate([first.coordinates, zeros]) / units

    def objective(scaled: RealArray) -> tuple[float, RealArray]:
        nonlocal best
        values, found = scaled * units, first
        if not np.array_equal(scaled, at_first):
            found = problem.evaluate(values[:n_free], values[n_free:], best.margin)
        best = found if found.loss < best.loss else best
        return found.loss, found.gradient * units

    limits = members.bounds + [(-np.inf, np.inf)] * len(zeros)
    least_gain = tol / max(1, abs(first.loss))
    minimize(
        objective, at_first, jac=True, method="L-BFGS-B",
        bounds=[(low / unit, high / unit) for (low, high), unit in zip(limits, units, strict=True)],
        options={"maxiter": max_iter, "gtol": math.sqrt(tol), "ftol": least_gain},
    )  # fmt: skip
    return ParameterFit(problem.parameters(best), best.shift, best.loss)


@dataclass(frozen=True, eq=False)
class _Evaluation:
    """The objective at a point, as a mean over the weights."""

    coordinates: RealArray
    shift: RealArray
    kappa: RealArray
    margin: RealArray  # of kappa above its lower bound
    log_z: RealArray
    loss: float
    gradient: RealArray


@dataclass(frozen=True, eq=False)
class _Problem:
    spectra: SpectralSums
    members: Members
    tied: bool
    kept: RealArray  # concentrations that are given, NaN where they are not
    largest_kappa: float
    rtol: float  # of the divergence that a concentration is solved for

    def evaluate(self, coordinates: RealArray, shift: RealArray, margin: RealArray) -> _Evaluation:
        point, share = self.members.place_nearby(coordinates), self.spectra.share
        D, in_alpha, in_beta, in_t = self.spectra.sums(*point, shift)
        solved = self._solve(point, D, margin)
        kappa, constants = np.array([one[0] for one in solved]), [one[1] for one in solved]
        log_z, z_alpha, z_beta = np.array([(z.log_z, z.alpha, z.beta) for z in constants]).T
        in_coordinates = self.members.pull(
            point, kappa @ in_alpha + share @ z_alpha, kappa @ in_beta + share @ z_beta
        )
        margin = kappa - smallest_kappa(*point, self.spectra.d)
        loss = float(kappa @ D + share @ log_z)
        gradient = np.concatenate([in_coordinates, -kappa * in_t])
        return _Evaluation(coordinates, shift, kappa, margin, log_z, loss, gradient)

    def parameters(self, at: _Evaluation) -> FamilyParameters:
        """Return the parameters of every component."""
        point, log_z = self.members.place(at.coordinates), at.log_z
        if point != self.members.place_nearby(at.coordinates):
            log_z = np.array([log_normalizer(*point, kappa, self.spectra.d) for kappa in at.kappa])
        alpha, beta = (np.full(len(log_z), value) for value in point)
        return FamilyParameters(alpha, beta, at.kappa, log_z)

    def units(self, at: _Evaluation) -> RealArray:
        """One standard error for a single matrix, of every coordinate and shift."""
        spectra, point = self.spectra, self.members.place_nearby(at.coordinates)
        of_shifts = 1 / np.sqrt(at.kappa * spectra.d * spectra.share)  # f_tt is about one
        clouds, scores = spectra.thinned(_ENOUGH), []
        for (t, _), kappa in zip(clouds, at.kappa, strict=True):
            values = abld_scalar(t, *point, derivatives=("f_t", "f_alpha", "f_beta"))
            f, f_t, f_alpha, f_beta = (
                kappa * row.sum(axis=1)
                for row in (values.f, values.f_t, values.f_alpha, values.f_beta)
                if row is not None
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

    def _solve(
        self, point: Point, D: RealArray, margin: RealArray
    ) -> list[tuple[float, Normalizer]]:
        """Concentrations, and the constants there."""
        d, options = self.spectra.d, {"largest": self.largest_kappa, "rtol": self.rtol}
        if self.tied:
            mean = float(D.sum())
            return len(D) * [solve_kappa(*point, mean, d, margin=margin[0], **options)]
        solved = []
        for mean, guess, kept in zip(D / self.spectra.share, margin, self.kept, strict=True):
            if np.isnan(kept):
                one = solve_kappa(*point, mean, d, margin=guess, **options)
            else:
                kappa = max(float(kept), _LEAST_RATIO * smallest_kappa(*point, d))
                one = kappa, differentiate_normalizer(*point, kappa, d)
            solved.append(one)
        return solved
