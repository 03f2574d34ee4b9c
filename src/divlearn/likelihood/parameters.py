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
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from divlearn.arrays import RealArray
from divlearn.engines import Engine, Prepared
from divlearn.likelihood.members import Members, Point
from divlearn.likelihood.normalizer import (
    Normalizer,
    differentiate_normalizer,
    log_normalizer,
    smallest_kappa,
    solve_kappa,
)
from divlearn.spectral import abld_scalar

Cloud = tuple[RealArray, RealArray]  # log-eigenvalues, shape (n_matrices, d), and weights

_KAPPA_TOLERANCES = (1e-9, 1e-5)  # relative; what is lost of the likelihood is the square of it
_ENOUGH = 500  # matrices of one centre, to see in which units to search
_LEAST_INFORMATION = 1e-12
_RANGE = (-700.0, 700.0)  # of exp
_LEAST_RATIO = 1.001  # of a concentration that is kept to the least for which Z is finite


@dataclass(frozen=True, eq=False)
class FamilyParameters:
    """Densities exp(-kappa D) / Z, arrays of shape (n_components,)."""

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
    """What `fit_parameters` returns."""

    parameters: FamilyParameters
    shift: RealArray  # (n_components,), logarithm of the factor of each centre
    loss: float  # the mean over the weights of kappa D + log Z


def fit_parameters(
    spectra: SpectralSums, members: Members, start: Point, *, tied: bool = True,
    kappa: RealArray | None = None, held: NDArray[np.bool_] | None = None,
    largest_kappa: float = math.inf, tol: float = 1e-10, max_iter: int = 100,
) -> ParameterFit:  # fmt: skip
    """Find (alpha, beta), concentrations and factors of the centres, all at once.

    Parameters
    ----------
    spectra : SpectralSums
    members : Members to choose from
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

    Examples
    --------
    >>> from divlearn import get_engine
    >>> from divlearn.likelihood import Spectra
    >>> t = np.random.default_rng(0).normal(0.3, 0.5, (1000, 1))  # logarithms of numbers
    >>> spectra = Spectra(get_engine(), [(t, np.ones(1000))])
    >>> found = fit_parameters(spectra, Members("riemannian-gaussian", 0), (0, 0))
    >>> np.allclose([found.shift[0], found.parameters.kappa[0]], [t.mean(), 1 / t.var()])
    True
    """
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
        objective, at_first, jac=True, method="L-BFGS-B",
        bounds=[(low / unit, high / unit) for (low, high), unit in zip(limits, units, strict=True)],
        options={"maxiter": max_iter, "gtol": math.sqrt(tol), "ftol": least_gain},
    )  # fmt: skip
    return ParameterFit(problem.parameters(), problem.best[1], problem.best[-1])


class _Problem:
    """The objective, as a mean over the weights, at coordinates of a member and shifts.

    The best place is (coordinates, shift, kappa, log_z, loss); ``margin`` is how far kappa lies
    above its lower bound there. ``kept`` are concentrations that are given, NaN where they are not.
    """

    def __init__(
        self, spectra: SpectralSums, members: Members, tied: bool, kept: RealArray,
        margin: RealArray, largest_kappa: float, rtol: float,
    ) -> None:  # fmt: skip
        self.spectra, self.members, self.tied, self.kept = spectra, members, tied, kept
        self.margin, self.options = margin, {"largest": largest_kappa, "rtol": rtol}
        self.best: tuple[Any, ...] = ()

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
        if not self.best or loss < self.best[-1]:
            self.best = coordinates, shift, kappa, log_z, loss
            self.margin = kappa - smallest_kappa(*point, self.spectra.d)
        return loss, np.concatenate([in_coordinates, -kappa * in_t])

    def parameters(self) -> FamilyParameters:
        coordinates, _, kappa, log_z, _ = self.best
        point = self.members.place(coordinates)
        if point != self.members.place_nearby(coordinates):
            log_z = np.array([log_normalizer(*point, one, self.spectra.d) for one in kappa])
        alpha, beta = (np.full(len(log_z), value) for value in point)
        return FamilyParameters(alpha, beta, kappa, log_z)

    def units(self) -> RealArray:
        """One standard error for a single matrix, of every coordinate and shift, at the best."""
        coordinates, _, kappas, _, _ = self.best
        spectra, point = self.spectra, self.members.place_nearby(coordinates)
        of_shifts = 1 / np.sqrt(kappas * spectra.d * spectra.share)  # f_tt is about one
        clouds, scores = spectra.thinned(_ENOUGH), []
        for (t, _), kappa in zip(clouds, kappas, strict=True):
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


class SpectralSums(ABC):
    """What parameters of densities are learned from, wherever the matrices are."""

    totals: RealArray  # shape (n_components,), weight around each centre
    d: int  # rows of a matrix

    def __len__(self) -> int:
        return len(self.totals)

    @property
    def share(self) -> RealArray:
        return self.totals / self.totals.sum()

    @abstractmethod
    def only(self, component: int) -> SpectralSums:
        """Those around one centre."""

    @abstractmethod
    def sums(self, alpha: float, beta: float, shift: RealArray) -> RealArray:
        """Weighted sums of f(t - shift), f_alpha, f_beta and f_t, shape (4, n_components).

        They are per unit of weight of all together.
        """

    @abstractmethod
    def thinned(self, enough: int) -> list[Cloud]:
        """Every m-th matrix around each centre, at most so many."""


class Spectra(SpectralSums):
    """Log-eigenvalues of matrices relative to their centres.

    As a divergence is a sum over them, sums of divergences are those of the 1 x 1 matrices
    :math:`e^t`, which engines handle at no cost of linear algebra.

    ``clouds`` are pairs (t, weight), one for each centre, of arrays of shape (n_matrices, d) and
    (n_matrices,), with a positive sum of weights.
    """

    def __init__(self, engine: Engine, clouds: Sequence[Cloud]) -> None:
        self.clouds, self._engine, self.d = clouds, engine, int(clouds[0][0].shape[1])
        self.totals = np.array([weight.sum() for _, weight in clouds])
        self._numbers = [as_numbers(engine, t) for t, _ in clouds]

    def only(self, component: int) -> Spectra:
        return Spectra(self._engine, self.clouds[component : component + 1])

    def sums(self, alpha: float, beta: float, shift: RealArray) -> RealArray:
        found = np.empty((4, len(self)))
        for k, ((_, weight), numbers) in enumerate(zip(self.clouds, self._numbers, strict=True)):
            shares = weight / self.totals.sum()
            found[:, k] = sum_cloud(self._engine, numbers, shares, alpha, beta, shift[k])
        return found

    def thinned(self, enough: int) -> list[Cloud]:
        steps = [math.ceil(len(t) / enough) for t, _ in self.clouds]
        return [(t[::m], weight[::m]) for m, (t, weight) in zip(steps, self.clouds, strict=True)]


def as_numbers(engine: Engine, t: RealArray) -> Prepared:
    """Prepare the numbers e^t, one row of t after the other."""
    # They need no check: e^t is positive if it does not underflow.
    return engine.prepare(Prepared.checked(np.exp(np.clip(t, *_RANGE)).reshape(-1, 1, 1)))


def sum_cloud(
    engine: Engine, numbers: Prepared, weight: RealArray, alpha: float, beta: float, shift: float
) -> RealArray:
    """Weighted sums of f(t - shift), f_alpha, f_beta and f_t over matrices with the numbers e^t."""
    cotangent = np.repeat(weight, numbers.n_matrices // len(weight))[:, None]
    back = engine.pullback(
        numbers, np.exp(shift).reshape(1, 1, 1), alpha, beta, cotangent, values=True
    )
    assert back.values is not None
    assert back.alpha is not None
    assert back.beta is not None
    value = np.vdot(cotangent, back.values)
    return np.array([value, back.alpha[0], back.beta[0], -back.whitened[0, 0, 0]])
