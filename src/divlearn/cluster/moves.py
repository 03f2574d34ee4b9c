"""A mixture from several starts, with moves out of local maxima.

In a move one component is given up and another is split in two: expectation maximisation may end
with one component on two clusters and two on another.
"""

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.cluster import KMeans

from divlearn.arrays import Indices, RealArray, to_host
from divlearn.cluster.clusters import find_nearest
from divlearn.cluster.em import (
    EM,
    FEWEST_MEMBERS,
    FIRST_POINT,
    LARGEST_KAPPA,
    Mixture,
    log_joint,
)
from divlearn.cluster.runs import Run, Starts, best_of
from divlearn.fitting.checkpoint import stage
from divlearn.fitting.interrupts import is_interrupted, stoppable
from divlearn.fitting.progress import tell
from divlearn.geometry import compose
from divlearn.likelihood.members import Point
from divlearn.log_vectors import fit_vectors
from divlearn.means import mean_abld
from divlearn.sharded.blocks import Block
from divlearn.spectral import abld_scalar

Split = tuple[float, RealArray]  # what two centres gain over one, and these

_ALMOST = 0.999  # of a limit
_ROUNDS = 3  # of 2-means, to see what a split is worth
_STEPS = 3  # towards the centroids in each
_TRIALS = 3  # of a split
_FEWEST = 4  # matrices that may be split


def fit_mixture(
    em: EM,
    n_components: int,
    init: str | RealArray,
    n_init: int,
    random_state: np.random.RandomState,
) -> Run[Mixture]:
    """Return the best of several runs; from given centres there is one, without moves."""
    block = em.shards.draw(3 * n_components)
    starts = Starts(block, n_components)

    def run() -> Run[Mixture]:
        centers = starts.draw(init, *FIRST_POINT, random_state)
        found = em.run(em.start(centers))
        if isinstance(init, str) and len(centers) > 1:
            found = _relocate(em, block, found, random_state)
        return found

    n_init = n_init if isinstance(init, str) else 1
    best = best_of(n_init, partial(stage, "start", run, random_state))
    return replace(best, message="; ".join([best.message, *_remarks(em, best.found)]))


def _remarks(em: EM, mixture: Mixture) -> list[str]:
    alpha, beta, kappa, _ = mixture.densities
    own_kappa, own_point = em.share != "all", em.share == "none"
    remarks = []
    few = mixture.weights * em.shards.n_seen < FEWEST_MEMBERS
    if few.any():
        kept = " and the kappa of the start" * own_kappa
        remarks.append(f"{_name(few, True)} fewer than {FEWEST_MEMBERS:g} matrices{kept}")
    narrow = kappa >= _ALMOST * LARGEST_KAPPA
    if narrow.any():
        remarks.append(
            f"{_name(narrow, own_kappa)} kappa at its limit {LARGEST_KAPPA:g}: matrices are equal "
            "up to rounding, and the likelihood is unbounded"
        )
    if em.members.n_free == 2:
        (_, difference), (_, product) = em.members.bounds
        beyond = np.abs(beta - alpha) >= _ALMOST * difference
        beyond |= alpha * beta >= _ALMOST * product
        if beyond.any():
            remarks.append(
                f"{_name(beyond, own_point)} alpha and beta at the limit of the search: tails are "
                "heavier than any member's"
            )
    return remarks


def _name(which: NDArray[np.bool_], separate: bool) -> str:
    """Subject of a sentence: some components, or all where they have it in common."""
    if not separate:
        return "all components have"
    found = np.flatnonzero(which)
    noun, verb = ("components", "have") if len(found) > 1 else ("component", "has")
    return f"{noun} {', '.join(map(str, found))} {verb}"


def _relocate(
    em: EM, block: Block, run: Run[Mixture], random_state: np.random.RandomState
) -> Run[Mixture]:
    """Go on from a run with moves that raise the likelihood, at most one for each component."""
    moves = _Moves(block, random_state)  # the block, all matrices or a sample, judges moves
    n_components = len(run.found.weights)
    with stoppable():
        for number in range(n_components):
            start = None if is_interrupted() else moves.propose(run.found)
            if start is None:
                break
            following = em.run(start)
            rise = run.objective - following.objective
            tell("moves", number + 1, n_components, f"log-likelihood {rise:+.3g} per matrix")
            if not rise > em.tol:
                break
            history = {
                name: np.concatenate([before, following.history[name]])
                for name, before in run.history.items()
            }
            run = replace(following, n_iter=run.n_iter + following.n_iter, history=history)
        return run
    return replace(run, message="interrupted by the user in a move")


class _Moves:
    """Proposals of moves; splits are kept while their component has the same matrices."""

    def __init__(self, block: Block, random_state: np.random.RandomState) -> None:
        self._block, self._random_state = block, random_state
        self._known: dict[bytes, Split] = {}  # by the rows of the component

    def propose(self, mixture: Mixture) -> Mixture | None:
        """Return the mixture after the move that promises most, or None if none does."""
        joint = log_joint(self._block, mixture)
        labels, cost = joint.argmax(axis=1), self._cost_of_giving_up(joint)
        splits = [
            self._split(mixture, k, np.flatnonzero(labels == k))
            for k in range(len(mixture.weights))
        ]
        net = np.array([gain for gain, _ in splits])[:, None] - cost
        np.fill_diagonal(net, -np.inf)
        split, given_up = np.unravel_index(net.argmax(), net.shape)
        if not net[split, given_up] > 0:
            return None
        means, weights = mixture.means.copy(), mixture.weights.copy()
        means[[split, given_up]] = splits[split][1]
        weights[[split, given_up]] = 0.5 * weights[split]
        densities = mixture.densities.copy()
        densities[:, given_up] = densities[:, split]
        return Mixture(weights / weights.sum(), means, densities)

    def _cost_of_giving_up(self, joint: RealArray) -> RealArray:
        """Log-likelihood that is lost without each component, if the others stay as they are."""
        density = logsumexp(joint, axis=1)
        lost = [
            density - logsumexp(np.delete(joint, k, axis=1), axis=1) for k in range(joint.shape[1])
        ]
        return np.array(lost) @ self._block.weights

    def _split(self, mixture: Mixture, component: int, rows: Indices) -> Split:
        """Log-likelihood that two centres gain over one, if nothing else changes, and these."""
        if len(rows) < _FEWEST:
            return -np.inf, mixture.means[[component] * 2]
        key = rows.tobytes()
        if key not in self._known:
            self._known[key] = self._divide(mixture, component, rows)
        return self._known[key]

    def _divide(self, mixture: Mixture, component: int, rows: Indices) -> Split:
        engine, middle = self._block.engine, mixture.means[component]
        alpha, beta, kappa, _ = mixture.densities[:, component].tolist()
        point = alpha, beta
        matrices, weights = self._block.matrices[rows], self._block.weights[rows]
        data = engine.take(self._block.data, rows)
        one = to_host(engine.encode(data, middle[None], *point))[:, 0]
        # Equal matrices cannot be split, which is seen in the gain.
        halves = KMeans(2, n_init=_TRIALS, random_state=self._random_state)
        found = fit_vectors(halves, _scores(matrices, middle, point), weights)
        labels, centers = found.labels_, np.stack([middle, middle])
        for _ in range(_ROUNDS):
            for k in np.unique(labels):
                members = np.flatnonzero(labels == k)
                centers[k] = mean_abld(
                    engine.take(data, members),
                    *point,
                    weights[members],
                    centers[k],
                    max_iter=_STEPS,
                    engine=engine,
                ).mean
            labels, two = find_nearest(engine.encode(data, centers, *point))
        # Each of the two has half of the weight.
        gain = kappa * (one - two) - np.log(2)
        return float(weights @ gain), centers


def _scores(matrices: RealArray, middle: RealArray, point: Point) -> RealArray:
    r"""Gradients :math:`f_t(\log(L^{-1} X L^{-T}))` of the divergences to L L^T, as rows."""
    # Unlike logarithms they make no outliers of what the density takes for ordinary.
    whitener = np.linalg.inv(np.linalg.cholesky(middle))
    values, vectors = np.linalg.eigh(whitener @ matrices @ whitener.T)
    logarithms = np.log(np.maximum(values, np.finfo(np.float64).tiny))
    slopes = abld_scalar(logarithms, *point, derivatives="f_t").f_t
    return compose(vectors, slopes).reshape(len(matrices), -1)
