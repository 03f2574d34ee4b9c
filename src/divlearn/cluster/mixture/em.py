"""One run of expectation maximisation for a mixture of densities exp(-kappa D) / Z."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from divlearn.arrays import RealArray
from divlearn.cluster.mixture.expectation import Mixture, Responsibilities, expect, nearest
from divlearn.fitting.checkpoint import Loop, loop
from divlearn.fitting.progress import tell
from divlearn.likelihood.members import Members
from divlearn.likelihood.parameters import FamilyParameters, ParameterFit, fit_parameters
from divlearn.likelihood.spectra import SpectralSums
from divlearn.sharded.shards import Shards

__all__ = ["EMRun", "EMSettings", "fit_start", "refit", "run_em"]

# From here on matrices of a component are equal up to rounding. Likelihoods would grow for ever.
LARGEST_KAPPA = 1e8
FIRST_POINT = (0.5, 0.5)  # divergence of starts, before there is any density
# A component of fewer matrices has no concentration of its own: with one it would be infinite.
FEWEST_MEMBERS = 5.0
_CENTER_STEPS = 3  # what is left the next iteration does
_CENTER_TOLERANCE = 1e-10
_SHARE_OF_TOL = 0.1  # what is left undone in one iteration
_PARAMETER_STEPS = 10
_START_STEPS = 3


@dataclass(frozen=True)
class EMSettings:
    """How a run goes.

    Attributes
    ----------
    members : Members, what (alpha, beta) is chosen from.
    share : {"all", "divergence", "none"}, what components have in common.
    max_iter : int
    tol : float, gain of the mean log-likelihood below which the run stops.
    say, watch : callable, told of every start and of every iteration in a sentence.
    """

    members: Members
    share: str
    max_iter: int
    tol: float
    say: Callable[[str], None]
    watch: Callable[[str], None]


@dataclass(frozen=True, eq=False)
class EMRun:
    """Where a run ended.

    Attributes
    ----------
    mixture : Mixture
    lower_bound : float, the mean log-likelihood.
    n_iter : int
    converged, interrupted : bool
    message : str, why it stopped.
    history : dict of arrays, one entry per iteration, and the start.
    """

    mixture: Mixture
    lower_bound: float
    n_iter: int
    converged: bool
    interrupted: bool
    message: str
    history: dict[str, RealArray]


def run_em(shards: Shards, start: Mixture, settings: EMSettings) -> EMRun:
    """Raise the likelihood from a start until it stays.

    Parameters
    ----------
    shards : Shards
    start : Mixture
    settings : EMSettings

    Returns
    -------
    EMRun
        Its likelihood never falls but for rounding; interrupted by the user it is the last one.
    """
    with loop("em") as rounds:
        return _run(shards, start, settings, rounds)


def _run(shards: Shards, start: Mixture, settings: EMSettings, rounds: Loop) -> EMRun:
    mixture, rows = rounds.state or (start, [])
    began = time.perf_counter() - (rows[-1][-1] if rows else 0.0)
    responsibilities, bound = expect(shards, mixture)
    rows = rows or [(bound, mixture.parameters, time.perf_counter() - began)]
    try:
        for iteration in range(len(rows), settings.max_iter + 1):
            rounds.save((mixture, rows))
            following = _maximize(shards.d, mixture, responsibilities, settings)
            responsibilities, bound = expect(shards, following)
            rise = bound - rows[-1][0]
            row = bound, following.parameters, time.perf_counter() - began
            mixture, rows = following, [*rows, row]  # at once: an interrupt leaves both
            tell("iterations", iteration, settings.max_iter)
            settings.watch(f"iteration {iteration}: log-likelihood {bound:.6g} per matrix")
            if rise <= settings.tol:
                message = (
                    f"the log-likelihood per matrix rose by {max(rise, 0):.2g} <= "
                    f"tol={settings.tol:g}"
                )
                return _end(mixture, rows, message, converged=True)
    except KeyboardInterrupt:
        message = f"interrupted by the user in iteration {len(rows)}"
        return _end(mixture, rows, message, interrupted=True)
    return _end(mixture, rows, f"max_iter={settings.max_iter} reached")


def _end(
    mixture: Mixture, rows: Sequence[tuple[float, FamilyParameters, float]], message: str, *,
    converged: bool = False, interrupted: bool = False,
) -> EMRun:  # fmt: skip
    bounds, families, seconds = zip(*rows, strict=True)
    history = {"lower_bound": np.array(bounds), "seconds": np.array(seconds)}
    for name in ("alpha", "beta", "kappa"):
        history[name] = np.stack([getattr(family, name) for family in families])
    return EMRun(mixture, bounds[-1], len(rows) - 1, converged, interrupted, message, history)


def fit_start(shards: Shards, centers: RealArray, settings: EMSettings) -> Mixture:
    """Densities around given centres, the same for all, for matrices that go to the nearest.

    Parameters
    ----------
    shards : Shards
    centers : ndarray, shape (n_components, d, d)
    settings : EMSettings

    Returns
    -------
    Mixture
    """
    found = nearest(shards, centers, FIRST_POINT)
    spectra = found.spectra(centers)
    fits = [
        fit_parameters(
            spectra, Members("", 0, *point), point, largest_kappa=LARGEST_KAPPA, tol=settings.tol,
            max_iter=_START_STEPS,
        )
        for point in settings.members.starts
    ]  # fmt: skip
    best = min(fits, key=lambda fit: fit.loss)
    means = centers.copy()
    means[found.alive] *= np.exp(best.shift)[:, None, None]
    same = np.ones(len(centers))
    family = (getattr(best.parameters, name)[0] for name in ("alpha", "beta", "kappa", "log_z"))
    return Mixture(found.weights, means, FamilyParameters(*(same * value for value in family)))


def refit(shards: Shards, mixture: Mixture, settings: EMSettings) -> Mixture:
    """Densities of other settings for the responsibilities of a mixture."""
    return _maximize(shards.d, mixture, expect(shards, mixture)[0], settings)


def _maximize(
    d: int, mixture: Mixture, responsibilities: Responsibilities, settings: EMSettings
) -> Mixture:
    """Weights, then a few steps of the centres, then parameters and scales of the centres."""
    family, weights, alive = mixture.parameters, responsibilities.weights, responsibilities.alive
    # What a gradient of this size promises is little beside tol: kappa d |G|^2 / 2.
    enough = np.sqrt(2 * _SHARE_OF_TOL * settings.tol / (family.kappa * d))
    means, spectra = responsibilities.move(
        mixture, np.maximum(enough, _CENTER_TOLERANCE), _CENTER_STEPS
    )
    fit = _fit_families(spectra, family.only(alive), settings)
    means[alive] *= np.exp(fit.shift)[:, None, None]
    found = fit.parameters
    if settings.share == "all":  # components without matrices have what all have
        alive, found = np.arange(len(weights)), found.only(np.zeros(len(weights), dtype=np.intp))
    return Mixture(weights, means, family.replaced(alive, found))


def _fit_families(
    spectra: SpectralSums, family: FamilyParameters, settings: EMSettings
) -> ParameterFit:
    """Better parameters and factors of the centres, by what components share."""
    few = spectra.totals < FEWEST_MEMBERS

    def fit(part: SpectralSums, rows: slice, tied: bool) -> ParameterFit:
        start = float(family.alpha[rows][0]), float(family.beta[rows][0])
        return fit_parameters(
            part, settings.members, start, tied=tied, kappa=family.kappa[rows], held=few[rows],
            largest_kappa=LARGEST_KAPPA, tol=_SHARE_OF_TOL * settings.tol,
            max_iter=_PARAMETER_STEPS,
        )  # fmt: skip

    if settings.share != "none":
        return fit(spectra, slice(None), settings.share == "all")
    shift, rows = np.zeros(len(few)), np.flatnonzero(~few)
    parts = [fit(spectra.only(int(k)), slice(k, k + 1), False) for k in rows]
    for k, part in zip(rows, parts, strict=True):
        family = family.replaced(np.array([k]), part.parameters)
        shift[k] = part.shift[0]
    return ParameterFit(family, shift, float("nan"))
