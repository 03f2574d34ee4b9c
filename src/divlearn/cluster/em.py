"""Expectation maximisation for mixtures of densities exp(-kappa D) / Z, and their comparison."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
from scipy.special import logsumexp
from scipy.stats import chi2

from divlearn.alpha_beta import Point
from divlearn.arrays import Indices, RealArray, to_host
from divlearn.checks import check_finite
from divlearn.cluster.clusters import Clusters, Memberships, Spectra, nearest_block
from divlearn.cluster.parameters import Densities, ParameterSearch, fit_parameters
from divlearn.cluster.runs import Run, repeat
from divlearn.fitting.progress import is_interrupted, track
from divlearn.likelihood.members import NAMED_MEMBERS, Members, get_members
from divlearn.sharded.blocks import Block
from divlearn.sharded.shards import Parts, Shards
from divlearn.text import counted, say_p

# Matrices of a component are then equal up to a relative 1e-4; of equal ones, kappa is infinite.
LARGEST_KAPPA = 1e8
FIRST_POINT = (0.5, 0.5)  # divergence of starts, before densities are estimated
# Components of fewer matrices keep their concentration: for one matrix it would be infinite.
FEWEST_MEMBERS = 5.0
_CENTER_STEPS = 3  # per iteration
_CENTER_TOLERANCE = 1e-10
_SHARE_OF_TOL = 0.1  # error allowed in the steps of one iteration
_PARAMETER_STEPS = 10
_START_STEPS = 3
# Responsibility, times the weight of the matrix, that updates leave out: the likelihood, which is
# computed from all, changes by its square.
_NEGLIGIBLE = 1e-6
_LARGEST_DIVERGENCE = 1e280  # divergences may overflow; sums over components must not
_EXACT = 1e-2  # log-likelihood


@dataclass(frozen=True, eq=False)
class Mixture:
    """Weights, shape (n_components,), centres (n_components, d, d), and densities around them."""

    weights: RealArray
    means: RealArray
    densities: Densities


class EM:
    """Expectation maximisation over the members of a family; ``tol`` is of the log-likelihood."""

    def __init__(
        self, shards: Shards, members: Members, share: str, max_iter: int, tol: float
    ) -> None:
        self.shards, self.members, self.share = shards, members, share
        self.max_iter, self.tol = max_iter, tol

    def run(self, start: Mixture) -> Run[Mixture]:
        """Raise the likelihood from a start until it converges; it only falls by rounding.

        The objective is minus the mean log-likelihood.
        """
        mixture, started = start, time.perf_counter()
        responsibilities, bound = expect(self.shards, mixture)
        rows = [(bound, mixture.densities, time.perf_counter() - started)]

        def turn(_: int) -> tuple[str, str | None]:
            nonlocal mixture, rows, responsibilities
            updated = self._maximize(mixture, responsibilities)
            responsibilities, bound = expect(self.shards, updated)
            rise = bound - rows[-1][0]
            row = bound, updated.densities, time.perf_counter() - started
            mixture, rows = updated, [*rows, row]  # together, in case of an interrupt
            rose = f"rose by {max(rise, 0):.2g} <= tol={self.tol:g}"
            stop = f"the log-likelihood per matrix {rose}" if rise <= self.tol else None
            return f"log-likelihood {bound:.6g} per matrix", stop

        _, converged, message = repeat(turn, self.max_iter)
        bounds, densities, seconds = zip(*rows, strict=True)
        history = {"lower_bound": np.array(bounds), "seconds": np.array(seconds)}
        history["alpha"], history["beta"], history["kappa"], _ = np.stack(densities, axis=1)
        return Run(mixture, -bounds[-1], len(rows) - 1, converged, message, history)

    def start(self, centers: RealArray) -> Mixture:
        """One density around all centres, fitted to matrices assigned to the nearest centre."""
        clusters = nearest(self.shards, centers, FIRST_POINT)
        spectra = clusters.spectra(clusters.alive, centers[clusters.alive])
        fits = [
            fit_parameters(
                spectra,
                Members(0, *point),
                point,
                largest_kappa=LARGEST_KAPPA,
                tol=self.tol,
                max_iter=_START_STEPS,
            )
            for point in self.members.starts
        ]
        best = min(fits, key=lambda fit: fit.loss)
        means = centers.copy()
        means[clusters.alive] *= np.exp(best.shift)[:, None, None]
        return Mixture(clusters.weights, means, np.tile(best.densities()[:, :1], len(centers)))

    def refit(self, mixture: Mixture, center_steps: int = _CENTER_STEPS) -> Mixture:
        """Fit these members to the responsibilities of a mixture."""
        return self._maximize(mixture, expect(self.shards, mixture)[0], center_steps)

    def _maximize(
        self,
        mixture: Mixture,
        responsibilities: Responsibilities,
        center_steps: int = _CENTER_STEPS,
    ) -> Mixture:
        """Update weights, then centres by a few steps, then parameters and scales of centres."""
        weights, alive = responsibilities.weights, responsibilities.alive
        densities, kappa = mixture.densities.copy(), mixture.densities[2]
        # A gradient G promises a gain of about kappa d |G|^2 / 2, which is to be below tol.
        gradient_size = np.sqrt(2 * _SHARE_OF_TOL * self.tol / (kappa * self.shards.d))
        tol = np.maximum(gradient_size, _CENTER_TOLERANCE)
        means, points = mixture.means.copy(), [(a, b) for a, b in densities[:2, alive].T.tolist()]
        means[alive] = responsibilities.settle(
            alive, means[alive], points, center_steps, tol[alive]
        )
        spectra = responsibilities.spectra(alive, means[alive])
        densities[:, alive], shift = self._fit_densities(spectra, densities[:, alive])
        means[alive] *= np.exp(shift)[:, None, None]
        if self.share == "all":  # also those of components without matrices
            densities[:] = densities[:, alive[:1]]
        return Mixture(weights, means, densities)

    def _fit_densities(self, spectra: Spectra, densities: Densities) -> tuple[Densities, RealArray]:
        few, (alpha, beta, kappa, _) = spectra.totals < FEWEST_MEMBERS, densities

        def fit(part: Spectra, rows: slice, tied: bool) -> ParameterSearch:
            start = float(alpha[rows][0]), float(beta[rows][0])
            return fit_parameters(
                part,
                self.members,
                start,
                tied=tied,
                kappa=kappa[rows],
                fixed=few[rows],
                largest_kappa=LARGEST_KAPPA,
                tol=_SHARE_OF_TOL * self.tol,
                max_iter=_PARAMETER_STEPS,
            )

        if self.share != "none":
            best = fit(spectra, slice(None), self.share == "all")
            return best.densities(), best.shift
        fitted, shift = densities.copy(), np.zeros(len(few))
        for k in np.flatnonzero(~few):
            column = slice(k, k + 1)
            best = fit(spectra.only(int(k)), column, False)
            fitted[:, column], shift[column] = best.densities(), best.shift
        return fitted, shift


class Responsibilities(Clusters):
    """Responsibilities of components for matrices, as `Memberships` of every block."""

    def __init__(self, shards: Shards, members: Parts) -> None:
        totals, effective, self.log_likelihood = shards.reduce(_sums_block, parts=[members])
        self.weights = totals / totals.sum()
        # Components with more than a negligible part of a matrix.
        self.alive: Indices = np.flatnonzero(effective)
        super().__init__(shards, members, effective)


def log_joint(block: Block, mixture: Mixture) -> RealArray:
    """Logarithm of weight times density, shape (n_matrices, n_components)."""
    alpha, beta, kappa, log_z = mixture.densities
    # Responsibilities are needed on the host, where the rows of components are chosen.
    divergences = to_host(block.engine.encode(block.data, mixture.means, alpha, beta))
    np.minimum(divergences, _LARGEST_DIVERGENCE, out=divergences)
    with np.errstate(divide="ignore"):  # a component may have no weight
        logarithms: RealArray = np.log(mixture.weights) - log_z
    return logarithms - kappa * divergences


def expect(shards: Shards, mixture: Mixture) -> tuple[Responsibilities, float]:
    """Responsibilities times weights of the matrices, and the mean log-likelihood."""
    responsibilities = Responsibilities(shards, shards.hold(_expect_block, mixture))
    check_finite(responsibilities.log_likelihood, "the log-likelihood", "of the mixture")
    return responsibilities, responsibilities.log_likelihood / shards.n_seen


def nearest(shards: Shards, centers: RealArray, point: Point) -> Responsibilities:
    return Responsibilities(shards, shards.hold(_nearest_block, centers, point))


def _expect_block(block: Block, mixture: Mixture) -> Memberships:
    logarithms = log_joint(block, mixture)
    density = logsumexp(logarithms, axis=1)
    table = np.exp(logarithms - density[:, None]) * block.weights[:, None]
    return _members(table, float(block.weights @ density))


def _nearest_block(block: Block, centers: RealArray, point: Point) -> Memberships:
    labels = nearest_block(block, centers, *point)[0]
    table = np.zeros((len(block), len(centers)))
    table[np.arange(len(block)), labels] = block.weights
    return _members(table, 0.0)


def _members(table: RealArray, log_likelihood: float) -> Memberships:
    rows = [np.flatnonzero(column > _NEGLIGIBLE) for column in table.T]
    weights = [table[indices, k] for k, indices in enumerate(rows)]
    return Memberships(rows, weights, table.sum(axis=0), log_likelihood)


def _sums_block(_: Block, members: Memberships) -> tuple[RealArray, RealArray, float]:
    """Totals of components with and without negligible parts, and the log-likelihood."""
    effective = np.array([weights.sum() for weights in members.weights])
    return members.totals, effective, members.log_likelihood


# --- comparison of the named members of the family with the learned one ---------------------------


@dataclass(frozen=True, eq=False)
class MemberFit:
    """A mixture of densities of one member, fitted to the same matrices as the others."""

    name: str
    alpha: RealArray  # like beta and kappa of shape (n_components,)
    beta: RealArray
    kappa: RealArray
    log_likelihood: float  # of all matrices
    n_parameters: int
    bic: float  # the smaller the better
    # Of the likelihood-ratio test against the learned member, of which every other is a special
    # case. With many matrices it is conservative on the axes; with few it is too small.
    p_value: float = math.nan
    standard_error: float = math.nan  # of the log-likelihood of the learned member minus this one

    def is_beaten_by(self, learned: MemberFit) -> bool:
        """Whether the learned member is better by two standard errors, and has the lower BIC."""
        gain = learned.log_likelihood - self.log_likelihood
        return learned.bic < self.bic and gain > 2 * self.standard_error


def count_parameters(n_components: int, d: int, members: Members, share: str) -> int:
    """Free parameters of a mixture: of weights, centres and densities."""
    n_points = n_components if share == "none" else 1
    n_concentrations = 1 if share == "all" else n_components
    centers = n_components * d * (d + 1) // 2
    return n_components - 1 + centers + members.n_free * n_points + n_concentrations


def compare_members(
    shards: Shards, mixture: Mixture, share: str, max_iter: int, tol: float
) -> dict[str, MemberFit]:
    """Fit the learned member, then the named ones, from the responsibilities of a mixture."""
    n = shards.n_seen
    # The total log-likelihood must be accurate to well below one.
    tol = min(tol, _EXACT / n)

    def fit(members: Members, start: Mixture) -> Run[Mixture]:
        em = EM(shards, members, share, max_iter, tol)
        run = em.run(em.refit(start))
        if is_interrupted():  # likelihoods are compared at their maxima
            raise KeyboardInterrupt
        return run

    all_members = {"learned": get_members("learn"), **NAMED_MEMBERS}
    runs = {name: fit(m, mixture) for name, m in track([*all_members.items()], "fits")}
    # A named member may have found a higher maximum. The learned one has it, too.
    best = min(runs.values(), key=attrgetter("objective"))
    if best.objective < runs["learned"].objective - tol:
        runs["learned"] = fit(all_members["learned"], best.result)
    learned = runs["learned"]
    fits: dict[str, MemberFit] = {}
    for name, run in runs.items():
        (alpha, beta, kappa, _), log_likelihood = run.result.densities, -run.objective * n
        n_parameters = count_parameters(len(mixture.weights), shards.d, all_members[name], share)
        bic, p_value, error = n_parameters * math.log(n) - 2 * log_likelihood, math.nan, math.nan
        if name != "learned":
            gain = max((run.objective - learned.objective) * n, 0.0)
            p_value = float(chi2.sf(2 * gain, fits["learned"].n_parameters - n_parameters))
            error = _gain_error(shards, learned.result, run.result)
        fits[name] = MemberFit(
            name, alpha, beta, kappa, log_likelihood, n_parameters, bic, p_value, error
        )
    return fits


def _gain_error(shards: Shards, first: Mixture, second: Mixture) -> float:
    """Estimate the standard error of the log-likelihood of one mixture minus that of another."""
    gain, squares, products, squared_weights = shards.reduce(_gain_block, first, second)
    mean, n = gain / shards.n_seen, shards.n_seen
    variance = squares - 2 * mean * products + mean**2 * squared_weights
    return math.sqrt(max(variance, 0.0) * n / (n - 1))


def _gain_block(block: Block, first: Mixture, second: Mixture) -> RealArray:
    gains = logsumexp(log_joint(block, first), axis=1) - logsumexp(log_joint(block, second), axis=1)
    weighted, squares = block.weights * gains, block.weights**2
    return np.array([weighted.sum(), weighted @ weighted, squares @ gains, squares.sum()])


def describe(fits: Mapping[str, MemberFit]) -> str:
    learned = fits["learned"]
    best, second = sorted((fits[name] for name in NAMED_MEMBERS), key=lambda fit: fit.bic)[:2]
    gain, more = learned.log_likelihood - best.log_likelihood, best.bic - learned.bic
    chosen = (
        f"The likelihood of {counted(len(learned.alpha), 'components')} is "
        f"largest at alpha = {_span(learned.alpha)}, beta = {_span(learned.beta)}, kappa = "
        f"{_span(learned.kappa)}. "
    )
    versus = (
        f"with {learned.n_parameters - best.n_parameters} more parameters the log-likelihood rises "
        f"by {gain:.3g} +- {best.standard_error:.2g} (likelihood-ratio {say_p(best.p_value)}, BIC "
        f"{more:+.1f})"
    )
    if best.is_beaten_by(learned):
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
