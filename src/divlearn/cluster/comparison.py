"""Comparison of mixtures of the named members of the family with that of the learned one."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from divlearn.arrays import RealArray
from divlearn.cluster.em import EM, Mixture
from divlearn.fitting.interrupts import is_interrupted
from divlearn.fitting.progress import track
from divlearn.likelihood.members import NAMED_MEMBERS, Members, get_members
from divlearn.sharded.shards import Shards

_EXACT = 1e-2  # log-likelihood


@dataclass(frozen=True, eq=False)
class MemberFit:
    """A mixture of one kind of density, fitted to the same matrices as the others."""

    name: str
    alpha: RealArray  # like beta and kappa of shape (n_components,)
    beta: RealArray
    kappa: RealArray
    log_likelihood: float  # of all matrices
    n_parameters: int
    bic: float  # the smaller the better
    # Of the likelihood-ratio test against the learned member, of which every other is a special
    # case; conservative on the axes.
    p_value: float = math.nan


def count_parameters(n_components: int, d: int, members: Members, share: str) -> int:
    """Free parameters of a mixture: weights, centres, and what is learned of the densities."""
    n_points = n_components if share == "none" else 1
    n_concentrations = 1 if share == "all" else n_components
    centers = n_components * d * (d + 1) // 2
    return n_components - 1 + centers + members.n_free * n_points + n_concentrations


def compare_members(
    shards: Shards, mixture: Mixture, share: str, max_iter: int, tol: float
) -> dict[str, MemberFit]:
    """Fit the learned member, then the named ones, from the responsibilities of a mixture."""
    n = shards.n_seen
    # Likelihoods are compared in units of one, for all matrices together.
    tol = min(tol, _EXACT / n)
    fits: dict[str, MemberFit] = {}
    for name, members in track([("learned", get_members("learn")), *NAMED_MEMBERS.items()], "fits"):
        em = EM(shards, members, share, max_iter, tol)
        run = em.run(em.refit(mixture))
        if is_interrupted():  # likelihoods are compared at their maxima
            raise KeyboardInterrupt
        (alpha, beta, kappa, _), log_likelihood = run.found.densities, -run.objective * n
        n_parameters = count_parameters(len(mixture.weights), shards.d, members, share)
        bic, p_value = n_parameters * math.log(n) - 2 * log_likelihood, math.nan
        if fits:
            gain = max(fits["learned"].log_likelihood - log_likelihood, 0.0)
            p_value = float(chi2.sf(2 * gain, fits["learned"].n_parameters - n_parameters))
        fits[name] = MemberFit(name, alpha, beta, kappa, log_likelihood, n_parameters, bic, p_value)
    return fits


def describe(fits: Mapping[str, MemberFit]) -> str:
    learned = fits["learned"]
    best, second = sorted((fits[name] for name in NAMED_MEMBERS), key=lambda fit: fit.bic)[:2]
    gain, more = learned.log_likelihood - best.log_likelihood, best.bic - learned.bic
    chosen = (
        f"The likelihood of {len(learned.alpha)} component{'s' * (len(learned.alpha) > 1)} is "
        f"largest at alpha = {_span(learned.alpha)}, beta = {_span(learned.beta)}, kappa = "
        f"{_span(learned.kappa)}. "
    )
    versus = (
        f"with {learned.n_parameters - best.n_parameters} more parameters the log-likelihood rises "
        f"by {gain:.3g} (likelihood-ratio p = {best.p_value:.2g}, BIC {more:+.1f})"
    )
    if more > 0:
        return f"{chosen}That beats every named member. The best of these is {best.name}; {versus}."
    return (
        f"{chosen}That is {best.name}{_explain(best)} up to noise: {versus}. The next named "
        f"member, {second.name}, has a BIC {second.bic - best.bic:.1f} higher."
    )


def _span(values: RealArray) -> str:
    low, high = float(values.min()), float(values.max())
    return f"{low:.3g}" if np.isclose(low, high) else f"{low:.3g} to {high:.3g}"


def _explain(fit: MemberFit) -> str:
    if fit.name.endswith("wishart"):
        return f" with {_span(2 * fit.kappa)} degrees of freedom"
    if fit.name == "riemannian-gaussian":
        return f" with the standard deviation {_span(fit.kappa**-0.5)}"
    return ""
